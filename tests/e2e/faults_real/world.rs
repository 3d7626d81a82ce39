//! What is there before any fault and stays: the way through the proxy, a claim with data, and claims of somebody else in the members.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Config, ResourceExt,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{MEMBER, OTHER, used::Used};
use crate::{
    clusters::{
        Cluster,
        between::{Between, Upstream, Ways},
        wait_for,
    },
    objects::{Place, handle, nothing_of_ours, pod},
    rig::{DRIVER_NAMESPACE, LATER, NOW, PATIENCE, Rig, SHARED},
};

/// The claim with data.
pub const KEPT: &str = "kept";
/// Somebody else's, in each member.
pub const CANARY: &str = "canary";
/// The host's class of the member that no fault concerns.
pub const OF_OTHER: &str = "other";
const WRITER: &str = "writer";
/// Each number is on the disk before it is said, and is written again until it is.
const WRITES: &str = "n=0; while :; do m=$((n + 1)); \
                      if echo $m >> /kept/log && sync -d /kept/log; then n=$m; echo $n; fi; sleep 0.1; done";
const ACCOUNT: &str = "kosmos-csi";

pub struct World<'a> {
    pub rig: &'a Rig,
    pub between: Between,
    pub host: Place<'a>,
    pub leaf: Place<'a>,
    pub kept: Kept,
    pub strangers: [Stranger<'a>; 2],
    /// By the driver's process of now, when it was first looked at.
    used: Mutex<Option<Used>>,
}

/// What does not change about the claim with data.
pub struct Kept {
    pub volume: String,
    pub handle: String,
    pub leaf_uid: Option<String>,
    pub leaf_volume: String,
}

/// Somebody else's claim and its volume, as they were at first.
pub struct Stranger<'a> {
    pub place: Place<'a>,
    pub volume: String,
    before: [Value; 2],
}

impl<'a> World<'a> {
    pub async fn prepare(rig: &'a Rig, namespace: &str) -> Result<Self> {
        let host = Place::new(rig.fleet.host(), namespace).await?;
        let leaf = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        let strangers = [
            Stranger::settle(rig.fleet.member(MEMBER), namespace).await?,
            Stranger::settle(rig.fleet.member(OTHER), namespace).await?,
        ];
        let at_once = json!({"leafStorageClass": NOW, "member": MEMBER});
        host.class(&class(namespace, NOW), "Immediate", at_once, &[]).await?;
        let with_pod = json!({"leafStorageClass": LATER});
        host.class(&class(namespace, LATER), "WaitForFirstConsumer", with_pod, &[MEMBER]).await?;
        let grows = json!({"leafStorageClass": SHARED, "member": MEMBER});
        host.class(&class(namespace, SHARED), "Immediate", grows, &[]).await?;
        let of_other = json!({"leafStorageClass": NOW, "member": OTHER});
        host.class(&class(namespace, OF_OTHER), "Immediate", of_other, &[]).await?;
        host.claim(KEPT, &class(namespace, NOW)).await?;
        let volume = host.bound(KEPT).await?;
        let kept = Kept::look(&leaf, &volume).await?;
        write(&leaf).await?;
        let between = lead_through(rig).await.context("lead the driver through the proxy")?;
        let world = Self { rig, between, host, leaf, kept, strangers, used: Mutex::new(None) };
        world.is_served(PATIENCE).await?;
        Ok(world)
    }

    /// What the driver's process had when it was first looked at.
    pub async fn used_at_first(&self) -> Result<Used> {
        let now = Used::by_driver(self.rig).await?;
        let mut used = self.used.lock().await;
        let first = used.filter(|first| first.process == now.process).unwrap_or(now);
        *used = Some(first);
        Ok(first)
    }

    /// The last number of which the writer has said that it is on the disk.
    pub async fn acknowledged(&self) -> Result<u64> {
        wait_for("the writer says how far it is", PATIENCE, || async {
            let said = ["logs", "-n", &self.leaf.namespace, WRITER, "--tail=1"];
            Ok(self.leaf.cluster.kubectl(&said).await?.trim().parse().ok())
        })
        .await
    }

    /// The host's class whose leaves have this one.
    pub fn class(&self, leaf_class: &str) -> String {
        class(&self.host.namespace, leaf_class)
    }

