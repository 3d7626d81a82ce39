//! Hundreds of volumes at once, through the real sidecars on both sides. What must hold is read where it cannot be
//! wrong: in the records of the members' storage, in the members' objects, in their audit logs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    clusters::{AuditEntry, AuditMark, Cluster, wait_for},
    objects::{Place, attribute, handle, nothing_of_ours},
    pool::on_fleet,
    rig::{MEMBERS, NOW, Rig},
};

const COUNT: usize = 300;
/// Claims that are on their way to the API server together.
const TOGETHER: usize = 50;
const NAMESPACE: &str = "many";
const CLASS: &str = "many";
const DEADLINE: Duration = Duration::from_mins(2);
const ACCOUNT: &str = "system:serviceaccount:kosmos-csi:kosmos-csi";

/// A member, and what was in it before.
struct Side {
    place: Place<'static>,
    mark: AuditMark,
    /// A claim of the member's own, beside which ours are made, and its volume: name, UID, version.
    foreign: [[String; 3]; 2],
    /// Names under which its storage had volumes.
    stored: BTreeSet<String>,
}

impl Side {
    async fn of(member: &'static Cluster) -> Result<Self> {
        let place = Place::new(member, NAMESPACE).await?;
        place.claim("foreign", NOW).await?;
        place.bound("foreign").await?;
        let (foreign, stored) = (foreign(&place).await?, stored(member)?);
        Ok(Self { mark: member.audit_mark().await?, place, foreign, stored })
    }

    /// How many volumes the storage has that it did not have before.
    fn made(&self) -> Result<usize> {
        let now = stored(self.place.cluster)?;
        ensure!(now.contains(&self.foreign[1][0]), "the storage has lost a volume of others");
        Ok(now.difference(&self.stored).count())
    }

    /// The driver's requests since a mark, by verb and resource, and those with which claims and volumes came to be.
    async fn spent(&self, mark: AuditMark) -> Result<Spent> {
        let entries = self.place.cluster.audit_since(mark).await?;
        let of_driver = entries.iter().filter(|entry| entry.user == ACCOUNT && entry.verb != "watch");
        let mut by_kind = BTreeMap::new();
        for entry in of_driver.filter(|entry| entry.resource != "csistoragecapacities") {
            *by_kind.entry(format!("{} {}", entry.verb, entry.resource)).or_insert(0) += 1;
        }
        let count = |resource: &str| entries.iter().filter(|entry| has_made(entry, resource)).count();
        Ok(Spent { by_kind, claims: count("persistentvolumeclaims"), volumes: count("persistentvolumes") })
    }

    /// As it was before, claim by claim and volume by volume.
    async fn is_as_before(&self) -> Result<()> {
        nothing_of_ours(self.place.cluster, NAMESPACE).await?;
        ensure!(foreign(&self.place).await? == self.foreign, "what is not ours was changed");
        let left = self.place.claims().list(&ListParams::default()).await?;
        ensure!(left.iter().map(ResourceExt::name_any).eq(["foreign"]), "claims are left in {NAMESPACE}");
        let volumes = self.place.volumes().list(&ListParams::default()).await?;
        let of_here = volumes.iter().filter(|volume| claimed_from(volume) == Some(NAMESPACE)).count();
        ensure!(of_here == 1, "{of_here} volumes are left of {NAMESPACE}");
        ensure!(self.made()? == 0, "the storage of {} has kept volumes", self.place.cluster.name());
        Ok(())
    }
}

/// What an audit log shows.
struct Spent {
    by_kind: BTreeMap<String, usize>,
    claims: usize,
    volumes: usize,
}

impl Spent {
    fn count(&self, kind: &str) -> usize {
        self.by_kind.get(kind).copied().unwrap_or_default()
    }

    fn tell(&self, what: &str, member: &str, volumes: usize) {
        let each = |count: usize| f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(volumes).unwrap());
        let all: usize = self.by_kind.values().sum();
        let kinds: Vec<String> =
            self.by_kind.iter().map(|(kind, count)| format!("{kind} {:.2}", each(*count))).collect();
        eprintln!("  {member}: {what} {:.2} requests a volume: {}", each(all), kinds.join(", "));
    }
}

fn has_made(entry: &AuditEntry, resource: &str) -> bool {
    let here = entry.namespace.is_empty() || entry.namespace == NAMESPACE;
    entry.verb == "create" && entry.resource == resource && entry.subresource.is_empty() && entry.code == 201 && here
}

fn claimed_from(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.claim_ref.as_ref()?.namespace.as_deref()
}

/// Any write shows in a version.
async fn foreign(place: &Place<'_>) -> Result<[[String; 3]; 2]> {
    let claim = place.claims().get("foreign").await?;
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).context("the foreign claim is bound")?;
    Ok([identity(&claim), identity(&place.volumes().get(&volume).await?)])
}

fn identity(object: &impl ResourceExt) -> [String; 3] {
    [object.name_any(), object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default()]
}

