//! A release of the chart on a real host: the driver and its sidecars in containers, on the level `restricted`, with members
//! that are given as Secrets.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, try_join_all};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    clusters::{
        Cluster, Fleet, NodeDriver, Spec, VirtualNode, images,
        member_driver::{MemberStorage, storage_class},
        product::{self, Flavour},
        wait_for,
    },
    helm::{CHART, NAMESPACE, checkout, helm, objects},
    rights,
    volumes::{self, GROWING},
};

pub const PATIENCE: Duration = Duration::from_secs(90);
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
const MEMBERS: [&str; 2] = ["cluster38", "cluster39"];
const MEMBER_OBJECTS: &str = include_str!("../../deploy/member.yaml");
const MEMBER_KEY: &str = "topology.kosmos.csi.io/member";
/// Kept when a release goes, and some seconds of work otherwise: who is who, and who leads.
const KEPT: [&str; 4] = ["configmap/kosmos-csi-members", "secret/cluster38", "secret/cluster39", "lease."];

/// The host has two replicas of the controller, real volumes for its own node, and classes of its own.
fn values(fleet: &Fleet) -> String {
    json!({
        "virtualNode": {"enabled": false},
        "node": {"enabled": true, "members": [
            {"name": "cluster38", "nodeSelector": {"kubernetes.io/hostname": fleet.host().node_name()}}]},
        "nodeSecrets": {"enabled": true},
        "logs": {"level": "warn,kosmos_csi=debug"},
        "storageClasses": [
            {"name": "openebs-hostpath", "members": MEMBERS, "parameters": {"leafStorageClass": "openebs-hostpath"}},
            {"name": GROWING, "members": ["cluster38"], "parameters": {"leafStorageClass": GROWING}},
        ],
        "snapshotClasses": [{"name": "photos"}],
    })
    .to_string()
}

#[test]
fn release_in_containers_makes_volumes_by_rights_that_it_needs_and_leaves_nothing() {
    Runtime::new().unwrap().block_on(async {
        let fleet = Fleet::start(Spec { members: MEMBERS.len(), nodes: true }).await.unwrap();
        let _logs = fleet.test("install");
        if let Err(error) = whole_life(&fleet).await {
            panic!("{error:#}");
        }
    });
}

async fn whole_life(fleet: &Fleet) -> Result<()> {
    let _members = prepare_members(fleet).await?;
    let _nodes = prepare_host(fleet).await?;
    let _snapshots = fleet.snapshot_controller(fleet.host(), &["--feature-gates=CSIVolumeGroupSnapshot=true"])?;
    install(fleet)?;
    running(fleet.host()).await?;
    let manifest = helm(&["get", "manifest", "kosmos-csi", "--namespace", NAMESPACE, &kubeconfig(fleet.host())])?;
    try_join_all(MEMBERS.map(|member| join(fleet, member))).await?;
    volumes::live_and_go(fleet).await?;
    // When it goes, its rights go before its last requests.
    let rights = rights::are_those_that_were_used(fleet.host(), &manifest).await;
    uninstall(fleet.host(), &manifest).await?;
    rights
}

async fn prepare_members(fleet: &Fleet) -> Result<MemberStorage> {
    let prepare = async |member: &Cluster| {
        member.apply(MEMBER_OBJECTS).await?;
        member.install_local_path("openebs-hostpath").await
    };
    try_join_all(fleet.members().iter().map(prepare)).await?;
    let classes = [storage_class(GROWING, "Immediate", &json!({"kind": "shared"}))];
    let storage = fleet.install_member_driver(fleet.member("cluster38"), &classes).await?;
    fleet.member("cluster38").apply(&volumes::leaf_snapshot_classes()).await?;
    Ok(storage)
}

async fn prepare_host(fleet: &Fleet) -> Result<Vec<VirtualNode>> {
    let host = fleet.host();
    host.install_snapshot_crds().await?;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
    host.apply(&namespace.to_string()).await?;
    import_sidecars(fleet).await?;
    let folder = tempfile::tempdir_in(fleet.folder())?;
    for archive in pack(folder.path())? {
        import(fleet, &archive).await?;
    }
    try_join_all(MEMBERS.map(async |member| {
        let id = format!("virtual/{member}");
        let driver = NodeDriver { name: "kosmos.csi.io", node_id: &id, topology_keys: &[MEMBER_KEY] };
        let labels = [(MEMBER_KEY, member), ("kosmos.io/node", "true")];
        host.virtual_node(&format!("kosmos-{member}"), &labels, driver).await
    }))
    .await
}

