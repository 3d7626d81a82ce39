//! What many faults were in sum: how long, what users did meanwhile, and what processes had of the machine's memory.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    memory::{Trend, growing, trends},
    row::{Done, Part, Row},
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    pub faults: usize,
    /// Those that users have got over, in so many seconds at most.
    pub recovered: usize,
    pub longest: f64,
    /// Promises.
    pub broken: usize,
    pub seconds: f64,
    pub load: Done,
    /// Have drawn the order.
    pub seeds: BTreeSet<u64>,
    /// By process.
    pub memory: BTreeMap<String, Trend>,
}

impl Sum {
    /// Of rows, each with its part and its seed, in the order in which they were played.
    pub fn of<'row>(rows: impl IntoIterator<Item = (&'row str, u64, &'row Row)>) -> Self {
        let rows: Vec<(&str, u64, &Row)> = rows.into_iter().collect();
        let mut sum = Self { memory: trends(rows.iter().copied()), ..Self::default() };
        for (_, seed, row) in rows {
            sum.faults += 1;
            sum.recovered += usize::from(row.recovered_after.is_some());
            sum.longest = sum.longest.max(row.recovered_after.unwrap_or_default());
            sum.broken += row.broken().count();
            sum.seconds += row.seconds;
            sum.load.add(&row.load);
            sum.seeds.insert(seed);
        }
        sum
    }

    pub fn told(&self) -> String {
        let Self { faults, recovered, longest, broken, .. } = self;
        let (hours, operations) = (self.seconds / 3600.0, &self.load.operations);
        let kinds: Vec<String> = operations.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let growing = growing(&self.memory).join(", ");
        format!(
            "Faults: {faults}, of which users recovered from {recovered}, in {longest:.1} s at most. Promises that were broken: {broken}. \
             Hours of load and faults: {hours:.1}. What users did: {} ({}). Bytes that were acknowledged, and read again: {}. Seeds: {}. \
             Programs of ours that grow: {}.",
            operations.values().sum::<u64>(),
            kinds.join(", "),
            self.load.acknowledged,
            seeds.join(", "),
            if growing.is_empty() { "none" } else { growing.as_str() }
        )
    }
}

/// The most memory of one process while one fault was played, in MiB: the first one of a part, any, and the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peaks {
    pub part: String,
    pub process: String,
    pub faults: usize,
    pub first: u64,
    pub highest: u64,
    pub last: u64,
}

/// In the order in which they were played.
pub fn peaks(parts: &[Part]) -> Vec<Peaks> {
    let mut all = Vec::new();
    for part in parts {
        let mut rows: Vec<&Row> = part.rows.iter().collect();
        rows.sort_by_key(|row| row.ended);
        let mut of_process: BTreeMap<&str, Peaks> = BTreeMap::new();
        for (process, memory) in rows.iter().flat_map(|row| &row.memory) {
            let (part, peak) = (part.name.clone(), memory.peak);
            let new = Peaks { part, process: process.clone(), faults: 0, first: peak, highest: peak, last: peak };
            let peaks = of_process.entry(process).or_insert(new);
            (peaks.faults, peaks.highest, peaks.last) = (peaks.faults + 1, peaks.highest.max(peak), peak);
        }
        all.extend(of_process.into_values());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults_real::row::{Memory, tests::row};

    #[test]
    fn all_that_was_played_adds_up() {
        let rows = [row(Ok(())), row(Err(anyhow::anyhow!("two leaves")))];
        let sum = Sum::of([("a", 7, &rows[0]), ("b", 8, &rows[1])]);
        let told = sum.told();
        for words in [
            "Faults: 2, of which users recovered from 2, in 1.5 s at most. Promises that were broken: 1. ",
            "Hours of load and faults: 0.1. What users did: 10 (claims made 10). ",
            "read again: 1400. Seeds: 7, 8. Programs of ours that grow: none.",
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn peaks_are_those_of_the_first_fault_of_any_and_of_the_last_one() {
        let of = |ended: u64, peak: u64| {
            let memory =
                BTreeMap::from([("controller".to_owned(), Memory { process: 1, began: None, peak, ended: 1 })]);
            Row { memory, ended, ..row(Ok(())) }
        };
        let part = Part { name: "a".to_owned(), seed: 7, rows: vec![of(3, 60), of(1, 50), of(2, 90)] };
        let expected = Peaks {
            part: "a".to_owned(),
            process: "controller".to_owned(),
            faults: 3,
            first: 50,
            highest: 90,
            last: 60,
        };
        assert_eq!(peaks(&[part]), [expected]);
    }
}
