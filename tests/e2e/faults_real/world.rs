//! What is there before any fault and stays: what the part needs besides the rig, claims with data, and claims of somebody else in the members.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::sleep};

use super::{
    MEMBER, OTHER,
    clock::Clock,
    disk,
    kept::{Kept, class, make_classes, writes_lines},
    pods::{Pods, runs},
    real_node::{NEAR_CLASS, RealNode},
    rolling::Rolling,
    travels,
    used::{AGENT, NODE_PLUGIN, Used},
    versions::{roll_back, upgrade},
    way::Way,
    writer::WRITER,
};
use crate::{
    clusters::{Cluster, between::Between, wait_for},
    objects::{FOR_EVER, Place, nothing_of_ours, pod, tolerant},
    rig::{LATER, NOW, PATIENCE, Rig},
};

/// The claim that is written to in the member.
pub const KEPT: &str = "kept";
/// Likewise, and written once.
pub const LEDGER: &str = "ledger";
/// The label of both.
pub const ALBUM: [&str; 2] = ["album", "kept"];
/// Somebody else's, in each member.
pub const CANARY: &str = "canary";
/// A claim that came after the backup to which a member goes back.
pub const SINCE: &str = "since";
/// Beside a move, a group of snapshots and a StatefulSet that rolls, all of one processor or two.
const BUSY: Duration = Duration::from_mins(2);
/// Longer than a filesystem is held for a snapshot.
const WRITES_ON: Duration = Duration::from_secs(20);
/// Shorter than a pod lives.
const LISTENS: Duration = Duration::from_secs(1);
/// Each number is on the disk before it is said, and is written again until it is.
const WRITES: &str = "n=$(tail -n 1 /kept/log 2>/dev/null | cut -d ' ' -f 1); n=${n:-0}; while :; do m=$((n + 1)); \
                      if echo \"$m kept\" >> /kept/log && sync -d /kept/log; then n=$m; echo $n; fi; sleep 0.1; done";

/// What there is besides the rig's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    Through(Way),
    /// Pods of the host run in the member.
    Agent,
    /// Pods of the host's real node use volumes of the member.
    RealNode,
    /// Likewise, and that node can be without power.
    RealPower,
    /// Likewise, and the clock of driver and agent can be set.
    Clock,
    /// Likewise, and the member's node can be without power.
    Power,
    /// Likewise, and the host is a minor version behind.
    OlderHost,
    /// Likewise as with an agent, and some of the member's disks can be full.
    SmallDisks,
}

/// What users do while faults go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// What `make test` has time for.
    Few,
    All,
}

impl Users {
    /// How long is waited for what they have asked for.
    pub fn patience(self, within: Duration) -> Duration {
        if self == Self::All { within.max(BUSY) } else { within }
    }
}

pub struct World<'a> {
    pub rig: &'a Rig,
    scene: Scene,
    pub users: Users,
    between: Option<Between>,
    pub clock: Option<Clock>,
    pub host: Place<'a>,
    pub leaf: Place<'a>,
    kept: Vec<Kept>,
    pub strangers: [Stranger<'a>; 2],
    /// In the host, of another storage driver.
    pub neighbour: Stranger<'a>,
    /// Where an agent runs them.
    pub pods: Option<Pods<'a>>,
    pub real: Option<RealNode<'a>>,
    /// Where pods are run that users make.
    pub rolling: Option<Rolling<'a>>,
    /// The volume that came after the backup to which the member went back.
    pub since: Mutex<Option<String>>,
    /// By each process of now, when it was first looked at.
    used: Mutex<BTreeMap<String, Used>>,
}

/// Somebody else's claim, its volume and, in a member, a pod that uses it, as they were at first.
pub struct Stranger<'a> {
    pub place: Place<'a>,
    pub volume: String,
    before: Vec<Value>,
}

impl Scene {
    fn way(self) -> Option<Way> {
        if let Self::Through(way) = self { Some(way) } else { None }
    }

    fn has_agent(self) -> bool {
        !matches!(self, Self::Through(Way::ToMember | Way::ToHost)) && self.real_node().is_none()
    }

    /// What becomes of a pod that ends on the host's real node, where there is one.
    fn real_node(self) -> Option<&'static str> {
        match self {
            Self::RealNode => Some("Never"),
            Self::RealPower => Some("Always"),
            _ => None,
        }
    }

    /// As they are to be.
    async fn make_clusters(self, rig: &Rig) -> Result<()> {
        if self == Self::SmallDisks {
            disk::make_small(rig.fleet.member(MEMBER), &rig.fleet).await?;
        }
        if self == Self::OlderHost {
            roll_back(rig.fleet.host()).await?;
            // By itself what is beside it would look for its API server for minutes.
            rig.driver.kill().await?;
            rig.driver.ensure(&rig.fleet).await?;
        }
        Ok(())
    }

    /// A StatefulSet, where somebody runs its pods: in the member, or on the host's real node, which takes a few volumes.
    async fn rolling<'a>(self, host: &Place<'a>, leaf: &Place<'a>) -> Result<Option<Rolling<'a>>> {
        let (cluster, pods, pod, leaf_class) = if self.real_node().is_some() {
            (host.cluster, 1, pod("", &[], ""), NEAR_CLASS)
        } else if self.has_agent() {
            (leaf.cluster, 2, tolerant("", &[]), LATER)
        } else {
            return Ok(None);
        };
        let class = class(&host.namespace, leaf_class);
        Rolling::begin((host, leaf), cluster, pods, (&pod, &class)).await.map(Some)
    }
}

