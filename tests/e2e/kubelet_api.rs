//! Logs, exec, attach and port-forward of a pod in the host, which runs in a member: a stock kubectl asks the host's API
//! server, and that asks the endpoint of the virtual node, which runs in this process.

use std::{fs, path::Path, process::Stdio, time::Duration};

use ::agent::kubelet_api::{Authority, Credentials, Server, Shown};
use anyhow::{Context, Result, ensure};
use cluster::{Dial, metrics::Metrics};
use host::Host;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use member::{
    Registry, Scope,
    registry::RegistryLoop,
    source::{Account, directory},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent,
    clusters::{Cluster, NodeDriver, VirtualNode, namespaces::BRIDGE_ADDRESS, wait_for},
    objects::{Place, pod},
    pool::on_fleet,
    rig::{DRIVER, DRIVER_NAMESPACE, MEMBER_KEY, PATIENCE, Rig},
};

const NODE: &str = "kosmos-kubelet";
const MEMBER: &str = "cluster38";
/// Says something at once, and more when it is told to.
const TALKER: &str = "echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo last; \
    until [ -e /tmp/quiet ]; do [ ! -e /tmp/tick ] || echo tick; sleep 0.1; done; nc -ll -p 8080 -e echo served";

/// Whose API server asks the endpoint, and where that is.
#[derive(Clone, Copy)]
struct Way<'a> {
    rig: &'a Rig,
    host: &'a Cluster,
    namespace: &'static str,
    port: u16,
}

/// The endpoint at work, in the fleet and on this machine's loopback. Ends when it is dropped.
struct Work {
    outside: u16,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Work {
    async fn start(way: Way<'_>, shown: Shown) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let host = Host::connect(way.host.client().await?, DRIVER_NAMESPACE.to_owned()).await?;
        let mut tasks = JoinSet::new();
        let members = members(way.rig, host.clone(), folder.path(), &mut tasks).await?;
        let credentials = Credentials { authority: Authority::of_host(), shown };
        credentials.check().map_err(anyhow::Error::msg)?;
        let server = Server { host, members, credentials, usage: None };
        let stop = CancellationToken::new();
        let inside = way.rig.fleet.listen(&format!("{BRIDGE_ADDRESS}:{}", way.port))?;
        let loopback = std::net::TcpListener::bind("127.0.0.1:0")?;
        let outside = loopback.local_addr()?.port();
        let mut listeners = Vec::new();
        for listener in [inside, loopback] {
            listener.set_nonblocking(true)?;
            listeners.push(listener.try_into()?);
        }
        tasks.spawn(server.serve(listeners, stop.clone()));
        Ok(Self { outside, stop, _folder: folder, _tasks: tasks })
    }
}

/// The one member, as a file, by the agent's account there.
async fn members(rig: &Rig, host: Host, folder: &Path, tasks: &mut JoinSet<()>) -> Result<Registry> {
    let files = folder.join("members");
    fs::create_dir(&files)?;
    let member = rig.fleet.member(MEMBER);
    member.apply(agent::MEMBER_OBJECTS).await?;
    let account = member.kubeconfig_outside_for(DRIVER_NAMESPACE, agent::ACCOUNT).await?;
    fs::write(files.join(format!("{MEMBER}.kubeconfig")), serde_json::to_string(&account)?)?;
    let (registry_loop, members) = RegistryLoop::new(host, Dial::Network, Scope::Nothing, Metrics::new());
    let (sender, news) = watch::channel(None);
    tasks.spawn(directory::follow(files, Account::VirtualNode, sender));
    tasks.spawn(registry_loop.run(vec![news], watch::Sender::new(false)));
    wait_for("the member answers", PATIENCE, || async {
        let known = members.all().ok().and_then(|members| members.get(MEMBER).cloned());
        Ok(known.filter(|member| member.closed().is_none()).map(drop))
    })
    .await?;
    Ok(members)
}

/// What it has where nobody gives it any.
fn own() -> Result<Shown> {
    Shown::own(BRIDGE_ADDRESS.parse()?).map_err(anyhow::Error::msg)
}

/// A certificate of the host's authority: that of its API server names the endpoint's address, its kubelet's does not.
fn signed(host: &Cluster, whose: &str) -> Shown {
    let file = |end: &str| host.folder().join("pki").join(format!("{whose}.{end}"));
    Shown::Files { certificate: file("crt"), key: file("key") }
}

/// A node of the host whose kubelet is the endpoint.
async fn node(way: Way<'_>) -> Result<VirtualNode> {
    let host = way.host;
    let driver = NodeDriver { name: DRIVER, node_id: &format!("virtual/{MEMBER}"), topology_keys: &[MEMBER_KEY] };
    let node = host.virtual_node(NODE, &[(MEMBER_KEY, MEMBER), ("kosmos.io/node", "true")], driver).await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": BRIDGE_ADDRESS}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": way.port}},
    }});
    let nodes: Api<Node> = Api::all(host.client().await?);
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(node)
}

