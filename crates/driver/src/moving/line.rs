//! The two ends of a copy are joined, by a port-forward of each member's API server. What goes over them is the ends' own TLS: nothing can
//! be read here. A line that ends while both movers run is recreated, and they go on.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use tokio::{
    task::{self, JoinHandle},
    time::{Instant, sleep, timeout},
};

use super::{
    LATE, RunningMove,
    look::{Half, Looked},
    places,
    refused::told_of,
};
use domain::error::{Error, Result};
use host::moves::Progress;
use leaf::moving::{
    ends::{Mover, State},
    line::{self, ToMover, reach},
};

/// For both API servers to have reached their pods.
const REACHED: Duration = Duration::from_secs(30);
/// A pod that has just begun is not always reached at once; what goes on is told.
const UNREACHED: u32 = 3;
/// After so many, which take some ten minutes or more, others need not wait until the ends are joined: it may be for good.
const IN_VAIN: u32 = 100;
/// A line that ends sooner counts as one that was not joined: over a path that breaks each of them nothing may ever be done.
const LASTS: Duration = Duration::from_mins(1);
/// A mover that has nothing to say says that each quarter of a minute, and takes a line that is silent for a minute for dead.
const SILENT: Duration = Duration::from_mins(2);
const SAY_NOTHING: &str = "both movers' pods run, and neither says anything: the line between them is dead, or their \
                           storage takes nothing, or both processes have ended and wait in their kernels for storage \
                           that does not answer";
/// A silent line is cut then, and made again. Movers that live have taken it for dead, and wait ten minutes from then on for another one. One that
/// is full in both directions, as storage that takes long reads nothing from it, goes on before.
const OF_NO_USE: Duration = Duration::from_mins(9);

/// It ends with this.
#[derive(Debug)]
pub(super) struct Line {
    attempt: u32,
    joined: JoinHandle<Result<()>>,
    /// Tries that came to nothing, one after the other.
    unreached: u32,
    /// Why, where that is no matter of a moment.
    trouble: Option<Trouble>,
    since: Instant,
    /// From when both ends were reached.
    joined_since: Arc<OnceLock<Instant>>,
    /// Bytes from the sender.
    carried: Arc<AtomicU64>,
    /// And to it.
    back: Arc<AtomicU64>,
    /// What had been said at the last look that found more, and when that was.
    said: (u64, Instant),
}

#[derive(Debug)]
struct Trouble {
    told: String,
    /// A member does not let the ends be joined, or they were not for long: somebody has to act first.
    awaits_people: bool,
    /// They were joined, and not for long.
    is_short: bool,
}

impl Line {
    pub(super) fn progress(&self) -> Progress {
        let bytes = self.carried.load(Ordering::Relaxed);
        Progress { bytes, bytes_per_second: bytes / self.since.elapsed().as_secs().max(1) }
    }

    /// What keeps the ends from being joined, until they are, or their lines from lasting, until one does.
    pub(super) fn trouble(&self) -> Option<&str> {
        if self.is_silent() {
            return Some(SAY_NOTHING);
        }
        self.trouble_now().map(|trouble| trouble.told.as_str())
    }

    /// Somebody has to act first.
    fn waits_for_people(&self) -> bool {
        self.is_silent() || self.trouble_now().is_some_and(|trouble| trouble.awaits_people)
    }

    fn is_silent(&self) -> bool {
        self.said.1.elapsed() >= SILENT
    }

    fn listen(&mut self) {
        let said = self.carried.load(Ordering::Relaxed).wrapping_add(self.back.load(Ordering::Relaxed));
        let is_unjoined = self.joined_since.get().is_none() && !self.is_silent();
        if is_unjoined || said != self.said.0 {
            self.said = (said, Instant::now());
        } else if self.said.1.elapsed() >= OF_NO_USE && self.since.elapsed() >= OF_NO_USE {
            self.joined.abort();
        }
    }

    /// What the line after it begins with: that neither says anything is over once something is said.
    fn said_before(&self) -> (u64, Instant) {
        (0, if self.is_silent() { self.said.1 } else { Instant::now() })
    }

    fn trouble_now(&self) -> Option<&Trouble> {
        let is_over = |trouble: &Trouble| if trouble.is_short { self.lasts() } else { self.has_carried() };
        self.trouble.as_ref().filter(|trouble| !is_over(trouble))
    }

    fn has_carried(&self) -> bool {
        self.carried.load(Ordering::Relaxed) > 0
    }

    fn lasts(&self) -> bool {
        self.joined_since.get().is_some_and(|since| since.elapsed() >= LASTS)
    }

    /// Tries that came to nothing once this one has, and what is told of that.
    fn failed(&self, error: &Error) -> (u32, Option<Trouble>) {
        let unreached = self.unreached + 1;
        let trouble = || Trouble {
            told: told_of(error),
            awaits_people: matches!(error, Error::Denied(_) | Error::Refused(_)) || unreached >= IN_VAIN,
            is_short: self.has_carried(),
        };
        (unreached, (unreached >= UNREACHED).then(trouble))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.joined.abort();
    }
}

