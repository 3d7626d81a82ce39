//! The background work on one member, a little at a time: leaves that a host volume was made for are marked, they follow the
//! policy of that volume, those that it lets go are let go, those that somebody deleted are brought back, those that are gone are
//! told of, and those that were forgotten are withdrawn.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};
use tracing::Instrument;

use super::{
    Reconciler,
    forgotten::{self, Waiting},
    heal::{self, pause},
    late::may_have_come_late,
    missed::{self, MISSED, is_copy},
    nobodys::Allowance,
    repair::{Repair, repairs},
    round::{AT_ONCE, Round},
    shared,
    strays::{self, Strays},
    turn,
};
use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId},
};
use host::volumes::MemberNews;
use leaf::{MemberClient, row::ClaimRow};
use member::{Member, traces};

const TICK: Duration = Duration::from_secs(1);
/// From news to a look at it: more may come, and the host's own removals pass quickly.
const SOON: Duration = Duration::from_millis(200);
/// A mark is no hurry, and a volume that is used for seconds needs none. One that was there before the work began has waited already.
const LAZY: Duration = Duration::from_secs(3);
/// What a tick costs at most.
const MARKS: usize = 10;

/// What is remembered from one tick to the next; losing it costs time and nothing else.
#[derive(Default)]
struct MemberBacklog {
    /// Handles to mark, and when.
    marks: BTreeMap<Arc<str>, Instant>,
    /// Handles without a leaf, and when to look for it.
    missed: BTreeMap<Arc<str>, Instant>,
    /// Leaves that are not as the host wants them.
    odd: BTreeSet<VolumeHash>,
    /// These and others that are not well: how often they were looked at, and when to do so again.
    ill: HashMap<VolumeHash, (u32, Instant)>,
    /// Leaves that have another size, of which that is not told yet.
    resized: BTreeSet<VolumeHash>,
    /// When those are looked for whose host volume went unseen.
    sweep: Option<Instant>,
    allowance: Allowance,
}

/// Works until it is dropped.
pub(super) async fn follow(reconciler: &Reconciler, member: &Member) {
    let news = reconciler.volumes.listen(&member.name);
    let (mut backlog, mut strays, mut waiting) = (MemberBacklog::default(), Strays::new(member), Waiting::new());
    let mut round = Round::of(&member.name);
    let turn = turn(&member.name);
    let mut next_tick = Instant::now() + TICK + turn;
    loop {
        tokio::select! {
            biased;
            () = sleep_until(next_tick) => {}
            () = news.told() => sleep(SOON + turn).await,
            () = remarkable(member) => sleep(SOON).await,
        }
        reconciler.volumes.listed().await;
        let ticks = Instant::now() >= next_tick;
        let Ok(leaf) = member.leaf() else {
            next_tick = Instant::now() + TICK;
            continue;
        };
        take_news(reconciler, leaf, &news, &mut round, &mut backlog).await;
        strays::tell_of_sizes(reconciler, leaf, &mut backlog.resized).await;
        if !ticks {
            heal_all(reconciler, member, &mut backlog).await;
            continue;
        }
        next_tick = Instant::now() + TICK;
        look(reconciler, leaf, &mut round, &mut backlog).await;
        sweep(reconciler, leaf, &mut backlog).await;
        mark(reconciler, member, &mut backlog).await;
        heal_all(reconciler, member, &mut backlog).await;
        missed::tell(reconciler, member, &mut backlog.missed).await;
        forgotten::withdraw(reconciler, leaf, &mut waiting).await;
        strays::count(reconciler, leaf, &mut strays).await;
    }
}

/// Goes by those of which there was news in the host or in the member, in memory.
async fn take_news(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    news: &MemberNews,
    round: &mut Round,
    backlog: &mut MemberBacklog,
) {
    let told: Vec<_> = news.take().into_iter().collect();
    let look = |some: &[Arc<str>]| {
        for handle in some {
            backlog.missed.remove(handle);
            if let Some(hash) = look_at(reconciler, leaf, Arc::clone(handle), LAZY, backlog) {
                backlog.ill.remove(&hash);
            }
        }
    };
    in_pieces(&told, look).await;
    match leaf.rows.take_changed() {
        None => round.begin_again(),
        Some(changed) => {
            let handles = changed.into_iter().flat_map(|hash| reconciler.volumes.handles_for(&leaf.member, hash));
            look_at_all(reconciler, leaf, &handles.collect::<Vec<_>>(), LAZY, backlog).await;
        }
    }
    look_whether_due(reconciler, leaf, leaf.rows.take_remarkable(), backlog);
}

