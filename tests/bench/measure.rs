//! So many callers, each of which asks for the next volume when the last is there; and how what is seen of them is called.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::future::try_join_all;

pub const RATE: &str = "volumes a second";
pub const OVER_BIND_MIDDLE: &str = "over the bind, p50 (ms)";
pub const OVER_BIND_LAST: &str = "over the bind, p99 (ms)";
pub const PROCESSOR: &str = "processor seconds per 1000 made";
pub const OF_BARE: &str = "rate, of the bare driver's (%)";
pub const OF_MARKED: &str = "rate, of one's that marks too (%)";
pub const OF_ACCEPTED: &str = "rate, of one's that waits for nothing (%)";

/// How long a driver's turn takes, with all that is made ready for it.
pub const TURN: &str = "the whole turn (s)";

/// What was seen, by name.
pub type Figures = Vec<(&'static str, f64)>;

/// How many callers ask for how many volumes of a member how far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub callers: usize,
    pub volumes: usize,
    /// Milliseconds.
    pub delay: u16,
}

impl Load {
    /// As a heading.
    pub fn part(&self) -> String {
        let away = if self.delay > 0 { format!(", {} ms away", self.delay) } else { String::new() };
        format!("{} callers, {} volumes{away}", self.callers, self.volumes)
    }
}

/// How long all took, and what each call gave.
#[derive(Clone, Debug)]
pub struct Run<T> {
    pub took: Duration,
    pub calls: Vec<T>,
}

impl<T> Run<T> {
    pub fn rate(&self) -> f64 {
        self.calls.len() as f64 / self.took.as_secs_f64()
    }
}

pub async fn closed_loop<T, F>(callers: usize, volumes: usize, one: impl Fn(usize) -> F) -> Result<Run<T>>
where
    F: Future<Output = Result<T>>,
{
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    let caller = async || {
        let mut calls = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= volumes {
                return anyhow::Ok(calls);
            }
            calls.push(one(number).await?);
        }
    };
    let calls = try_join_all((0..callers).map(|_| caller())).await?;
    Ok(Run { took: begun.elapsed(), calls: calls.into_iter().flatten().collect() })
}

/// The value below which so many of a hundred are.
pub fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

/// The middle one, or the lower of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
