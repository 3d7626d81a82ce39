//! A leaf as it is now, where it is or where the host wants it.

use super::{
    Reconciler,
    obstacle::out_of_reach,
    repair::{LiveWish, Repair, tell_of_obstacle},
};
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, healing::Wish},
};
use leaf::{healing::LeafPair, row::Row, saved::Saved};

/// Claim and volume as they are now. What keeps them from being seen where the host wants them, and goes on to do so, is told.
pub(super) async fn look(
    reconciler: &Reconciler,
    repair: &Repair<'_>,
    place: &LeafPlace,
    row: &Row,
    wanted: &LiveWish,
    looks: u32,
) -> Result<LeafPair> {
    let looked = Box::pin(examine(repair, place, row, wanted)).await;
    let looked = looked.and_then(|pair| wish_of_this(repair, &pair, wanted).map(|_| pair));
    if let Err(error) = &looked
        && let Some(news) = out_of_reach(repair, place, error, looks).filter(|_| !row.is_moving())
    {
        tell_of_obstacle(reconciler, repair, wanted, &news).await;
    }
    looked
}

/// A step may be refused because somebody was quicker. Where nothing was written meanwhile, the member will not have it: what answers so for its
/// policies says mostly that the request is wrong.
pub(super) async fn is_refused(repair: &Repair<'_>, pair: &LeafPair, error: &Error) -> bool {
    if !matches!(error, Error::Refused(_)) || repair.row().is_moving() {
        return false;
    }
    let volume = pair.volume.as_ref().and_then(|volume| volume.metadata.name.as_deref());
    let now = leaf::healing::examine(repair.leaf, repair.hash, &pair.place, volume).await;
    now.is_ok_and(|now| now.is_as(pair))
}

/// At the place where the claim is or belongs: of one that is to be recreated, the host's claim says where.
async fn examine(repair: &Repair<'_>, place: &LeafPlace, row: &Row, wanted: &LiveWish) -> Result<LeafPair> {
    let volume = row.volume.as_ref().map(|volume| &*volume.name);
    let pair = leaf::healing::examine(repair.leaf, repair.hash, place, volume).await?;
    let ours = pair.claim_seen(repair.leaf, repair.hash).is_some_and(|claim| claim.ours);
    let (Some(saved), Wish::Use { .. }, false) = (pair.saved(), wanted.wish, ours) else { return Ok(pair) };
    match belongs(repair, &saved, &pair, wanted)? {
        same if same == *place => Ok(pair),
        other => leaf::healing::examine(repair.leaf, repair.hash, &other, volume).await,
    }
}

/// A claim that was made for another one of the host's, or is moved, is let go, and recreated where it belongs.
pub(super) fn wish_of_this(repair: &Repair<'_>, pair: &LeafPair, wanted: &LiveWish) -> Result<Wish> {
    let ours = pair.ours(repair.leaf, repair.hash).filter(|_| wanted.wish != Wish::Nothing);
    let (Some(claim), Some(volume)) = (ours, &pair.volume) else { return Ok(wanted.wish) };
    let belongs = belongs(repair, &Saved::of_claim(claim, volume), pair, wanted)?;
    Ok(if belongs == pair.place { wanted.wish } else { Wish::Keep })
}

/// Where the leaf claim belongs: where its volume says, or else the class of the host's claim.
fn belongs(repair: &Repair<'_>, saved: &Saved, pair: &LeafPair, wanted: &LiveWish) -> Result<LeafPlace> {
    let host_claim = wanted.user.as_ref().and_then(|user| user.claim.as_ref());
    match (pair.place_told(), host_claim) {
        (Some(told), _) => Ok(told),
        (None, Some(host_claim)) => saved.place(repair.leaf, host_claim, &pair.place),
        (None, None) => Ok(pair.place.clone()),
    }
}