impl<'a> World<'a> {
    pub async fn prepare(rig: &'a Rig, namespace: &str, scene: Scene, users: Users) -> Result<Self> {
        scene.make_clusters(rig).await?;
        let host = Place::new(rig.fleet.host(), namespace).await?;
        let leaf = Place::open(rig.fleet.member(MEMBER), namespace).await?;
        let clock = if scene == Scene::Clock { Some(Clock::make(rig.fleet.folder()).await?) } else { None };
        let launch = clock.as_ref().map(Clock::launch).unwrap_or_default();
        rig.driver.launch_with(launch.clone()).await;
        let pods = if scene.has_agent() { Some(Pods::begin(rig, &launch, (&host, &leaf)).await?) } else { None };
        let strangers = [
            Stranger::settle(rig.fleet.member(MEMBER), namespace).await?,
            Stranger::settle(rig.fleet.member(OTHER), namespace).await?,
        ];
        let neighbour = Stranger::settle_in_host(rig.fleet.host(), namespace).await?;
        make_classes(&host).await?;
        let mut kept = vec![keep(&host, &leaf, KEPT).await?];
        write(&leaf, scene).await?;
        let real = match scene.real_node() {
            Some(policy) => Some(RealNode::begin(rig, &host, &leaf, policy).await?),
            None => None,
        };
        let rolling = match users {
            Users::Few => None,
            Users::All => {
                travels::prepare(rig, &host).await.context("let the driver move volumes")?;
                kept.push(keep(&host, &leaf, LEDGER).await?);
                leaf.run("writer-of-lines", &[LEDGER], &writes_lines(LEDGER)).await?;
                scene.rolling(&host, &leaf).await.context("begin a StatefulSet")?
            }
        };
        let between = match scene.way() {
            Some(way) => Some(way.lead_through(rig).await.with_context(|| format!("lead {way:?} through the proxy"))?),
            None => None,
        };
        let (since, used) = (Mutex::default(), Mutex::default());
        let world = Self {
            rig,
            scene,
            users,
            between,
            clock,
            host,
            leaf,
            kept,
            strangers,
            neighbour,
            pods,
            real,
            rolling,
            since,
            used,
        };
        world.is_served(PATIENCE).await?;
        Ok(world)
    }

    pub fn between(&self) -> Result<&Between> {
        self.between.as_ref().context("no way leads through the proxy")
    }

    /// Who goes through the proxy.
    pub fn way(&self) -> Result<Way> {
        self.scene.way().context("no way leads through the proxy")
    }