    pub async fn is_served(&self, within: Duration) -> Result<()> {
        wait_for(&format!("{MEMBER} is served"), within, || async {
            let line = format!("kosmos_csi_member_up{{member=\"{MEMBER}\"}} 1");
            Ok(self.rig.driver.metrics().await?.contains(&line).then_some(()))
        })
        .await
    }

    /// The way to the member is the straight one again, and nothing is left.
    pub async fn end(self) -> Result<()> {
        self.rig.join(MEMBER).await?;
        self.leaf.pods().delete(WRITER, &DeleteParams::default()).await?;
        self.host.delete_claim(KEPT).await?;
        self.host.volume_is_gone(&self.kept.volume).await?;
        for stranger in &self.strangers {
            stranger.place.delete_claim(CANARY).await?;
        }
        nothing_of_ours(self.leaf.cluster, &self.leaf.namespace).await
    }
}

/// A pod of the member that goes on writing, whatever becomes of its node for a while.
async fn write(leaf: &Place<'_>) -> Result<()> {
    let mut writer = pod(WRITER, &[KEPT], WRITES);
    writer["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    leaf.pods().create(&PostParams::default(), &serde_json::from_value(writer)?).await?;
    Ok(())
}

fn class(namespace: &str, leaf_class: &str) -> String {
    format!("{namespace}-{leaf_class}")
}

impl Kept {
    async fn look(leaf: &Place<'_>, volume: &PersistentVolume) -> Result<Self> {
        let claim = leaf.claims().get(KEPT).await?;
        let leaf_uid = claim.uid();
        let leaf_volume = claim.spec.and_then(|spec| spec.volume_name).context("its leaf claim names a volume")?;
        Ok(Self { volume: volume.name_any(), handle: handle(volume), leaf_uid, leaf_volume })
    }
}

impl<'a> Stranger<'a> {
    async fn settle(member: &'a Cluster, namespace: &str) -> Result<Self> {
        let place = Place::new(member, namespace).await?;
        place.claim(CANARY, NOW).await?;
        let volume = place.bound(CANARY).await?.name_any();
        let before = look(&place, &volume).await?;
        Ok(Self { place, volume, before })
    }

    pub async fn is_as_it_was(&self) -> Result<()> {
        let now = look(&self.place, &self.volume).await?;
        let of = self.place.cluster.name();
        ensure!(now == self.before, "what is another's in {of} was {:?} and is {now:?}", self.before);
        Ok(())
    }
}

/// All that people see of the claim and its volume, and nothing that counts writes.
async fn look(place: &Place<'_>, volume: &str) -> Result<[Value; 2]> {
    let claim = serde_json::to_value(place.claims().get(CANARY).await?)?;
    let volume = serde_json::to_value(place.volumes().get(volume).await?)?;
    Ok([claim, volume].map(|mut object| {
        for counts in ["managedFields", "resourceVersion"] {
            object["metadata"][counts] = Value::Null;
        }
        object
    }))
}

/// From now on the driver reaches the member by the proxy alone.
async fn lead_through(rig: &Rig) -> Result<Between> {
    let [to, other] = [MEMBER, OTHER].map(|member| rig.fleet.member(member));
    let accepted = other.kubeconfig_for(DRIVER_NAMESPACE, ACCOUNT).await?;
    let accepted: Value = serde_json::from_str(&accepted)?;
    let token = accepted["users"][0]["user"]["token"].as_str().context("the other member has given a token")?;
    let ways = Ways {
        to: Upstream::new(without_credentials(to).await?, None)?,
        elsewhere: Upstream::new(without_credentials(other).await?, Some(token))?,
    };
    let listener = rig.fleet.listen("127.0.0.1:0")?;
    let folder = rig.fleet.folder().join(format!("between-{}", listener.local_addr()?.port()));
    let between = Between::start(listener, ways, &folder)?;
    let direct = to.kubeconfig_for(DRIVER_NAMESPACE, ACCOUNT).await?;
    rig.join_with(MEMBER, &between.kubeconfig(&direct)?).await?;
    let asks = wait_for("the driver asks the proxy", PATIENCE, || async { Ok((between.asked() > 0).then_some(())) });
    asks.await?;
    Ok(between)
}

async fn without_credentials(cluster: &Cluster) -> Result<Config> {
    let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    kubeconfig.auth_infos.clear();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
