//! What has to hold whatever fault was played, looked up in the clusters and in the audit logs of the members.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttachment,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    MEMBER, OTHER,
    fault::How,
    kept::{OF_OTHER, reads},
    pods::KEEPER,
    rolling::{PODS, Rolling, Said},
    row::Memory,
    travels::{TRAVELS, YARD},
    used::{PROGRAMS, Used, forget_peak},
    way::Way,
    world::{CANARY, KEPT, Stranger, Users, World},
    writer,
};
use crate::{
    clusters::{AuditEntry, AuditMark, Cluster, wait_for},
    many::stored,
    objects::{OURS, handle, ours},
    rig::DRIVER,
    snapshots::no_snapshots,
};

const ACCOUNT: &str = "system:serviceaccount:kosmos-csi:kosmos-csi";
const WRITES: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
/// What is left may wait for an attachment.
const LEAST: Duration = Duration::from_mins(2);
/// For a filesystem that was held for a snapshot, or a kubelet that has just come back.
const AGAIN: Duration = Duration::from_mins(2);
/// Of all accounts of ours, in hosts and members.
const OUR_ACCOUNTS: &str = "system:serviceaccount:kosmos-csi";
/// How often one thing is asked in a second, in the long run, and besides at once.
const OFTEN: [f64; 2] = [5.0, 50.0];
/// Likewise, of all things of one kind.
const OFTEN_IN_SUM: [f64; 2] = [20.0, 1000.0];

/// Of one fault.
pub struct Promises<'w, 'a> {
    world: &'w World<'a>,
    began: Instant,
    /// Where the audit logs were when it began: of the host, and of each member as of the strangers there.
    marks: Vec<(&'a Cluster, AuditMark)>,
    /// What was on the disk by then.
    acknowledged: u64,
    said: Said,
    /// What each process had of the machine when it was first looked at, and when the fault began.
    used: BTreeMap<String, Used>,
    had: BTreeMap<String, Used>,
    /// How many volumes were mounted on the host's real node when it began, and what others had left by then.
    mounted: usize,
    left: BTreeSet<String>,
}

impl<'w, 'a> Promises<'w, 'a> {
    pub async fn begin(world: &'w World<'a>) -> Result<Self> {
        let mut marks = Vec::new();
        for cluster in [world.host.cluster].into_iter().chain(world.strangers.iter().map(|there| there.place.cluster)) {
            marks.push((cluster, cluster.audit_mark().await?));
        }
        let (acknowledged, used) = (world.acknowledged().await?, world.used_at_first().await?);
        let said = world.rolling.as_ref().map(Rolling::said).transpose()?.unwrap_or_default();
        let mut had = BTreeMap::new();
        for (name, process) in world.processes().await {
            forget_peak(process)?;
            had.insert(name, Used::by(process)?);
        }
        let (began, mounted) = (Instant::now(), mounted(world).await?);
        let left = [attached(world).await?, stored_alone(world).await?].concat().into_iter().collect();
        Ok(Self { world, began, marks, acknowledged, said, used, had, mounted, left })
    }

    /// Since the fault began.
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The claim with data has its volume, which is written to again, and in it all that was said to be on the disk. How many bytes that
    /// is more than before.
    pub async fn nothing_is_lost(&self, number: usize) -> Result<u64> {
        let World { host, leaf, pods, real, .. } = self.world;
        for kept in self.world.kept() {
            kept.is_as_it_was(host, leaf).await.with_context(|| format!("claim {}", kept.name))?;
        }
        let last = wait_for("the volume is written to again", AGAIN, || async {
            let last = self.world.acknowledged().await?;
            Ok((last > self.acknowledged).then_some(last))
        });
        let last = last.await?;
        writer::says_nothing_twice(leaf.cluster, &leaf.namespace)?;
        if let Some(pods) = pods.as_ref().filter(|_| self.world.keeps_pods()) {
            pods.keeper_runs_on(host, leaf).await?;
        }
        if let Some(real) = real {
            real.keeper_runs_on(host).await?;
        }
        let (reader, script) = (format!("reader-{number}"), reads(KEPT, KEPT, last));
        let has_all = leaf.run(&reader, &[KEPT], &script);
        let bytes: u64 =
            (self.acknowledged + 1..=last).map(|number| (number.to_string().len() + KEPT.len()) as u64 + 2).sum();
        let Some(rolling) = &self.world.rolling else { return has_all.await.map(|()| bytes) };
        let (said, place) = (rolling.said()?, if real.is_some() { host } else { leaf });
        tokio::try_join!(has_all, rolling.has_all(place, &said, number))?;
        Ok(bytes + said.bytes - self.said.bytes)
    }

    /// What was made of a snapshot of the claim that is written to has all that was on the disk before that was cut.
    pub async fn copy_has_all(&self, copy: &str) -> Result<()> {
        self.has_lines(copy, KEPT, self.acknowledged).await
    }

