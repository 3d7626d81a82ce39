//! What is kept of one leaf snapshot. Pure.

use kube::ResourceExt;

use super::kinds::VolumeSnapshot;
use crate::{
    limits::Extent,
    ownership::{self, GROUP, HOLDER, SOURCE, VOLUME},
    row::{created, version},
};
use domain::volume::{
    HostId, LeafPlace, VolumeHash, VolumeId, quantity,
    snapshot::{ObservedSnapshot, belongs, leaf_name},
};

/// A leaf snapshot of ours.
#[derive(Clone, Debug)]
pub struct SnapshotRow {
    pub hash: VolumeHash,
    pub place: LeafPlace,
    pub uid: Box<str>,
    /// The handle of the volume it is of.
    pub source: Box<str>,
    /// The hash of that volume, which the content is to carry as well.
    pub volume: Option<VolumeHash>,
    /// The storage driver that holds it.
    pub driver: Box<str>,
    /// The host's VolumeSnapshotContent that asked for it, where anybody told.
    pub asked_by: Option<Box<str>>,
    /// The group it is part of.
    pub group: Option<VolumeHash>,
    /// The content behind it, once there is one.
    pub content: Option<Box<str>>,
    pub size: u64,
    pub ready: bool,
    pub terminating: bool,
    /// When it was cut, in seconds.
    pub cut: Option<i64>,
    /// When it was made, in seconds.
    pub(super) created: i64,
    pub trouble: Option<Box<str>>,
    /// Its content carries our labels, as far as this process knows.
    pub(super) marked: bool,
    pub(super) version: u64,
}

impl SnapshotRow {
    pub(super) fn extent(&self) -> Extent {
        let words = [Some(&self.uid), Some(&self.source), Some(&self.driver)].into_iter();
        let words = words.chain([self.asked_by.as_ref(), self.content.as_ref(), self.trouble.as_ref()]);
        let said: usize = words.flatten().map(|word| word.len()).sum();
        Extent { leaves: 1, texts: said + self.place.namespace.len() + self.place.claim.len(), copies: 1 }
    }

    /// None where it is not ours: labels can be copied, name and namespace together with them cannot.
    pub fn new(snapshot: &VolumeSnapshot, host: &HostId) -> Option<Self> {
        let hash = ownership::hash_of(&snapshot.metadata, host, ownership::SNAPSHOT)?;
        let group = ownership::hash_of(&snapshot.metadata, host, GROUP);
        let annotation = |key: &str| snapshot.annotations().get(key).map(String::as_str).unwrap_or_default();
        let place = LeafPlace { namespace: snapshot.namespace().unwrap_or_default(), claim: snapshot.name_any() };
        let own_name = group.is_some() || place.claim == leaf_name(hash);
        if !own_name || !belongs(annotation(SOURCE), &place.namespace) {
            return None;
        }
        let status = snapshot.status.as_ref();
        let content = status.and_then(|status| status.bound_volume_snapshot_content_name.as_deref());
        let trouble = status.and_then(|status| status.error.as_ref()?.message.as_deref());
        let size = status.and_then(|status| quantity::parse(status.restore_size.as_deref()?));
        Some(Self {
            hash,
            uid: snapshot.uid()?.into(),
            source: annotation(SOURCE).into(),
            volume: ownership::hash_of(&snapshot.metadata, host, VOLUME),
            driver: annotation(HOLDER).into(),
            asked_by: snapshot.annotations().get(ownership::CONTENT).map(|name| name.as_str().into()),
            group,
            content: content.filter(|name| !name.is_empty()).map(Into::into),
            size: size.unwrap_or_default(),
            ready: status.is_some_and(|status| status.ready_to_use == Some(true)),
            terminating: snapshot.metadata.deletion_timestamp.is_some(),
            cut: status.and_then(|status| status.creation_time.as_ref()).map(|time| time.0.as_second()),
            created: created(&snapshot.metadata),
            trouble: trouble.map(Into::into),
            marked: false,
            version: version(snapshot),
            place,
        })
    }

    /// What is older has the lesser one.
    pub(super) fn age(&self) -> (i64, &str) {
        (self.created, &self.uid)
    }

    pub fn id(&self, member: &str) -> VolumeId {
        VolumeId::new(member, &self.place.namespace, &self.place.claim, self.hash)
    }

    /// Whether it may be shown: what is not cut yet, or on its way out, is none.
    pub fn is_there(&self) -> bool {
        self.cut.is_some() && self.content.is_some() && !self.terminating
    }

    /// Whether somebody may have been told of it, as far as this process knows.
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    pub fn observed(&self) -> ObservedSnapshot {
        ObservedSnapshot {
            sources: vec![self.source.to_string()],
            terminating: self.terminating,
            cut: self.cut.is_some() && self.content.is_some(),
            trouble: self.trouble.as_deref().map(str::to_owned),
        }
    }
}
