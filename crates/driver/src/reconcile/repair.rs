//! One volume that is looked at: its leaf, as it is known, and what the host wants of it.

use super::Reconciler;
use domain::{
    error::Result,
    volume::{LeafName, LeafPlace, VolumeHash, VolumeId, healing::Wish},
};
use host::{
    events::News,
    volume::{GivenOut, LiveVolume},
};
use leaf::{
    MemberClient,
    healing::LeafPair,
    row::{ClaimRow, Row},
};

/// One volume whose leaf may not be as it should be.
pub(super) struct Repair<'a> {
    pub(super) leaf: &'a MemberClient,
    pub(super) id: VolumeId,
    pub(super) hash: VolumeHash,
    pub(super) handle: String,
}

/// What the host wants, read just now, and the volume that wants it.
pub(super) struct LiveWish {
    pub(super) wish: Wish,
    pub(super) user: Option<LiveVolume>,
}

impl LiveWish {
    /// No volume of the host leads to the leaf, and the claim that it was made for waits for one: that host was restored from a backup,
    /// and will find the leaf again, so it is kept as it is.
    /// What the leaf says of that is believed only where it carries its volume's hash and that claim's volume has the same.
    pub(super) async fn take_claims_word(
        &mut self,
        reconciler: &Reconciler,
        repair: &Repair<'_>,
        row: &Row,
        pair: &LeafPair,
    ) -> Result<()> {
        let is_nobodys = self.user.is_none() && !row.is_moving() && matches!(self.wish, Wish::Keep | Wish::Nothing);
        let is_leaf = pair.claim.is_none() || pair.ours(repair.leaf, repair.hash).is_some();
        let (true, Some(made_for)) = (is_nobodys && is_leaf, pair.made_for()) else { return Ok(()) };
        if VolumeHash::new(&reconciler.host.id, &made_for.volume) != repair.hash {
            return Ok(());
        }
        let claim = host::claim::read(&reconciler.host, &made_for.claim, &made_for.volume).await?;
        if claim.is_some_and(|claim| claim.uid == made_for.uid && claim.volume.is_none()) {
            self.wish = Wish::Use { retain: row.volume.as_ref().is_some_and(|volume| volume.follows) };
        }
        Ok(())
    }

    /// The leaf that the host was told of.
    pub(super) fn given_out(&self) -> Option<&GivenOut> {
        self.user.as_ref()?.given_out.as_ref()
    }
}

impl<'a> Repair<'a> {
    /// Of a handle that leads to this volume.
    pub(super) fn of(leaf: &'a MemberClient, id: VolumeId, hash: VolumeHash) -> Self {
        Self { leaf, hash, handle: id.to_string(), id }
    }

    pub(super) fn leaf(&self) -> &'a MemberClient {
        self.leaf
    }

    pub(super) fn hash(&self) -> VolumeHash {
        self.hash
    }

    pub(super) fn handle(&self) -> &str {
        &self.handle
    }

    /// As it is known now: each step changes it.
    pub(super) fn row(&self) -> Row {
        match self.id.place() {
            Some(place) => self.leaf.rows.row_at(self.hash, &place),
            None => self.leaf.rows.row(self.hash).unwrap_or_default(),
        }
    }

    /// By what is in memory: copies carry labels and annotations as well, but the oldest is the leaf, and tools that restore
    /// claims leave our finalizer out.
    pub(super) fn is_the_leaf(&self, row: &Row) -> bool {
        let oldest = self.leaf.rows.row(self.hash).and_then(|row| row.claim);
        let is_it = |claim: &ClaimRow| {
            claim.finalizer.is_some() && oldest.as_ref().is_none_or(|oldest| oldest.uid == claim.uid)
        };
        row.claim.as_ref().is_none_or(is_it)
    }

    /// A step was taken: nothing stands in its way.
    pub(super) fn forget_obstacle(&self, reconciler: &Reconciler) {
        if let Some(movers) = &reconciler.movers {
            movers.obstacles.forget(&self.leaf.member, self.hash);
        }
    }

    pub(super) fn told(&self, reason: &'static str, place: &LeafPlace, what: &str, warning: bool) -> News {
        News { reason, message: format!("member {}: leaf claim {place} {what}", self.leaf.member), warning }
    }
}

/// A volume of each handle that its hash may have: one, but for copies. Where the host has one by the hash alone, that is it, whatever the
/// leaf says: one that an earlier version recreated at another place says nothing.
pub(super) fn repairs<'a>(reconciler: &Reconciler, leaf: &'a MemberClient, hash: VolumeHash) -> Vec<Repair<'a>> {
    let hashed = VolumeId { member: leaf.member.clone(), leaf: LeafName::Hashed(hash) };
    if reconciler.volumes.count_with(&hashed.to_string()) > 0 {
        return vec![Repair::of(leaf, hashed, hash)];
    }
    leaf.rows.ids(&leaf.member, hash).into_iter().map(|id| Repair::of(leaf, id, hash)).collect()
}

/// No volume of the host leads to a copy yet, so its move tells what is in the way.
pub(super) async fn tell_of_obstacle(reconciler: &Reconciler, repair: &Repair<'_>, wanted: &LiveWish, news: &News) {
    let is_stuck = repair.row().is_moving() && ["LeafStuck", "LeafLost", "LeafEndangered"].contains(&news.reason);
    if let Some(movers) = reconciler.movers.as_ref().filter(|_| is_stuck) {
        movers.obstacles.note(&repair.leaf.member, repair.hash, &news.message);
    }
    tell(reconciler, repair, wanted, news).await;
}

pub(super) async fn tell(reconciler: &Reconciler, repair: &Repair<'_>, wanted: &LiveWish, news: &News) {
    if let Some(user) = &wanted.user {
        reconciler.tell_of_leaf(&repair.leaf.member, &user.volume, news).await;
    }
}
