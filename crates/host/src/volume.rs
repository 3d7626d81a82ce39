//! The host volume: whether a name has one, which leaf a handle was given out for, and how one stands now.
//!
//! All of these are reads of the host itself and none is answered from a watch: what follows from them is that a leaf is
//! removed, or recreated, and a volume made a moment ago must count.

mod attributes;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume};
use kube::{Api, ResourceExt, api::ListParams};

use super::{Host, unread};
pub use attributes::{LEAF_UID, LEAF_VOLUME, LeafAttributes};
use cluster::trimmed::{Reads, Trimmed};
use domain::{
    error::Result,
    volume::{
        Claim, ClaimDigest, DRIVER, LeafPlace, VolumeHash, VolumeId,
        backing::{self, AttachMode},
        healing::Wish,
        id::is_subdomain,
        quantity,
    },
};

/// Volumes that one answer holds.
const PAGE: u32 = 500;

/// What the host's own record says of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOut {
    pub claim_uid: String,
    /// The leaf volume's name.
    pub volume: String,
}

impl GivenOut {
    /// As a volume's attributes say it.
    pub fn read(attributes: &BTreeMap<String, String>) -> Option<Self> {
        let volume = attributes.get(LEAF_VOLUME).cloned().unwrap_or_default();
        Some(Self { claim_uid: attributes.get(LEAF_UID)?.clone(), volume })
    }
}

/// The same in a few bytes: enough to say where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenOutDigest {
    claim: ClaimDigest,
    volume: ClaimDigest,
}

impl GivenOutDigest {
    /// None where no volume was told.
    fn new(source: &CSIPersistentVolumeSource) -> Option<Self> {
        let told = |key| source.volume_attributes.as_ref()?.get(key).filter(|told| !told.is_empty());
        let digest = |key| told(key).map(|told| ClaimDigest::new(told));
        Some(Self { claim: digest(LEAF_UID)?, volume: digest(LEAF_VOLUME)? })
    }

    /// Neither that claim, nor in its place, nor with its volume.
    pub fn is_another<'a>(self, uids: impl IntoIterator<Item = &'a str>, volume: Option<&str>) -> bool {
        volume.map(ClaimDigest::new) != Some(self.volume)
            && uids.into_iter().all(|uid| ClaimDigest::new(uid) != self.claim)
    }
}

/// A host volume of this driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct HostVolume {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub handle: Box<str>,
    /// UID of the claim it is bound to; empty where there is none.
    pub claim_uid: Box<str>,
    /// That claim, as `NAMESPACE/NAME`.
    pub claim: Option<Box<str>>,
    /// The leaf that was given out with it.
    pub leaf: Option<GivenOutDigest>,
    /// The host removes the leaf when the claim has gone.
    pub deletes: bool,
    /// Its data outlives its claim, and itself.
    pub retains: bool,
    /// Its claim has gone. One that names none is not so, whatever its phase says still: its administrator gives it to another.
    pub released: bool,
    pub terminating: bool,
}

impl HostVolume {
    /// Its claim has gone, and it is to go too.
    pub fn is_to_be_reclaimed(&self) -> bool {
        self.released && self.deletes
    }