/// There is one while both movers run.
pub(super) fn see_to(job: &mut RunningMove, looked: &Looked) -> Result<()> {
    let attempt = looked.status.attempt;
    let (Some(sender), Some(receiver)) = (runs(&looked.source, attempt), runs(&looked.copy, attempt)) else {
        // It tells still what it has carried.
        if let Some(line) = &mut job.line {
            line.trouble = None;
            line.said.1 = Instant::now();
            let halves = [&looked.source, &looked.copy];
            let is_seen = halves.iter().any(|half| runs(half, attempt).is_some());
            if !is_seen || !halves.iter().all(|half| may_run(half, attempt)) {
                line.joined.abort();
            }
        }
        return Ok(());
    };
    let (mut unreached, mut trouble, mut said) = (0, None, (0, Instant::now()));
    if let Some(mut line) = job.line.take().filter(|line| line.attempt == attempt) {
        line.listen();
        said = line.said_before();
        let Some(ended) = (&mut line.joined).now_or_never() else {
            takes_slot_again(job, line.waits_for_people());
            job.line = Some(line);
            return Ok(());
        };
        match ended.unwrap_or_else(|fault| Err(Error::InProgress(fault.to_string()))) {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(of = job.name(), %error, "the ends of a copy are not joined, or were not for long");
                (unreached, trouble) = line.failed(&error);
            }
        }
    }
    let (carried, back, joined_since) = (Arc::default(), Arc::default(), Arc::default());
    let noted = ([Arc::clone(&carried), Arc::clone(&back)], Arc::clone(&joined_since));
    let joining = join(Box::pin(to(sender)?), Box::pin(to(receiver)?), noted);
    // A member that refuses it is not asked in circles.
    let pause = if trouble.is_some() { LATE } else { Duration::ZERO };
    let joined = task::spawn(async move {
        sleep(pause).await;
        joining.await
    });
    let since = Instant::now();
    let line = Line { attempt, joined, unreached, trouble, since, joined_since, carried, back, said };
    takes_slot_again(job, line.waits_for_people());
    job.line = Some(line);
    Ok(())
}

/// It was let go of where a member was silent for long, or the ends are not joined for long, or neither says anything. Others may have it by now,
/// and these movers are there all the same.
fn takes_slot_again(job: &mut RunningMove, waits_for_people: bool) {
    if waits_for_people {
        job.slot = None;
    } else {
        let _ = places::takes_slot(job);
    }
}

/// A member that misses one look is soon seen again, and what is compared would be compared anew over another line. One that is dead for all
/// that ends by the other mover: where neither is seen, nothing would end it.
fn may_run(half: &Result<Box<Half>>, attempt: u32) -> bool {
    runs(half, attempt).is_some() || matches!(half, Err(Error::Unreachable { .. }))
}

/// The one mover there, where it runs.
fn runs(half: &Result<Box<Half>>, attempt: u32) -> Option<(&Half, &Mover)> {
    let half = half.as_ref().ok()?;
    match half.movers.as_slice() {
        [one] if one.state == State::Running && one.attempt == attempt && !one.is_leaving => Some((half, one)),
        _ => None,
    }
}

fn to((half, mover): (&Half, &Mover)) -> Result<impl Future<Output = Result<ToMover>> + Send + use<>> {
    let (client, leaf, mover) = (half.member.unbounded()?, half.member.leaf()?.clone(), mover.clone());
    Ok(async move { reach(&leaf, client, &mover).await })
}

/// What is noted of a line: the bytes that it has carried there and back, and since when both ends are reached.
type Noted = ([Arc<AtomicU64>; 2], Arc<OnceLock<Instant>>);

/// An error where one of them was not reached, nothing came, or it ended soon. How it ends later is the movers' to tell.
async fn join<S, R>(sender: S, receiver: R, ([carried, back], joined_since): Noted) -> Result<()>
where
    S: Future<Output = Result<ToMover>> + Send,
    R: Future<Output = Result<ToMover>> + Send,
{
    let both = timeout(REACHED, async { tokio::try_join!(sender, receiver) }).await;
    let (sender, receiver) = both.map_err(|_| Error::InProgress("the movers were not reached".to_owned()))??;
    tracing::info!("the two ends of a copy are joined");
    let since = *joined_since.get_or_init(Instant::now);
    let ended = line::join(sender, receiver, [&carried, &back]).await;
    tracing::info!(?ended, "the line between the two ends of a copy has ended");
    let fault = ended.err().map(|error| error.to_string());
    judged(fault.as_deref(), carried.load(Ordering::Relaxed), since.elapsed())
}

