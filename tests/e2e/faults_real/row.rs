//! What was seen of one fault, and of a part of all faults.

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub const COMES_ABOUT: &str = "all comes about";
pub const NOTHING_LOST: &str = "nothing is lost";
pub const NOTHING_LEFT: &str = "nothing is left";
pub const NOTHING_TWICE: &str = "nothing is there twice";
pub const NOBODY_ELSES: &str = "nobody else's is touched";
pub const WHO_WAITS: &str = "who waits is told";
pub const OTHERS: &str = "others are served";
pub const NO_LOOP: &str = "nobody asks in a loop";
pub const NO_GROWTH: &str = "the driver does not grow";
pub const PROMISES: [&str; 9] =
    [COMES_ABOUT, NOTHING_LOST, NOTHING_LEFT, NOTHING_TWICE, NOBODY_ELSES, WHO_WAITS, OTHERS, NO_LOOP, NO_GROWTH];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    /// Has drawn the order of its faults.
    pub seed: u64,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub fault: String,
    /// By users, while it went on.
    pub seen: String,
    /// How often it has taken place.
    pub times: usize,
    /// Seconds from its end until all that was asked for was there, and until nothing was left once that had been removed.
    pub recovered_after: Option<f64>,
    pub clean_after: Option<f64>,
    /// Of those promises that can be asked for under this fault.
    pub verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub promise: String,
    /// What was seen instead.
    pub broken: Option<String>,
}

impl Verdict {
    pub fn new(promise: &str, seen: Result<()>) -> Self {
        Self { promise: promise.to_owned(), broken: seen.err().map(|error| format!("{error:#}")) }
    }
}

impl Row {
    /// Whether a promise has held, if it was asked for.
    pub fn holds(&self, promise: &str) -> Option<bool> {
        self.verdicts.iter().find(|verdict| verdict.promise == promise).map(|verdict| verdict.broken.is_none())
    }

    /// What was broken, and what was seen instead.
    pub fn broken(&self) -> impl Iterator<Item = String> {
        self.verdicts.iter().filter_map(|verdict| {
            let seen = verdict.broken.as_ref()?;
            Some(format!("{}: not so: {}: {seen}", self.fault, verdict.promise))
        })
    }
}

pub fn after(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1} s"))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Three promises were asked for, and the second one was seen like this.
    pub fn row(seen: Result<()>) -> Row {
        let held = |promise: &str| Verdict::new(promise, Ok(()));
        let verdicts = vec![held(PROMISES[0]), Verdict::new(PROMISES[1], seen), held(PROMISES[2])];
        let (fault, seen) = ("500".to_owned(), "Claims wait.".to_owned());
        Row { fault, seen, times: 3, recovered_after: Some(1.5), clean_after: None, verdicts }
    }
}
