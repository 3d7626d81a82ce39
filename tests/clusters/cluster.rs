//! One cluster of a fleet, as tests hold it: its processes, its kubeconfigs, what they ask of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::certificates::{Credentials, kubeconfig};
use super::control_plane::{self, API_SERVER, ETCD, Place};
use super::guardian::Guardian;
use super::kubernetes;
use super::namespaces::BRIDGE_ADDRESS;
use super::process::{Process, told};
use super::protocol::Spawn;
use super::tools::Tools;
use super::wait::{Hopeless, wait_for};

const DEATH: Duration = Duration::from_secs(20);
const ONE_DAY: i64 = 24 * 60 * 60;

#[derive(Debug)]
pub struct Cluster {
    name: String,
    place: Place,
    folder: PathBuf,
    guardian: Guardian,
    tools: Arc<Tools>,
    processes: Mutex<BTreeMap<String, Process>>,
    /// Nobody could ask it for a while, and who watches it may not have found it again.
    was_away: AtomicBool,
}

impl Cluster {
    /// A cluster with its folder, certificates and kubeconfigs, of which nothing runs yet.
    pub(super) fn prepare(name: &str, place: Place, guardian: &Guardian, tools: &Arc<Tools>) -> Result<Self> {
        let folder = guardian.started.folder.join(name);
        fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        let cluster = Self {
            name: name.to_owned(),
            place,
            folder,
            guardian: guardian.clone(),
            tools: Arc::clone(tools),
            processes: Mutex::default(),
            was_away: AtomicBool::default(),
        };
        let address: SocketAddr = format!("{BRIDGE_ADDRESS}:{}", place.api_port()).parse()?;
        control_plane::prepare(&cluster, guardian.forward(address)?)?;
        Ok(cluster)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who it is, to whoever knows it as a host or as a member.
    pub async fn identity(&self) -> Result<String> {
        self.kubectl(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]).await
    }

    /// Where everything of this cluster is: certificates, logs, data, the node's folders.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// An administrator's kubeconfig for this machine.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// An administrator's kubeconfig for processes of the fleet, nodes and pods.
    pub fn kubeconfig_inside(&self) -> PathBuf {
        self.folder.join("admin-inside.kubeconfig")
    }

    /// Where its API server answers in the fleet.
    pub fn api_port(&self) -> u16 {
        self.place.api_port()
    }

    /// A kubeconfig, for use inside the fleet, with a token of this service account.
    pub async fn kubeconfig_for(&self, namespace: &str, account: &str) -> Result<String> {
        self.kubeconfig_with_token(namespace, account, None).await
    }

    /// Likewise, of a token that ends with a Secret of the account's namespace.
    pub async fn kubeconfig_bound_to(&self, secret: &str, namespace: &str, account: &str) -> Result<String> {
        let uid = Api::<Secret>::namespaced(self.client().await?, namespace).get(secret).await?.uid();
        let [kind, version] = ["Secret", "v1"].map(|text| Some(text.to_owned()));
        let bound = BoundObjectReference { api_version: version, kind, name: Some(secret.to_owned()), uid };
        self.kubeconfig_with_token(namespace, account, Some(bound)).await
    }

