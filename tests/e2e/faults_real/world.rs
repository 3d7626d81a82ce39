//! What is there before any fault and stays: the way through the proxy, a claim with data, and claims of somebody else in the members.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{MEMBER, OTHER, pods::Pods, used::Used, way::Way};
use crate::{
    clusters::{Cluster, between::Between, wait_for},
    objects::{Place, handle, nothing_of_ours, pod},
    rig::{LATER, NOW, PATIENCE, Rig, SHARED},
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

pub struct World<'a> {
    pub rig: &'a Rig,
    way: Way,
    pub between: Between,
    pub host: Place<'a>,
    pub leaf: Place<'a>,
    pub kept: Kept,
    pub strangers: [Stranger<'a>; 2],
    /// Where an agent runs them.
    pub pods: Option<Pods<'a>>,
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
    pub async fn prepare(rig: &'a Rig, namespace: &str, way: Way) -> Result<Self> {
        let host = Place::new(rig.fleet.host(), namespace).await?;
        let leaf = Place::open(rig.fleet.member(MEMBER), namespace).await?;
        let pods = if way == Way::OfAgent { Some(Pods::begin(rig, &host, &leaf).await?) } else { None };
        let strangers = [
            Stranger::settle(rig.fleet.member(MEMBER), namespace).await?,
            Stranger::settle(rig.fleet.member(OTHER), namespace).await?,
        ];
        classes(&host).await?;
        host.claim(KEPT, &class(namespace, NOW)).await?;
        let volume = host.bound(KEPT).await?;
        let kept = Kept::look(&leaf, &volume).await?;
        write(&leaf).await?;
        let between = way.lead_through(rig).await.with_context(|| format!("lead {way:?} through the proxy"))?;
        let used = Mutex::new(None);
        let world = Self { rig, way, between, host, leaf, kept, strangers, pods, used };
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

    /// Of a user.
    pub async fn remove_pod(&self, name: &str) -> Result<()> {
        if self.pods.is_none() {
            // Nobody else would confirm its end.
            return self.host.force_delete_pod(name).await;
        }
        self.host.pods().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The way is the straight one again, and nothing is left.
    pub async fn end(self) -> Result<()> {
        self.way.lead_straight(self.rig).await?;
        if let Some(pods) = self.pods {
            pods.end(&self.host).await?;
        }
        self.leaf.pods().delete(WRITER, &DeleteParams::default()).await?;
        self.host.delete_claim(KEPT).await?;
        self.host.volume_is_gone(&self.kept.volume).await?;
        for stranger in &self.strangers {
            stranger.place.delete_claim(CANARY).await?;
        }
        nothing_of_ours(self.leaf.cluster, &self.leaf.namespace).await
    }
}

/// Of the host, each for one use.
async fn classes(host: &Place<'_>) -> Result<()> {
    let in_member = |leaf_class: &str, member: &str| json!({"leafStorageClass": leaf_class, "member": member});
    for (name, parameters) in
        [(NOW, in_member(NOW, MEMBER)), (SHARED, in_member(SHARED, MEMBER)), (OF_OTHER, in_member(NOW, OTHER))]
    {
        host.class(&class(&host.namespace, name), "Immediate", parameters, &[]).await?;
    }
    let with_pod = json!({"leafStorageClass": LATER});
    host.class(&class(&host.namespace, LATER), "WaitForFirstConsumer", with_pod, &[MEMBER]).await
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
