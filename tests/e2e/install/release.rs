//! A release of the chart on a real host: the driver, its sidecars and the agent in containers, on the level `restricted`,
//! with members that join by the command for it. Twice, and nothing is left.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, try_join_all};
use serde_json::json;
use tokio::sync::Mutex;

use super::{
    assigned, demo, examples,
    helm::{CHART, NAMESPACE, PODS_NAMESPACE, checkout, helm, objects},
    program, readme, rights,
    volumes::{self, GROWING},
};
use crate::clusters::{
    AuditMark, Cluster, Fleet, Process, Spec, images,
    member_driver::{self, MemberStorage, storage_class},
    product::{self, Flavour},
    wait_for,
};

pub const PATIENCE: Duration = Duration::from_secs(90);
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
const MEMBERS: [&str; 2] = ["cluster38", "cluster39"];
const WORKLOADS: [(&str, &str); 3] = [
    (NAMESPACE, "deployment/kosmos-csi-controller"),
    (PODS_NAMESPACE, "deployment/kosmos-csi-virtual-node"),
    ("kosmos-csi-node", "daemonset/kosmos-csi-node-cluster38"),
];
/// Kept when a release goes: who is who, and who leads.
const KEPT: [&str; 2] = ["configmap/kosmos-csi-members", "lease."];

/// The host has two replicas of the controller, real volumes for its own node, and classes of its own; it gives pods their IDs.
fn values(fleet: &Fleet) -> String {
    json!({
        "node": {"enabled": true, "members": [
            {"name": "cluster38", "leafDrivers": [member_driver::DRIVER],
                "nodeSelector": {"kubernetes.io/hostname": fleet.host().node_name()}}]},
        "nodeSecrets": {"enabled": true},
        "moves": {"enabled": true},
        "podSecurityContext": {"runAsUser": null, "runAsGroup": null, "fsGroup": null},
        "logs": {"level": "warn,kosmos_csi=debug"},
        "storageClasses": [
            {"name": "openebs-hostpath", "members": MEMBERS, "parameters": {"leafStorageClass": "openebs-hostpath"}},
            {"name": GROWING, "members": ["cluster38"], "parameters": {"leafStorageClass": GROWING}},
        ],
        "snapshotClasses": [{"name": "photos"}],
    })
    .to_string()
}

/// A fleet with everything that a release needs, and the release itself from its second life on.
pub struct Release {
    pub fleet: Fleet,
    /// From which on nothing may be denied; nobody has installed it before.
    installed: Mutex<Option<AuditMark>>,
    /// Chapters that were told to their end.
    told: AtomicUsize,
    _members: MemberStorage,
    _snapshots: Process,
}

impl Release {
    pub async fn prepare() -> Result<Self> {
        let fleet = Fleet::start(Spec { members: MEMBERS.len(), nodes: true }).await?;
        let members = prepare_members(&fleet).await?;
        prepare_host(&fleet).await?;
        let snapshots = fleet.snapshot_controller(fleet.host(), &["--feature-gates=CSIVolumeGroupSnapshot=true"])?;
        Ok(Self {
            fleet,
            installed: Mutex::new(None),
            told: AtomicUsize::new(0),
            _members: members,
            _snapshots: snapshots,
        })
    }

    /// The fleet with a release of the chart's own values for tests, with both members.
    pub async fn installed(&self) -> Result<&Fleet> {
        let mut installed = self.installed.lock().await;
        if installed.is_none() {
            if manifest(self.fleet.host()).is_ok() {
                go(&self.fleet).await.context("remove what a failed test has left")?;
            }
            *installed = Some(self.fleet.host().audit_mark().await?);
            come(&self.fleet).await?;
        }
        Ok(&self.fleet)
    }

    /// One more chapter has been told to its end.
    pub fn tell(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    pub async fn first_life(&self) -> Result<()> {
        let fleet = &self.fleet;
        let begin = fleet.host().audit_mark().await?;
        readme::install(fleet).await?;
        demo::runs_in_its_member(fleet).await?;
        volumes::nothing_left(fleet).await?;
        fleet.host().kubectl(&["delete", "storageclass", "openebs-hostpath"]).await?;
        // When a release goes, its rights go before its last requests.
        rights::were_enough(fleet.host(), &manifest(fleet.host())?, begin).await?;
        go(fleet).await
    }

    /// Whoever tells only a part of the story learns only from that.
    pub async fn end(&self, chapters: usize) -> Result<()> {
        let fleet = self.installed().await?;
        volumes::end(fleet).await?;
        volumes::nothing_left(fleet).await?;
        volumes::no_secret_is_left(fleet).await?;
        let manifest = manifest(fleet.host())?;
        let begin = self.installed.lock().await.context("it was installed")?;
        let enough = rights::were_enough(fleet.host(), &manifest, begin).await;
        let told = self.told.load(Ordering::Relaxed);
        let used = if told == chapters {
            rights::are_those_that_were_used(fleet.host(), &manifest).await
        } else {
            eprintln!("{told} of {chapters} chapters were told: whether every right is used is not judged");
            Ok(())
        };
        go(fleet).await?;
        enough.and(used)
    }
}

async fn come(fleet: &Fleet) -> Result<()> {
    install(fleet)?;
    running(fleet.host()).await?;
    assigned::is_what_pods_run_as(fleet.host()).await?;
    for member in MEMBERS {
        join(fleet, member).await?;
    }
    Ok(())
}

/// Members first: their virtual nodes go with them.
async fn go(fleet: &Fleet) -> Result<()> {
    for member in MEMBERS {
        leave(fleet, member).await?;
    }
    uninstall(fleet.host()).await
}

/// With what `helm test` makes, which Helm keeps apart.
pub fn manifest(host: &Cluster) -> Result<String> {
    let get = |part| helm(&["get", part, "kosmos-csi", "--namespace", NAMESPACE, &kubeconfig(host)]);
    Ok(format!("{}\n{}", get("manifest")?, get("hooks")?))
}

async fn prepare_members(fleet: &Fleet) -> Result<MemberStorage> {
    try_join_all(fleet.members().iter().map(|member| member.install_local_path("openebs-hostpath"))).await?;
    for image in [demo::IMAGE, examples::IMAGE] {
        let archive = images::stand_in(image)?;
        try_join_all(fleet.members().iter().map(|member| import(member, &archive))).await?;
    }
    let classes = [storage_class(GROWING, "Immediate", &json!({"kind": "shared"}))];
    let storage = fleet.install_member_driver(fleet.member("cluster38"), &classes).await?;
    fleet.member("cluster38").apply(&volumes::leaf_snapshot_classes()).await?;
    Ok(storage)
}

async fn prepare_host(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    assigned::begin(host).await?;
    host.install_snapshot_crds().await?;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
    host.apply(&namespace.to_string()).await?;
    import_sidecars(fleet).await?;
    let folder = tempfile::tempdir_in(fleet.folder())?;
    for archive in pack(folder.path(), &[Flavour::Small, Flavour::Node])? {
        import(host, &archive).await?;
    }
    for archive in pack(folder.path(), &[Flavour::Mover])? {
        try_join_all(fleet.members().iter().map(|member| import(member, &archive))).await?;
    }
    Ok(())
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
        import(fleet.host(), &images::sidecar(fleet.tools(), &binary, &reference)?).await?;
    }
    Ok(())
}

