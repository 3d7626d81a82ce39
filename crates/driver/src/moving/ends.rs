//! The movers of an attempt are started and removed.

use std::{mem::replace, time::Duration};

use tokio::time::Instant;

use super::{
    LATE, LONG, RunningMove, Went,
    look::{Half, Looked},
    places,
};
use domain::{
    error::{Error, Result},
    volume::moving::{Outcome, Phase, YARD},
};
use host::moves;
use leaf::{
    moving::ends::{Keys, Mover, Role, State, WantedMover, give_keys, start},
    row::VolumeRow,
};

/// Before movers that have failed are begun again: it grows.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// What a mover says whose storage does not answer: it takes long each time, and no mover can mend it.
const STORAGE_HANGS: &str = "StorageHangs";
/// So the pause after that is as after so many attempts at least: moves that wait for a slot take it meanwhile.
const AS_AFTER: u32 = 5;

impl Looked {
    fn half(&self, role: Role) -> Result<&Half> {
        let half = match role {
            Role::Send => &self.source,
            Role::Receive => &self.copy,
        };
        half.as_ref().map(AsRef::as_ref).map_err(Clone::clone)
    }

    /// Those that are looked at, the source's first.
    fn halves(&self) -> impl Iterator<Item = &Half> {
        [&self.source, &self.copy].into_iter().flatten().map(AsRef::as_ref)
    }

    /// Its pod waits for something.
    fn starts(&self, role: Role) -> bool {
        let movers = self.half(role).map(|half| half.movers.as_slice()).unwrap_or_default();
        matches!(movers, [one] if matches!(one.state, State::Starting(_)) && one.attempt == self.status.attempt)
    }
}

impl RunningMove {
    fn pause(&mut self, after: u32) {
        let pause = FIRST_PAUSE * 2_u32.pow(after.min(9));
        self.not_before = Some(Instant::now() + pause.min(LONGEST_PAUSE));
    }

    /// A member's scheduler gives a pod its node when its claim has its volume. One that went by a claim which had the same name, and is
    /// gone, makes nobody provide a volume. Claims are read before pods, so it counts at the second look.
    fn finds_stranded(&mut self, looked: &Looked) -> Option<String> {
        let unprovided = looked.halves().filter(|half| half.sight.waits_for_volume());
        let waits = |mover: &&Mover| mover.node.is_some() && matches!(mover.state, State::Starting(_));
        let there: Vec<_> =
            unprovided.flat_map(|half| half.movers.iter().filter(waits).map(move |mover| (half, mover))).collect();
        let before = replace(&mut self.stranded, there.iter().map(|(_, mover)| mover.uid.clone()).collect());
        let (half, mover) = there.into_iter().find(|(_, mover)| before.contains(&mover.uid))?;
        Some(format!("member {}: pod {} was given a node before its claim had a volume", half.side.member, mover.name))
    }

    /// A member never says of a pod on a node that is dead that it has ended, and none may write to the volume when another one comes.
    fn awaits_their_end(&mut self, looked: &Looked) -> String {
        let what = "the movers' pods are ending";
        if self.ending_since.get_or_insert_with(Instant::now).elapsed() < LONG {
            return what.to_owned();
        }
        // It may be for as long as that node is off, and others can copy meanwhile.
        self.slot = None;
        let told = looked.halves().flat_map(|half| half.movers.iter().map(move |mover| still_there(half, mover)));
        std::iter::once(what.to_owned()).chain(told).collect::<Vec<_>>().join("; ")
    }
}

fn still_there(half: &Half, mover: &Mover) -> String {
    let node = mover.node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
    format!(
        "pod {YARD}/{} of member {}{node} has not ended: once the machine of its node is off for good, delete that Node there",
        mover.name, half.side.member
    )
}

pub(super) async fn start_receiver(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let pause = job.not_before.map(|then| then.saturating_duration_since(Instant::now())).unwrap_or_default();
    if !pause.is_zero() {
        // Others go on meanwhile, but they are not to have it for hours because of some seconds.
        job.slot.take_if(|_| pause > LATE);
        return Ok(Went::Waits("the driver starts the copy again after a pause".to_owned()));
    }
    if looked.seen.phase == Phase::Copying && !places::takes_slot_first(job) {
        return Ok(Went::Waits(places::OTHERS_COPY.to_owned()));
    }
    let keys = Keys::new(looked.status.attempt)?;
    let wanted = wanted(job, looked, Role::Receive)?;
    let started = start(looked.half(Role::Receive)?.member.leaf()?, &wanted, &keys).await;
    // Others need not wait for what is refused.
    job.slot.take_if(|_| started.is_err());
    started?;
    job.keys = Some(keys);
    Ok(Went::On)
}

/// The receiver knows the sender by a key that only this process has, or one that is no more.
pub(super) async fn start_sender(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let Some(keys) = job.keys.take().filter(|keys| keys.attempt == looked.status.attempt) else {
        return remove(job, looked).await;
    };
    if !places::takes_slot_first(job) {
        job.keys = Some(keys);
        return Ok(Went::Waits(places::OTHERS_COPY.to_owned()));
    }
    let wanted = wanted(job, looked, Role::Send)?;
    let started = start(looked.half(Role::Send)?.member.leaf()?, &wanted, &keys).await;
    if let Err(error) = started {
        // Where no pod was made, its keys are nowhere; one that was made is given them later. The receiver goes on waiting for them.
        (job.keys, job.slot) = (Some(keys), None);
        return Err(error);
    }
    job.has_sent_keys = Some(keys.attempt);
    Ok(Went::On)
}

