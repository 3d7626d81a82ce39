//! One look at everything that is compared: the host's volumes and the leaves of every member, each listed whole. A member
//! whose lists cannot be read to their end is not judged, and it is said why.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::{CSIDriver, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    connect::{self, Known, Unmet, now},
    snapshots,
    whole::{whole, whole_of},
};
use crate::args::operator::MembersAccess;
use cluster::{Dial, lease};
use domain::volume::{DRIVER, HostId, LeafPlace, VolumeHash, VolumeId, moving::MoveMark, quantity};
use host::{Host, volume::HostVolume as Summary};
use leaf::{
    MemberClient,
    identity::{Identity, Meant, judge},
    ownership,
    rows::Rows,
    snapshot::{kinds::VolumeSnapshot, row::SnapshotRow},
};
use member::source::{Account, MemberDefinitions};
use operator::{
    compare::{HostSide, HostVolume, Leaf, LeafSnapshot, LeafVolume, MemberSide},
    doctor::{LeafClasses, SeenMember},
    kubeconfig,
    status::Holder,
};

/// Single claims that are read at once.
const AT_ONCE: usize = 8;

/// Everything, at about one time.
pub(super) struct Seen {
    pub(super) host: HostSide,
    /// Those that can be judged.
    pub(super) sides: Vec<MemberSide>,
    pub(super) members: Vec<SeenMember>,
}

/// The leaf claims of this host in a member.
pub(super) async fn leaf_claims(leaf: &MemberClient) -> Result<Vec<PersistentVolumeClaim>, String> {
    let ours = ListParams::default().labels(&ownership::selector(&leaf.host));
    let mut all = Vec::new();
    for namespace in leaf.namespaces.each() {
        all.append(&mut whole_of(leaf.within(namespace), &ours).await?);
    }
    Ok(all)
}

/// A claim of one of our classes that has no volume yet.
pub(super) fn waits(claim: &PersistentVolumeClaim, classes: &[StorageClass]) -> bool {
    let Some(spec) = &claim.spec else { return false };
    let is_ours = |name: &String| classes.iter().any(|class| class.name_any() == *name && class.provisioner == DRIVER);
    spec.volume_name.as_deref().unwrap_or_default().is_empty() && spec.storage_class_name.as_ref().is_some_and(is_ours)
}

/// Whether the host knows the driver, and the lease of who works in the background.
pub(super) async fn driver_and_lease(host: &Host) -> Result<(bool, Option<LeaseSpec>), kube::Error> {
    let driver = cluster::read(Api::<CSIDriver>::all(host.client.clone()).get(DRIVER).await, DRIVER)?;
    let leases = Api::<Lease>::namespaced(host.client.clone(), &host.namespace);
    let lease = cluster::read(leases.get(lease::CONTROLLER).await, lease::CONTROLLER)?;
    Ok((driver.is_some(), lease.and_then(|lease| lease.spec)))
}

pub(super) fn holder(lease: LeaseSpec) -> Option<Holder> {
    let age = now() - lease.renew_time?.0.as_second();
    Some(Holder { identity: lease.holder_identity.unwrap_or_default(), age })
}

/// All claims of the host.
pub(super) async fn host_claims(host: &Host) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
    let claims = whole(Api::all(host.client.clone())).await;
    claims.map_err(|reason| anyhow::anyhow!("the host's claims cannot be listed: {reason}"))
}

pub(super) async fn look(host: &Host, access: &MembersAccess, dial: &Dial) -> anyhow::Result<Seen> {
    let named = connect::members(host, access).await?;
    let for_pods = connect::members_as(host, access, Account::VirtualNode).await?;
    let pins = host::pins::pins(host).await?;
    let opening = named.iter().map(async |(name, definition)| {
        let known = connect::meet(host, name, definition, &pins, dial).await;
        (name.clone(), listed(known).await)
    });
    let listed = join_all(opening).await;
    let second_name =
        |(name, listed): &(String, Result<_, Unmet>)| Some((name.clone(), listed.as_ref().err()?.alias_of.clone()?));
    let aliases = listed.iter().filter_map(second_name).collect();
    // After the leaves: a volume that is made meanwhile is seen.
    let side = host_side(host, aliases, &pins).await?;
    let mut seen = Seen { members: members([&named, &for_pods], &pins, &side), host: side, sides: Vec::new() };
    for (name, listed) in listed {
        let (judged, classes) = match listed {
            Ok((known, listed)) => (seen.judge(&known.leaf, listed).await, classes(&known.leaf).await),
            Err(unmet) => (Err(unmet.why), None),
        };
        if let Some(member) = seen.members.iter_mut().find(|member| member.name == name) {
            member.problem = judged.err();
            member.classes = classes;
        }
    }
    let judged: BTreeSet<&String> = seen.sides.iter().map(|side| &side.member).collect();
    for member in &mut seen.members {
        let serving = seen.host.aliases.get(&member.name).filter(|serving| judged.contains(serving));
        member.compared_as = serving.cloned();
    }
    Ok(seen)
}