    /// None where it belongs to another driver.
    pub fn new(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        let source = spec.csi.as_ref().filter(|source| source.driver == DRIVER)?;
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let bound_to = spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_deref());
        Some(Self {
            name: volume.name_any().into(),
            uid: volume.uid().unwrap_or_default().into(),
            handle: source.volume_handle.as_str().into(),
            claim_uid: bound_to.unwrap_or_default().into(),
            claim: spec
                .claim_ref
                .as_ref()
                .and_then(|claim| Some(format!("{}/{}", claim.namespace.as_ref()?, claim.name.as_ref()?).into())),
            leaf: GivenOutDigest::new(source),
            deletes: spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete"),
            retains: spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain"),
            released: bound_to.is_some_and(|uid| !uid.is_empty()) && matches!(phase, Some("Released" | "Failed")),
            terminating: volume.metadata.deletion_timestamp.is_some(),
        })
    }

    /// Its leaf is to be removed, or it goes itself.
    pub fn is_leaving(&self) -> bool {
        self.terminating || self.is_to_be_reclaimed()
    }

    /// What it wants of its leaf. One that its administrator has made available again has no claim's UID; one that somebody has deleted
    /// has its claim, and the pods of that, as long as that is there.
    pub fn wish(&self) -> Wish {
        match (self.retains, self.released) {
            (true, true) => Wish::Keep,
            (false, true) => Wish::Nothing,
            (false, false) if self.claim_uid.is_empty() && self.terminating => Wish::Nothing,
            _ if self.claim_uid.is_empty() => Wish::Keep,
            (retain, false) => Wish::Use { retain },
        }
    }
}

/// A volume of this driver as it is now.
#[derive(Clone, Debug)]
pub struct LiveVolume {
    pub volume: HostVolume,
    /// In bytes.
    pub capacity: u64,
    /// The claim it is for, which may have gone.
    pub claim: Option<Claim>,
    /// Empty where it has none.
    pub class: String,
    /// The leaf that was given out with it.
    pub given_out: Option<GivenOut>,
}

/// Whether the host has a volume of this name, or one that was given this handle: then the leaf is not ours to remove.
pub async fn uses(host: &Host, name: &str, handle: &str) -> Result<bool> {
    Ok(exists(host, name).await? || volume_with(host, handle).await?.is_some())
}

pub async fn exists(host: &Host, name: &str) -> Result<bool> {
    // A volume's name may be any text; that of an object is part of a path.
    if !is_subdomain(name) {
        return Ok(false);
    }
    let answer = volumes(host).get_metadata(name).await;
    let named = cluster::read(answer, name).map_err(|error| unread(&format!("get volume {name}"), &error))?;
    Ok(named.is_some())
}

/// The leaf that was given out with a handle.
pub async fn leaf_of(host: &Host, handle: &str) -> Result<Option<GivenOut>> {
    Ok(volume_with(host, handle).await?.and_then(given_out))
}

pub async fn read(host: &Host, name: &str) -> Result<Option<LiveVolume>> {
    let answer = unlabelled(host).get(name).await;
    let found = cluster::read(answer, name).map_err(|error| unread(&format!("get volume {name}"), &error))?;
    Ok(found.map(Trimmed::into_object).and_then(|found| {
        let (volume, spec) = (HostVolume::new(&found)?, found.spec?);
        let capacity = spec.capacity.as_ref().and_then(|capacity| quantity::parse(&capacity.get("storage")?.0));
        let claim = spec.claim_ref.and_then(|claim| Some(Claim { namespace: claim.namespace?, name: claim.name? }));
        let capacity = capacity.unwrap_or_default();
        let class = spec.storage_class_name.unwrap_or_default();
        Some(LiveVolume { volume, capacity, claim, class, given_out: spec.csi.and_then(given_out) })
    }))
}

/// The handle of a volume of this driver's.
pub async fn handle_of(host: &Host, name: &str) -> Result<Option<String>> {
    if !is_subdomain(name) {
        return Ok(None);
    }
    let answer = unlabelled(host).get(name).await;
    let found = cluster::read(answer, name).map_err(|error| unread(&format!("get volume {name}"), &error))?;
    let source = found.and_then(|volume| volume.into_object().spec?.csi);
    Ok(source.filter(|source| source.driver == DRIVER).map(|source| source.volume_handle))
}

/// All volumes whose handle leads to this claim, whatever hash it carries.
pub async fn at(host: &Host, member: &str, place: &LeafPlace) -> Result<Vec<HostVolume>> {
    all_leading(host, |id| id.member == member && id.place().as_ref() == Some(place)).await
}

