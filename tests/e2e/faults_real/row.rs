//! What was seen of one fault, and of a part of all faults.

use std::collections::BTreeMap;

use anyhow::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{fault::Fault, limits};

pub const COMES_ABOUT: &str = "all comes about";
pub const NOTHING_LOST: &str = "nothing is lost";
pub const NOTHING_LEFT: &str = "nothing is left";
pub const NOTHING_TWICE: &str = "nothing is there twice";
pub const NOBODY_ELSES: &str = "nobody else's is touched";
pub const WHO_WAITS: &str = "who waits is told";
pub const OTHERS: &str = "others are served";
pub const RUNS_ON: &str = "what runs goes on";
pub const NO_LOOP: &str = "nobody asks in a loop";
pub const NO_GROWTH: &str = "nothing of ours grows";
pub const PROMISES: [&str; 10] = [
    COMES_ABOUT,
    NOTHING_LOST,
    NOTHING_LEFT,
    NOTHING_TWICE,
    NOBODY_ELSES,
    WHO_WAITS,
    OTHERS,
    RUNS_ON,
    NO_LOOP,
    NO_GROWTH,
];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    /// Has drawn the order of its faults.
    pub seed: u64,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    pub fault: String,
    /// By users, while it went on.
    pub seen: String,
    /// What was said on their objects meanwhile.
    pub said: Vec<String>,
    /// How often it has taken place.
    pub times: usize,
    /// Seconds from its end until all that was asked for was there, and until nothing was left once that had been removed.
    pub recovered_after: Option<f64>,
    pub clean_after: Option<f64>,
    /// Of those promises that can be asked for under this fault.
    pub verdicts: Vec<Verdict>,
    pub load: Done,
    /// Of our processes and those beside them, by name.
    pub memory: BTreeMap<String, Memory>,
    /// From its beginning until all was looked at, and when that was, in seconds since 1970.
    pub seconds: f64,
    pub ended: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub promise: String,
    /// What was seen instead.
    pub broken: Option<String>,
}

/// What users did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// How often each kind of thing that they asked for was taken.
    pub operations: BTreeMap<String, u64>,
    /// Bytes that were said to be on the disk, each of which was read again.
    pub acknowledged: u64,
}

/// Of one process, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Its number on the machine: where it is another one, the process has begun again.
    #[serde(default)]
    pub process: i32,
    /// None where it was begun again meanwhile.
    pub began: Option<u64>,
    /// The most that it had meanwhile.
    pub peak: u64,
    pub ended: u64,
}

impl Verdict {
    pub fn new(promise: &str, seen: Result<()>) -> Self {
        Self { promise: promise.to_owned(), broken: seen.err().map(|error| format!("{error:#}")) }
    }
}

impl Done {
    pub fn add(&mut self, other: &Self) {
        for (kind, times) in &other.operations {
            *self.operations.entry(kind.clone()).or_default() += times;
        }
        self.acknowledged += other.acknowledged;
    }
}

impl Row {
    pub fn of(fault: &Fault) -> Self {
        Self {
            fault: fault.name.to_owned(),
            seen: fault.words.seen.to_owned(),
            ended: limits::now(),
            ..Self::default()
        }
    }

    /// Of a fault that could not be played to its end.
    pub fn failed(fault: &Fault, error: Error, seconds: f64) -> Self {
        Self { verdicts: vec![Verdict::new(COMES_ABOUT, Err(error))], seconds, ..Self::of(fault) }
    }

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

    pub fn is_well(&self) -> bool {
        self.broken().next().is_none()
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
        let operations = BTreeMap::from([("claims made".to_owned(), 5)]);
        Row {
            fault: "500".to_owned(),
            seen: "Claims wait.".to_owned(),
            times: 3,
            recovered_after: Some(1.5),
            verdicts,
            load: Done { operations, acknowledged: 700 },
            seconds: 90.0,
            ended: 1_000,
            ..Row::default()
        }
    }

    #[test]
    fn what_users_did_adds_up_by_kind() {
        let mut done = row(Ok(())).load;
        let removed = BTreeMap::from([("claims made".to_owned(), 1), ("claims removed".to_owned(), 2)]);
        done.add(&Done { operations: removed, acknowledged: 30 });
        let expected = [("claims made".to_owned(), 6), ("claims removed".to_owned(), 2)];
        assert_eq!(done, Done { operations: BTreeMap::from(expected), acknowledged: 730 });
    }
}
