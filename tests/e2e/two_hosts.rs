//! Two hosts that share a member, whose users have the same names and write each other's handles: each keeps its own, and is
//! told whose the other's is.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::json;

use crate::{
    agent::{self, Agent, gone, phase},
    clusters::{Cluster, Process, wait_for},
    driver::PROGRAM,
    objects::{Place, nothing_of_ours},
    pool::on_fleet,
    reclaim::set_policy,
    rig::{
        DRIVER, DRIVER_NAMESPACE, HOST_OBJECTS, MEMBERS, NOW, PATIENCE, PODS_NAMESPACE, Rig, SNAPSHOT_CLASS,
        snapshot_classes,
    },
    snapshots::{SNAPSHOT_GROUP, filled, from_snapshot, kind, ready, snapshot, snapshots},
};

/// The second host is a cluster that is a member of the first.
const SECOND: &str = MEMBERS[1];
const SHARED: &str = MEMBERS[0];
const NAMESPACE: &str = "two-hosts";
const NODE: &str = "kosmos-cluster38";
/// Where the second host puts its leaves once it knows that the first one's name is taken.
const OWN: &str = "two-hosts-second";

/// Controller, agent and sidecars of the second host, with the one member.
struct Second<'a> {
    cluster: &'a Cluster,
    processes: Vec<Process>,
}

impl<'a> Second<'a> {
    async fn start(rig: &'a Rig) -> Result<Self> {
        let (fleet, cluster) = (&rig.fleet, rig.fleet.member(SECOND));
        cluster.apply(HOST_OBJECTS).await?;
        for class in snapshot_classes(SNAPSHOT_CLASS, DRIVER, "Delete", false) {
            cluster.apply(&class.to_string()).await?;
        }
        let kubeconfig = fleet.member(SHARED).kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi").await?;
        let member = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": SHARED, "namespace": DRIVER_NAMESPACE, "labels": {"kosmos.csi.io/member": SHARED}},
            "stringData": {"kubeconfig": kubeconfig},
        });
        cluster.apply(&member.to_string()).await?;
        let (socket, own) = (fleet.folder().join("second.sock"), fleet.folder().join("second.kubeconfig"));
        std::fs::write(&own, cluster.kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi-controller").await?)?;
        let (endpoint, own) =
            (format!("--endpoint=unix://{}", socket.display()), format!("--kubeconfig={}", own.display()));
        let namespace = format!("--members-namespace={DRIVER_NAMESPACE}");
        let arguments = ["controller", &endpoint, &own, &namespace, "--shutdown-grace=5s"];
        let controller =
            fleet.spawn("second-controller", PROGRAM, &arguments, &[("RUST_LOG", "warn,kosmos_csi=debug")])?;
        wait_for("the second controller listens", PATIENCE, || async { Ok(socket.exists().then_some(())) }).await?;
        let agent = agent::run(fleet, cluster, "second-virtual-node", &[SHARED], &[]).await?;
        agent::has_node(cluster, NODE).await?;
        let quick = ["--timeout=30s", "--retry-interval-start=500ms", "--retry-interval-max=5s"];
        let provisioner =
            fleet.provisioner(cluster, &socket, &[&quick[..], &["--feature-gates=Topology=true"]].concat())?;
        let snapshotter = fleet.snapshotter(cluster, &socket, &quick)?;
        Ok(Self { cluster, processes: vec![controller, agent, provisioner, snapshotter] })
    }

    /// It goes on as a member that knows of no host of its own.
    async fn end(self) -> Result<()> {
        for process in &self.processes {
            process.kill()?;
        }
        // One may go with the other.
        self.cluster.kubectl(&["delete", "--ignore-not-found", "node,csinode", NODE]).await?;
        self.cluster.kubectl(&["delete", "csidriver", DRIVER]).await?;
        for namespace in [DRIVER_NAMESPACE, PODS_NAMESPACE] {
            self.cluster.kubectl(&["delete", "secret", "-n", namespace, SHARED]).await?;
        }
        Ok(())
    }
}

/// A volume that somebody has written with all that the other host's says, and a claim that uses it.
async fn forge(place: &Place<'_>, name: &str, of: &PersistentVolume) -> Result<()> {
    let spec = json!(of.spec);
    let volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {"csi": spec["csi"], "capacity": spec["capacity"], "accessModes": spec["accessModes"],
            "storageClassName": NAMESPACE, "persistentVolumeReclaimPolicy": "Delete",
            // Or the claim gets it that waits for another one of the class.
            "claimRef": {"namespace": NAMESPACE, "name": name}},
    });
    place.volumes().create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    let claim = json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": NAMESPACE, "volumeName": name, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Mi"}}},
    });
    place.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    place.bound(name).await.map(drop)
}

/// Its claim goes, the provisioner asks for the removal, and is told whose it is. Then the administrator does as he is told.
async fn forgery_is_refused(place: &Place<'_>, name: &str, whose: &str) -> Result<()> {
    place.delete_claim(name).await?;
    let about = format!("involvedObject.name={name},reason=VolumeFailedDelete");
    wait_for(&format!("the removal of {name} is refused"), PATIENCE, || async {
        let told = place.cluster.kubectl(&["get", "events", "-A", "--field-selector", &about, "-o", "yaml"]).await?;
        Ok((told.contains(whose) && told.contains("removes nothing")).then_some(()))
    })
    .await?;
    set_policy(place, name, "Retain").await?;
    place.volumes().delete(name, &DeleteParams::default()).await?;
    place.volume_is_gone(name).await
}

/// What a host has in the shared member, by all that others could change of it.
#[derive(Debug, PartialEq)]
struct Own {
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
}

