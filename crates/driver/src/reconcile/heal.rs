//! Makes a leaf what the host wants it to be: retained or not, let go, or recreated. It looks at the objects, lets the pure
//! plan decide, takes one step, and looks again.
//!
//! The host is asked before every step, and its answer is not taken from a watch: DeleteVolume is called only for a volume
//! that the host has let go, so whoever has seen it in use a moment ago undoes no removal. The moment between is covered
//! by the steps themselves, each of which tests what it was decided on. What no volume of the host has is asked for as `nobodys.rs` says.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Reconciler,
    late::{self, came_late, may_have_come_late},
    nobodys::Allowance,
    obstacle::{is_refusal, obstacle, refused},
    repair::{LiveWish, Repair, tell, tell_of_obstacle},
    shared,
    sight::{self, look, wish_of_this},
};
use domain::{
    error::{Error, Result},
    volume::{
        ClaimDigest, HostId, LeafPlace, VolumeHash,
        healing::{Healing, Wish, decide},
    },
};
use host::{
    events::News,
    volume::{HostVolume, LiveVolume},
};
use leaf::{
    claim::Made,
    healing::LeafPair,
    row::{ClaimRow, Row, VolumeRow},
    rows::Rows,
    saved::Saved,
};

/// More than there are steps.
const STEPS: usize = 16;

/// For a claim to be bound that was pointed out.
const A_MOMENT: Duration = Duration::from_secs(1);

/// What a move wants of both of its leaves, whatever the host wants meanwhile.
const KEPT: Wish = Wish::Use { retain: true };

/// What became of a step.
enum Taken {
    /// Another one can be taken now.
    Done,
    /// Nothing is to be done before something changes.
    Rests,
    /// Somebody else has to act first.
    Blocked,
}

/// It is brought to its end even where the host has let go meanwhile.
fn has_begun(row: &Row) -> bool {
    let recreated = row.claim.as_ref().is_some_and(|claim| !claim.former.is_empty() && claim.unusable().is_some());
    recreated || row.volume.as_ref().is_some_and(|volume| volume.healing)
}

/// Where the leaf claim is, or was.
fn place_of(row: &Row) -> Option<LeafPlace> {
    let claim = row.claim.as_ref().map(|claim| &claim.place);
    claim.or_else(|| row.volume.as_ref().map(|volume| &volume.claim_place)).cloned()
}

/// The host's volume was deleted, and had been `Retain`: that stands on the leaf volume.
fn outlives_host(row: &Row) -> bool {
    row.claim.is_some() && row.volume.as_ref().is_some_and(|volume| volume.follows || volume.healing)
}

/// Somebody deletes it, and the host has had its volume.
fn is_cut_off(row: &Row) -> bool {
    row.claim.as_ref().is_some_and(|claim| claim.had_volume() && claim.observed().terminating)
}

/// By what is in memory alone: its volume says that its claim belongs elsewhere.
fn is_misplaced(row: &Row) -> bool {
    row.place_told().is_some_and(|place| row.claim.as_ref().is_none_or(|claim| claim.place != *place))
}

/// By what is in memory alone: whether the leaf is as a volume of the host wants it.
fn suits(wish: Wish, row: &Row) -> bool {
    let policy = |retain: bool, volume: &VolumeRow| {
        retain == volume.follows && (!retain || volume.is_retained()) && !volume.is_terminating()
    };
    let ill = row.claim.as_ref().is_some_and(|claim| claim.observed().terminating || claim.is_lost());
    let removal = row.volume.as_ref().is_some_and(|volume| volume.removal);
    match (&row.claim, &row.volume, wish) {
        (.., Wish::Use { .. } | Wish::Keep) if removal => false,
        (Some(_), _, Wish::Use { .. }) if ill || has_begun(row) => false,
        (Some(_), Some(volume), Wish::Use { retain }) => policy(retain, volume),
        // It has no volume yet, or one without our labels.
        (Some(claim), None, Wish::Use { retain }) => !retain || claim.volume().is_none(),
        (None, Some(_), Wish::Use { .. }) => false,
        (Some(claim), _, Wish::Keep) => claim.volume().is_none(),
        (None, ..) | (_, _, Wish::Nothing) => true,
    }
}