fn judged(fault: Option<&str>, carried: u64, lasted: Duration) -> Result<()> {
    match fault {
        Some(fault) if carried == 0 => Err(Error::InProgress(format!("the movers were not joined: {fault}"))),
        _ if lasted >= LASTS => Ok(()),
        fault => {
            let fault = fault.unwrap_or("one of its two ends was closed");
            Err(Error::InProgress(format!("the line between the movers ends within a minute of being joined: {fault}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::advance;

    use super::*;

    /// The line that follows others: it was joined just now, and has carried something.
    fn after((unreached, trouble): (u32, Option<Trouble>)) -> Line {
        Line {
            attempt: 1,
            joined: task::spawn(pending()),
            unreached,
            trouble,
            since: Instant::now(),
            joined_since: Arc::new(OnceLock::from(Instant::now())),
            carried: Arc::new(AtomicU64::new(5)),
            back: Arc::default(),
            said: (0, Instant::now()),
        }
    }

    /// A receiver that is busy takes nothing for hours, and says that it is there.
    #[tokio::test(start_paused = true)]
    async fn line_over_which_neither_end_says_anything_is_told_of_and_keeps_no_other_move_from_copying() {
        let mut line = after((0, None));
        for _ in 0..20 {
            advance(SILENT / 8).await;
            line.back.fetch_add(1, Ordering::Relaxed);
            line.listen();
            assert!(line.trouble().is_none() && !line.waits_for_people());
        }
        advance(SILENT).await;
        line.listen();
        assert_eq!(line.trouble(), Some(SAY_NOTHING));
        assert!(line.waits_for_people());
        line.back.fetch_add(1, Ordering::Relaxed);
        line.listen();
        assert_eq!(line.trouble(), None);
    }

    /// As where a gateway has forgotten both streams, and says so to nobody: movers that live wait for another line.
    #[tokio::test(start_paused = true)]
    async fn line_that_is_silent_for_long_is_cut_and_told_of_until_something_is_said_over_another_one() {
        let mut line = after((0, None));
        line.listen();
        advance(OF_NO_USE).await;
        line.listen();
        assert!((&mut line.joined).await.unwrap_err().is_cancelled());
        let mut next = after((0, None));
        next.carried.store(0, Ordering::Relaxed);
        next.said = line.said_before();
        advance(LASTS).await;
        next.listen();
        assert_eq!(next.trouble(), Some(SAY_NOTHING));
        assert!(next.waits_for_people());
        task::yield_now().await;
        assert!(!next.joined.is_finished(), "it has not been silent for long itself");
        next.back.fetch_add(1, Ordering::Relaxed);
        next.listen();
        assert_eq!(next.trouble(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_that_end_soon_are_told_of_when_three_have_in_a_row_and_until_one_lasts() {
        let ended = judged(Some("reset"), 5, LASTS / 2).unwrap_err();
        let mut line = after((0, None));
        for _ in 1..UNREACHED {
            line = after(line.failed(&ended));
            assert_eq!(line.trouble(), None);
        }
        line = after(line.failed(&ended));
        let told = "the line between the movers ends within a minute of being joined: reset";
        assert!(line.trouble().is_some_and(|trouble| trouble.contains(told)), "{line:?}");
        assert!(!line.waits_for_people(), "it may have its slot");
        advance(LASTS / 2).await;
        assert!(line.trouble().is_some(), "whatever it has carried");
        advance(LASTS / 2).await;
        assert_eq!(line.trouble(), None);
    }

    /// For as long as nobody mends the path.
    #[tokio::test(start_paused = true)]
    async fn line_that_comes_to_nothing_again_and_again_keeps_no_other_move_from_copying_in_the_end() {
        let ended = judged(Some("reset"), 5, LASTS / 2).unwrap_err();
        let mut line = after((IN_VAIN - 2, None));
        for is_in_vain in [false, true] {
            line = after(line.failed(&ended));
            assert_eq!(line.waits_for_people(), is_in_vain);
        }
        advance(LASTS).await;
        assert!(!line.waits_for_people(), "it lasts");
    }

    #[test]
    fn line_counts_as_joined_where_it_has_lasted_whoever_has_ended_it() {
        for fault in [None, Some("reset")] {
            assert!(judged(fault, 5, LASTS).is_ok());
            assert!(judged(fault, 5, LASTS / 2).is_err());
            assert_eq!(judged(fault, 0, LASTS).is_ok(), fault.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_that_were_not_joined_are_told_of_until_something_is_carried() {
        let refused = Error::Denied("member a: forward to pod send".to_owned());
        let unjoined = |before: (u32, Option<Trouble>)| {
            let line = after(before);
            line.carried.store(0, Ordering::Relaxed);
            line
        };
        let line = unjoined(unjoined((UNREACHED - 1, None)).failed(&refused));
        assert!(line.waits_for_people() && line.trouble().is_some());
        line.carried.store(1, Ordering::Relaxed);
        assert!(!line.waits_for_people() && line.trouble().is_none());
    }
}