/// A pod of the host on that node, and one of the same name in the member. The marks say whether it was made for it.
async fn pods(way: Way<'_>, name: &str, marked: bool) -> Result<()> {
    let (host, member) = places(way).await?;
    let mut wanted = pod(name, &[], TALKER);
    wanted["spec"]["nodeName"] = json!(NODE);
    wanted["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let made = make(&host, wanted).await?;
    let mut copy = pod(name, &[], TALKER);
    if marked {
        let id = Host::connect(host.client.clone(), DRIVER_NAMESPACE.to_owned()).await?.id;
        copy["metadata"]["labels"] = json!({"kosmos.csi.io/host": id.0});
        copy["metadata"]["annotations"] = json!({"kosmos.csi.io/pod-uid": made.metadata.uid});
    }
    make(&member, copy).await?;
    wait_for(&format!("pod {name} runs in the member"), PATIENCE, || async {
        let phase = member.pods().get(name).await?.status.and_then(|status| status.phase);
        Ok((phase.as_deref() == Some("Running")).then_some(()))
    })
    .await?;
    // As the agent would tell of it.
    let running = json!({"status": {"phase": "Running"}});
    host.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(running)).await?;
    Ok(())
}

/// A new namespace takes no pods before it has its account.
async fn make(place: &Place<'_>, wanted: Value) -> Result<Pod> {
    let wanted: Pod = serde_json::from_value(wanted)?;
    wait_for("the pod is made", PATIENCE, || async {
        Ok(Some(place.pods().create(&PostParams::default(), &wanted).await?))
    })
    .await
}

async fn places(way: Way<'_>) -> Result<(Place<'_>, Place<'_>)> {
    Ok((Place::new(way.host, way.namespace).await?, Place::open(way.rig.fleet.member(MEMBER), way.namespace).await?))
}

async fn clean(way: Way<'_>, node: VirtualNode) -> Result<()> {
    let (host, member) = places(way).await?;
    for pods in [host.pods(), member.pods()] {
        for name in ["talker", "stranger"] {
            let _: Result<_, _> = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        }
    }
    node.delete().await
}

/// kubectl in the host, as a user runs it.
fn kubectl(way: Way<'_>, arguments: &[&str]) -> Command {
    let mut command = Command::new(way.rig.fleet.tools().path("kubectl"));
    command.arg("--kubeconfig").arg(way.host.kubeconfig()).args(["-n", way.namespace]).args(arguments);
    command.env("HOME", way.rig.fleet.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// Its exit code, and what it prints.
async fn runs(way: Way<'_>, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let output = timeout(PATIENCE, kubectl(way, arguments).output()).await.context("kubectl does not end")??;
    let printed = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&printed).into_owned()))
}

async fn line(child: &mut Child, wanted: &str) -> Result<()> {
    let mut lines = BufReader::new(child.stdout.take().context("it prints nothing")?);
    let mut line = String::new();
    timeout(PATIENCE, lines.read_line(&mut line)).await.with_context(|| format!("nothing says {wanted}"))??;
    child.stdout = Some(lines.into_inner());
    ensure!(line.trim() == wanted, "{line:?} is not {wanted}");
    Ok(())
}