/// None where they cannot be read: nothing is said of them then.
async fn classes(leaf: &MemberClient) -> Option<LeafClasses> {
    let all = whole::<StorageClass>(Api::all(leaf.client.clone())).await.ok()?;
    let rows = Rows::new(leaf.host.clone());
    for class in &all {
        rows.put_class(class);
    }
    Some(LeafClasses { names: rows.class_names(), has_default: rows.default_class().is_some() })
}

struct Listed {
    claims: Vec<PersistentVolumeClaim>,
    volumes: Vec<PersistentVolume>,
    /// An account may have no right to them.
    snapshots: Result<Vec<VolumeSnapshot>, String>,
}

async fn listed(known: Result<Known, Unmet>) -> Result<(Known, Listed), Unmet> {
    let known = known?;
    let ours = ListParams::default().labels(&ownership::selector(&known.leaf.host));
    let claims = leaf_claims(&known.leaf).await?;
    let volumes = whole_of(Api::all(known.leaf.client.clone()), &ours).await?;
    let snapshots = snapshots::of_member(&known.leaf).await;
    Ok((known, Listed { claims, volumes, snapshots }))
}

async fn host_side(
    host: &Host,
    aliases: BTreeMap<String, String>,
    pins: &BTreeMap<String, String>,
) -> anyhow::Result<HostSide> {
    let all = whole::<PersistentVolume>(Api::all(host.client.clone())).await;
    let all = all.map_err(|reason| anyhow::anyhow!("the host's volumes cannot be listed: {reason}"))?;
    let names: BTreeSet<String> = all.iter().map(ResourceExt::name_any).collect();
    let has_volume = |claim: &PersistentVolumeClaim| {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        volume.is_some_and(|volume| names.contains(volume))
    };
    let claims = host_claims(host).await?.into_iter().filter(|claim| !has_volume(claim));
    let claims: BTreeSet<String> = claims.filter_map(|claim| claim.metadata.uid).collect();
    let volumes: Vec<HostVolume> = all.iter().filter_map(host_volume).collect();
    let members = volumes.iter().filter_map(|volume| Some(VolumeId::parse(&volume.handle)?.member));
    let unknown = members.filter(|name| !pins.contains_key(name) && !aliases.contains_key(name)).collect();
    Ok(HostSide {
        awaited: claims.iter().map(|uid| VolumeHash::new(&host.id, &format!("pvc-{uid}"))).collect(),
        claims,
        volumes,
        snapshots: snapshots::of_host(host).await,
        aliases,
        unknown,
    })
}

fn host_volume(volume: &PersistentVolume) -> Option<HostVolume> {
    let summary = Summary::new(volume)?;
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    Some(HostVolume {
        name: summary.name.to_string(),
        uid: summary.uid.to_string(),
        handle: summary.handle.to_string(),
        capacity: capacity.and_then(|size| quantity::parse(&size.0)).unwrap_or_default(),
        leaving: summary.is_leaving(),
    })
}

/// Those that are named, and those that were.
fn members(
    [named, for_pods]: [&MemberDefinitions; 2],
    pins: &BTreeMap<String, String>,
    host: &HostSide,
) -> Vec<SeenMember> {
    let mut volumes: BTreeMap<String, usize> = BTreeMap::new();
    for id in host.volumes.iter().filter_map(|volume| VolumeId::parse(&volume.handle)) {
        *volumes.entry(id.member).or_default() += 1;
    }
    let all: BTreeSet<&String> = named.keys().chain(pins.keys()).chain(volumes.keys()).collect();
    let seen = all.into_iter().map(|name| SeenMember {
        name: name.clone(),
        problem: None,
        tokens: [named, for_pods]
            .into_iter()
            .filter_map(|of| kubeconfig::read(&of.get(name)?.kubeconfig).token)
            .collect(),
        volumes: volumes.get(name).copied().unwrap_or_default(),
        named: named.contains_key(name),
        classes: None,
        compared_as: None,
    });
    seen.collect()
}