    /// A claim has those of another one, or its own.
    pub async fn has_lines(&self, claim: &str, of: &str, last: u64) -> Result<()> {
        self.world.leaf.run(&format!("reader-of-{claim}"), &[claim], &reads(claim, of, last)).await
    }

    /// In host and members, but for what stays all the while, nor in the storage of members to which nothing has happened: those may lose sight of
    /// it by themselves.
    pub async fn nothing_is_left(&self, how: How, within: Duration) -> Result<()> {
        wait_for("nothing is left", within.max(LEAST), || async {
            let mut left = self.left().await?;
            if how.leaves_members() {
                left.extend(stored_alone(self.world).await?);
            }
            left.retain(|name| !self.left.contains(name));
            ensure!(left.is_empty(), "still there: {left:?}");
            no_snapshots(&self.world.leaf).await?;
            no_snapshots(&self.world.host).await?;
            Ok(Some(()))
        })
        .await
    }

    async fn left(&self) -> Result<Vec<String>> {
        let World { rig, host, .. } = self.world;
        let kept = self.world.kept();
        let mut stays: Vec<String> =
            kept.flat_map(|kept| [format!("claim {}", kept.name), format!("volume {}", kept.leaf_volume)]).collect();
        if self.world.pods.is_some() {
            stays.extend([KEEPER].iter().chain(&PODS).map(|pod| format!("pod {pod}")));
        }
        let mut left = Vec::new();
        for member in rig.fleet.members() {
            let there = ours(member, &host.namespace).await?;
            let others = there.into_iter().filter(|name| member.name() != MEMBER || !stays.contains(name));
            left.extend(others.map(|name| format!("{name} of {}", member.name())));
            if self.world.users == Users::All {
                left.extend(left_of_moves(member).await?);
            }
        }
        let is_here = |volume: &&PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.and_then(|claim| claim.namespace.as_ref()) == Some(&host.namespace)
        };
        let is_not_kept = |name: &String| self.world.kept().all(|kept| kept.volume != *name);
        let volumes = host.volumes().list(&ListParams::default()).await?;
        let others = volumes.iter().filter(is_here).map(ResourceExt::name_any).filter(is_not_kept);
        left.extend(others.map(|name| format!("volume {name} of the host")));
        left.extend(attached(self.world).await?);
        let mounted = mounted(self.world).await?.saturating_sub(self.mounted);
        if mounted > 0 {
            left.push(format!("{mounted} mounts of volumes on the host's real node"));
        }
        Ok(left)
    }

    /// One leaf claim for each volume, in all members, and one volume of the host for each leaf. What was led elsewhere is to be withdrawn: that is
    /// found where something is left.
    pub async fn nothing_is_there_twice(&self, how: How) -> Result<()> {
        let mut there: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for member in self.world.rig.fleet.members() {
            if self.is_led_to(member, how) {
                continue;
            }
            let claims = Api::<PersistentVolumeClaim>::all(member.client().await?);
            for claim in claims.list(&ListParams::default().labels(OURS)).await? {
                let Some(hash) = claim.labels().get("kosmos.csi.io/volume") else { continue };
                // While a volume moves, one of both leaves at least is here, where nobody but movers has it.
                if claim.namespace().as_deref() == Some(YARD) {
                    continue;
                }
                let place = format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
                there.entry(format!("volume {hash}")).or_default().push(format!("{}: {place}", member.name()));
            }
        }
        for volume in self.world.host.volumes().list(&ListParams::default()).await? {
            if volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).is_some_and(|source| source.driver == DRIVER) {
                there.entry(format!("handle {}", handle(&volume))).or_default().push(volume.name_any());
            }
        }
        there.retain(|_, places| places.len() > 1);
        ensure!(there.is_empty(), "there twice: {there:?}");
        Ok(())
    }

    /// Somebody else's claims are as they were, and no write on them was tried with success; in the other member, on nothing here but what
    /// belongs there or was led there.
    pub async fn nobody_elses_is_touched(&self, how: How) -> Result<()> {
        let strangers = [&self.world.neighbour].into_iter().chain(&self.world.strangers);
        for (stranger, (cluster, mark)) in strangers.zip(&self.marks) {
            stranger.is_as_it_was().await?;
            let (asked, is_led_there) = (cluster.audit_since(*mark).await?, self.is_led_to(cluster, how));
            let touched: Vec<&AuditEntry> =
                asked.iter().filter(|entry| touches(stranger, entry, is_led_there)).collect();
            ensure!(touched.is_empty(), "in {}: {touched:?}", cluster.name());
        }
        Ok(())
    }

    /// What the driver asks of its member may be carried out in this one.
    fn is_led_to(&self, cluster: &Cluster, how: How) -> bool {
        let is_drivers = self.world.way().is_ok_and(|way| way == Way::ToMember);
        how.leads_elsewhere() && is_drivers && cluster.name() == OTHER
    }

    /// None of ours has asked one thing again and again, nor one after the other.
    pub async fn nobody_asks_in_a_loop(&self) -> Result<()> {
        let most = |[steadily, besides]: [f64; 2]| steadily * self.began.elapsed().as_secs_f64() + besides;
        for (cluster, mark) in &self.marks {
            let mut asked: BTreeMap<String, u32> = BTreeMap::new();
            let mut in_sum: BTreeMap<String, u32> = BTreeMap::new();
            for entry in cluster.audit_since(*mark).await? {
                if entry.user.starts_with(OUR_ACCOUNTS) {
                    let AuditEntry { user, verb, resource, subresource, namespace, name, .. } = entry;
                    let kind = format!("{user}: {verb} {resource} {subresource}");
                    *asked.entry(format!("{kind} {namespace}/{name}")).or_default() += 1;
                    *in_sum.entry(kind).or_default() += 1;
                }
            }
            asked.retain(|_, times| f64::from(*times) > most(OFTEN));
            in_sum.retain(|_, times| f64::from(*times) > most(OFTEN_IN_SUM));
            asked.append(&mut in_sum);
            ensure!(asked.is_empty(), "{} was asked in {:?}: {asked:?}", cluster.name(), self.began.elapsed());
        }
        Ok(())
    }

    /// None of our own programs.
    pub async fn nothing_grows(&self) -> Result<()> {
        for (name, process) in self.world.processes().await {
            // One that was begun again has not been looked at before.
            let before = self.used.get(&name).filter(|before| before.process == process && PROGRAMS.contains(&&*name));
            if let Some(before) = before {
                Used::by(process)?.is_hardly_more_than(before).with_context(|| name.clone())?;
            }
        }
        Ok(())
    }

    /// What each process, ours or beside ours, had of the machine's memory meanwhile.
    pub async fn memory(&self) -> Result<BTreeMap<String, Memory>> {
        let mut all = BTreeMap::new();
        for (name, process) in self.world.processes().await {
            let had = self.had.get(&name).filter(|had| had.process == process);
            let memory = Memory::of(process, had.map(|had| had.mebibytes)).with_context(|| name.clone())?;
            all.insert(name, memory);
        }
        Ok(all)
    }
}

