//! The leaf behind a handle.

use std::sync::Arc;

use super::Provisioner;
use crate::{
    error::{Error, Result},
    leaf::{Cluster, ownership, row::ClaimRow},
    member::Member,
    volume::{VolumeHash, VolumeId, spec::LeafPlace},
};

/// A leaf claim, where it is, and whose.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: VolumeId,
    pub(super) member: Arc<Member>,
    pub(super) hash: VolumeHash,
    pub(super) claim: ClaimRow,
}

/// What is behind a handle.
pub(super) enum Sought {
    Found(Box<Found>),
    /// It was ours until somebody took its labels away.
    Stripped(Arc<Member>, LeafPlace),
    Unknown,
}

impl Found {
    pub(super) fn leaf(&self) -> Result<&Cluster> {
        self.member.leaf()
    }
}

impl Provisioner {
    /// From memory where it is known there, also while its member is down.
    pub(super) async fn find(&self, handle: &str) -> Result<Found> {
        match self.seek(handle).await? {
            Sought::Found(found) => Ok(*found),
            Sought::Stripped(..) | Sought::Unknown => Err(unknown(handle)),
        }
    }

    /// To be changed: its member must answer, and it must be the leaf itself. A handle that names a copy is forged, unless
    /// the host's own record says otherwise.
    pub(super) async fn find_to_change(&self, handle: &str) -> Result<Found> {
        let found = self.find(handle).await?;
        if self.is_copy(found.leaf()?, &found.id, found.hash, &found.claim).await? {
            return Err(unknown(handle));
        }
        Ok(found)
    }

    pub(super) async fn seek(&self, handle: &str) -> Result<Sought> {
        let Some(id) = VolumeId::parse(handle) else { return Ok(Sought::Unknown) };
        let member = match self.members.get(&id.member).await {
            Err(Error::NotFound(_)) => return Ok(Sought::Unknown),
            member => member?,
        };
        if let Some(found) = member.last_known().and_then(|leaf| seen(leaf, &id)) {
            let (hash, claim) = found;
            return Ok(Sought::Found(Box::new(Found { id, member, hash, claim })));
        }
        let leaf = member.leaf()?;
        let Some(place) = id.place() else {
            leaf.list_leaf(*id.hashes().start()).await?;
            let found = seen(leaf, &id);
            let found = found.map(|(hash, claim)| Found { id, member: Arc::clone(&member), hash, claim });
            return Ok(found.map_or(Sought::Unknown, |found| Sought::Found(Box::new(found))));
        };
        let Some(read) = leaf.read_claim(&place).await? else { return Ok(Sought::Unknown) };
        match ownership::volume_of(&read.metadata, &leaf.host).filter(|hash| id.names(*hash)) {
            Some(hash) => {
                let claim = ClaimRow::new(&read);
                Ok(Sought::Found(Box::new(Found { id, member: Arc::clone(&member), hash, claim })))
            }
            None if ownership::was_ours(&read.metadata, &leaf.host) => Ok(Sought::Stripped(Arc::clone(&member), place)),
            None => Ok(Sought::Unknown),
        }
    }
}

fn seen(leaf: &Cluster, id: &VolumeId) -> Option<(VolumeHash, ClaimRow)> {
    let (hash, row) = leaf.rows.find(id)?;
    Some((hash, row.claim?))
}

pub(super) fn unknown(handle: &str) -> Error {
    Error::NotFound(format!("no volume has the handle {handle:?}"))
}