#[test]
fn kubectl_reaches_a_pod_of_a_virtual_node_and_no_pod_that_is_not_the_hosts() {
    on_fleet("kubelet-api", async |rig| {
        let way = Way { rig, host: rig.fleet.host(), namespace: "kubelet-api", port: 11250 };
        let work = Work::start(way, own()?).await?;
        let node = node(way).await?;
        let tested = async {
            pods(way, "talker", true).await?;
            pods(way, "stranger", false).await?;
            reached(way).await?;
            stranger(way).await?;
            guests(way, &work).await
        };
        let tested = tested.await;
        clean(way, node).await?;
        tested
    });
}

/// As hardened hosts have it. All members' API servers verify kubelets here, so one of them is the host.
#[test]
fn api_server_that_verifies_kubelets_takes_a_certificate_that_names_what_the_node_tells() {
    on_fleet("kubelet-api-verified", async |rig| {
        let way = Way { rig, host: rig.fleet.member("cluster39"), namespace: "verified", port: 11251 };
        let node = node(way).await?;
        let tested = async {
            pods(way, "talker", true).await?;
            for shown in [own()?, signed(way.host, "kubelet-serving")] {
                let work = Work::start(way, shown).await?;
                let (code, printed) = runs(way, &["logs", "talker"]).await?;
                ensure!(code != Some(0) && printed.contains("certificate"), "{code:?}: {printed}");
                drop(work);
            }
            let _work = Work::start(way, signed(way.host, "apiserver")).await?;
            reached(way).await
        };
        let tested = tested.await;
        clean(way, node).await?;
        tested
    });
}

async fn reached(way: Way<'_>) -> Result<()> {
    logs(way).await?;
    attach(way).await?;
    exec(way).await?;
    port_forward(way).await
}

async fn logs(way: Way<'_>) -> Result<()> {
    wait_for("the log is shown", PATIENCE, || async {
        let (code, printed) = runs(way, &["logs", "talker"]).await?;
        ensure!(code == Some(0), "{code:?}: {printed}");
        Ok((printed == "first\n").then_some(()))
    })
    .await?;
    let (code, printed) = runs(way, &["logs", "talker", "--tail=0", "--timestamps"]).await?;
    ensure!(code == Some(0) && printed.is_empty(), "{code:?}: {printed}");
    let mut following = kubectl(way, &["logs", "-f", "talker"]).spawn()?;
    line(&mut following, "first").await?;
    // Longer than a member may take for the head of any other answer.
    let mut silent = kubectl(way, &["logs", "-f", "--tail=0", "talker"]).spawn()?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    tell(way, "go").await?;
    for said in [&mut following, &mut silent] {
        line(said, "last").await?;
        ensure!(said.try_wait()?.is_none(), "it follows until somebody ends it");
        said.kill().await?;
    }
    Ok(())
}

async fn attach(way: Way<'_>) -> Result<()> {
    tell(way, "tick").await?;
    let mut attached = kubectl(way, &["attach", "talker"]).spawn()?;
    line(&mut attached, "tick").await?;
    ensure!(attached.try_wait()?.is_none(), "it is attached until somebody ends it");
    attached.kill().await?;
    tell(way, "quiet").await
}

/// What the talker waits for.
async fn tell(way: Way<'_>, word: &str) -> Result<()> {
    let (code, printed) = runs(way, &["exec", "talker", "--", "touch", &format!("/tmp/{word}")]).await?;
    ensure!(code == Some(0), "{code:?}: {printed}");
    Ok(())
}

