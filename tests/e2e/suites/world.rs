//! What the suites find: a host in which their pods are run in members, or on its real node, and what the driver can there.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::{
    parts::{Part, Scene},
    run::Run,
};
use crate::{
    agent::{ACCOUNT, Agent},
    attributes::attributes_class,
    clusters::{Cluster, member_driver, namespaces::BRIDGE_ADDRESS, wait_for},
    host_node::{self, HostNode, NEAR, Storage, storage_objects},
    objects::Place,
    rig::{DRIVER, DRIVER_NAMESPACE, LATER, MEMBER_KEY, MEMBERS, PATIENCE, PODS_NAMESPACE, Rig, SNAPSHOT_CLASS},
};

/// The host's StorageClass, and the VolumeAttributesClasses of both clusters.
const CLASS: &str = "suites";
/// All volumes are in this member, as what is made of a volume has to be where that is.
const MEMBER: &str = MEMBERS[0];
const PORT: u16 = 26600;
/// On each namespace that the suites make.
const MARK: &str = "e2e-run";
/// Volumes on the real node, of all specs that run at a time.
const MOST: u32 = 32;
/// How soon the members' administrators open a namespace to the host: its pods come once it has an account.
const SOON: Duration = Duration::from_millis(100);

/// Specs of a part, to their end.
pub async fn hold(rig: &'static Rig, part: Part) -> Result<()> {
    match part.scene {
        Scene::Virtual => on_virtual_nodes(rig, part).await,
        Scene::Real => on_the_real_node(rig, part).await,
    }
}

async fn on_virtual_nodes(rig: &Rig, part: Part) -> Result<()> {
    let (fleet, host) = (&rig.fleet, rig.fleet.host());
    let flags = [
        format!("--kubelet-address={BRIDGE_ADDRESS}:{PORT}"),
        format!("--host-address=https://{BRIDGE_ADDRESS}:{}", host.api_port()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let agent = Agent::start_with(rig, &flags, &MEMBERS.map(|member| format!("kosmos-{member}"))).await?;
    try_join_all(fleet.members().iter().map(Cluster::install_images_of_suites)).await?;
    trust(rig).await?;
    host.apply(&list(&[pods_policy(), namespaces_policy(), groups_policy()].concat()).to_string()).await?;
    pods_are_changed(host).await?;
    let opening = Opening::begin(rig).await?;
    let driver = storage(rig, LATER, member_driver::DRIVER).await?;
    Run::new(rig, part, driver)?.go_on().await?;
    drop(opening);
    no_policies(host).await?;
    agent.end().await
}

/// The one node without a taint that is in the way.
async fn on_the_real_node(rig: &Rig, part: Part) -> Result<()> {
    let (host, member) = (rig.fleet.host(), rig.fleet.member(MEMBER));
    ensure!(member.name() == host_node::MEMBER, "the node reaches the storage of {}", host_node::MEMBER);
    for object in storage_objects(NEAR) {
        member.apply(&object.to_string()).await?;
    }
    let node = HostNode::start(rig, Storage { most: MOST, ..NEAR }).await?;
    host.install_images_of_suites().await?;
    host.apply(&list(&groups_policy()).to_string()).await?;
    let driver = storage(rig, "ext4", NEAR.driver).await?;
    let [key, value] = host_node::TAINT;
    let taint = format!("{key}={value}:NoSchedule");
    host.kubectl(&["taint", "node", &node.name(), &format!("{taint}-")]).await?;
    let held = Run::new(rig, part, driver)?.go_on().await;
    host.kubectl(&["taint", "node", &node.name(), &taint]).await?;
    no_policies(host).await?;
    held?;
    node.is_clean().await?;
    node.end().await
}

/// Both sides' administrators let all pods of the host in, also with Secrets.
async fn trust(rig: &Rig) -> Result<()> {
    let host = rig.fleet.host();
    for member in MEMBERS {
        let all = "kosmos.csi.io/pods=privileged";
        host.kubectl(&["annotate", "--overwrite", "secret", member, "-n", PODS_NAMESPACE, all]).await?;
        rig.fleet.member(member).apply(&gives_secrets(DRIVER_NAMESPACE).to_string()).await?;
    }
    host.apply(&gives_secrets(PODS_NAMESPACE).to_string()).await
}

/// Of all namespaces, as nobody knows what the suites call theirs.
fn gives_secrets(namespace: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "suites"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "kosmos-csi-virtual-node-secrets"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    })
}

/// Pods of the suites tolerate virtual nodes. What is changed of them later stays as it is.
fn pods_policy() -> [Value; 2] {
    let toleration = r#"Object.spec.tolerations{key: "kosmos.io/node", operator: "Exists"}"#;
    let tolerates = format!(
        r#"has(object.spec.tolerations) ?
        [JSONPatch{{op: "add", path: "/spec/tolerations/-", value: {toleration}}}] :
        [JSONPatch{{op: "add", path: "/spec/tolerations", value: [{toleration}]}}]"#
    );
    policy(["", "v1", "pods"], &json!({"namespaceSelector": marked()}), &tolerates)
}

/// Their namespaces give Secrets to members.
fn namespaces_policy() -> [Value; 2] {
    let gives = r#"[JSONPatch{op: "add", path: "/metadata/labels/kosmos.csi.io~1secrets", value: "true"}]"#;
    policy(["", "v1", "namespaces"], &json!({"objectSelector": marked()}), gives)
}