/// Under the very names that the chart's own values say.
pub async fn import_sidecars(fleet: &Fleet) -> Result<()> {
    let values = objects(&std::fs::read_to_string(checkout().join(CHART).join("values.yaml"))?)?.remove(0);
    for name in ["provisioner", "attacher", "resizer", "snapshotter"] {
        let image = &values["sidecars"][name]["image"];
        let word = |key: &str| image[key].as_str().with_context(|| format!("{name} has no {key}"));
        let reference = format!("{}:{}", word("repository")?, word("tag")?);
        let binary = format!("csi-{name}");
        let built = fleet.tools().version(&binary);
        ensure!(built == word("tag")?, "the chart has {reference}, and the tests {built}");
        import(fleet, &images::sidecar(fleet.tools(), &binary, &reference)?).await?;
    }
    Ok(())
}

/// Both images of the program that was built with the tests.
pub fn pack(folder: &Path) -> Result<Vec<PathBuf>> {
    let pack = |flavour| product::image(flavour, Path::new(PROGRAM), product::NAME, env!("CARGO_PKG_VERSION"), folder);
    [Flavour::Small, Flavour::Node].into_iter().map(|flavour| Ok(pack(flavour)?.archive)).collect()
}

async fn import(fleet: &Fleet, archive: &Path) -> Result<()> {
    let archive = archive.display().to_string();
    fleet.host().node_exec("ctr", &["-n", "k8s.io", "images", "import", &archive]).await.map(drop)
}

fn kubeconfig(cluster: &Cluster) -> String {
    format!("--kubeconfig={}", cluster.kubeconfig().display())
}

fn install(fleet: &Fleet) -> Result<()> {
    let file = fleet.folder().join("values.json");
    std::fs::write(&file, values(fleet)).context("write the values")?;
    let values = format!("--values={}", file.display());
    let kubeconfig = kubeconfig(fleet.host());
    let notes = helm(&["install", "kosmos-csi", CHART, "--namespace", NAMESPACE, &values, &kubeconfig])?;
    ensure!(notes.contains("rollout status deployment/kosmos-csi-controller"), "{notes}");
    ensure!(!notes.contains("Snapshots are off"), "the host serves snapshots: {notes}");
    Ok(())
}

async fn running(host: &Cluster) -> Result<()> {
    let waited = try_join_all([
        host.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/kosmos-csi-controller", "--timeout=90s"]),
        host.kubectl(&[
            "-n",
            "kosmos-csi-node",
            "rollout",
            "status",
            "daemonset/kosmos-csi-node-cluster38",
            "--timeout=90s",
        ]),
    ])
    .await;
    if let Err(error) = waited {
        let described = join_all([NAMESPACE, "kosmos-csi-node"].map(|namespace| describe(host, namespace))).await;
        return Err(error.context(described.concat()));
    }
    wait_for("the node has the driver", PATIENCE, || async {
        let known =
            host.kubectl(&["get", "csinode", &host.node_name(), "-o", "jsonpath={.spec.drivers[*].nodeID}"]).await?;
        Ok(known.contains(&format!("real/{}", host.node_name())).then_some(()))
    })
    .await
}

async fn describe(host: &Cluster, namespace: &str) -> String {
    host.kubectl(&["-n", namespace, "describe", "pods"]).await.unwrap_or_default()
}

/// As an operator would, without the command for it.
async fn join(fleet: &Fleet, name: &str) -> Result<()> {
    let kubeconfig = fleet.member(name).kubeconfig_for(NAMESPACE, "kosmos-csi").await?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": name}},
        "stringData": {"kubeconfig": kubeconfig},
    });
    fleet.host().apply(&secret.to_string()).await
}

/// What the release has made goes; what says which member is which cluster stays.
async fn uninstall(host: &Cluster, manifest: &str) -> Result<()> {
    helm(&["uninstall", "kosmos-csi", "--namespace", NAMESPACE, "--wait", "--timeout=90s", &kubeconfig(host)])?;
    for object in objects(manifest)? {
        let kept = object.pointer("/metadata/annotations/helm.sh~1resource-policy").is_some();
        let word = |path: &str| object.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default();
        let (kind, name, namespace) = (word("/kind"), word("/metadata/name"), word("/metadata/namespace"));
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        let what = format!("{kind} {name} {}", if kept { "stays" } else { "is gone" });
        wait_for(&what, PATIENCE, || async {
            let found = host.kubectl(&["-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "name"]).await?;
            Ok((found.is_empty() != kept).then_some(()))
        })
        .await?;
    }
    wait_for("nothing else is left in the driver's namespace", PATIENCE, || async {
        let kinds = "pods,services,secrets,configmaps,serviceaccounts,csistoragecapacities,leases,endpointslices";
        let left = host.kubectl(&["-n", NAMESPACE, "get", kinds, "-o", "name"]).await?;
        let usual = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
        let expected = |line: &&str| KEPT.iter().chain(&usual).any(|kept| line.starts_with(kept));
        let left: Vec<&str> = left.lines().filter(|line| !expected(line)).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await
}
