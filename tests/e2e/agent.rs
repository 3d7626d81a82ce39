//! The agent behind the virtual nodes: the real scheduler puts pods on them, and the members' kubelets run them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Node, Pod, Secret},
        storage::v1::{CSINode, VolumeAttachment},
    },
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    clusters::{Cluster, Fleet, NodeDriver, Process, wait_for},
    driver::Launch,
    kosmos,
    objects::{Place, handle, nothing_of_ours, pod, tolerant},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, LATER, MEMBER_KEY, MEMBERS, PATIENCE, PODS_NAMESPACE, RETURN, Rig},
};

pub const ACCOUNT: &str = "kosmos-csi-virtual-node";
/// Which member is which cluster.
const RECORD: &str = "kosmos-csi-members";
const HOST_OBJECTS: &str = include_str!("../../deploy/manifests/virtual-node.yaml");
/// What of these it takes where the agent is no pod.
const RIGHTS: [&str; 8] = [
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
pub const MEMBER_OBJECTS: &str = include_str!("../../deploy/member-virtual-node.yaml");
pub const NODE: &str = "kosmos-cluster38";
const MEMBER: &str = "cluster38";
/// The member's kubelet may be backing off.
const RUNNING: Duration = Duration::from_mins(2);

/// The agent at work, in place of the rig's own virtual nodes. The rig makes them again before the next test.
pub struct Agent<'a> {
    rig: &'a Rig,
    process: Process,
}

impl<'a> Agent<'a> {
    pub async fn start(rig: &'a Rig) -> Result<Self> {
        Self::start_with(rig, &[], &MEMBERS.map(|member| format!("kosmos-{member}"))).await
    }

    /// With more flags, until these nodes are ready.
    pub async fn start_with(rig: &'a Rig, flags: &[&str], nodes: &[String]) -> Result<Self> {
        let flags = flags.iter().map(ToString::to_string).collect();
        Self::start_as(rig, &Launch { flags, ..Launch::default() }, nodes).await
    }

    pub async fn start_as(rig: &'a Rig, launch: &Launch, nodes: &[String]) -> Result<Self> {
        rig.remove_nodes().await?;
        prepare(&rig.fleet, rig.fleet.host(), &MEMBERS).await?;
        let process = launched(&rig.fleet, rig.fleet.host(), "virtual-node", launch).await?;
        let agent = Self { rig, process };
        for node in nodes {
            agent.ready(node, true, PATIENCE).await?;
        }
        Ok(agent)
    }

