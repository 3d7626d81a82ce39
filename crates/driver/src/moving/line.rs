//! The two ends of a copy are joined, by a port-forward of each member's API server. What goes over them is the ends' own TLS: nothing can
//! be read here. A line that ends while both movers run is recreated, and they go on.

use std::{
    sync::{
        Arc,
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
    /// Bytes from the sender.
    carried: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Trouble {
    told: String,
    /// A member does not let the ends be joined: somebody there has to act first.
    is_refused: bool,
}

impl Line {
    pub(super) fn progress(&self) -> Progress {
        let bytes = self.carried.load(Ordering::Relaxed);
        Progress { bytes, bytes_per_second: bytes / self.since.elapsed().as_secs().max(1) }
    }

    /// What keeps the ends from being joined, until they are.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble_now().map(|trouble| trouble.told.as_str())
    }

    fn is_refused(&self) -> bool {
        self.trouble_now().is_some_and(|trouble| trouble.is_refused)
    }

    fn trouble_now(&self) -> Option<&Trouble> {
        self.trouble.as_ref().filter(|_| self.carried.load(Ordering::Relaxed) == 0)
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
            let halves = [&looked.source, &looked.copy];
            let is_seen = halves.iter().any(|half| runs(half, attempt).is_some());
            if !is_seen || !halves.iter().all(|half| may_run(half, attempt)) {
                line.joined.abort();
            }
        }
        return Ok(());
    };
    let (mut unreached, mut trouble) = (0, None);
    if let Some(mut line) = job.line.take().filter(|line| line.attempt == attempt) {
        let Some(ended) = (&mut line.joined).now_or_never() else {
            takes_slot_again(job, line.is_refused());
            job.line = Some(line);
            return Ok(());
        };
        match ended.unwrap_or_else(|fault| Err(Error::InProgress(fault.to_string()))) {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(of = job.name(), %error, "the ends of a copy are not joined yet");
                unreached = line.unreached + 1;
                let told = || Trouble {
                    told: told_of(&error),
                    is_refused: matches!(error, Error::Denied(_) | Error::Refused(_)),
                };
                trouble = (unreached >= UNREACHED).then(told);
            }
        }
    }
    takes_slot_again(job, trouble.as_ref().is_some_and(|trouble| trouble.is_refused));
    let carried = Arc::default();
    let joining = join(Box::pin(to(sender)?), Box::pin(to(receiver)?), Arc::clone(&carried));
    // A member that refuses it is not asked in circles.
    let pause = if trouble.is_some() { LATE } else { Duration::ZERO };
    let joined = task::spawn(async move {
        sleep(pause).await;
        joining.await
    });
    job.line = Some(Line { attempt, joined, unreached, trouble, since: Instant::now(), carried });
    Ok(())
}

/// It was let go of where a member was silent for long, or does not let the ends be joined. Others may have it by now, and these movers are
/// there all the same.
fn takes_slot_again(job: &mut RunningMove, is_refused: bool) {
    if is_refused {
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

/// An error where one of them was not reached, or nothing came. How it ends later is the movers' to tell.
async fn join<S, R>(sender: S, receiver: R, carried: Arc<AtomicU64>) -> Result<()>
where
    S: Future<Output = Result<ToMover>> + Send,
    R: Future<Output = Result<ToMover>> + Send,
{
    let both = timeout(REACHED, async { tokio::try_join!(sender, receiver) }).await;
    let (sender, receiver) = both.map_err(|_| Error::InProgress("the movers were not reached".to_owned()))??;
    tracing::info!("the two ends of a copy are joined");
    let ended = line::join(sender, receiver, &carried).await;
    tracing::info!(?ended, "the line between the two ends of a copy has ended");
    match ended {
        Err(error) if carried.load(Ordering::Relaxed) == 0 => {
            Err(Error::InProgress(format!("the movers were not joined: {error}")))
        }
        _ => Ok(()),
    }
}