/// The names of all volumes of a member's storage, from its own records. One name twice is a volume made twice.
pub fn stored(member: &Cluster) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(member.member_driver_folder().join("state/volumes"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let Ok(text) = std::fs::read(&path) else { continue }; // gone since
            let record: serde_json::Value = serde_json::from_slice(&text)?;
            let name = record["name"].as_str().context("a record without a name")?.to_owned();
            ensure!(names.insert(name.clone()), "{name} was made twice in {}", member.name());
        }
    }
    Ok(names)
}

fn claim_name(number: usize) -> String {
    format!("data-{number:03}")
}

async fn make_claims(host: &Place<'_>) -> Result<()> {
    let names = (0..COUNT).map(claim_name);
    let claims = stream::iter(names).map(|name| async move { host.claim(&name, CLASS).await.map(drop) });
    claims.buffer_unordered(TOGETHER).try_collect().await
}

/// The host's volumes of ours once all claims have theirs.
async fn all_bound(host: &Place<'_>) -> Result<Vec<PersistentVolume>> {
    wait_for("all claims are bound", DEADLINE, || async {
        let claims = host.claims().list(&ListParams::default()).await?;
        let bound = claims.iter().filter(|claim| is_bound(claim)).count();
        ensure!(bound == COUNT, "{bound} of {COUNT} are");
        Ok(Some(()))
    })
    .await?;
    of_many(host).await
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

async fn of_many(host: &Place<'_>) -> Result<Vec<PersistentVolume>> {
    let volumes = host.volumes().list(&ListParams::default()).await?;
    Ok(volumes.items.into_iter().filter(|volume| claimed_from(volume) == Some(NAMESPACE)).collect())
}

/// Every host volume has a leaf of its own, each member has made just these, and both have their share.
async fn each_has_its_leaf(sides: &[Side], volumes: &[PersistentVolume]) -> Result<()> {
    ensure!(volumes.len() == COUNT, "{} volumes for {COUNT} claims", volumes.len());
    for (what, of) in
        [("handle", handle as fn(&PersistentVolume) -> String), ("leaf", |it| attribute(it, "leafVolume"))]
    {
        let different: BTreeSet<String> = volumes.iter().map(of).filter(|text| !text.is_empty()).collect();
        ensure!(different.len() == COUNT, "{} times a different {what}", different.len());
    }
    for side in sides {
        let member = side.place.cluster.name();
        let here = volumes.iter().filter(|volume| handle(volume).starts_with(&format!("{member}/"))).count();
        let (stored, spent) = (side.made()?, side.spent(side.mark).await?);
        spent.tell("made with", member, here);
        ensure!(here >= COUNT / 4, "{here} of {COUNT} are in {member}");
        ensure!(
            [stored, spent.claims, spent.volumes] == [here; 3],
            "{here} in {member}, where its storage made {stored}, and its API server {} claims and {} volumes",
            spent.claims,
            spent.volumes
        );
        // The promise of CreateVolume, and the mark in the background; few meet a conflict. What waits for long is looked at
        // besides.
        for kind in ["create persistentvolumeclaims", "patch persistentvolumes", "patch persistentvolumeclaims"] {
            let count = spent.count(kind);
            ensure!(count <= here + here / 20, "{kind}: {count} times for {here} volumes of {member}");
        }
    }
    Ok(())
}

async fn removed(host: &Place<'_>) -> Result<()> {
    // One by one: the API server deletes a whole collection in a single request, which takes too long to be waited for.
    let names = (0..COUNT).map(claim_name);
    let deleted = stream::iter(names).map(|name| async move { host.delete_claim(&name).await });
    deleted.buffer_unordered(TOGETHER).try_collect::<()>().await?;
    wait_for("claims and volumes are gone from the host", DEADLINE, || async {
        let claims = host.claims().list(&ListParams::default()).await?.items.len();
        ensure!(claims == 0, "{claims} claims are left");
        let volumes = of_many(host).await?.len();
        ensure!(volumes == 0, "{volumes} volumes are left");
        Ok(Some(()))
    })
    .await
}

async fn come_and_go(rig: &'static Rig, host: &Place<'_>) -> Result<()> {
    let sides: Vec<Side> = stream::iter(MEMBERS).then(|name| Side::of(rig.fleet.member(name))).try_collect().await?;
    let begun = Instant::now();
    make_claims(host).await?;
    let volumes = all_bound(host).await?;
    eprintln!("  {COUNT} claims bound after {:.1} s", begun.elapsed().as_secs_f32());
    each_has_its_leaf(&sides, &volumes).await?;

    let marks: Vec<AuditMark> = stream::iter(&sides).then(|side| side.place.cluster.audit_mark()).try_collect().await?;
    let begun = Instant::now();
    removed(host).await?;
    eprintln!("  gone from the host after {:.1} s", begun.elapsed().as_secs_f32());
    for (side, mark) in sides.iter().zip(marks) {
        side.spent(mark).await?.tell("removed with", side.place.cluster.name(), COUNT / sides.len());
        side.is_as_before().await?;
        side.place.delete_claim("foreign").await?;
    }
    Ok(())
}

#[test]
fn three_hundred_volumes_come_and_go_at_once() {
    on_fleet("many", async |rig| {
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        host.class(CLASS, "Immediate", json!({"leafStorageClass": NOW}), &MEMBERS).await?;
        come_and_go(rig, &host).await
    });
}
