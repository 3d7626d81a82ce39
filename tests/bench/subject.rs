//! A CSI driver that is measured: the release build, as a process with a socket. How it is started and asked, a file says.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use csi::{
    client::{CallError, Client, Code},
    v1::{
        CapacityRange, ControllerGetCapabilitiesRequest, CreateVolumeRequest, GetPluginInfoRequest, ListVolumesRequest,
        Topology, TopologyRequirement, Volume, VolumeCapability,
        controller_client::ControllerClient,
        controller_service_capability::rpc::Type,
        identity_client::IdentityClient,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use serde::Deserialize;
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};

use super::{
    CLASS, MEMBER, NAMESPACE, PATIENCE,
    clusters::{guardian::profile_folder, tools::tool, wait::Hopeless, wait_for},
    process::Apart,
    provisioner::HostClaim,
};

const SOCKET: &str = "csi.sock";
/// In a driver's folder.
pub const LOG: &str = "log";
/// As the chart has it of the sidecar.
const TIMEOUT: Duration = Duration::from_mins(1);
const GRACE: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_millis(500);
/// A driver that has not done for so long what it is asked again and again does not work.
const GIVEN_UP: Duration = Duration::from_mins(4);
/// Begins the name of one of the tools, which are built apart.
const TOOL: &str = "{tool ";
/// The least that a driver can do, the same with a mark on the volume, and the driver that is here.
const BARE: &str = include_str!("subjects/bare.json");
const MARKED: &str = include_str!("subjects/marked.json");
const OWN: &str = include_str!("subjects/kosmos-csi.json");

/// How a driver is started and asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    pub name: String,
    program: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Of its StorageClass.
    #[serde(default)]
    pub parameters: HashMap<String, String>,
    /// The places that its nodes tell of, as external-provisioner sends them.
    #[serde(default)]
    pub topology: Vec<HashMap<String, String>>,
    /// The claim that it makes in the member, as `namespace/name`.
    leaf: Option<String>,
}

impl Terms {
    pub fn bare() -> Result<Self> {
        serde_json::from_str(BARE).context("read the terms of the bare driver")
    }

    pub fn marked() -> Result<Self> {
        serde_json::from_str(MARKED).context("read the terms of the bare driver that marks")
    }

    pub fn own() -> Result<Self> {
        serde_json::from_str(OWN).context("read the terms of the driver")
    }

    /// Of any other.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let terms: Self = serde_json::from_str(&text).with_context(|| format!("understand {}", file.display()))?;
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=30).contains(&terms.name.len()) && terms.name.bytes().all(fits);
        ensure!(is_name, "{}: the name {:?} is not of small letters, digits and dashes", file.display(), terms.name);
        ensure!(terms.is_there(), "{}: there is no {} in PATH", file.display(), terms.program);
        Ok(terms)
    }

    /// Whether its program is, where it is one that PATH has to have.
    fn is_there(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_in = |folder: PathBuf| folder.join(&self.program).is_file();
        self.program.contains(['/', '{']) || std::env::split_paths(&path).any(is_in)
    }

    /// The claim in the member, where it makes one and says which.
    pub fn leaf(&self, claim: &HostClaim) -> Option<String> {
        let leaf = self.leaf.as_ref()?.replace("{namespace}", NAMESPACE);
        Some(leaf.replace("{claim}", &claim.name).replace("{volume}", &claim.volume()))
    }

    /// Of one of several replicas, with one argument more, in a host whose nodes are at these places.
    pub fn of_replica(mut self, name: &str, argument: String, places: Vec<HashMap<String, String>>) -> Self {
        name.clone_into(&mut self.name);
        self.args.push(argument);
        self.topology = places;
        self
    }

    /// Started by another command, which becomes it.
    pub fn by(mut self, command: Vec<String>) -> Self {
        let mut words = command.into_iter().chain([self.program]).chain(self.args);
        self.program = words.next().unwrap_or_default();
        self.args = words.collect();
        self
    }

    /// With what the words in braces stand for.
    fn filled(&self, words: &[(&str, String)]) -> Result<Self> {
        let fill = |text: &String| -> Result<String> {
            let mut filled = words.iter().fold(text.clone(), |text, (word, value)| text.replace(word, value));
            if let Some((name, rest)) = filled.strip_prefix(TOOL).and_then(|rest| rest.split_once('}')) {
                filled = format!("{}{rest}", tool(name)?.display());
            }
            ensure!(!filled.contains('{'), "{}: nobody knows what is in braces in {filled}", self.name);
            Ok(filled)
        };
        let each = |map: &HashMap<String, String>| -> Result<HashMap<String, String>> {
            map.iter().map(|(key, value)| Ok((key.clone(), fill(value)?))).collect()
        };
        Ok(Self {
            name: self.name.clone(),
            program: fill(&self.program)?,
            args: self.args.iter().map(fill).collect::<Result<_>>()?,
            env: self.env.iter().map(|(key, value)| Ok((key.clone(), fill(value)?))).collect::<Result<_>>()?,
            parameters: each(&self.parameters)?,
            topology: self.topology.iter().map(each).collect::<Result<_>>()?,
            leaf: self.leaf.clone(),
        })
    }
}

