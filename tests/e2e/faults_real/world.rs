//! What is there before any fault and stays: the way through the proxy, a claim with data, and claims of somebody else in the members.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::{MEMBER, OTHER};
use crate::{
    clusters::{
        Cluster,
        between::{Between, Upstream, Ways},
        wait_for,
    },
    objects::{Place, handle, nothing_of_ours},
    rig::{DRIVER_NAMESPACE, LATER, NOW, PATIENCE, Rig},
};

/// The claim with data.
pub const KEPT: &str = "kept";
/// Somebody else's, in each member.
pub const CANARY: &str = "canary";
const ACCOUNT: &str = "kosmos-csi";

pub struct World<'a> {
    pub rig: &'a Rig,
    pub between: Between,
    pub host: Place<'a>,
    pub leaf: Place<'a>,
    pub kept: Kept,
    pub strangers: [Stranger<'a>; 2],
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
        host.claim(KEPT, &class(namespace, NOW)).await?;
        let volume = host.bound(KEPT).await?;
        let kept = Kept::look(&leaf, &volume).await?;
        let between = lead_through(rig).await.context("lead the driver through the proxy")?;
        let world = Self { rig, between, host, leaf, kept, strangers };
        world.is_served(PATIENCE).await?;
        Ok(world)
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
        self.host.delete_claim(KEPT).await?;
        self.host.volume_is_gone(&self.kept.volume).await?;
        for stranger in &self.strangers {
            stranger.place.delete_claim(CANARY).await?;
        }
        nothing_of_ours(self.leaf.cluster, &self.leaf.namespace).await
    }
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