    async fn kubeconfig_with_token(
        &self,
        namespace: &str,
        account: &str,
        bound_object_ref: Option<BoundObjectReference>,
    ) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let expiration_seconds = Some(ONE_DAY);
        let spec = TokenRequestSpec { bound_object_ref, expiration_seconds, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("ask for a token of {namespace}/{account}"))?;
        let token = Credentials::Token(answer.status.context("a token request without an answer")?.token);
        let authority = fs::read_to_string(self.folder.join("pki/ca.crt")).context("read the authority")?;
        let server = format!("https://{BRIDGE_ADDRESS}:{}", self.place.api_port());
        kubeconfig(&self.name, &server, &authority, &token)
    }

    /// Likewise, for use outside of the fleet, as tests reach it.
    pub async fn kubeconfig_outside_for(&self, namespace: &str, account: &str) -> Result<Kubeconfig> {
        let inside = Kubeconfig::from_yaml(&self.kubeconfig_for(namespace, account).await?)?;
        let mut outside = Kubeconfig::read_from(self.kubeconfig())?;
        outside.auth_infos[0].auth_info.clone_from(&inside.auth_infos[0].auth_info);
        Ok(outside)
    }

    /// What it signs accounts' tokens with.
    pub fn token_key(&self) -> PathBuf {
        self.folder.join("pki/tokens.key")
    }

    /// An administrator's client, afresh: it belongs to the runtime of the test that asks.
    pub async fn client(&self) -> Result<Client> {
        kubernetes::client(&self.kubeconfig()).await
    }

    pub async fn stop_api_server(&self) -> Result<()> {
        self.stop(API_SERVER).await
    }

    pub async fn start_api_server(&self) -> Result<()> {
        self.start_again(API_SERVER)?;
        control_plane::ready(self).await
    }

    /// All that is in it is lost, and it begins again as another cluster.
    pub async fn lose(&self) -> Result<()> {
        control_plane::start_empty(self).await
    }

    /// The API server takes connections and says nothing.
    pub async fn pause_api_server(&self) -> Result<()> {
        self.signal(API_SERVER, Signal::SIGSTOP)?;
        // Each of its threads stops for itself, and one that still runs may answer.
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid(API_SERVER)?));
        wait_for(&format!("the API server of {} stands still", self.name), DEATH, || async {
            let states = fs::read_dir(&threads)?.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")));
            let stopped =
                |stat: &String| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'));
            Ok(states.flatten().all(|stat| stopped(&stat)).then_some(()))
        })
        .await
    }

    pub fn resume_api_server(&self) -> Result<()> {
        self.signal(API_SERVER, Signal::SIGCONT)
    }

    /// What it knows now is kept, to be restored. Its API server is away for some seconds.
    pub async fn back_up(&self) -> Result<()> {
        control_plane::back_up(self).await
    }

    /// It knows what it knew when that was kept, and all of it but its node is begun again.
    pub async fn restore(&self) -> Result<()> {
        control_plane::restore(self).await?;
        self.resume().await
    }

    /// Its control plane is of another version from now on, and at work.
    pub async fn replace_control_plane(&self, program: impl Fn(&str) -> PathBuf) -> Result<()> {
        control_plane::replace(self, program).await?;
        self.resume().await
    }

    /// What has ended of it, or was paused, runs again. It need not be ready yet.
    pub fn revive(&self) -> Result<()> {
        let names: Vec<String> = self.processes().keys().cloned().collect();
        for name in names {
            if self.is_running(&name)? {
                self.signal(&name, Signal::SIGCONT)?;
            } else {
                // It may have ended by itself, as etcd does where its disk is full.
                self.note_absence(&name);
                self.start_again(&name)?;
            }
        }
        Ok(())
    }

    /// Likewise, and its own controllers are at work.
    pub async fn resume(&self) -> Result<()> {
        self.revive()?;
        control_plane::ready(self).await?;
        if self.was_away.load(Ordering::Relaxed) {
            control_plane::begin_controllers_again(self).await?;
            self.was_away.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Kills one of `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `containerd`, `kubelet`.
    pub async fn stop(&self, process: &str) -> Result<()> {
        let what = format!("{process} of {} ends", self.name);
        self.signal(process, Signal::SIGKILL)?;
        wait_for(&what, DEATH, || async { Ok((!self.is_running(process)?).then_some(())) }).await
    }

    /// Starts one that was stopped, with the flags it had. It need not be ready yet.
    pub fn start_again(&self, process: &str) -> Result<()> {
        let mut processes = self.processes();
        let process = processes.get_mut(process).with_context(|| format!("no {process} was started"))?;
        ensure!(!process.is_running()?, "{} runs", process.name());
        process.start_again()
    }

    /// Applies objects, given as YAML or JSON.
    pub async fn apply(&self, objects: &str) -> Result<()> {
        let mut child = self
            .kubectl_command(&["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .context("run kubectl")?;
        let mut input = child.stdin.take().context("kubectl has no input")?;
        input.write_all(objects.as_bytes()).await.context("give the objects to kubectl")?;
        drop(input);
        told(&child.wait_with_output().await?, "kubectl apply").map(drop)
    }

    /// What kubectl prints.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.kubectl_command(arguments).output().await.context("run kubectl")?;
        told(&output, &format!("kubectl {}", arguments.join(" ")))
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.tools.path("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .env("HOME", &self.guardian.started.folder) // for its cache
            .args(arguments)
            .kill_on_drop(true);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn tools(&self) -> &Tools {
        &self.tools
    }

    pub(super) fn guardian(&self) -> &Guardian {
        &self.guardian
    }

    /// Starts one of the pinned tools in the fleet's namespaces.
    pub(super) fn start(&self, tool: &str, arguments: Vec<String>) -> Result<()> {
        self.start_in(self.guardian.started.init, tool, &self.tools.path(tool), arguments)
    }

    pub(super) fn start_in(
        &self,
        namespaces_of: i32,
        name: &str,
        program: &Path,
        arguments: Vec<String>,
    ) -> Result<()> {
        // Memory is there, and processors are few: the programs of a cluster collect their garbage less often.
        let environment = vec![("GOGC".to_owned(), "400".to_owned())];
        let process = self.spawn_in(namespaces_of, name, program, arguments, environment)?;
        self.processes().insert(name.to_owned(), process);
        Ok(())
    }

    pub(super) fn spawn_in(
        &self,
        namespaces_of: i32,
        name: &str,
        program: &Path,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> Result<Process> {
        let spawn = Spawn {
            name: format!("{}/{name}", self.name),
            program: program.to_owned(),
            arguments,
            environment,
            log: self.folder.join(format!("{name}.log")),
            namespaces_of,
        };
        Process::start(&self.guardian, spawn)
    }

    /// Fails, with the end of its log, when a process is not there to be waited for.
    pub(super) fn alive(&self, process: &str) -> Result<()> {
        if self.is_running(process)? {
            return Ok(());
        }
        let log = fs::read_to_string(self.folder.join(format!("{process}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(5)..].join("\n");
        bail!(Hopeless(format!("{process} of {} has ended; its log's end:\n{end}", self.name)))
    }

    /// Its number on the machine.
    pub fn pid(&self, process: &str) -> Result<i32> {
        let processes = self.processes();
        let process = processes.get(process).with_context(|| format!("{} has no {process}", self.name))?;
        Ok(process.pid())
    }

    fn is_running(&self, process: &str) -> Result<bool> {
        let processes = self.processes();
        processes.get(process).with_context(|| format!("{} has no {process}", self.name))?.is_running()
    }

    pub fn signal(&self, process: &str, signal: Signal) -> Result<()> {
        if signal != Signal::SIGCONT {
            self.note_absence(process);
        }
        let processes = self.processes();
        processes.get(process).with_context(|| format!("{} has no {process}", self.name))?.signal(signal)
    }

    fn note_absence(&self, process: &str) {
        if [ETCD, API_SERVER].contains(&process) {
            self.was_away.store(true, Ordering::Relaxed);
        }
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