/// They name the deletion policy of their classes of groups as a parameter too, which this driver does not know.
fn groups_policy() -> [Value; 2] {
    let parameter = r#"has(object.parameters) && "deletionPolicy" in object.parameters"#;
    let removed = format!(r#"{parameter} ? [JSONPatch{{op: "remove", path: "/parameters/deletionPolicy"}}] : []"#);
    policy(["groupsnapshot.storage.k8s.io", "*", "volumegroupsnapshotclasses"], &json!({}), &removed)
}

fn marked() -> Value {
    json!({"matchExpressions": [{"key": MARK, "operator": "Exists"}]})
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

async fn no_policies(host: &Cluster) -> Result<()> {
    host.kubectl(&["delete", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--all"]).await.map(drop)
}

/// Of a resource with its group and version, where these selectors take it.
fn policy([group, of, resource]: [&str; 3], selectors: &Value, change: &str) -> [Value; 2] {
    let (version, name) = ("admissionregistration.k8s.io/v1", format!("suites-{resource}"));
    let mut matched = selectors.clone();
    matched["resourceRules"] =
        json!([{"apiGroups": [group], "apiVersions": [of], "operations": ["CREATE"], "resources": [resource]}]);
    let policy = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": matched,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": change}}],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    [policy, binding]
}

/// The API server hears of policies after a moment.
async fn pods_are_changed(host: &Cluster) -> Result<()> {
    let probe = Place::new(host, "suites-probe").await?;
    host.kubectl(&["label", "--overwrite", "namespace", &probe.namespace, &format!("{MARK}=probe")]).await?;
    let pod = ["run", "probe", "--image=none", "--dry-run=server", "-n", &probe.namespace];
    let tolerated = ["-o", "jsonpath={.spec.tolerations[*].key}"];
    wait_for("pods of the suites tolerate virtual nodes", PATIENCE, || async {
        let keys = host.kubectl(&[&pod[..], &tolerated[..]].concat()).await?;
        Ok(keys.contains("kosmos.io/node").then_some(()))
    })
    .await?;
    host.kubectl(&["delete", "namespace", &probe.namespace, "--wait=false"]).await.map(drop)
}

/// The members' administrators at work, until it is dropped: they open each namespace of the suites.
struct Opening(JoinHandle<()>);

impl Opening {
    async fn begin(rig: &Rig) -> Result<Self> {
        let host = rig.fleet.host().client().await?;
        let members = try_join_all(rig.fleet.members().iter().map(Cluster::client)).await?;
        Ok(Self(tokio::spawn(keep_opening(host, members))))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn keep_opening(host: Client, members: Vec<Client>) {
    let mut open = BTreeSet::new();
    loop {
        open_all(&host, &members, &mut open).await.ok(); // what has failed is tried again
        sleep(SOON).await;
    }
}

async fn open_all(host: &Client, members: &[Client], open: &mut BTreeSet<String>) -> Result<()> {
    let marked = ListParams::default().labels(MARK);
    for namespace in Api::<Namespace>::all(host.clone()).list_metadata(&marked).await?.items {
        let name = namespace.name_any();
        if open.contains(&name) {
            continue;
        }
        let labels = json!({"kosmos.csi.io/pods": "privileged", "pod-security.kubernetes.io/enforce": "privileged"});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        for member in members {
            let namespaces: Api<Namespace> = Api::all(member.clone());
            namespaces.patch(&name, &PatchParams::apply("suites").force(), &Patch::Apply(&object)).await?;
        }
        open.insert(name);
    }
    Ok(())
}

/// Classes of the driver in both clusters, and where it stands what it can do with volumes of them.
async fn storage(rig: &Rig, leaf_class: &str, leaf_driver: &str) -> Result<PathBuf> {
    let host = Place::existing(rig.fleet.host(), "default").await?;
    host.class(CLASS, "WaitForFirstConsumer", json!({"leafStorageClass": leaf_class}), &[MEMBER]).await?;
    rig.fleet.member(MEMBER).apply(&attributes_class(CLASS, leaf_driver).to_string()).await?;
    let attributes = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": CLASS},
        "driverName": DRIVER, "parameters": {"leafVolumeAttributesClass": CLASS},
    });
    host.cluster.apply(&attributes.to_string()).await?;
    let file = rig.fleet.folder().join("suites-driver.json");
    std::fs::write(&file, driver().to_string()).context("say what the driver can")?;
    Ok(file)
}

/// As docs/storageclass.md and the members' storage have it. What is not named here is skipped by the suites themselves: volumes
/// for many nodes, as these are disks; growth in use, which not every kernel permits; two volumes of one handle.
const CAN: [&str; 15] = [
    "persistence",
    "block",
    "fsGroup",
    "exec",
    "snapshotDataSource",
    "pvcDataSource",
    "groupSnapshot",
    "multipods",
    "controllerExpansion",
    "nodeExpansion",
    "offlineExpansion",
    "singleNodeVolume",
    "topology",
    "capacity",
    "readWriteOncePod",
];

fn driver() -> Value {
    let mut capabilities: Value = CAN.iter().map(|name| (*name, json!(true))).collect();
    // Where it is not named it is taken for granted.
    capabilities["onlineExpansion"] = json!(false);
    json!({
        "StorageClass": {"FromExistingClassName": CLASS},
        "SnapshotClass": {"FromExistingClassName": SNAPSHOT_CLASS},
        "GroupSnapshotClass": {"FromExistingClassName": SNAPSHOT_CLASS},
        "VolumeAttributesClass": {"FromExistingClassName": CLASS},
        "DriverInfo": {
            "Name": DRIVER,
            "Capabilities": capabilities,
            "TopologyKeys": [MEMBER_KEY],
            "MaxFileSize": 104_857_600,
            "SupportedSizeRange": {"Min": "256Mi"},
            "StressTestOptions": {"NumPods": 4, "NumRestarts": 3},
            "VolumeSnapshotStressTestOptions": {"NumPods": 2, "NumSnapshots": 3},
            "VolumeModifyStressTestOptions": {"NumPods": 3},
        },
    })
}