/// Goes by those whose turn it is.
async fn look(reconciler: &Reconciler, leaf: &MemberClient, round: &mut Round, backlog: &mut MemberBacklog) {
    let (volumes, member) = (&reconciler.volumes, &*leaf.member);
    let marked_after = if round.is_first() { Duration::ZERO } else { LAZY };
    loop {
        let after = |after: Option<&str>, count| volumes.next_in(member, after, count);
        let next = round.next(Instant::now(), volumes.count_in(member), after);
        if next.is_empty() {
            return;
        }
        look_at_all(reconciler, leaf, &next, marked_after, backlog).await;
    }
}

async fn look_at_all(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    handles: &[Arc<str>],
    marked_after: Duration,
    backlog: &mut MemberBacklog,
) {
    let look = |some: &[Arc<str>]| {
        for handle in some {
            look_at(reconciler, leaf, Arc::clone(handle), marked_after, backlog);
        }
    };
    in_pieces(handles, look).await;
}

/// The volume that the handle leads to.
fn look_at(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    handle: Arc<str>,
    marked_after: Duration,
    backlog: &mut MemberBacklog,
) -> Option<VolumeHash> {
    let id = VolumeId::parse(&handle)?;
    let (hash, row) = leaf.rows.find(&id).unzip();
    let (row, now) = (row.unwrap_or_default(), Instant::now());
    let is_out_of_sight = row.is_empty() && !leaf.rows.volumes_of(&id).is_empty();
    let is_copy = row.claim.as_ref().is_some_and(|claim| is_copy(reconciler, &id, claim));
    if let Some(hash) = hash
        && heal::is_due(reconciler, &Repair::of(leaf, id, hash), &row)
    {
        backlog.odd.insert(hash);
    }
    let is_shared = shared::is_shared(reconciler, &handle);
    match (row.claim.filter(|_| !is_copy), row.volume.filter(|_| !is_copy)) {
        (Some(claim), _) if !claim.had_volume() && !claim.is_lost() => {
            backlog.marks.entry(handle).or_insert(now + marked_after);
        }
        (Some(_), _) | (None, Some(_)) if !is_shared => drop(backlog.missed.remove(&handle)),
        _ => {
            let pause = if is_out_of_sight || is_shared { SOON } else { MISSED };
            backlog.missed.entry(handle).or_insert(now + pause);
        }
    }
    hash
}

/// Looks for leaves that are retained for a volume of the host which has gone while nobody watched.
async fn sweep(reconciler: &Reconciler, leaf: &MemberClient, backlog: &mut MemberBacklog) {
    let now = Instant::now();
    if backlog.sweep.is_some_and(|due| now < due) {
        return;
    }
    backlog.sweep = Some(now + MISSED);
    let following = leaf.rows.following();
    in_pieces(&following, |some| look_whether_due(reconciler, leaf, some.iter().copied(), backlog)).await;
}

/// A few at a time: others wait.
async fn in_pieces<T>(all: &[T], mut look: impl FnMut(&[T])) {
    for some in all.chunks(AT_ONCE) {
        look(some);
        yield_now().await;
    }
}

fn look_whether_due(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    some: impl IntoIterator<Item = VolumeHash>,
    backlog: &mut MemberBacklog,
) {
    for hash in some {
        let repairs = repairs(reconciler, leaf, hash);
        let is_due = repairs.iter().any(|repair| heal::is_due(reconciler, repair, &repair.row()));
        if is_due && backlog.odd.insert(hash) {
            backlog.ill.remove(&hash);
        } else if let Some((_, due)) = backlog.ill.get_mut(&hash) {
            *due = Instant::now();
        }
    }
}

async fn mark(reconciler: &Reconciler, member: &Member, backlog: &mut MemberBacklog) {
    let now = Instant::now();
    let due = to_mark(&backlog.marks, now);
    let span = traces::round("mark leaves", &member.name, due.len());
    let marking = async {
        for handle in due {
            backlog.marks.remove(&handle);
            if let Err(error) = mark_one(reconciler, member, &handle).await {
                tracing::debug!(%handle, %error, "a leaf is not marked yet");
                backlog.marks.insert(handle, now + MISSED);
            }
        }
    };
    marking.instrument(span).await;
}

/// First those that have waited longest: many that the member does not let be marked keep no other from its turn.
fn to_mark(marks: &BTreeMap<Arc<str>, Instant>, now: Instant) -> Vec<Arc<str>> {
    let due = marks.iter().filter(|(_, due)| **due <= now);
    let mut due: Vec<(Instant, &Arc<str>)> = due.map(|(handle, due)| (*due, handle)).collect();
    // There may be a hundred thousand in each tick: the first ones are found without an order of all.
    if due.len() > MARKS {
        due.select_nth_unstable(MARKS);
    }
    due.into_iter().take(MARKS).map(|(_, handle)| Arc::clone(handle)).collect()
}

