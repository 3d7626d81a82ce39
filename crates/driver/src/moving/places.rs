//! Some moves begin at a time, some have a copy made before they go on, and some copy: the others wait, and are told so.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Duration, Instant, timeout},
};

use super::{FAILED, LATE, LONG, RunningMove, Went};
use domain::volume::moving::Phase;
use host::moves;

/// So many are being begun at a time: each reads all that there are, and whoever may make one makes as many as he likes.
const BEGUN_AT_ONCE: usize = 8;
/// So many have a copy made before they are given a slot: each has a pod in its member, which is to have room for those of others.
const PREPARED_AT_ONCE: usize = 16;
/// Who waits to begin is told how many come before, less and less often, up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
const OTHERS_BEGIN: &str = "the limit of moves that begin at the same time is reached";
const OTHERS_ARE_PREPARED: &str = "the limit of moves that wait with a prepared copy is reached";
pub(super) const OTHERS_COPY: &str = "the limit of moves that copy at the same time is reached (--moves-at-once)";

/// Of all that this process drives.
#[derive(Clone, Debug)]
pub(super) struct Places {
    beginning: Arc<Semaphore>,
    /// So many have asked to begin so far, and so many of them were let: in the order in which they have asked.
    asked: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    prepared: Arc<Semaphore>,
    /// So many wait for a slot while pods wait for them.
    urgent: Arc<AtomicUsize>,
}

/// Pods wait for this move, which has no slot: as long as this is there, none closes its source before it.
#[derive(Debug)]
pub(super) struct Urgent(Arc<AtomicUsize>);

impl Places {
    pub(super) fn new() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        let (asked, begun, urgent) = (Arc::default(), Arc::default(), Arc::default());
        Self { beginning: places(BEGUN_AT_ONCE), asked, begun, prepared: places(PREPARED_AT_ONCE), urgent }
    }
}

impl Urgent {
    fn new(of: &Arc<AtomicUsize>) -> Self {
        of.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(of))
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// It may begin as long as this is there.
pub(super) async fn begins(job: &mut RunningMove) -> Option<OwnedSemaphorePermit> {
    let Places { beginning, asked, begun, .. } = job.places.clone();
    let number = asked.fetch_add(1, Ordering::Relaxed);
    let (mut turn, mut pause) = (pin!(beginning.acquire_owned()), LATE);
    let place = loop {
        if let Ok(place) = timeout(pause, &mut turn).await {
            break place;
        }
        let before = number.saturating_sub(begun.load(Ordering::Relaxed));
        job.tell_of_waiting(&format!("{OTHERS_BEGIN}, and {before} more come before this one")).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    begun.fetch_add(1, Ordering::Relaxed);
    place.ok()
}

/// What one has had that another process has led so far. Who comes after it is given what is left.
pub(super) fn takes_again(job: &mut RunningMove) {
    match moves::phase_of(&job.of) {
        Some(Phase::Preparing | Phase::Closing) => {
            let _ = takes_place(job);
        }
        Some(Phase::Waiting | Phase::Isolating | Phase::Copying) => {
            let _ = takes_slot(job);
        }
        _ => {}
    }
}

/// Where one is free.
fn one_of(places: &Arc<Semaphore>) -> Option<(OwnedSemaphorePermit, Instant)> {
    Arc::clone(places).try_acquire_owned().ok().map(|place| (place, Instant::now()))
}

/// Whether it may have its copy made: others wait with theirs.
pub(super) fn takes_place(job: &mut RunningMove) -> bool {
    job.place = job.place.take().or_else(|| one_of(&job.places.prepared));
    job.place.is_some()
}

/// Nobody is asked anything until one is free, or for a while; its user is told before that.
pub(super) async fn awaits_place(job: &mut RunningMove) -> Went {
    let mut free = pin!(Arc::clone(&job.places.prepared).acquire_owned());
    let mut place = timeout(LATE, &mut free).await;
    if place.is_err() {
        job.tell_of_waiting(OTHERS_ARE_PREPARED).await;
        place = timeout(FAILED, free).await;
    }
    job.place = place.ok().and_then(Result::ok).map(|place| (place, Instant::now()));
    if job.place.is_some() { Went::On } else { Went::Waits(OTHERS_ARE_PREPARED.to_owned()) }
}

/// Whether it may begin its movers: others copy too.
pub(super) fn takes_slot(job: &mut RunningMove) -> bool {
    job.slot = job.slot.take().or_else(|| one_of(&job.movers.slots));
    job.slot.is_some()
}

/// The same for one whose pods go on until then: those go first whose pods wait.
pub(super) fn takes_slot_to_close(job: &mut RunningMove) -> bool {
    job.slot.is_some() || job.places.urgent.load(Ordering::Relaxed) == 0 && takes_slot(job)
}

/// The same for one whose pods wait.
pub(super) fn takes_slot_first(job: &mut RunningMove) -> bool {
    let has_slot = takes_slot(job);
    job.urgent = (!has_slot).then(|| Urgent::new(&job.places.urgent));
    has_slot
}

/// Nothing of it would be copied yet if its pods ended now.
pub(super) fn are_taken(job: &RunningMove) -> bool {
    job.slot.is_none() && job.movers.slots.available_permits() == 0
}

/// What waits for people, or for long, while nothing is copied keeps nobody else from that.
pub(super) fn lets_others_copy(job: &mut RunningMove, waits_for_people: bool, copies: bool) {
    job.place.take_if(|(_, since)| since.elapsed() > LONG);
    let is_early = moves::phase_of(&job.of).is_some_and(|phase| phase < Phase::Copying);
    job.slot.take_if(|(_, since)| is_early && (waits_for_people || since.elapsed() > LONG));
    job.idle_since = (!is_early && !copies).then(|| job.idle_since.unwrap_or_else(Instant::now));
    job.slot.take_if(|_| job.idle_since.is_some_and(|since| since.elapsed() > LONG));
}