/// Somebody has made a pod and did not come to its keys. Whether he did, nobody can read: where it has some, these are not taken.
pub(super) async fn see_to_keys(job: &mut RunningMove, looked: &Looked) -> Result<Option<Went>> {
    let attempt = looked.status.attempt;
    if let Some(failure) = job.finds_stranded(looked) {
        tracing::warn!(of = job.name(), failure, "the driver recreates the pod of a mover");
        job.failure = Some(failure);
        job.pause(attempt);
        return remove(job, looked).await.map(Some);
    }
    // What waits for an image or a node for long keeps nobody else from copying.
    let starts = looked.starts(Role::Send) || looked.starts(Role::Receive);
    job.slot.take_if(|(_, since)| starts && since.elapsed() > LONG);
    if looked.starts(Role::Send) && job.has_sent_keys != Some(attempt) {
        return give_to_sender(job, looked).await.map(Some);
    }
    let is_known = job.keys.as_ref().is_some_and(|keys| keys.attempt == attempt) || job.has_sent_keys == Some(attempt);
    let Ok(half) = &looked.copy else { return Ok(None) };
    let pod = half.movers.first().filter(|_| looked.starts(Role::Receive) && !is_known);
    if let Some(pod) = pod.filter(|_| half.sight.yard.is_some()) {
        let keys = Keys::new(attempt)?;
        let wanted = wanted(job, looked, Role::Receive)?;
        if give_keys(half.member.leaf()?, &wanted, &keys, pod).await? {
            job.keys = Some(keys);
        }
    }
    Ok(None)
}

/// Its pod is there, and its member has refused its keys: that is asked for again as long as this process has them.
async fn give_to_sender(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let attempt = looked.status.attempt;
    let half = looked.half(Role::Send)?;
    let keys = job.keys.take().filter(|keys| keys.attempt == attempt);
    let Some((keys, pod)) = keys.zip(half.movers.first()) else { return remove(job, looked).await };
    if !places::takes_slot_first(job) {
        job.keys = Some(keys);
        return Ok(Went::Waits(places::OTHERS_COPY.to_owned()));
    }
    let wanted = wanted(job, looked, Role::Send)?;
    let given = give_keys(half.member.leaf()?, &wanted, &keys, pod).await;
    match given {
        Ok(true) => job.has_sent_keys = Some(attempt),
        // They may be somebody else's. Where such an answer comes each time, attempts do not follow one another at once.
        Ok(false) => {
            job.pause(attempt);
            return remove(job, looked).await;
        }
        Err(error) => {
            (job.keys, job.slot) = (Some(keys), None);
            return Err(error);
        }
    }
    Ok(Went::On)
}

fn wanted<'a>(job: &'a RunningMove, looked: &'a Looked, role: Role) -> Result<WantedMover<'a>> {
    let half = looked.half(role)?;
    let missing = || Error::InProgress(format!("member {}: no claim is in namespace {YARD}", half.side.member));
    Ok(WantedMover {
        role,
        of: job.of.metadata.uid.as_deref().unwrap_or_default(),
        attempt: looked.status.attempt,
        hash: looked.hash,
        claim: half.sight.yard.as_ref().ok_or_else(missing)?,
        image: &job.movers.image,
        must_be_empty: looked.seen.phase < Phase::Copying,
        is_on_one_node: half.sight.volume.as_ref().is_some_and(|volume| !VolumeRow::new(volume).node.is_empty()),
    })
}

/// What comes late of the attempt before is of no use from then on.
pub(super) async fn remove(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let there = looked.halves().flat_map(|half| half.movers.iter().map(move |mover| (half, mover)));
    let there: Vec<_> = there.filter(|(_, mover)| !mover.is_leaving).collect();
    if there.is_empty() {
        return Ok(Went::Waits(job.awaits_their_end(looked)));
    }
    if job.tell_of_failure(looked).await {
        let least = if there.iter().any(|(_, mover)| hangs(mover)) { AS_AFTER } else { 0 };
        job.pause(looked.status.attempt.max(least));
    }
    if there.iter().any(|(_, mover)| mover.attempt == looked.status.attempt) {
        next_attempt(job, looked.status.attempt).await?;
    }
    job.ending_since = Some(Instant::now());
    for (half, mover) in there {
        leaf::moving::ends::remove(half.member.leaf()?, mover).await?;
    }
    Ok(Went::On)
}

fn hangs(mover: &Mover) -> bool {
    matches!(&mover.state, State::Ended(Some(Outcome::Failed { reason, .. })) if reason == STORAGE_HANGS)
}

async fn next_attempt(job: &mut RunningMove, attempt: u32) -> Result<Went> {
    (job.keys, job.has_sent_keys) = (None, None);
    job.write(moves::attempt(attempt.saturating_add(1))).await
}
