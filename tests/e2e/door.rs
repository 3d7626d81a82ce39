//! Logs, exec, attach and port-forward of a pod in the host, which runs in a member: a stock kubectl asks the host's API
//! server, and that asks the endpoint of the virtual node, which runs in this process.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kosmos_csi::{
    agent::door::{Authority, Credentials, Door, Shown},
    cluster::Dial,
    host::Host,
    member::{
        Registry, Tracked,
        registry::Keeper,
        source::{Account, directory},
    },
    metrics::Metrics,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
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
    clusters::{Cluster, NodeDriver, VirtualNode, namespaces::BRIDGE_ADDRESS, wait_for},
    objects::{Place, pod},
    pool::on_fleet,
    rig::{DRIVER, DRIVER_NAMESPACE, MEMBER_KEY, PATIENCE, Rig},
};

const NODE: &str = "kosmos-door";
const MEMBER: &str = "cluster38";
const NAMESPACE: &str = "door";
const PORT: u16 = 11250;
/// Says something at once, and more when it is told to.
const TALKER: &str = "echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo last; nc -ll -p 8080 -e echo served";

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
    async fn start(rig: &Rig) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let host = Host::connect(rig.fleet.host().client().await?, DRIVER_NAMESPACE.to_owned()).await?;
        let mut tasks = JoinSet::new();
        let members = members(rig, host.clone(), folder.path(), &mut tasks).await?;
        let door = Door { host, members, credentials: credentials()? };
        door.credentials.check().map_err(anyhow::Error::msg)?;
        let stop = CancellationToken::new();
        let inside = rig.fleet.listen(&format!("{BRIDGE_ADDRESS}:{PORT}"))?;
        let loopback = std::net::TcpListener::bind("127.0.0.1:0")?;
        let outside = loopback.local_addr()?.port();
        for listener in [inside, loopback] {
            listener.set_nonblocking(true)?;
            tasks.spawn(door.clone().serve(listener.try_into()?, stop.clone()));
        }
        Ok(Self { outside, stop, _folder: folder, _tasks: tasks })
    }
}

/// The one member, as a file.
async fn members(rig: &Rig, host: Host, folder: &Path, tasks: &mut JoinSet<()>) -> Result<Registry> {
    let files = folder.join("members");
    fs::create_dir(&files)?;
    fs::copy(rig.fleet.member(MEMBER).kubeconfig(), files.join(format!("{MEMBER}.kubeconfig")))?;
    let (keeper, members) = Keeper::new(host, Dial::Network, Tracked::Nothing, Metrics::new());
    let (sender, news) = watch::channel(None);
    tasks.spawn(directory::follow(files, Account::VirtualNode, sender));
    tasks.spawn(keeper.run(vec![news], watch::Sender::new(false)));
    wait_for("the member answers", PATIENCE, || async {
        let known = members.all().ok().and_then(|members| members.get(MEMBER).cloned());
        Ok(known.filter(|member| member.closed().is_none()).map(drop))
    })
    .await?;
    Ok(members)
}

/// What it has where nobody gives it any.
fn credentials() -> Result<Credentials> {
    let shown = Shown::own(BRIDGE_ADDRESS.parse()?).map_err(anyhow::Error::msg)?;
    Ok(Credentials { authority: Authority::of_host(), shown })
}

/// A node of the host whose kubelet is the endpoint.
async fn node(host: &Cluster) -> Result<VirtualNode> {
    let driver = NodeDriver { name: DRIVER, node_id: &format!("virtual/{MEMBER}"), topology_keys: &[MEMBER_KEY] };
    let node = host.virtual_node(NODE, &[(MEMBER_KEY, MEMBER), ("kosmos.io/node", "true")], driver).await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": BRIDGE_ADDRESS}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
    }});
    let nodes: Api<Node> = Api::all(host.client().await?);
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(node)
}