async fn exec(way: Way<'_>) -> Result<()> {
    let (code, printed) = runs(way, &["exec", "talker", "--", "sh", "-c", "echo 'a&b c'; exit 7"]).await?;
    ensure!(code == Some(7) && printed.starts_with("a&b c\n"), "{code:?}: {printed}");
    for protocol in ["true", "false"] {
        let mut command = kubectl(way, &["exec", "-i", "talker", "--", "cat"]);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", protocol).stdin(Stdio::piped());
        let mut child = command.spawn()?;
        let text = "x".repeat(100_000);
        let mut input = child.stdin.take().context("it has an input")?;
        input.write_all(text.as_bytes()).await?;
        drop(input);
        let output = timeout(PATIENCE, child.wait_with_output()).await.context("exec does not end")??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && output.stdout == text.as_bytes(), "websockets {protocol}: {said}");
    }
    Ok(())
}

async fn port_forward(way: Way<'_>) -> Result<()> {
    wait_for("the pod listens", PATIENCE, || async {
        let listens = ["exec", "talker", "--", "grep", "-q", ":1F90 ", "/proc/net/tcp", "/proc/net/tcp6"];
        Ok((runs(way, &listens).await?.0 == Some(0)).then_some(()))
    })
    .await?;
    let mut forwarding = kubectl(way, &["port-forward", "talker", ":8080"]).spawn()?;
    let mut lines = BufReader::new(forwarding.stdout.take().context("it prints nothing")?).lines();
    let told = timeout(PATIENCE, lines.next_line()).await.context("nothing is forwarded")??.unwrap_or_default();
    let port = told.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    let port: u16 = port.with_context(|| format!("no port in {told:?}"))?.parse()?;
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.context("the port does not answer")??;
    ensure!(answer == "served\n", "{answer:?}");
    forwarding.kill().await?;
    Ok(())
}

/// It has the name of a pod on the node, and nothing says that it was made for it.
async fn stranger(way: Way<'_>) -> Result<()> {
    for arguments in [&["logs", "stranger"][..], &["exec", "stranger", "--", "true"]] {
        let (code, printed) = runs(way, arguments).await?;
        ensure!(code != Some(0) && !printed.contains("first"), "{arguments:?}: {printed}");
    }
    Ok(())
}

/// Past the API server: who has no certificate, one of no right, and the right one.
async fn guests(way: Way<'_>, work: &Work) -> Result<()> {
    let host = way.host;
    let logs = format!("/containerLogs/{}/talker/main", way.namespace);
    let foreign = format!("/containerLogs/{}/stranger/main", way.namespace);
    let admin = guest(work, &host.kubeconfig(), true).await?;
    ensure!(ask(&admin, &logs).await?.contains("first"));
    let refused = ask(&admin, &foreign).await.unwrap_err().to_string();
    ensure!(refused.contains("has no pod that was made for it"), "{refused}");
    let kubelet = guest(work, &host.folder().join("kubelet.kubeconfig"), true).await?;
    let refused = ask(&kubelet, &logs).await.unwrap_err().to_string();
    ensure!(refused.contains("may not get nodes/proxy"), "{refused}");
    let nobody = guest(work, &host.kubeconfig(), false).await?;
    let refused = format!("{:#}", ask(&nobody, &logs).await.unwrap_err());
    ensure!(!refused.contains("first"), "{refused}");
    // A certificate of another authority.
    let other = guest(work, &way.rig.fleet.member(MEMBER).kubeconfig(), true).await?;
    ensure!(ask(&other, &logs).await.is_err());
    Ok(())
}

/// Somebody with the credentials of a kubeconfig, or without any, before the endpoint on the loopback.
async fn guest(work: &Work, kubeconfig: &Path, with_certificate: bool) -> Result<Client> {
    let mut kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    for named in &mut kubeconfig.auth_infos {
        if let Some(user) = named.auth_info.as_mut().filter(|_| !with_certificate) {
            (user.client_certificate_data, user.client_key_data) = (None, None);
        }
    }
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.cluster_url = format!("https://127.0.0.1:{}", work.outside).parse()?;
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn ask(client: &Client, path: &str) -> Result<String> {
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(timeout(PATIENCE, client.request_text(request)).await.context("no answer")??)
}
