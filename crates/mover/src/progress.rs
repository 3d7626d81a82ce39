//! How far it is, as lines of JSON on standard output: who watches the pod's log reads the last of them.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

const PERIOD: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// The source is looked through, so that it is known how much there is.
    Surveying,
    WaitingForLine,
    Copying,
    Comparing,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    phase: Phase,
    bytes: u64,
    of: u64,
    bytes_per_second: u64,
}

/// Shared by all who move it on.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<State>);

#[derive(Debug)]
struct State {
    phase: Mutex<Phase>,
    of: AtomicU64,
    bytes: Arc<AtomicU64>,
}

impl Progress {
    pub(crate) fn new(phase: Phase) -> Self {
        Self(Arc::new(State { phase: Mutex::new(phase), of: AtomicU64::new(0), bytes: Arc::default() }))
    }

    pub(crate) fn begin(&self, phase: Phase) {
        *self.0.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.0.bytes.store(0, Ordering::Relaxed);
        tracing::info!("{}", phase.sentence());
    }

    pub(crate) fn set_total(&self, bytes: u64) {
        self.0.of.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// For who counts by himself.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.0.bytes.clone()
    }

    /// Tells what has changed, again and again, until it is dropped.
    pub(crate) fn tell(&self) -> AbortOnDropHandle<()> {
        let state = self.0.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let (mut last, mut since) = (None, Instant::now());
            loop {
                let told = state.look(last.as_ref(), since.elapsed());
                since = Instant::now();
                if last.as_ref() != Some(&told) {
                    say("progress", &told);
                    last = Some(told);
                }
                tokio::time::sleep(PERIOD).await;
            }
        }))
    }
}

impl State {
    fn look(&self, last: Option<&Told>, passed: Duration) -> Told {
        let phase = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let before = last.filter(|last| last.phase == phase).map_or(0, |last| last.bytes);
        let milliseconds = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
        let bytes_per_second = bytes.saturating_sub(before).saturating_mul(1000) / milliseconds;
        let bytes_per_second = if last.is_none() { 0 } else { bytes_per_second };
        Told { phase, bytes, of: self.of.load(Ordering::Relaxed), bytes_per_second }
    }
}

impl Phase {
    fn sentence(self) -> &'static str {
        match self {
            Self::Surveying => "looking through the source",
            Self::WaitingForLine => "waiting for the driver to connect the two ends",
            Self::Copying => "rsync copies",
            Self::Comparing => "comparing source and copy",
        }
    }
}

/// A line for who watches. If nobody reads it, nothing is lost.
pub(crate) fn say(what: &str, told: &impl Serialize) {
    let line = serde_json::json!({ what: told });
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_that_of_the_last_period() {
        let progress = Progress::new(Phase::Copying);
        progress.set_total(100_000);
        progress.set(30_000);
        let first = progress.0.look(None, Duration::ZERO);
        assert_eq!(first, Told { phase: Phase::Copying, bytes: 30_000, of: 100_000, bytes_per_second: 0 });
        progress.set(50_000);
        let second = progress.0.look(Some(&first), Duration::from_secs(2));
        assert_eq!(second.bytes_per_second, 10_000);
        progress.begin(Phase::Comparing);
        assert_eq!(progress.0.look(Some(&second), Duration::from_secs(2)).bytes_per_second, 0);
    }
}