/// A pod of the host on that node, and one of the same name in the member. The marks say whether it was made for it.
async fn pods(rig: &Rig, name: &str, marked: bool) -> Result<()> {
    let (host, member) = places(rig).await?;
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

async fn places(rig: &Rig) -> Result<(Place<'_>, Place<'_>)> {
    Ok((Place::new(rig.fleet.host(), NAMESPACE).await?, Place::open(rig.fleet.member(MEMBER), NAMESPACE).await?))
}

async fn clean(rig: &Rig, node: VirtualNode) -> Result<()> {
    let (host, member) = places(rig).await?;
    for pods in [host.pods(), member.pods()] {
        for name in ["talker", "stranger"] {
            let _: Result<_, _> = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        }
    }
    node.delete().await
}

/// kubectl in the host, as a user runs it.
fn kubectl(rig: &Rig, arguments: &[&str]) -> Command {
    let mut command = Command::new(rig.fleet.tools().path("kubectl"));
    let host = rig.fleet.host();
    command.arg("--kubeconfig").arg(host.kubeconfig()).args(["-n", NAMESPACE]).args(arguments);
    command.env("HOME", rig.fleet.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// Its exit code, and what it prints.
async fn runs(rig: &Rig, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let output = timeout(PATIENCE, kubectl(rig, arguments).output()).await.context("kubectl does not end")??;
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
    on_fleet("door", async |rig| {
        let work = Work::start(rig).await?;
        let node = node(rig.fleet.host()).await?;
        let tested = async {
            pods(rig, "talker", true).await?;
            pods(rig, "stranger", false).await?;
            logs(rig).await?;
            exec(rig).await?;
            port_forward(rig).await?;
            stranger(rig).await?;
            guests(rig, &work).await
        };
        let tested = tested.await;
        clean(rig, node).await?;
        tested
    });
}

async fn logs(rig: &Rig) -> Result<()> {
    wait_for("the log is shown", PATIENCE, || async {
        let (code, printed) = runs(rig, &["logs", "talker"]).await?;
        ensure!(code == Some(0), "{code:?}: {printed}");
        Ok((printed == "first\n").then_some(()))
    })
    .await?;
    let (code, printed) = runs(rig, &["logs", "talker", "--tail=0", "--timestamps"]).await?;
    ensure!(code == Some(0) && printed.is_empty(), "{code:?}: {printed}");
    let mut following = kubectl(rig, &["logs", "-f", "talker"]).spawn()?;
    line(&mut following, "first").await?;
    // Longer than a member may take for the head of any other answer.
    let mut silent = kubectl(rig, &["logs", "-f", "--tail=0", "talker"]).spawn()?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (code, printed) = runs(rig, &["exec", "talker", "--", "touch", "/tmp/go"]).await?;
    ensure!(code == Some(0), "{code:?}: {printed}");
    line(&mut following, "last").await?;
    line(&mut silent, "last").await?;
    ensure!(following.try_wait()?.is_none(), "it follows until somebody ends it");
    following.kill().await?;
    silent.kill().await?;
    Ok(())
}

async fn exec(rig: &Rig) -> Result<()> {
    let (code, printed) = runs(rig, &["exec", "talker", "--", "sh", "-c", "echo 'a&b c'; exit 7"]).await?;
    ensure!(code == Some(7) && printed.starts_with("a&b c\n"), "{code:?}: {printed}");
    for protocol in ["true", "false"] {
        let mut command = kubectl(rig, &["exec", "-i", "talker", "--", "cat"]);
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

async fn port_forward(rig: &Rig) -> Result<()> {
    wait_for("the pod listens", PATIENCE, || async {
        let listens = ["exec", "talker", "--", "grep", "-q", ":1F90 ", "/proc/net/tcp", "/proc/net/tcp6"];
        Ok((runs(rig, &listens).await?.0 == Some(0)).then_some(()))
    })
    .await?;
    let mut forwarding = kubectl(rig, &["port-forward", "talker", ":8080"]).spawn()?;
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
async fn stranger(rig: &Rig) -> Result<()> {
    for arguments in [&["logs", "stranger"][..], &["exec", "stranger", "--", "true"]] {
        let (code, printed) = runs(rig, arguments).await?;
        ensure!(code != Some(0) && !printed.contains("first"), "{arguments:?}: {printed}");
    }
    Ok(())
}

/// Past the API server: who has no certificate, one of no right, and the right one.
async fn guests(rig: &Rig, work: &Work) -> Result<()> {
    let host = rig.fleet.host();
    let logs = format!("/containerLogs/{NAMESPACE}/talker/main");
    let foreign = format!("/containerLogs/{NAMESPACE}/stranger/main");
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
    let other = guest(work, &rig.fleet.member(MEMBER).kubeconfig(), true).await?;
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