/// On the host's real node, where there is one: for a node, and for pods.
async fn mounted(world: &World<'_>) -> Result<usize> {
    let Some(real) = &world.real else { return Ok(0) };
    let node = real.node.lock().await;
    Ok(node.mounts("kubernetes.io/csi/").await?.len() + node.mounts("kubernetes.io~csi/").await?.len())
}

/// In the host, though the volume is gone.
async fn attached(world: &World<'_>) -> Result<Vec<String>> {
    let attachments: Api<VolumeAttachment> = Api::all(world.host.client.clone());
    let attachments = attachments.list(&ListParams::default()).await?;
    let named = names(&world.host.volumes()).await?;
    let of_ours = attachments.into_iter().filter(|attachment| attachment.spec.attacher == DRIVER);
    let volumes = of_ours.filter_map(|attachment| attachment.spec.source.persistent_volume_name);
    let left = volumes.filter(|volume| !named.contains(volume));
    Ok(left.map(|volume| format!("attachment of volume {volume} of the host")).collect())
}

/// In the storage of a member, though none of its volumes names it.
async fn stored_alone(world: &World<'_>) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for member in world.rig.fleet.members() {
        let stored = stored(member)?;
        let named = names(&Api::all(member.client().await?)).await?;
        let of = format!("in the storage of {}", member.name());
        left.extend(stored.difference(&named).map(|volume| format!("volume {volume} {of}")));
    }
    Ok(left)
}

async fn names(volumes: &Api<PersistentVolume>) -> Result<BTreeSet<String>> {
    Ok(volumes.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
}

/// Movers with what is theirs, and sources that are kept.
async fn left_of_moves(member: &Cluster) -> Result<Vec<String>> {
    let movers = member.kubectl(&["get", "pods,secrets,pvc", "-n", YARD, "-o", "name"]).await?;
    let sources = member.kubectl(&["get", "pv", "-l", "kosmos.csi.io/moved", "-o", "name"]).await?;
    Ok(movers.lines().chain(sources.lines()).map(|name| format!("{name} of {}, of a move", member.name())).collect())
}

fn touches(stranger: &Stranger<'_>, entry: &AuditEntry, is_led_there: bool) -> bool {
    let writes = entry.user.starts_with(OUR_ACCOUNTS) && WRITES.contains(&entry.verb.as_str()) && entry.code < 400;
    let is_known = [OF_OTHER, TRAVELS].iter().any(|ours| entry.name.starts_with(ours));
    let is_here = entry.namespace == stranger.place.namespace && entry.user == ACCOUNT && !is_known;
    let is_elsewhere = stranger.place.cluster.name() == OTHER && is_here && !is_led_there;
    writes && (is_elsewhere || entry.name == CANARY || entry.name == stranger.volume)
}
