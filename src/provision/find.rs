//! The leaf behind a handle: one made by this driver, or an imported one, whose claim was there before and whose member
//! has consented.

use std::sync::Arc;

use super::Provisioner;
use crate::{
    error::{Error, Result},
    leaf::{Cluster, ownership, row::ClaimRow},
    member::Member,
    volume::{VolumeHash, VolumeId},
};

/// A leaf claim, where it is, and whose.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: VolumeId,
    pub(super) member: Arc<Member>,
    /// Of an imported claim, which carries no labels: a hash that stands for it.
    pub(super) hash: VolumeHash,
    pub(super) claim: ClaimRow,
    /// Somebody else's claim, read just now. It never gets labels or a finalizer of ours, and is in no row.
    pub(super) imported: bool,
}

impl Provisioner {
    /// From memory where it is known there, also while its member is down. Whoever forges a handle learns nothing from the
    /// answer.
    pub(super) async fn find(&self, handle: &str) -> Result<Found> {
        let unknown = || Error::NotFound(format!("no volume has the handle {handle:?}"));
        let id = VolumeId::parse(handle).ok_or_else(unknown)?;
        let member = self.members.get(&id.member).await?;
        let found = |id, member, (hash, claim), imported| Found { id, member, hash, claim, imported };
        if let Some(seen) = member.last_known().and_then(|leaf| seen(leaf, &id)) {
            return Ok(found(id, member, seen, false));
        }
        let leaf = member.leaf()?;
        let Some(place) = id.place() else {
            leaf.list_leaf(*id.hashes().start()).await?;
            let listed = seen(leaf, &id).ok_or_else(unknown)?;
            return Ok(found(id, Arc::clone(&member), listed, false));
        };
        let read = leaf.read_claim(&place).await?.ok_or_else(unknown)?;
        if let Some(hash) = ownership::volume_of(&read.metadata, &leaf.host).filter(|hash| id.names(*hash)) {
            return Ok(found(id, Arc::clone(&member), (hash, ClaimRow::new(&read)), false));
        }
        if ownership::consents(&read.metadata, &leaf.host) {
            let hash = VolumeHash::imported(&leaf.host, &id);
            return Ok(found(id, Arc::clone(&member), (hash, ClaimRow::new(&read)), true));
        }
        Err(unknown())
    }
}

fn seen(leaf: &Cluster, id: &VolumeId) -> Option<(VolumeHash, ClaimRow)> {
    let (hash, row) = leaf.rows.find(id)?;
    Some((hash, row.claim?))
}
