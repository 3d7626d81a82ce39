//! Waiting: for a condition, with a deadline. The only place that sleeps.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use thiserror::Error;

/// Between two looks: a tenth of the time that was waited, within these. A look may start a program, and many wait at once.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Why waiting on is in vain: ends a wait at once.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Hopeless(pub String);

/// Asks again and again until there is a value. An error counts as "not yet", unless it is `Hopeless`: it is told when
/// the time is up.
pub async fn wait_for<T, F, Condition>(what: &str, patience: Duration, mut condition: Condition) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
    Condition: FnMut() -> F,
{
    let begin = Instant::now();
    loop {
        if let Some(end) = judge(what, begin, patience, condition().await) {
            return end;
        }
        tokio::time::sleep(pause(begin)).await;
    }
}

/// The same where nothing is asynchronous: in `Drop`, in the guardian.
pub fn wait_blocking<T>(what: &str, patience: Duration, mut condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(end) = judge(what, begin, patience, condition()) {
            return end;
        }
        thread::sleep(pause(begin));
    }
}

fn pause(begin: Instant) -> Duration {
    (begin.elapsed() / 10).clamp(PAUSES[0], PAUSES[1])
}

/// How the wait ends, if it does.
fn judge<T>(what: &str, begin: Instant, patience: Duration, seen: Result<Option<T>>) -> Option<Result<T>> {
    let problem = match seen {
        Ok(Some(value)) => return Some(Ok(value)),
        Ok(None) => None,
        Err(error) => Some(error),
    };
    let waited = begin.elapsed();
    if waited < patience && !problem.as_ref().is_some_and(Error::is::<Hopeless>) {
        return None;
    }
    let waited = format!("waited {:.1} s until {what}", waited.as_secs_f32());
    Some(Err(problem.map_or_else(|| anyhow!(waited.clone()), |error| error.context(waited.clone()))))
}