/// Images, with the program that was built for them beside the tests.
pub fn pack(folder: &Path, flavours: &[Flavour]) -> Result<Vec<PathBuf>> {
    let program = program::of_images()?;
    let pack = |flavour| product::image(flavour, &program, product::NAME, env!("CARGO_PKG_VERSION"), folder);
    flavours.iter().map(|flavour| Ok(pack(*flavour)?.archive)).collect()
}

pub async fn import(cluster: &Cluster, archive: &Path) -> Result<()> {
    let archive = archive.display().to_string();
    cluster.node_exec("ctr", &["-n", "k8s.io", "images", "import", &archive]).await.map(drop)
}

pub fn kubeconfig(cluster: &Cluster) -> String {
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

pub async fn running(host: &Cluster) -> Result<()> {
    let rolled_out = async |namespace, workload| {
        host.kubectl(&["-n", namespace, "rollout", "status", workload, "--timeout=90s"]).await
    };
    let waited = try_join_all(WORKLOADS.map(|(namespace, workload)| rolled_out(namespace, workload))).await;
    if let Err(error) = waited {
        let described = join_all(WORKLOADS.map(|(namespace, _)| describe(host, namespace))).await;
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

/// Types a command in the fleet, where all clusters are reached as pods reach them.
async fn typed(fleet: &Fleet, words: &[&str], member: &str) -> Result<String> {
    let host = format!("--kubeconfig={}", fleet.host().kubeconfig_inside().display());
    let admin = format!("--member-kubeconfig={}", fleet.member(member).kubeconfig_inside().display());
    fleet.exec(PROGRAM, &[words, &[member, &admin, &host]].concat()).await
}

/// As an operator does.
pub(super) async fn join(fleet: &Fleet, member: &str) -> Result<()> {
    typed(fleet, &["member", "add", "--moves"], member).await?;
    let node = format!("node/kosmos-{member}");
    wait_for(&format!("{node} takes pods"), PATIENCE, || async {
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} {.spec.taints[*].key}";
        let state = fleet.host().kubectl(&["get", &node, "-o", path]).await?;
        ensure!(state == "True kosmos.io/node", "it is {state:?}");
        Ok(Some(()))
    })
    .await
}

async fn leave(fleet: &Fleet, member: &str) -> Result<()> {
    typed(fleet, &["member", "remove"], member).await?;
    let kinds = "clusterroles,clusterrolebindings,serviceaccounts";
    let left = fleet.member(member).kubectl(&["get", kinds, "-n", NAMESPACE, "-o", "name"]).await?;
    let left: Vec<&str> = left.lines().filter(|line| line.contains("kosmos-csi")).collect();
    ensure!(left.is_empty(), "in {member}: {left:?}");
    wait_for("its virtual node is gone", PATIENCE, || async {
        let nodes = fleet.host().kubectl(&["get", "nodes,csinodes", "-o", "name"]).await?;
        ensure!(!nodes.contains(&format!("kosmos-{member}")), "{nodes}");
        Ok(Some(()))
    })
    .await
}

/// What the release has made goes; what says which member is which cluster stays.
async fn uninstall(host: &Cluster) -> Result<()> {
    let manifest = &manifest(host)?;
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
    try_join_all([NAMESPACE, PODS_NAMESPACE].map(|namespace| nothing_else_is_left(host, namespace))).await.map(drop)
}

async fn nothing_else_is_left(host: &Cluster, namespace: &str) -> Result<()> {
    wait_for(&format!("nothing else is left in {namespace}"), PATIENCE, || async {
        let kinds = "pods,services,secrets,configmaps,serviceaccounts,csistoragecapacities,leases,endpointslices";
        let left = host.kubectl(&["-n", namespace, "get", kinds, "-o", "name"]).await?;
        let usual = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
        let expected = |line: &&str| KEPT.iter().chain(&usual).any(|kept| line.starts_with(kept));
        let left: Vec<&str> = left.lines().filter(|line| !expected(line)).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await
}
