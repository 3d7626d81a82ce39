//! The steps of a move that are one write on one of its leaves.

use super::{Changed, Sight, copy, sight::mark_of, source};
use crate::MemberClient;
use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash,
        moving::{MoveMark, Moving, Part},
    },
};

/// A leaf of a move, as it was read, and what may have to be written on it.
#[derive(Debug)]
pub struct Moved<'a> {
    pub leaf: &'a MemberClient,
    pub hash: VolumeHash,
    pub sight: &'a Sight,
    /// Where the pods of the host's claim look for it.
    pub home: &'a LeafPlace,
    pub of: &'a MoveMark,
    /// Of the copy.
    pub handle: &'a str,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// This is how it has left the leaf.
    Changed(Changed),
    Now,
    /// All was done but what the member itself does.
    Awaited,
    /// There is nothing to write it on.
    Nowhere,
}

impl From<Option<Changed>> for Written {
    fn from(changed: Option<Changed>) -> Self {
        changed.map_or(Self::Now, Self::Changed)
    }
}

impl Moved<'_> {
    /// Any other step is no write on a leaf.
    pub async fn write(&self, step: Moving) -> Result<Written> {
        Box::pin(self.carry_out(step)).await
    }

    async fn carry_out(&self, step: Moving) -> Result<Written> {
        self.is_of_this(step)?;
        let (leaf, sight, hash) = (self.leaf, self.sight, self.hash);
        let changed = match (step, &sight.home, &sight.yard, &sight.volume) {
            (Moving::CloseSource, Some(claim), ..) => source::mark(leaf, claim, &self.mark(Part::Source)).await?,
            (Moving::IsolateSource, Some(claim), ..) => {
                source::mark(leaf, claim, &self.mark(Part::IsolatedSource)).await?
            }
            (Moving::LendSource, .., Some(volume)) => source::lend(leaf, volume, hash).await?,
            (Moving::ReturnSource, .., Some(volume)) => source::take_back(leaf, volume, self.home).await?,
            (Moving::RetireSource, .., Some(volume)) => source::retire(leaf, volume, hash, self.handle).await?,
            (Moving::KeepCopy, _, Some(claim), Some(volume)) => {
                copy::keep(leaf, (claim, volume), hash, (&self.mark(Part::Copy), self.handle)).await?
            }
            (Moving::PlaceCopy, .., Some(volume)) => copy::place(leaf, volume, self.home).await?,
            (Moving::OpenSource, ..) => return Ok(source::open(leaf, sight).await?.into()),
            (Moving::ReleaseCopy, ..) => return Ok(copy::release(leaf, sight).await?.into()),
            (Moving::RemoveYardClaim, _, Some(claim), _) => {
                return source::remove_yard_claim(leaf, claim, hash).await.map(|()| Written::Now);
            }
            (Moving::RemoveCopy, ..) => return self.remove(sight).await,
            (Moving::RemoveSourceStray | Moving::RemoveCopyStray, ..) => match &sight.stray {
                Some(stray) => {
                    let along = stray.takes_along(&leaf.member)?;
                    return self.remove(&Sight::of_stray(stray, along)).await;
                }
                None => return Ok(Written::Nowhere),
            },
            _ => return Ok(Written::Nowhere),
        };
        Ok(Written::Changed(changed))
    }

    /// What another move says of the leaf is not taken off. Of a copy its volume says it, where nobody else may write.
    fn is_of_this(&self, step: Moving) -> Result<()> {
        let mark = match step {
            Moving::OpenSource => self.sight.claim().and_then(mark_of),
            Moving::ReleaseCopy => self.sight.volume.as_ref().and_then(mark_of),
            _ => None,
        };
        match mark.filter(|mark| mark.uid != self.of.uid) {
            None => Ok(()),
            Some(other) => Err(Error::Refused(format!(
                "member {}: leaf claim {} is being moved by {}",
                self.leaf.member,
                self.home,
                other.object()
            ))),
        }
    }

    async fn remove(&self, sight: &Sight) -> Result<Written> {
        if copy::is_going(self.leaf, sight, self.hash) {
            return Ok(Written::Awaited);
        }
        copy::remove(self.leaf, sight, self.hash, &self.mark(Part::Copy)).await.map(|()| Written::Now)
    }

    fn mark(&self, part: Part) -> MoveMark {
        MoveMark { part, ..self.of.clone() }
    }
}