    pub fn real_node(&self) -> Result<&RealNode<'a>> {
        self.real.as_ref().context("there is no real node")
    }

    /// All claims with data.
    pub fn kept(&self) -> impl Iterator<Item = &Kept> {
        let rolling = self.rolling.iter().flat_map(|rolling| &rolling.kept);
        self.kept.iter().chain(self.real.as_ref().map(|real| &real.kept)).chain(rolling)
    }

    /// The namespace of the leaves in this member.
    pub fn in_member(&self, member: &str) -> &Place<'a> {
        let strangers = self.strangers.iter().map(|stranger| &stranger.place);
        strangers.into_iter().find(|place| place.cluster.name() == member).unwrap_or(&self.leaf)
    }

    /// For ever: for a select.
    pub async fn listens(&self) -> Infallible {
        loop {
            if let Some(rolling) = &self.rolling {
                // A folder may be removed at any moment; the next look sees what is there then.
                let _ = rolling.listen();
            }
            sleep(LISTENS).await;
        }
    }

    /// Those that are not to be begun again stay as well: no fault ends what they run.
    pub fn keeps_pods(&self) -> bool {
        self.scene != Scene::Power
    }

    /// Those of local-path are of one that can be full.
    pub fn has_small_disks(&self) -> bool {
        self.scene == Scene::SmallDisks
    }

    /// The driver with its sidecars, the agent, and the plugin of a real node, as the machine counts them.
    pub async fn processes(&self) -> Vec<(String, i32)> {
        let mut all = self.rig.driver.pids().await;
        if let Some(pods) = &self.pods {
            all.push((AGENT.to_owned(), pods.agent.lock().await.pid()));
        }
        if let Some(real) = &self.real {
            let plugin = real.node.lock().await.plugin_pid();
            all.extend(plugin.map(|plugin| (NODE_PLUGIN.to_owned(), plugin)));
        }
        all
    }

    /// What each of them had when it was first looked at.
    pub async fn used_at_first(&self) -> Result<BTreeMap<String, Used>> {
        let processes = self.processes().await;
        let mut used = self.used.lock().await;
        for (name, process) in processes {
            if used.get(&name).is_none_or(|first| first.process != process) {
                used.insert(name, Used::by(process)?);
            }
        }
        Ok(used.clone())
    }

    /// The last number of which the writer has said that it is on the disk.
    pub async fn acknowledged(&self) -> Result<u64> {
        wait_for("the writer says how far it is", PATIENCE, || async {
            let said = ["logs", "-n", &self.leaf.namespace, WRITER, "--tail=1"];
            Ok(self.leaf.cluster.kubectl(&said).await?.trim().parse().ok())
        })
        .await
    }

    /// By a pod of the member, now.
    pub async fn is_written_to(&self) -> Result<()> {
        let last = self.acknowledged().await?;
        wait_for("a pod of the member writes on", WRITES_ON, || async {
            Ok((self.acknowledged().await? > last).then_some(()))
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

    /// All is as it was before, and nothing is left.
    pub async fn end(self) -> Result<()> {
        if let Some(way) = self.scene.way() {
            way.lead_straight(self.rig).await?;
        }
        if let Some(rolling) = self.rolling {
            rolling.end(&self.host).await?;
        }
        if let Some(pods) = self.pods {
            pods.end(&self.host).await?;
        }
        if let Some(real) = self.real {
            real.end(&self.host).await?;
        }
        self.leaf.pods().delete(WRITER, &DeleteParams::default()).await?;
        for kept in &self.kept {
            self.host.delete_claim(kept.name).await?;
            self.host.volume_is_gone(&kept.volume).await?;
        }
        for stranger in &self.strangers {
            stranger.place.pods().delete(CANARY, &DeleteParams::default()).await?;
            stranger.place.delete_claim(CANARY).await?;
        }
        self.neighbour.place.delete_claim(CANARY).await?;
        self.neighbour.place.volumes().delete(&self.neighbour.volume, &DeleteParams::default()).await?;
        nothing_of_ours(self.leaf.cluster, &self.leaf.namespace).await?;
        if self.scene == Scene::OlderHost { upgrade(self.host.cluster, self.rig.fleet.tools()).await } else { Ok(()) }
    }
}

/// A claim with data, by whose label a group of snapshots has it.
async fn keep(host: &Place<'_>, leaf: &Place<'_>, name: &'static str) -> Result<Kept> {
    host.claim(name, &class(&host.namespace, NOW)).await?;
    let [key, value] = ALBUM;
    let labelled = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
    host.claims().patch(name, &PatchParams::default(), &labelled).await?;
    Kept::look(leaf, &host.bound(name).await?, name).await
}

/// A pod of the member that goes on writing, whatever becomes of its node for a while.
async fn write(leaf: &Place<'_>, scene: Scene) -> Result<()> {
    let mut writer = pod(WRITER, &[KEPT], WRITES);
    writer["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    if scene == Scene::Power {
        writer["spec"]["restartPolicy"] = json!("Always");
    }
    leaf.pods().create(&PostParams::default(), &serde_json::from_value(writer)?).await?;
    Ok(())
}

impl<'a> Stranger<'a> {
    async fn settle(member: &'a Cluster, namespace: &str) -> Result<Self> {
        let place = Place::new(member, namespace).await?;
        place.claim(CANARY, NOW).await?;
        let pod = serde_json::from_value(pod(CANARY, &[CANARY], FOR_EVER))?;
        place.pods().create(&PostParams::default(), &pod).await?;
        runs(&place, CANARY, PATIENCE).await?;
        Self::look(place).await
    }

    /// Of a driver that nobody runs.
    async fn settle_in_host(host: &'a Cluster, namespace: &str) -> Result<Self> {
        let place = Place::new(host, &format!("{namespace}-others")).await?;
        let (name, size) = (format!("{CANARY}-of-{namespace}"), "64Mi");
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": place.namespace, "name": CANARY},
                "csi": {"driver": "storage.other.test", "volumeHandle": CANARY}},
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": CANARY, "namespace": place.namespace},
            "spec": {"storageClassName": "", "volumeName": name, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}}},
        });
        host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [volume, claim]}).to_string()).await?;
        Self::look(place).await
    }

    async fn look(place: Place<'a>) -> Result<Self> {
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

/// All that people see of the claim and its volume, what they have asked of the pod, and nothing that counts writes.
async fn look(place: &Place<'_>, volume: &str) -> Result<Vec<Value>> {
    let mut all = vec![
        serde_json::to_value(place.claims().get(CANARY).await?)?,
        serde_json::to_value(place.volumes().get(volume).await?)?,
    ];
    if let Some(pod) = place.pods().get_opt(CANARY).await? {
        all.push(json!({"metadata": pod.metadata, "spec": pod.spec}));
    }
    for object in &mut all {
        for counts in ["generation", "managedFields", "resourceVersion"] {
            object["metadata"][counts] = Value::Null;
        }
    }
    Ok(all)
}