async fn mark_one(reconciler: &Reconciler, member: &Member, handle: &str) -> Result<()> {
    let leaf = member.leaf()?;
    let volumes = reconciler.volumes.with(handle);
    let Some(volume) = volumes.iter().find(|volume| !volume.is_leaving()) else { return Ok(()) };
    let Some((hash, row)) = VolumeId::parse(handle).and_then(|id| leaf.rows.find(&id)) else { return Ok(()) };
    let is_to_be_marked =
        |claim: &ClaimRow| !claim.had_volume() && !claim.observed().terminating && !may_have_come_late(volume, claim);
    match row.claim.filter(is_to_be_marked) {
        Some(claim) => {
            // It may be of before a move, when another volume of the host had it.
            let is_another = volume.leaf.is_some_and(|told| told.is_another(claim.uids(), claim.volume()));
            let by = if is_another { handle } else { &*volume.uid };
            leaf::forgotten::mark_used(leaf, &claim, by, hash).await
        }
        None => Ok(()),
    }
}

async fn heal_all(reconciler: &Reconciler, member: &Member, backlog: &mut MemberBacklog) {
    let Ok(leaf) = member.leaf() else { return };
    let mut ill: BTreeSet<VolumeHash> = leaf.rows.needs_repair().into_iter().collect();
    ill.extend(&backlog.odd);
    backlog.ill.retain(|hash, _| ill.contains(hash));
    backlog.allowance.forget_but(&ill);
    let due = due(ill, &mut backlog.ill);
    let span = traces::round("heal leaves", &member.name, due.len());
    let healing = async {
        for (_, hash, looks) in due {
            if !heal_one(reconciler, leaf, hash, looks, &mut backlog.allowance).await {
                continue;
            }
            if !repairs(reconciler, leaf, hash).iter().any(|repair| heal::is_due(reconciler, repair, &repair.row())) {
                backlog.odd.remove(&hash);
            }
            backlog.ill.insert(hash, (looks + 1, Instant::now() + pause(looks + 1)));
        }
    };
    healing.instrument(span).await;
}

/// Those that are to be looked at now: since when, and how often they were. Who has waited longest comes first.
fn due(ill: BTreeSet<VolumeHash>, known: &mut HashMap<VolumeHash, (u32, Instant)>) -> Vec<(Instant, VolumeHash, u32)> {
    let now = Instant::now();
    let all = ill.into_iter().map(|hash| {
        let (looks, due) = *known.entry(hash).or_insert((0, now));
        (due, hash, looks)
    });
    let mut due: Vec<_> = all.filter(|(due, ..)| *due <= now).collect();
    due.sort_unstable();
    due
}

/// False where nothing of it was looked at, as it has to wait for its turn. A copy that has to wait does not
/// keep the leaf itself from being looked at.
async fn heal_one(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    hash: VolumeHash,
    looks: u32,
    allowance: &mut Allowance,
) -> bool {
    let repairs = repairs(reconciler, leaf, hash);
    let due = repairs.iter().filter(|repair| heal::is_due(reconciler, repair, &repair.row()));
    let (mut looked, mut put_off) = (false, false);
    for repair in due {
        if !allowance.permits_look(reconciler, repair) {
            put_off = true;
            continue;
        }
        if let Err(error) = Box::pin(heal::heal(reconciler, repair, looks, allowance)).await {
            tracing::debug!(member = leaf.member, %error, "a leaf is not healed yet");
        }
        let awaits_list = allowance.awaits_list(hash);
        put_off |= awaits_list;
        looked |= !awaits_list;
    }
    looked || !put_off
}

/// Until the member shows something that one has to look at.
async fn remarkable(member: &Member) {
    match member.last_known() {
        Some(leaf) => leaf.rows.remarkable().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// As where a member has a hundred thousand leaves of one kind.
    #[tokio::test]
    async fn others_have_their_turn_between_two_pieces_of_what_is_looked_at() {
        let (all, (turns, seen)) = (vec![(); AT_ONCE * 3 + 1], (Cell::new(0), RefCell::new(Vec::new())));
        let looked = in_pieces(&all, |some| seen.borrow_mut().push((some.len(), turns.get())));
        let others = async {
            for turn in 1..=3 {
                turns.set(turn);
                yield_now().await;
            }
        };
        tokio::join!(biased; looked, others);
        assert_eq!(seen.into_inner(), [(AT_ONCE, 0), (AT_ONCE, 1), (AT_ONCE, 2), (1, 3)]);
    }

    #[test]
    fn leaves_that_cannot_be_marked_keep_no_other_from_its_mark() {
        let mut now = Instant::now();
        let mut marks: BTreeMap<Arc<str>, Instant> = (0..700).map(|number| (format!("{number}").into(), now)).collect();
        marks.insert("last".into(), now);
        for _ in 0..100 {
            for handle in to_mark(&marks, now) {
                if *handle == *"last" {
                    return;
                }
                marks.insert(handle, now + MISSED);
            }
            now += TICK;
        }
        panic!("the last one has had no turn");
    }
}