/// Those of whose handles that is said. Reads all volumes: only for rare cases.
pub async fn all_leading(host: &Host, there: impl Fn(&VolumeId) -> bool) -> Result<Vec<HostVolume>> {
    let leads_there = |volume: &HostVolume| VolumeId::parse(&volume.handle).is_some_and(|id| there(&id));
    all(host, |volume| HostVolume::new(&volume).filter(leads_there)).await
}

/// What besides this volume leads to its leaf, whichever of its names a handle has for the member. Reads all volumes: only for rare cases.
pub async fn another_with(
    host: &Host,
    name: &str,
    handle: &VolumeId,
    is_its_member: impl Fn(&str) -> bool,
) -> Result<Option<HostVolume>> {
    let hash = VolumeHash::new(&host.id, name);
    let leads_there = |other: &HostVolume| {
        let id = VolumeId::parse(&other.handle);
        *other.name != *name && id.is_some_and(|id| id == *handle || is_its_member(&id.member) && id.names(hash))
    };
    let others = all(host, |volume| HostVolume::new(&volume).filter(leads_there)).await?;
    Ok(others.into_iter().next())
}

/// Reads all volumes: only for rare cases.
pub async fn all_with(host: &Host, handle: &str) -> Result<Vec<HostVolume>> {
    all(host, |volume| HostVolume::new(&volume).filter(|volume| *volume.handle == *handle)).await
}

/// Those with any of these handles. Reads all volumes: only for rare cases.
pub async fn all_with_any(host: &Host, handles: &BTreeSet<&str>) -> Result<Vec<HostVolume>> {
    all(host, |volume| HostVolume::new(&volume).filter(|volume| handles.contains(&*volume.handle))).await
}

/// The handles of all of them. Reads all volumes: only for rare cases.
pub async fn handles(host: &Host) -> Result<HashSet<Box<str>>> {
    Ok(all(host, |volume| HostVolume::new(&volume).map(|volume| volume.handle)).await?.into_iter().collect())
}

/// The handle of a volume that has moved, and is elsewhere than this one says. It keeps its name, of which its digits are made: those that
/// people write for imported volumes are nobody's. Reads all volumes: only for rare cases.
pub async fn other_handle_of(host: &Host, id: &VolumeId) -> Result<Option<String>> {
    let has_moved = |volume: &HostVolume| {
        let hash = VolumeHash::new(&host.id, &volume.name);
        id.names(hash) && VolumeId::parse(&volume.handle).is_some_and(|other| other != *id && other.names(hash))
    };
    let moved = all(host, |volume| HostVolume::new(&volume).filter(has_moved)).await?;
    Ok(moved.into_iter().next().map(|volume| volume.handle.into()))
}

/// Whether a volume with this handle comes to real nodes in this way. Reads all volumes: only for rare cases.
pub async fn has_attach_mode(host: &Host, handle: &str, mode: AttachMode) -> Result<bool> {
    let is_meant = |source: &CSIPersistentVolumeSource| source.driver == DRIVER && source.volume_handle == handle;
    let modes = all(host, |volume| volume.spec?.csi.filter(is_meant)?.volume_attributes?.remove(backing::MODE)).await?;
    Ok(modes.iter().any(|other| other == mode.as_str()))
}

/// Another driver's handles may read like ours. Reads all volumes: only for rare cases.
async fn volume_with(host: &Host, handle: &str) -> Result<Option<CSIPersistentVolumeSource>> {
    let is_meant = |source: &CSIPersistentVolumeSource| source.driver == DRIVER && source.volume_handle == handle;
    let sources = all(host, |volume| volume.spec?.csi.filter(is_meant)).await?;
    Ok(sources.into_iter().next())
}

/// Of all volumes what is wanted. Page by page: a host with many has not written the whole list before an answer must have begun, and all of
/// them at once have no room in memory.
pub(super) async fn all<T>(host: &Host, wanted: impl Fn(PersistentVolume) -> Option<T>) -> Result<Vec<T>> {
    all_of(&unlabelled(host), wanted).await
}