    pub async fn end(self) -> Result<()> {
        self.process.kill()?;
        self.process.wait(Duration::from_secs(10)).await?;
        // The next one need not wait until this one is known to be dead.
        let lease = ["delete", "lease", ACCOUNT, "-n", PODS_NAMESPACE, "--ignore-not-found"];
        self.rig.fleet.host().kubectl(&lease).await.map(drop)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// As the machine counts.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Where it has ended.
    pub fn begin_again(&mut self) -> Result<()> {
        if self.process.is_running()? { Ok(()) } else { self.process.start_again() }
    }

    /// SIGKILL, and another one.
    pub async fn replace(&mut self, launch: &Launch) -> Result<()> {
        self.process.kill()?;
        self.process.wait(Duration::from_secs(10)).await?;
        self.process = launched(&self.rig.fleet, self.rig.fleet.host(), "virtual-node", launch).await?;
        Ok(())
    }

    async fn node(&self, name: &str) -> Result<Option<Node>> {
        Ok(Api::<Node>::all(self.rig.fleet.host().client().await?).get_opt(name).await?)
    }

    /// Waits until a node is ready, and open to pods, or until it is not ready.
    pub async fn ready(&self, name: &str, wanted: bool, deadline: Duration) -> Result<()> {
        wait_for(&format!("node {name} is {}", if wanted { "ready" } else { "not ready" }), deadline, || async {
            let Some(node) = self.node(name).await? else { return Ok(None) };
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions.iter().find(|one| one.type_ == "Ready").map(|one| one.status == "True");
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let tainted = taints.iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"));
            Ok((ready == Some(wanted) && tainted != wanted).then_some(()))
        })
        .await
    }
}

/// The agent of a host in this fleet, with its rights in the members that the host knows.
pub async fn run(fleet: &Fleet, host: &Cluster, name: &str, members: &[&str], flags: &[&str]) -> Result<Process> {
    prepare(fleet, host, members).await?;
    spawn(fleet, host, name, flags).await
}

/// Its rights in a host and in the members that the host knows.
async fn prepare(fleet: &Fleet, host: &Cluster, members: &[&str]) -> Result<()> {
    install(host).await?;
    for member in members {
        fleet.member(member).apply(MEMBER_OBJECTS).await?;
        let kubeconfig = fleet.member(member).kubeconfig_for(DRIVER_NAMESPACE, ACCOUNT).await?;
        give(host, member, &kubeconfig).await?;
    }
    Ok(())
}

/// What the agent needs in a host.
pub async fn install(host: &Cluster) -> Result<()> {
    let is_right = |object: &&str| RIGHTS.iter().any(|kind| object.contains(&format!("\nkind: {kind}\n")));
    let rights: Vec<&str> = HOST_OBJECTS.split("\n---\n").filter(is_right).collect();
    host.apply(&rights.join("\n---\n")).await
}

/// The agent, by the members' Secrets that are there.
pub async fn spawn(fleet: &Fleet, host: &Cluster, name: &str, flags: &[&str]) -> Result<Process> {
    let flags = flags.iter().map(ToString::to_string).collect();
    launched(fleet, host, name, &Launch { flags, ..Launch::default() }).await
}

async fn launched(fleet: &Fleet, host: &Cluster, name: &str, launch: &Launch) -> Result<Process> {
    let kubeconfig = fleet.folder().join(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, host.kubeconfig_for(PODS_NAMESPACE, ACCOUNT).await?)?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    launch.spawn(fleet, name, &["virtual-node", &kubeconfig, "--shutdown-grace=5s"])
}

/// Its agent has made a virtual node, with the driver on it, and says that it is ready.
pub async fn has_node(host: &Cluster, node: &str) -> Result<()> {
    wait_for(&format!("the agent has made node {node}"), PATIENCE, || async {
        Ok(host.kubectl(&["get", "csinode", node]).await.ok())
    })
    .await?;
    let ready = ["wait", "--for=condition=Ready", "--timeout=60s", &format!("node/{node}")];
    host.kubectl(&ready).await.map(drop)
}

/// A member's kubeconfig for the agent.
pub async fn give(host: &Cluster, member: &str, kubeconfig: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(host.client().await?, PODS_NAMESPACE);
    let secret = Patch::Apply(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"kubeconfig": kubeconfig},
        "metadata": {"name": member, "labels": {"kosmos.csi.io/member": member}},
    }));
    let given = secrets.patch(member, &PatchParams::apply("test").force(), &secret).await;
    given.map(drop).context("give the agent its account")
}

/// A pod of the host is in a phase.
pub async fn phase(place: &Place<'_>, name: &str, wanted: &str) -> Result<Pod> {
    wait_for(&format!("pod {name} is {wanted}"), RUNNING, || async {
        let pod = place.pods().get(name).await?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        Ok((phase.as_deref() == Some(wanted)).then_some(pod))
    })
    .await
}

pub async fn gone(place: &Place<'_>, name: &str) -> Result<()> {
    gone_within(place, name, RUNNING).await
}

