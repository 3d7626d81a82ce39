//! A host whose cluster is lost with all that it knew, while its pods run on in a member: another cluster takes over its volumes.

use std::fs;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;

use crate::{
    agent::{self, gone, phase},
    clusters::{Process, wait_for},
    driver::Driver,
    objects::{Place, handle, nothing_of_ours, tolerant},
    operator_commands::{does, refuses},
    pool::{Need, Turn},
    rig::{self, DRIVER_NAMESPACE, NOW, PATIENCE, Rig},
    snapshots::{filled, from_snapshot, ready, snapshot, snapshots},
};

const NAMESPACE: &str = "lost";
const MEMBER: &str = "cluster38";
const WRITES: &str = "seq 1 500 >/data/lines; sync";

/// The host with everything of the driver's, as it is run.
struct Host<'a> {
    rig: &'a Rig,
    agent: Option<Process>,
    /// In place of the rig's.
    driver: Option<Driver>,
}

impl<'a> Host<'a> {
    async fn start(rig: &'a Rig) -> Result<Self> {
        rig.remove_nodes().await?;
        agent::install(rig.fleet.host()).await?;
        // A member that the host knows already gets what it had: here volumes alone, as the rig has joined it.
        rig.leave(MEMBER).await?;
        let mut host = Self { rig, agent: None, driver: None };
        host.joins(&[]).await?;
        host.agent = Some(host.starts_agent().await?);
        Ok(host)
    }

    /// By its administrator's kubeconfig, with accounts of this host alone.
    async fn joins(&self, more: &[&str]) -> Result<String> {
        let kubeconfig = self.rig.fleet.member(MEMBER).kubeconfig_inside();
        let add = ["member", "add", MEMBER, &format!("--member-kubeconfig={}", kubeconfig.display())];
        does(self.rig, &[&add[..], more].concat()).await
    }

    async fn starts_agent(&self) -> Result<Process> {
        let fleet = &self.rig.fleet;
        let agent = agent::spawn(fleet, fleet.host(), "virtual-node", &[]).await?;
        agent::has_node(fleet.host(), &format!("kosmos-{MEMBER}")).await?;
        Ok(agent)
    }

    /// All that runs of it ends with its cluster, and the chart is installed in another one.
    async fn is_lost(&mut self) -> Result<()> {
        self.stops().await?;
        let cluster = self.rig.fleet.host();
        cluster.lose().await?;
        rig::install(cluster).await?;
        agent::install(cluster).await?;
        self.starts_driver().await
    }

    async fn stops(&mut self) -> Result<()> {
        self.driver.as_ref().unwrap_or(&self.rig.driver).kill().await?;
        if let Some(agent) = self.agent.take() {
            agent.kill()?;
            agent.wait(PATIENCE).await?;
        }
        Ok(())
    }

    async fn starts_driver(&mut self) -> Result<()> {
        let driver = Driver::new(&self.rig.fleet).await?;
        driver.ensure(&self.rig.fleet).await?;
        self.driver = Some(driver);
        Ok(())
    }

    async fn place(&self) -> Result<Place<'a>> {
        Place::new(self.rig.fleet.host(), NAMESPACE).await
    }

    /// Whether the account with this kubeconfig may still do anything in the member.
    async fn may(&self, kubeconfig: &str) -> bool {
        let kubectl = self.rig.fleet.tools().path("kubectl");
        let list = ["--kubeconfig", kubeconfig, "get", "persistentvolumeclaims", "-A"];
        self.rig.fleet.exec(&kubectl.display().to_string(), &list).await.is_ok()
    }

    /// The driver's own, as it is in the host.
    async fn kubeconfig_of_member(&self) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.rig.fleet.host().client().await?, DRIVER_NAMESPACE);
        let data = secrets.get(MEMBER).await?.data.context("it has data")?;
        let file = self.rig.fleet.folder().join("former.kubeconfig");
        fs::write(&file, &data["kubeconfig"].0)?;
        Ok(file.display().to_string())
    }
}

/// A pod on the virtual node.
async fn runs(place: &Place<'_>, name: &str, claim: &str, script: &str) -> Result<()> {
    let mut pod = tolerant(name, &[claim]);
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    place.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await.map(drop).context("make a pod")
}

async fn has_the_data(place: &Place<'_>, claim: &str) -> Result<()> {
    let name = format!("reader-of-{claim}");
    let same = format!("[ \"$(seq 1 500 | sha256sum)\" = \"$(sha256sum </{claim}/lines)\" ]");
    runs(place, &name, claim, &same).await?;
    phase(place, &name, "Succeeded").await?;
    place.pods().delete(&name, &kube::api::DeleteParams::default()).await?;
    gone(place, &name).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "three minutes, and a host that is lost: make faults-real"]