/// Whether there may be something to do, by what is in memory alone.
pub(super) fn is_due(reconciler: &Reconciler, repair: &Repair<'_>, row: &Row) -> bool {
    if row.is_moving() {
        return repair.is_the_leaf(row) && (is_misplaced(row) || !suits(KEPT, row));
    }
    let is_begun = || row.claim.is_some() && has_begun(row);
    match reconciler.volumes.with(&repair.handle).as_slice() {
        [known] if known.wish() == Wish::Nothing => is_begun(),
        [known] => {
            let is_late = row.claim.as_ref().is_some_and(|claim| may_have_come_late(known, claim));
            is_late || !suits(known.wish(), row) || is_elsewhere(known, row)
        }
        [] => (outlives_host(row) || is_begun() || is_cut_off(row)) && repair.is_the_leaf(row),
        several => shared::is_due(repair, several, row),
    }
}

/// Goes as far as it can be gone now, at the so many'th look.
pub(super) async fn heal(
    reconciler: &Reconciler,
    repair: &Repair<'_>,
    looks: u32,
    allowance: &mut Allowance,
) -> Result<()> {
    if shared::is_shared(reconciler, &repair.handle) && !repair.row().is_moving() {
        return Box::pin(shared::keep(reconciler, repair, looks)).await;
    }
    for _ in 0..STEPS {
        let (row, mut wanted) = (repair.row(), wanted(reconciler, repair).await?);
        let Some(place) = place_of(&row) else { return Ok(()) };
        let has_rest = wanted.wish == Wish::Nothing && !has_begun(&row) && !is_cut_off(&row);
        if has_rest || wanted.user.is_none() && !repair.is_the_leaf(&row) {
            return Ok(());
        }
        let mut pair = Box::pin(look(reconciler, repair, &place, &row, &wanted, looks)).await?;
        if !row.is_moving() && is_of_another_handle(reconciler, repair, &pair).await? {
            return Ok(());
        }
        wanted.take_claims_word(reconciler, repair, &row, &pair).await?;
        if wanted.wish == Wish::Nothing && !has_begun(&row) {
            return Ok(());
        }
        if let Some(late) = came_late(repair, &pair, &wanted) {
            return late::make_way(reconciler, repair, &pair, &wanted, &late).await;
        }
        if let Some(user) = &wanted.user {
            pair.volume.take_if(|volume| !was_given_out(user, volume.metadata.name.as_deref()));
        }
        let (claim, volume) = (pair.claim_seen(repair.leaf, repair.hash), pair.volume_seen());
        let wish = wish_of_this(repair, &pair, &wanted)?;
        let step = decide(wish, claim.as_ref(), volume.as_ref());
        tracing::debug!(member = %repair.leaf.member, leaf = %pair.place, ?wish, ?step, "next step of healing a leaf");
        if !allowance.permits_step(reconciler, repair, &step, &wanted).await? {
            return Ok(());
        }
        if step == Healing::RemoveLate {
            tracing::info!(member = %repair.leaf.member, leaf = %pair.place, "the driver deletes a leaf claim that was created late: its volume belongs to another one by now");
        }
        match take(reconciler, repair, &step, &pair, &wanted).await {
            Ok(Taken::Done) => repair.forget_obstacle(reconciler),
            Ok(Taken::Rests) => return Ok(()),
            Ok(Taken::Blocked) => {
                if let Some(news) = obstacle(reconciler, repair, &step, &pair, looks).await {
                    tell_of_obstacle(reconciler, repair, &wanted, &news).await;
                }
                return Ok(());
            }
            Err(error) => {
                if is_refusal(&step, &error, looks) || Box::pin(sight::is_refused(repair, &pair, &error)).await {
                    let news = refused(repair, &pair.place, &error);
                    tell_of_obstacle(reconciler, repair, &wanted, &news).await;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// No volume of the host has this handle, and that of the name on the claim is there: the claim is a copy of a leaf.
async fn is_of_another_handle(reconciler: &Reconciler, repair: &Repair<'_>, pair: &LeafPair) -> Result<bool> {
    match pair.volume_name().filter(|_| reconciler.volumes.count_with(&repair.handle) == 0) {
        Some(name) => host::volume::exists(&reconciler.host, name).await,
        None => Ok(false),
    }
}

/// What the one host volume with this handle wants. Of several, nobody can say whose the leaf is.
async fn wanted(reconciler: &Reconciler, repair: &Repair<'_>) -> Result<LiveWish> {
    let nothing = LiveWish { wish: Wish::Nothing, user: None };
    let known = reconciler.volumes.with(&repair.handle);
    let known = match known.as_slice() {
        // A claim says of itself that a move has it. That of a volume of nobody's is believed only with that one's own word.
        [] if repair.row().place_told().is_some() => return Ok(LiveWish { wish: KEPT, user: None }),
        [known] if repair.row().is_moving() => known,
        [known] if known.wish() != Wish::Nothing => known,
        [] if shared::is_led_to_otherwise(reconciler, repair) => return Ok(nothing),
        [] if outlives_host(&repair.row()) && !reconciler.handles.have(&reconciler.host, &repair.id).await? => {
            return Ok(LiveWish { wish: Wish::Keep, user: None });
        }
        _ => return Ok(nothing),
    };
    let live = host::volume::read(&reconciler.host, &known.name).await?;
    let live = live.filter(|live| live.volume.uid == known.uid && *live.volume.handle == *repair.handle);
    let is_moving = repair.row().is_moving();
    let wish = |live: &LiveVolume| if is_moving { KEPT } else { shared::wish(reconciler, repair, &live.volume) };
    Ok(live.map_or(nothing, |live| LiveWish { wish: wish(&live), user: Some(live) }))
}

async fn take(
    reconciler: &Reconciler,
    repair: &Repair<'_>,
    step: &Healing,
    pair: &LeafPair,
    wanted: &LiveWish,
) -> Result<Taken> {
    let (leaf, place) = (repair.leaf, &pair.place);
    let row = pair.claim.as_ref().map(ClaimRow::new);
    match (step, &pair.volume, pair.saved(), row) {
        (Healing::Follow | Healing::Keep, Some(volume), _, Some(row)) if repair.row().volume.is_none() => {
            // Or it would be out of sight once its claim has gone.
            let volume = volume.metadata.name.as_deref().unwrap_or_default();
            leaf::volume::label(leaf, volume, repair.hash, &row.uid).await?.ours(&leaf.member)?;
        }
        (Healing::CallOff, Some(volume), ..) => leaf::retention::call_off_removal(leaf, volume, repair.hash).await?,
        (Healing::Follow, Some(volume), ..) => {
            return leaf::retention::follow_host(leaf, volume, repair.hash).await.map(|()| Taken::Rests);
        }
        (Healing::Unfollow, Some(volume), _, Some(row)) => {
            return leaf::retention::unfollow_host(leaf, volume, &row).await.map(|()| Taken::Rests);
        }
        (Healing::Keep, Some(volume), ..) => {
            let saved = saved_of(&reconciler.host.id, repair, pair, wanted).await?;
            let Some(saved) = saved else { return Ok(Taken::Blocked) };
            leaf::healing::keep_volume(leaf, volume, &saved).await?;
            tell_of_deletion(reconciler, repair, pair, wanted, &saved).await;
        }
        (Healing::LetGo, Some(volume), _, Some(row)) => {
            leaf::claim::delete(leaf, &row, repair.hash).await?;
            if !pair.is_moved() {
                let volume = volume.metadata.name.as_deref().unwrap_or_default();
                tell(reconciler, repair, wanted, &let_go(repair, place, volume)).await;
            }
        }
        (Healing::Release, _, _, Some(row)) => leaf::claim::release(leaf, &row, repair.hash).await?,
        (Healing::Recreate, _, Some(saved), _) => recreate(repair, place, saved, wanted).await?,
        (Healing::TakeRecord, _, Some(saved), Some(row)) => {
            leaf::change::record_published(leaf, &row, repair.hash, &saved.record()).await?;
        }
        (Healing::GiveVolume, Some(volume), Some(saved), Some(row)) => {
            leaf::healing::give_volume(leaf, volume, repair.hash, &saved, &row).await?;
        }
        (Healing::PutPolicyBack, Some(volume), Some(saved), Some(row)) => {
            leaf::healing::put_policy_back(leaf, volume, &saved, &row).await?;
            if saved.uid != *row.uid && !pair.is_moved() {
                let what = format!("was recreated with its data (UID {} in place of {})", row.uid, saved.uid);
                tell(reconciler, repair, wanted, &repair.told("LeafHealed", place, &what, false)).await;
            }
        }
        (Healing::TakeBack | Healing::RemoveLate, _, _, Some(row)) => {
            leaf::claim::delete(leaf, &row, repair.hash).await?;
        }
        (Healing::AwaitBond, _, _, Some(row)) => return wake(repair, &row).await,
        (Healing::AwaitClaim, ..) => return Ok(end_late_consumer(repair, place).await),
        _ => return Ok(Taken::Blocked),
    }
    Ok(Taken::Done)
}

/// One of ours that was made late would hold the claim, and nobody else knows that it may go.
async fn end_late_consumer(repair: &Repair<'_>, place: &LeafPlace) -> Taken {
    let leaf = repair.leaf;
    if let Err(error) = leaf::consumer::end(leaf, &place.namespace, repair.hash).await {
        tracing::debug!(member = leaf.member, claim = %place, %error, "whether a consumer pod holds a leaf claim is not known");
    }
    Taken::Blocked
}

/// The claim is pointed out to the member's controller, which takes a moment to bind it then.
async fn wake(repair: &Repair<'_>, row: &ClaimRow) -> Result<Taken> {
    match leaf::change::wake(repair.leaf, row, repair.hash).await {
        // It was changed meanwhile, which is as good.
        Ok(()) | Err(Error::Refused(_) | Error::InProgress(_)) => {}
        Err(error) => return Err(error),
    }
    let is_bound = |rows: &Rows| {
        let claim = rows.row(repair.hash).and_then(|row| row.claim);
        claim.is_some_and(|claim| claim.unusable().is_none())
    };
    let bound = repair.leaf.rows.until(repair.hash, Instant::now() + A_MOMENT, is_bound).await;
    Ok(if bound { Taken::Done } else { Taken::Blocked })
}

/// The claim comes back, where the host's claim of now wants it.
async fn recreate(repair: &Repair<'_>, place: &LeafPlace, saved: Saved, wanted: &LiveWish) -> Result<()> {
    let claim = wanted.user.as_ref().and_then(|user| Some((user.claim.as_ref()?, &user.volume)));
    let saved = match claim {
        Some((claim, volume)) => saved.made_for(claim, &volume.claim_uid),
        None => saved,
    };
    let saved = saved.at(place, &repair.handle);
    if let Made::Taken = leaf::healing::recreate(repair.leaf, place, &saved).await? {
        // Somebody else has that name: what is there is told by the next look.
    }
    Ok(())
}

async fn tell_of_deletion(
    reconciler: &Reconciler,
    repair: &Repair<'_>,
    pair: &LeafPair,
    wanted: &LiveWish,
    saved: &Saved,
) {
    let leaves = pair.claim.as_ref().is_none_or(|claim| claim.metadata.deletion_timestamp.is_some());
    if leaves && matches!(wanted.wish, Wish::Use { .. }) {
        let what = format!("(UID {}) was deleted in the member: the driver keeps its data and recreates it", saved.uid);
        tell(reconciler, repair, wanted, &repair.told("LeafDeleted", &pair.place, &what, true)).await;
    }
}

/// Where the leaf claim belongs elsewhere, as far as memory tells it.
fn is_elsewhere(known: &HostVolume, row: &Row) -> bool {
    let made_for = row.claim.as_ref().and_then(|claim| claim.made_for).filter(|_| row.volume.is_some());
    let host_claim = || known.claim.as_deref().map(ClaimDigest::new);
    matches!(known.wish(), Wish::Use { .. }) && made_for.is_some_and(|made_for| host_claim() != Some(made_for))
}

/// How soon to look again, when nothing has changed for so many looks.
pub(super) fn pause(looks: u32) -> Duration {
    Duration::from_secs(1 << looks.min(5))
}

/// Whether a volume is the one that the host was given. Copies carry labels and notes as well, but not the name.
fn was_given_out(user: &LiveVolume, volume: Option<&str>) -> bool {
    let told = user.given_out.as_ref().map(|given_out| given_out.volume.as_str());
    told.is_none_or(|told| told.is_empty() || Some(told) == volume)
}

async fn saved_of(host: &HostId, repair: &Repair<'_>, pair: &LeafPair, wanted: &LiveWish) -> Result<Option<Saved>> {
    let Some(volume) = &pair.volume else { return Ok(None) };
    if let Some(claim) = pair.ours(repair.leaf, repair.hash) {
        return Ok(Some(Saved::of_claim(claim, volume)));
    }
    let user = wanted.user.as_ref().filter(|user| user.given_out.is_some());
    // A name that is not the one of the leaf's hash says nothing.
    match user.filter(|user| VolumeHash::new(host, &user.volume.name) == repair.hash) {
        Some(user) => leaf::saved::recall(repair.leaf, volume, &user.volume.name).await,
        None => Ok(None),
    }
}

fn let_go(repair: &Repair<'_>, place: &LeafPlace, volume: &str) -> News {
    let what = format!(
        "was deleted by the driver, because no claim of the host has this volume; its data is kept in leaf volume \
         {volume}. If you bind this volume to a claim, the driver makes a leaf claim again"
    );
    repair.told("LeafReleased", place, &what, false)
}