impl Own {
    async fn of(leaf: &Place<'_>, claim: &str) -> Result<Self> {
        let mut own = Self { claim: leaf.claims().get(claim).await?, volume: leaf.bound(claim).await? };
        for metadata in [&mut own.claim.metadata, &mut own.volume.metadata] {
            // Its own host marks it once, some seconds later.
            (metadata.resource_version, metadata.managed_fields) = (None, None);
            if let Some(annotations) = &mut metadata.annotations {
                annotations
                    .retain(|key, _| !["kosmos.csi.io/had-pv", "kosmos.csi.io/published"].contains(&key.as_str()));
            }
        }
        Ok(own)
    }
}

/// A pod that sees the claim and stays.
async fn pod_of(place: &Place<'_>, claims: &[&str]) -> Result<()> {
    place.tolerant_pod("web", claims, Some(NODE)).await
}

async fn photo_of_another(place: &Place<'_>, handle: &str) -> Result<()> {
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "forged"},
        "spec": {"deletionPolicy": "Delete", "driver": DRIVER, "source": {"snapshotHandle": handle},
            "volumeSnapshotClassName": SNAPSHOT_CLASS, "volumeSnapshotRef": {"name": "forged", "namespace": NAMESPACE}},
    });
    place.cluster.apply(&content.to_string()).await?;
    let contents: Api<DynamicObject> =
        Api::all_with(place.client.clone(), &kind(SNAPSHOT_GROUP, "VolumeSnapshotContent"));
    wait_for("the snapshot of another host is refused", PATIENCE, || async {
        let content = contents.get("forged").await?;
        ensure!(content.data["status"]["readyToUse"] != true, "{:?}", content.data);
        Ok((!content.data["status"]["error"].is_null()).then_some(()))
    })
    .await?;
    contents.delete("forged", &DeleteParams::default()).await?;
    wait_for("the forged content is gone", PATIENCE, || async {
        Ok(contents.get_opt("forged").await?.is_none().then_some(()))
    })
    .await
}

#[test]
fn two_hosts_on_one_member_keep_each_its_own_under_the_same_names_and_each_others_handles() {
    on_fleet("two_hosts", async |rig| {
        let first = Place::new(rig.fleet.host(), NAMESPACE).await?;
        let parameters = json!({"leafStorageClass": NOW, "member": SHARED});
        first.class(NAMESPACE, "Immediate", parameters.clone(), &[]).await?;
        let agent = Agent::start(rig).await?;
        first.claim("data", NAMESPACE).await?;
        let volume = first.bound("data").await?;
        pod_of(&first, &["data"]).await?;
        let running = phase(&first, "web", "Running").await?;
        snapshot(&first, "photo", "data").await?;
        let content = ready(&snapshots(&first), "photo", "boundVolumeSnapshotContentName").await?;
        let leaf = Place::existing(rig.fleet.member(SHARED), NAMESPACE).await?;
        let before = Own::of(&leaf, "data").await?;

        let host = Second::start(rig).await?;
        let second = Place::new(host.cluster, NAMESPACE).await?;
        let (ours, theirs) = (first.host_id().await?, second.host_id().await?);
        second.class(NAMESPACE, "Immediate", parameters, &[]).await?;
        let apart = json!({"leafStorageClass": NOW, "member": SHARED, "leafNamespace": OWN});
        second.class("two-hosts-apart", "Immediate", apart, &[]).await?;
        second.claim("data", NAMESPACE).await?;
        second.warned("data", &["another host cluster", &ours]).await?;
        pod_of(&second, &[]).await?;
        second.warned("web", &["another host cluster", &ours]).await?;
        second.claim("other", "two-hosts-apart").await?;
        let other = second.bound("other").await?;
        let own = Place::existing(rig.fleet.member(SHARED), OWN).await?;
        let others = Own::of(&own, "other").await?;

        forge(&second, "forged-by-second", &volume).await?;
        forge(&first, "forged-by-first", &other).await?;
        forgery_is_refused(&second, "forged-by-second", &ours).await?;
        forgery_is_refused(&first, "forged-by-first", &theirs).await?;
        let contents: Api<DynamicObject> =
            Api::all_with(first.client.clone(), &kind(SNAPSHOT_GROUP, "VolumeSnapshotContent"));
        let photo =
            contents.get(&content).await?.data["status"]["snapshotHandle"].as_str().context("a handle")?.to_owned();
        photo_of_another(&second, &photo).await?;

        ensure!(Own::of(&leaf, "data").await? == before, "it was {before:?}");
        ensure!(Own::of(&own, "other").await? == others, "it was {others:?}");
        let still = first.pods().get("web").await?;
        ensure!(is_same(&still, &running), "{still:?}");
        // The leaf snapshot is there with its data.
        filled(&first, "again", NAMESPACE, from_snapshot("photo")).await?;
        first.bound("again").await?;

        end_pod(&second).await?;
        for claim in ["data", "other"] {
            second.delete_claim(claim).await?;
            second.claim_is_gone(claim).await?;
        }
        second.volume_is_gone(&other.name_any()).await?;
        nothing_of_ours(own.cluster, OWN).await?;
        host.end().await?;
        end_pod(&first).await?;
        agent.end().await?;
        snapshots(&first).delete("photo", &DeleteParams::default()).await?;
        for claim in ["data", "again"] {
            first.delete_claim(claim).await?;
        }
        first.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(leaf.cluster, NAMESPACE).await
    });
}

async fn end_pod(place: &Place<'_>) -> Result<()> {
    place.pods().delete("web", &DeleteParams::default()).await?;
    gone(place, "web").await
}

fn is_same(now: &Pod, before: &Pod) -> bool {
    let running = now.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    now.uid() == before.uid() && now.metadata.deletion_timestamp.is_none() && running
}