async fn volumes_of_a_host_whose_cluster_is_lost_are_bound_in_another_one_with_their_data() {
    let _turn = Turn::take("lost_host", Need::Own).await;
    let rig = Rig::start().await.unwrap();
    let _logs = rig.fleet.test("lost_host");
    is_taken_over(&mut Host::start(&rig).await.unwrap()).await.unwrap();
}

async fn is_taken_over(host: &mut Host<'_>) -> Result<()> {
    let place = host.place().await?;
    place.class(NAMESPACE, "WaitForFirstConsumer", json!({"leafStorageClass": NOW}), &[MEMBER]).await?;
    place.claim("data", NAMESPACE).await?;
    runs(&place, "writer", "data", WRITES).await?;
    phase(&place, "writer", "Succeeded").await?;
    snapshot(&place, "photo", "data").await?;
    ready(&snapshots(&place), "photo", "boundVolumeSnapshotContentName").await?;
    runs(&place, "keeper", "data", "sleep 1000").await?;
    phase(&place, "keeper", "Running").await?;
    let before = place.bound("data").await?;
    let leaf = Place::existing(host.rig.fleet.member(MEMBER), NAMESPACE).await?;
    let leaf_before = leaf.claims().get("data").await?.uid();

    let backup = host.rig.fleet.folder().join("host.json").display().to_string();
    let told = does(host.rig, &["host", "backup", "--output", &backup]).await?;
    ensure!(told.contains("Volumes: 1, snapshots: 1"), "{told}");
    let former = host.kubeconfig_of_member().await?;
    let who = host.rig.fleet.host().identity().await?;
    host.is_lost().await?;
    ensure!(host.rig.fleet.host().identity().await? != who, "it is another cluster");
    phase(&leaf, "keeper", "Running").await?;
    ensure!(host.may(&former).await, "the member goes on");

    let adopt = ["host", "adopt", &backup];
    refuses(host.rig, &adopt, &[&format!("This cluster is host {who}"), "it has not joined yet"]).await?;
    host.stops().await?;
    host.starts_driver().await?;
    host.joins(&["--take-over"]).await?;
    wait_for("the former cluster's account may nothing", PATIENCE, || async {
        Ok((!host.may(&former).await).then_some(()))
    })
    .await?;
    let place = host.place().await?;
    let after = place.bound("data").await?;
    ensure!((after.name_any(), handle(&after)) == (before.name_any(), handle(&before)), "{after:?}");
    host.agent = Some(host.starts_agent().await?);
    gone(&leaf, "keeper").await.context("a pod that no host knows any more")?;
    is_detached(host, &leaf, &backup).await?;

    has_the_data(&place, "data").await?;
    ensure!(leaf.claims().get("data").await?.uid() == leaf_before, "the leaf claim stays as it was");
    ready(&snapshots(&place), "photo", "boundVolumeSnapshotContentName").await?;
    filled(&place, "copy", NAMESPACE, from_snapshot("photo")).await?;
    has_the_data(&place, "copy").await?;

    host.rig.fleet.host().kubectl(&["delete", "volumesnapshot", "-n", NAMESPACE, "photo"]).await?;
    for claim in ["data", "copy"] {
        place.delete_claim(claim).await?;
    }
    place.volume_is_gone(&after.name_any()).await?;
    nothing_of_ours(host.rig.fleet.member(MEMBER), NAMESPACE).await
}

/// The node on which the former cluster had it, once somebody has said that it is not in use there.
async fn is_detached(host: &Host<'_>, leaf: &Place<'_>, backup: &str) -> Result<()> {
    let adopt = ["host", "adopt", backup];
    refuses(host.rig, &adopt, &[&format!("virtual/{MEMBER}"), "--former-cluster-is-off"]).await?;
    does(host.rig, &[&adopt[..], &["--former-cluster-is-off"]].concat()).await?;
    wait_for("the attacher has detached it", PATIENCE, || async {
        let left = host.rig.fleet.host().kubectl(&["get", "volumeattachments", "-o", "name"]).await?;
        let claim = leaf.claims().get("data").await?;
        let is_published = claim.annotations().contains_key("kosmos.csi.io/published");
        Ok((left.trim().is_empty() && !is_published).then_some(()))
    })
    .await?;
    does(host.rig, &adopt).await.map(drop)
}