impl Seen {
    async fn judge(&mut self, leaf: &MemberClient, listed: Listed) -> Result<(), String> {
        let now = now();
        let leaves: Vec<Leaf> = listed.claims.iter().filter_map(|claim| leaf_of(claim, &leaf.host, now)).collect();
        let volumes = listed.volumes.iter().filter_map(|volume| leaf_volume_of(volume, &leaf.host, now)).collect();
        let imported = self.imported(leaf, &leaves).await?;
        let (snapshots, unread_snapshots) = match listed.snapshots {
            Ok(all) => (all.iter().filter_map(|snapshot| leaf_snapshot_of(snapshot, leaf, now)).collect(), None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let member = leaf.member.clone();
        self.sides.push(MemberSide { member, leaves, volumes, imported, snapshots, unread_snapshots });
        Ok(())
    }

    /// Of the host's volumes that lead to no leaf: the claims that may be used by consent.
    async fn imported(&self, leaf: &MemberClient, leaves: &[Leaf]) -> Result<BTreeSet<(String, String)>, String> {
        let known: BTreeSet<(&str, &str)> =
            leaves.iter().map(|leaf| (leaf.place.namespace.as_str(), leaf.place.claim.as_str())).collect();
        let ids = self.host.volumes.iter().filter_map(|volume| VolumeId::parse(&volume.handle));
        let places = ids.filter(|id| id.member == leaf.member).filter_map(|id| id.place());
        let places = places.filter(|place| !known.contains(&(place.namespace.as_str(), place.claim.as_str())));
        let reading = stream::iter(places).map(async |place: LeafPlace| {
            let claim = leaf::claim::read(leaf, &place).await.map_err(|error| error.to_string())?;
            let consents =
                claim.is_some_and(|claim| judge(&claim.metadata, &leaf.host, Meant::Any) == Identity::Consents);
            Ok::<_, String>(consents.then_some((place.namespace, place.claim)))
        });
        let found: Vec<Option<(String, String)>> = reading.buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

pub(super) fn age(metadata: &ObjectMeta, now: i64) -> i64 {
    metadata.creation_timestamp.as_ref().map(|made| now - made.0.as_second()).unwrap_or_default()
}

fn leaf_of(claim: &PersistentVolumeClaim, host: &HostId, now: i64) -> Option<Leaf> {
    let status = claim.status.as_ref();
    let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    Some(Leaf {
        place: LeafPlace { namespace: claim.namespace().unwrap_or_default(), claim: claim.name_any() },
        uid: claim.uid().unwrap_or_default(),
        hash: ownership::volume_of(&claim.metadata, host)?,
        age: age(&claim.metadata, now),
        lost: status.and_then(|status| status.phase.as_deref()) == Some("Lost"),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        capacity: capacity.and_then(|size| quantity::parse(&size.0)).unwrap_or_default(),
        had_volume: claim.annotations().contains_key(ownership::HAD_VOLUME),
        moving: claim.annotations().get(ownership::MOVE).is_some_and(|text| MoveMark::parse(text).is_some()),
        claim_uid: claim_uid(claim),
    })
}

/// The host's claim that a leaf was made for.
pub(super) fn claim_uid(leaf: &PersistentVolumeClaim) -> String {
    let note = |key: &str| leaf.annotations().get(key).map(String::as_str);
    let in_name = || note(ownership::NAME).and_then(host::claim::uid_in_name);
    note(ownership::CLAIM_UID).or_else(in_name).unwrap_or_default().to_owned()
}

fn leaf_snapshot_of(snapshot: &VolumeSnapshot, leaf: &MemberClient, now: i64) -> Option<LeafSnapshot> {
    let row = SnapshotRow::new(snapshot, &leaf.host)?;
    Some(LeafSnapshot {
        handle: row.id(&leaf.member).to_string(),
        uid: row.uid.to_string(),
        hash: row.hash,
        group: row.group,
        asked_by: row.asked_by.as_deref().map(str::to_owned),
        age: age(&snapshot.metadata, now),
        terminating: row.terminating,
        place: row.place,
    })
}

fn leaf_volume_of(volume: &PersistentVolume, host: &HostId, now: i64) -> Option<LeafVolume> {
    let bound_to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
    Some(LeafVolume {
        name: volume.name_any(),
        uid: volume.uid().unwrap_or_default(),
        hash: ownership::volume_of(&volume.metadata, host)?,
        age: age(&volume.metadata, now),
        moving: volume.annotations().contains_key(ownership::PLACE),
        claim_uid: bound_to.unwrap_or_default(),
    })
}