/// The same, as somebody reads them.
pub(super) async fn all_of<R, T>(
    volumes: &Api<Trimmed<PersistentVolume, R>>,
    wanted: impl Fn(PersistentVolume) -> Option<T>,
) -> Result<Vec<T>>
where
    R: Reads + Clone + std::fmt::Debug,
{
    let (mut all, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let listed = volumes.list(&page).await.map_err(|error| unread("list volumes", &error))?;
        all.extend(listed.items.into_iter().filter_map(|volume| wanted(volume.into_object())));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Who goes by no label and no annotation of a volume.
#[derive(Clone, Debug)]
pub(super) enum OfSpec {}

impl Reads for OfSpec {
    fn reads(_: &str) -> bool {
        false
    }
}

/// Without their labels and annotations.
pub(super) fn unlabelled(host: &Host) -> Api<Trimmed<PersistentVolume, OfSpec>> {
    Api::all(host.client.clone())
}

/// With all of them.
pub(super) fn volumes(host: &Host) -> Api<PersistentVolume> {
    Api::all(host.client.clone())
}

fn given_out(source: CSIPersistentVolumeSource) -> Option<GivenOut> {
    GivenOut::read(&source.volume_attributes?)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    fn volume(driver: &str, phase: &str, policy: &str) -> Option<HostVolume> {
        let volume: PersistentVolume = from_value(json!({
            "metadata": {"name": "pv", "uid": "u"},
            "spec": {
                "csi": {"driver": driver, "volumeHandle": "m/n/c/0123456789abcdef"},
                "claimRef": {"uid": "c"}, "persistentVolumeReclaimPolicy": policy,
            },
            "status": {"phase": phase},
        }))
        .unwrap();
        HostVolume::new(&volume)
    }

    #[test]
    fn volume_leaves_when_it_is_released_and_its_policy_says_so() {
        for (phase, policy, leaves) in [
            ("Bound", "Delete", false),
            ("Available", "Delete", false),
            ("Released", "Retain", false),
            ("Released", "Delete", true),
            ("Failed", "Delete", true),
        ] {
            assert_eq!(volume(DRIVER, phase, policy).unwrap().is_leaving(), leaves, "{phase} {policy}");
        }
        let terminating = HostVolume { terminating: true, ..volume(DRIVER, "Bound", "Retain").unwrap() };
        assert!(terminating.is_leaving());
        assert_eq!(volume("other.csi.io", "Bound", "Delete"), None);
    }

    #[test]
    fn wish_follows_claim_and_policy() {
        for (phase, policy, wish) in [
            ("Bound", "Delete", Wish::Use { retain: false }),
            ("Bound", "Retain", Wish::Use { retain: true }),
            ("Pending", "Delete", Wish::Use { retain: false }),
            ("Released", "Retain", Wish::Keep),
            ("Released", "Delete", Wish::Nothing),
            ("Failed", "Delete", Wish::Nothing),
            ("Failed", "Retain", Wish::Keep),
        ] {
            assert_eq!(volume(DRIVER, phase, policy).unwrap().wish(), wish, "{phase} {policy}");
        }
        let terminating = |phase, policy| HostVolume { terminating: true, ..volume(DRIVER, phase, policy).unwrap() };
        assert_eq!(terminating("Bound", "Delete").wish(), Wish::Use { retain: false }, "its claim is still there");
        assert_eq!(terminating("Bound", "Retain").wish(), Wish::Use { retain: true }, "its claim is still there");
        assert_eq!(terminating("Released", "Delete").wish(), Wish::Nothing);
        assert_eq!(terminating("Released", "Retain").wish(), Wish::Keep);
        let nobodys = HostVolume { claim_uid: "".into(), ..terminating("Available", "Delete") };
        assert_eq!(nobodys.wish(), Wish::Nothing);
        for policy in ["Delete", "Retain"] {
            let available = HostVolume { claim_uid: "".into(), ..volume(DRIVER, "Available", policy).unwrap() };
            assert_eq!(available.wish(), Wish::Keep, "{policy}");
        }
    }
}