/// Where subjects find their clusters.
pub struct Place {
    pub folder: PathBuf,
}

/// The part of a place where all are told as the driver's own accounts, with the rights that it comes with.
const OF_ACCOUNTS: &str = "accounts";

impl Place {
    /// Kubeconfigs of the host, and of members by name. The folder is made.
    pub fn new(folder: &Path, host: &str, members: &[(&str, String)]) -> Result<Self> {
        let place = Self { folder: folder.to_owned() };
        fs::create_dir_all(place.members()).context("make the members' folder")?;
        fs::write(place.host(), host).context("write the host's kubeconfig")?;
        for (name, kubeconfig) in members {
            place.put(name, kubeconfig)?;
        }
        Ok(place)
    }

    /// The same clusters, as the driver's own accounts there know them.
    pub fn of_accounts(&self, host: &str, members: &[(&str, String)]) -> Result<()> {
        Self::new(&self.folder.join(OF_ACCOUNTS), host, members).map(drop)
    }

    /// In the place of what it was.
    pub fn put(&self, member: &str, kubeconfig: &str) -> Result<()> {
        fs::write(self.member(member), kubeconfig).with_context(|| format!("write the kubeconfig of {member}"))
    }

    pub fn host(&self) -> PathBuf {
        self.folder.join("host.kubeconfig")
    }

    pub fn members(&self) -> PathBuf {
        self.folder.join("members")
    }

    fn member(&self, name: &str) -> PathBuf {
        self.members().join(format!("{name}.kubeconfig"))
    }

    /// What the words of terms stand for, to a subject with this folder.
    fn words(&self, own: &Path) -> Result<Vec<(&'static str, String)>> {
        let text = |path: &Path| path.display().to_string();
        let accounts = Self { folder: self.folder.join(OF_ACCOUNTS) };
        Ok(vec![
            ("{folder}", text(own)),
            ("{socket}", text(&own.join(SOCKET))),
            ("{host_kubeconfig}", text(&self.host())),
            ("{member_kubeconfig}", text(&self.member(MEMBER))),
            ("{members}", text(&self.members())),
            ("{host_account}", text(&accounts.host())),
            ("{member_accounts}", text(&accounts.members())),
            ("{programs}", text(&profile_folder()?)),
            ("{namespace}", NAMESPACE.to_owned()),
            ("{class}", CLASS.to_owned()),
            ("{member}", MEMBER.to_owned()),
        ])
    }
}

pub struct Subject {
    pub terms: Terms,
    pub socket: PathBuf,
    /// As it calls itself.
    pub driver: String,
    /// So many of the places of its nodes a call names.
    pub named: usize,
    mode: Mode,
    client: Client,
    lister: ControllerClient<Channel>,
    process: Apart,
}