async fn gone_within(place: &Place<'_>, name: &str, deadline: Duration) -> Result<()> {
    wait_for(&format!("pod {name} is gone from {}", place.cluster.name()), deadline, || async {
        Ok(place.pods().get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

/// How long a member is away: longer than anything that watches it is patient.
const AWAY: Duration = Duration::from_secs(125);
/// How soon all is well again.
const BACK: Duration = Duration::from_secs(10);

/// Everything that an outage must not touch, as it is now.
async fn still_there(rig: &Rig, host: &Place<'_>, pods: &[&str]) -> Result<Vec<String>> {
    let mut uids = Vec::new();
    for pod in pods {
        uids.push(host.pods().get(pod).await?.uid());
    }
    let claim = host.claims().get("data").await?;
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).context("the claim is bound")?;
    uids.push(claim.uid());
    uids.push(host.volumes().get(&volume).await?.uid());
    uids.push(Api::<Node>::all(host.client.clone()).get(NODE).await?.uid());
    let other =
        rig.fleet.member("cluster39").kubectl(&["get", "pods,pvc", "-n", &host.namespace, "-o", "name"]).await?;
    ensure!(other.is_empty(), "made elsewhere: {other}");
    Ok(uids.into_iter().flatten().collect())
}

/// How long it took until the virtual node was ready, from a time or, where that is later, from when the member's own node was:
/// which is for its kubelet and its controllers to say.
async fn took(host: &Place<'_>, member: &Place<'_>, since: Timestamp) -> Result<Duration> {
    let (ours, own) = (ready_since(host, NODE).await?, ready_since(member, &member.cluster.node_name()).await?);
    Ok(Duration::try_from(ours.duration_since(own.max(since))).unwrap_or_default())
}

async fn ready_since(place: &Place<'_>, node: &str) -> Result<Timestamp> {
    let found = Api::<Node>::all(place.client.clone()).get(node).await?;
    let mut conditions = found.status.and_then(|status| status.conditions).into_iter().flatten();
    let ready = conditions.find(|one| one.type_ == "Ready" && one.status == "True");
    let ready = ready.with_context(|| format!("node {node} is not ready"))?;
    Ok(ready.last_transition_time.context("a condition says since when it holds")?.0)
}

#[test]
fn member_that_is_away_for_minutes_loses_neither_node_nor_pod_nor_volume() {
    on_fleet("agent-outage", async |rig| {
        let name = "agent-outage";
        let host = Place::new(rig.fleet.host(), name).await?;
        let agent = Agent::start(rig).await?;
        host.class(name, "WaitForFirstConsumer", json!({"leafStorageClass": LATER}), &MEMBERS).await?;
        host.claim("data", name).await?;
        for (pod, claims) in [("web", &["data"][..]), ("other", &[])] {
            host.tolerant_pod(pod, claims, Some(NODE)).await?;
            phase(&host, pod, "Running").await?;
        }
        let before = still_there(rig, &host, &["web", "other"]).await?;
        let member = Place::existing(rig.fleet.member(MEMBER), name).await?;
        let copies = [member.pods().get("web").await?.uid(), member.pods().get("other").await?.uid()];
        member.cluster.stop_api_server().await?;
        agent.ready(NODE, false, Duration::from_secs(20)).await?;
        // A user's deletion waits for the copy, which may still write.
        host.pods().delete("other", &DeleteParams::default()).await?;
        let until = Instant::now() + AWAY;
        while Instant::now() < until {
            ensure!(still_there(rig, &host, &["web", "other"]).await? == before, "something has changed");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let returns = Timestamp::now();
        rig.return_of(MEMBER).await?;
        wait_for("the copy is told to end", BACK, || async {
            let copy = member.pods().get_opt("other").await?;
            Ok(copy.is_none_or(|copy| copy.metadata.deletion_timestamp.is_some()).then_some(()))
        })
        .await?;
        // Its end is for the member's kubelet, which has to come back too; the pod goes with it.
        gone_within(&member, "other", RETURN).await?;
        gone_within(&host, "other", BACK).await?;
        // Its own: the kubelet goes by what it watches, which after such an outage it tries again once in up to a minute.
        let took = wait_for("both nodes are ready", RETURN, || async {
            agent.ready(NODE, true, RETURN).await?;
            Ok(took(&host, &member, returns).await.ok())
        })
        .await?;
        ensure!(took <= BACK, "its node was ready after {took:?}");
        ensure!(member.pods().get_opt("other").await?.is_none_or(|pod| pod.uid() != copies[1]), "its copy is there");
        ensure!(still_there(rig, &host, &["web"]).await?[0] == before[0], "the pod is another one");
        ensure!(member.pods().get("web").await?.uid() == copies[0], "the copy is another one");
        phase(&host, "web", "Running").await?;
        rig.own_controllers_return(MEMBER).await?;
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        host.delete_claim("data").await?;
        nothing_of_ours(member.cluster, name).await?;
        agent.end().await
    });
}

#[test]
fn pod_of_somebody_else_under_the_same_name_is_left_alone() {
    on_fleet("agent-foreign", async |rig| {
        let (host, member) = (
            Place::new(rig.fleet.host(), "agent-foreign").await?,
            Place::open(rig.fleet.member(MEMBER), "agent-foreign").await?,
        );
        let theirs = serde_json::from_value(pod("web", &[], "sleep 1000"))?;
        let theirs = member.pods().create(&PostParams::default(), &theirs).await?;
        let agent = Agent::start(rig).await?;
        host.tolerant_pod("web", &[], Some(NODE)).await?;
        host.warned("web", &["agent-foreign/web", "leaves it untouched"]).await?;
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        let now = member.pods().get("web").await?;
        ensure!(
            now.uid() == theirs.uid() && now.labels() == theirs.labels() && now.metadata.deletion_timestamp.is_none()
        );
        member.pods().delete("web", &DeleteParams::default()).await?;
        agent.end().await
    });
}

#[test]
fn copy_that_somebody_deletes_in_the_member_fails_its_pod() {
    on_fleet("agent-deleted", async |rig| {
        let host = Place::new(rig.fleet.host(), "agent-deleted").await?;
        let agent = Agent::start(rig).await?;
        host.tolerant_pod("web", &[], Some(NODE)).await?;
        phase(&host, "web", "Running").await?;
        let member = Place::existing(rig.fleet.member(MEMBER), "agent-deleted").await?;
        member.pods().delete("web", &DeleteParams::default()).await?;
        let failed = phase(&host, "web", "Failed").await?;
        let reason = failed.status.and_then(|status| status.reason);
        ensure!(reason.as_deref() == Some("DeletedInMember"), "{reason:?}");
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        agent.end().await
    });
}

/// The API servers of both clusters put into selectors what these keys mean, and take no pod that says it twice.
#[test]
fn pod_that_is_kept_apart_from_others_by_the_keys_of_its_labels_runs_in_the_member() {
    on_fleet("agent-label-keys", async |rig| {
        let host = Place::new(rig.fleet.host(), "agent-label-keys").await?;
        let agent = Agent::start(rig).await?;
        let apart = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
            "matchLabelKeys": ["pod-template-hash"]});
        let mut spread = apart.clone();
        (spread["maxSkew"], spread["whenUnsatisfiable"]) = (json!(1), json!("ScheduleAnyway"));
        let mut web = pod("web", &[], "sleep 1000");
        web["metadata"]["labels"] = json!({"app": "web", "pod-template-hash": "5d4f"});
        web["spec"]["nodeName"] = json!(NODE);
        web["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([apart]);
        web["spec"]["topologySpreadConstraints"] = json!([spread]);
        host.pods().create(&PostParams::default(), &serde_json::from_value(web)?).await?;
        phase(&host, "web", "Running").await?;
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        agent.end().await
    });
}

/// It needs no controller for that, and can write on no controller's record.
#[test]
fn agent_records_by_itself_which_clusters_its_members_are() {
    on_fleet("agent-first", async |rig| {
        let host = rig.fleet.host().client().await?;
        let record = async |namespace| Api::<ConfigMap>::namespaced(host.clone(), namespace).get(RECORD).await;
        rig.fleet.host().kubectl(&["delete", "configmap", RECORD, "-n", PODS_NAMESPACE, "--ignore-not-found"]).await?;
        let agent = Agent::start(rig).await?;
        let known = record(DRIVER_NAMESPACE).await?.data.unwrap_or_default();
        let recorded = record(PODS_NAMESPACE).await?.data.unwrap_or_default();
        for member in MEMBERS {
            let known = known.get(member);
            ensure!(known.is_some() && recorded.get(member) == known, "{member}: {recorded:?} and {known:?}");
        }
        agent.end().await
    });
}

#[test]
fn csi_node_that_somebody_deletes_is_back() {
    on_fleet("agent-csi-node", async |rig| {
        let agent = Agent::start(rig).await?;
        let csi_nodes: Api<CSINode> = Api::all(rig.fleet.host().client().await?);
        csi_nodes.delete(NODE, &DeleteParams::default()).await?;
        wait_for("the CSINode is back", PATIENCE, || async {
            let there = csi_nodes.get_opt(NODE).await?;
            Ok(there.filter(|there| there.spec.drivers.iter().any(|driver| driver.node_id == "virtual/cluster38")))
        })
        .await?;
        agent.end().await
    });
}

/// The host's own attach controller asks nobody but the node.
#[test]
fn volume_of_a_pod_that_was_deleted_by_force_stays_attached_until_its_copy_has_ended() {
    on_fleet("agent-in-use", async |rig| {
        let host = Place::new(rig.fleet.host(), "agent-in-use").await?;
        let agent = Agent::start(rig).await?;
        host.class("agent-in-use", "WaitForFirstConsumer", json!({"leafStorageClass": LATER}), &MEMBERS).await?;
        host.claim("data", "agent-in-use").await?;
        let mut slow = tolerant("web", &["data"]);
        slow["spec"]["terminationGracePeriodSeconds"] = json!(20);
        slow["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
        host.pods().create(&PostParams::default(), &serde_json::from_value(slow)?).await?;
        phase(&host, "web", "Running").await?;
        let volume = host.bound("data").await?;
        let status = agent.node(NODE).await?.and_then(|node| node.status).context("the node says how it is")?;
        let in_use = status.volumes_in_use.unwrap_or_default();
        ensure!(in_use == [format!("kubernetes.io/csi/kosmos.csi.io^{}", handle(&volume))], "{in_use:?}");
        let attachments: Api<VolumeAttachment> = Api::all(host.client.clone());
        let is_attached = async || -> Result<bool> {
            let all = attachments.list(&ListParams::default()).await?;
            let name = Some(volume.name_any());
            Ok(all.into_iter().any(|one| one.spec.source.persistent_volume_name == name))
        };
        let member = Place::existing(rig.fleet.member(MEMBER), "agent-in-use").await?;
        host.force_delete_pod("web").await?;
        let begun = Instant::now();
        loop {
            let is_attached = is_attached().await?;
            // What has ended writes no more, though the member has it a moment longer.
            let ended = |copy: &Pod| {
                let phase = copy.status.as_ref().and_then(|status| status.phase.as_deref());
                matches!(phase, Some("Succeeded" | "Failed"))
            };
            if member.pods().get_opt("web").await?.is_none_or(|copy| ended(&copy)) {
                break;
            }
            ensure!(is_attached, "it was detached while its copy ran, after {:?}", begun.elapsed());
            sleep(Duration::from_millis(200)).await;
        }
        ensure!(begun.elapsed() > Duration::from_secs(10), "the copy has ended too soon for this test");
        wait_for("the volume is detached", PATIENCE, || async { Ok((!is_attached().await?).then_some(())) }).await?;
        host.delete_claim("data").await?;
        nothing_of_ours(member.cluster, "agent-in-use").await?;
        agent.end().await
    });
}

#[test]
fn node_of_a_member_has_a_virtual_node_of_its_own_where_that_is_wanted() {
    on_fleet("agent-node-mode", async |rig| {
        let host = Place::new(rig.fleet.host(), "agent-node-mode").await?;
        let nodes = MEMBERS.map(|member| format!("kosmos-{member}-{}", rig.fleet.member(member).node_name()));
        let agent = Agent::start_with(rig, &["--node-mode=node"], &nodes).await?;
        host.class("agent-node-mode", "WaitForFirstConsumer", json!({"leafStorageClass": LATER}), &MEMBERS).await?;
        host.claim("data", "agent-node-mode").await?;
        host.tolerant_pod("web", &["data"], Some(&nodes[0])).await?;
        phase(&host, "web", "Running").await?;
        let member = Place::existing(rig.fleet.member(MEMBER), "agent-node-mode").await?;
        ensure!(member.node_of("web").await? == member.cluster.node_name(), "the copy is on another node");
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        host.delete_claim("data").await?;
        nothing_of_ours(member.cluster, "agent-node-mode").await?;
        agent.end().await
    });
}

#[test]
fn nodes_of_clustertree_get_what_they_lack_and_their_pods_are_left_alone() {
    on_fleet("agent-clustertree", async |rig| {
        let tested = beside_clustertree(rig).await;
        kosmos::without_kosmos(rig).await?;
        tested
    });
}

async fn beside_clustertree(rig: &Rig) -> Result<()> {
    let (host, theirs) = (Place::new(rig.fleet.host(), "agent-clustertree").await?, "kosmos-tree");
    let other = NodeDriver { name: "other.example.com", node_id: "theirs", topology_keys: &[] };
    let node = host.cluster.virtual_node(theirs, &[("kosmos.io/node", "true")], other).await?;
    let agent = Agent::start(rig).await?;
    kosmos::with_kosmos(rig).await?;
    rig.leave("cluster39").await?;
    let kubeconfig = rig.fleet.member("cluster39").kubeconfig_for(DRIVER_NAMESPACE, ACCOUNT).await?;
    host.cluster.apply(&kosmos::cluster("cluster39", &kubeconfig, &json!({}))).await?;
    // From then on it knows the member by nothing else.
    wait_for("the agent has found the object", PATIENCE, || async {
        Ok(agent.process.log()?.contains("Kosmos Cluster objects are members").then_some(()))
    })
    .await?;
    host.cluster.kubectl(&["annotate", "node", theirs, "kosmos-io/owned-by-cluster=cluster39"]).await?;
    let csi_nodes: Api<CSINode> = Api::all(host.client.clone());
    wait_for("their node has what it lacks", PATIENCE, || async {
        let drivers = csi_nodes.get(theirs).await?.spec.drivers;
        let named = |name: &str| drivers.iter().any(|driver| driver.name == name);
        let labels = agent.node(theirs).await?.context("their node is there")?.metadata.labels.unwrap_or_default();
        let member = labels.get(MEMBER_KEY).map(String::as_str);
        Ok((named("kosmos.csi.io") && named("other.example.com") && member == Some("cluster39")).then_some(()))
    })
    .await?;
    wait_for("the agent's own node for it is gone", PATIENCE, || async {
        Ok(agent.node("kosmos-cluster39").await?.is_none().then_some(()))
    })
    .await?;
    host.tolerant_pod("theirs", &[], Some(theirs)).await?;
    ensure!(host.node_of("theirs").await? == theirs, "it is elsewhere");
    // A pod that comes later is run: the earlier one was seen too.
    host.tolerant_pod("ours", &[], Some(NODE)).await?;
    phase(&host, "ours", "Running").await?;
    let copied = rig.fleet.member("cluster39").kubectl(&["get", "pods", "-n", &host.namespace, "-o", "name"]).await?;
    ensure!(copied.is_empty(), "clustertree's pod was copied: {copied}");
    let pod = host.pods().get("theirs").await?;
    ensure!(pod.status.and_then(|status| status.phase).as_deref() == Some("Pending"), "somebody told of it");
    host.force_delete_pod("theirs").await?;
    host.pods().delete("ours", &DeleteParams::default()).await?;
    gone(&host, "ours").await?;
    agent.end().await?;
    node.delete().await
}