impl Subject {
    /// Starts it with an empty folder, and waits until it says who it is.
    pub async fn start(terms: &Terms, place: &Place) -> Result<Self> {
        let own = place.folder.join(&terms.name);
        drop(fs::remove_dir_all(&own));
        fs::create_dir_all(&own).with_context(|| format!("make {}", own.display()))?;
        let terms = terms.filled(&place.words(&own)?)?;
        let (log, socket) = (own.join(LOG), own.join(SOCKET));
        let written = File::create(&log).context("make a log")?;
        let mut command = Apart::command(&terms.program);
        command
            .args(&terms.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(&terms.env);
        command.stdout(written.try_clone()?).stderr(written);
        let mut process = Apart::run(&mut command).with_context(|| format!("start {}", terms.program))?;
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect_lazy();
        let what = format!("{} says who it is", terms.name);
        let driver = wait_for(&what, PATIENCE, || {
            let (ended, mut identity) = (process.ended(), IdentityClient::new(channel.clone()));
            let log = &log;
            async move {
                if let Some(status) = ended? {
                    bail!(Hopeless(format!("it has ended, {status}: {}", last_lines(log))));
                }
                Ok(Some(identity.get_plugin_info(GetPluginInfoRequest {}).await?.into_inner().name))
            }
        });
        let driver = driver.await?;
        let mut lister = ControllerClient::new(channel);
        let capabilities = lister.controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await?.into_inner();
        let mode = if capabilities.capabilities.contains(&Type::SingleNodeMultiWriter.into()) {
            Mode::SingleNodeMultiWriter
        } else {
            Mode::SingleNodeWriter
        };
        let client = Client::new(&socket).map_err(anyhow::Error::msg)?;
        let named = terms.topology.len();
        Ok(Self { terms, socket, driver, named, mode, client, lister, process })
    }

    /// Waits until it makes this volume: before, it may know nothing of its clusters.
    pub async fn serves(&self, claim: &HostClaim) -> Result<Volume> {
        wait_for(&format!("{} makes a first volume", self.terms.name), GIVEN_UP, || async {
            let made = self.client.create_volume(self.request(claim), TIMEOUT).await;
            made.map(Some).map_err(|refusal| anyhow::anyhow!("{refusal}"))
        })
        .await
    }

    /// One volume, and how often it was asked for.
    pub async fn create(&self, claim: &HostClaim) -> Result<(Volume, u32)> {
        again(&claim.name, || self.client.create_volume(self.request(claim), TIMEOUT)).await
    }

    pub async fn delete(&self, volume: &str) -> Result<()> {
        again(volume, || self.client.delete_volume(volume.to_owned(), TIMEOUT)).await.map(drop)
    }

    /// What is asked is what external-provisioner asks for a claim whose class binds at once.
    fn request(&self, claim: &HostClaim) -> CreateVolumeRequest {
        let mut parameters = self.terms.parameters.clone();
        let metadata = [("pvc/name", claim.name.clone()), ("pvc/namespace", NAMESPACE.to_owned())];
        let metadata = metadata.into_iter().chain([("pv/name", claim.volume())]);
        parameters.extend(metadata.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)));
        let place = |segments: &HashMap<String, String>| Topology { segments: segments.clone() };
        let places = &self.terms.topology;
        // Claims of one name and different numbers begin with different places.
        let from_its_own = places.iter().cycle().skip(claim.number % places.len().max(1));
        let preferred: Vec<Topology> = from_its_own.take(self.named).map(place).collect();
        let requirement = TopologyRequirement { requisite: preferred.clone(), preferred };
        CreateVolumeRequest {
            name: claim.volume(),
            capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode: Some(AccessMode { mode: self.mode.into() }),
            }],
            parameters,
            accessibility_requirements: (!requirement.requisite.is_empty()).then_some(requirement),
            ..CreateVolumeRequest::default()
        }
    }

    /// How long a page of ListVolumes takes; none where that is not offered.
    pub async fn list(&self) -> Result<Duration> {
        let begun = Instant::now();
        let request = ListVolumesRequest { max_entries: 100, ..ListVolumesRequest::default() };
        self.lister.clone().list_volumes(request).await.context("ListVolumes")?;
        Ok(begun.elapsed())
    }

    pub fn leaf(&self, claim: &HostClaim) -> Option<String> {
        self.terms.leaf(claim)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Fails, with the end of its log, where it has ended by itself.
    pub fn lives(&mut self) -> Result<()> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => {
                let log = self.socket.with_file_name(LOG);
                bail!("{} has ended, {status}: {}", self.terms.name, last_lines(&log))
            }
        }
    }

    /// Asks it to end; one that does not is killed.
    pub async fn stop(mut self) -> Result<()> {
        self.process.terminate()?;
        let ended = wait_for("it ends", GRACE, || std::future::ready(self.process.ended())).await;
        drop(ended);
        Ok(())
    }
}

/// Asked again as external-provisioner asks again, whatever the reason, but for what no second call can change. The answer, and how often
/// it was asked for.
async fn again<T, F: Future<Output = Result<T, CallError>>>(what: &str, ask: impl Fn() -> F) -> Result<(T, u32)> {
    let (begun, mut asked) = (Instant::now(), 0);
    loop {
        asked += 1;
        match ask().await {
            Ok(answer) => return Ok((answer, asked)),
            Err(refusal) if may_pass(refusal.code) && begun.elapsed() < GIVEN_UP => sleep(AGAIN).await,
            Err(refusal) => bail!("{what}, asked {asked} times: {refusal}"),
        }
    }
}

/// An error that a driver gives no code arrives as one that nobody knows.
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Aborted
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::ResourceExhausted
            | Code::Unavailable
            | Code::Unknown
    )
}

fn last_lines(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
