//! Whether processes grow: what each of them had of the machine's memory at most, fault by fault, for as long as it lived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{row::Row, used::PROGRAMS};

/// A life of fewer faults says nothing: who has just begun takes what he needs.
const LEAST: usize = 4;
/// In MiB, by which one of ours grows: so much in sum, and in an hour.
const GROWTH: f64 = 16.0;
const IN_AN_HOUR: f64 = 30.0;

/// Of one process, in all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    pub faults: usize,
    /// The most that it had in any fault, in MiB.
    pub highest: u64,
    /// How many faults it has lived through at most, and what it had in the first and the last one of these.
    pub longest: usize,
    pub first: u64,
    pub last: u64,
    /// From the middle of each life to its last fault: how much more it had in sum, and how long that was.
    grown: f64,
    hours: f64,
}

/// One process: its program, and the part, seed and number of the process.
type Life<'row> = (&'row str, &'row str, u64, i32);

/// By process, of rows with their parts and seeds, in the order in which they were played.
pub fn trends<'row>(rows: impl IntoIterator<Item = (&'row str, u64, &'row Row)>) -> BTreeMap<String, Trend> {
    let mut lives: BTreeMap<Life<'_>, Vec<(u64, u64)>> = BTreeMap::new();
    for (part, seed, row) in rows {
        for (process, memory) in &row.memory {
            let life = lives.entry((process.as_str(), part, seed, memory.process)).or_default();
            life.push((row.ended, memory.peak));
        }
    }
    let mut trends: BTreeMap<String, Trend> = BTreeMap::new();
    for ((process, ..), life) in lives {
        trends.entry(process.to_owned()).or_default().add(&life);
    }
    trends
}

/// Those of ours that do, each with what it takes in an hour.
pub fn growing(trends: &BTreeMap<String, Trend>) -> Vec<String> {
    let ours = PROGRAMS.iter().filter_map(|program| Some((program, trends.get(*program)?)));
    ours.filter(|(_, trend)| trend.grows())
        .map(|(program, trend)| format!("{program} ({})", trend.in_an_hour()))
        .collect()
}

impl Trend {
    /// A life: when each fault of it has ended, in seconds, and what it had.
    fn add(&mut self, life: &[(u64, u64)]) {
        let (Some((_, first)), Some((ended, last))) = (life.first(), life.last()) else { return };
        self.faults += life.len();
        self.highest = life.iter().map(|(_, peak)| *peak).fold(self.highest, u64::max);
        if life.len() > self.longest {
            (self.longest, self.first, self.last) = (life.len(), *first, *last);
        }
        if life.len() >= LEAST {
            let (then, middle) = life[life.len() / 2];
            self.grown += float(*last) - float(middle);
            self.hours += float(ended.saturating_sub(then)) / 3600.0;
        }
    }

    fn rate(&self) -> Option<f64> {
        (self.hours > 0.0).then(|| self.grown / self.hours)
    }

    fn grows(&self) -> bool {
        self.grown >= GROWTH && self.rate().is_some_and(|rate| rate >= IN_AN_HOUR)
    }

    /// For people.
    pub fn in_an_hour(&self) -> String {
        self.rate().map_or_else(|| "–".to_owned(), |rate| format!("{rate:+.0} MiB"))
    }
}

fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults_real::row::{Memory, tests::row};

    /// A process of this number had these peaks, one each minute.
    fn life(name: &str, process: i32, peaks: &[u64]) -> Vec<Row> {
        let of = |(ended, peak): (u64, &u64)| {
            let memory = Memory { process, began: Some(1), peak: *peak, ended: *peak };
            Row { ended, memory: BTreeMap::from([(name.to_owned(), memory)]), ..row(Ok(())) }
        };
        (0..).step_by(60).zip(peaks).map(of).collect()
    }

    fn trend(name: &str, lives: &[Vec<Row>]) -> (Trend, Vec<String>) {
        let trends = trends(lives.iter().flatten().map(|row| ("part", 7, row)));
        (trends[name], growing(&trends))
    }

    #[test]
    fn process_that_has_as_much_at_its_end_as_in_the_middle_of_its_life_does_not_grow() {
        let flat = life("controller", 1, &[50, 60, 66, 67, 67, 67, 67, 68]);
        let (trend, growing) = trend("controller", &[flat]);
        assert_eq!((trend.faults, trend.highest, trend.longest, trend.first, trend.last), (8, 68, 8, 50, 68));
        assert_eq!((trend.in_an_hour().as_str(), growing.len()), ("+20 MiB", 0));
    }

    #[test]
    fn process_that_takes_a_little_more_with_every_fault_is_noticed_in_all_its_lives_together() {
        let rises = |process: i32| life("controller", process, &[60, 61, 62, 63, 64, 65, 66, 67, 68, 69]);
        assert!(trend("controller", &[rises(1)]).1.is_empty(), "four MiB are too few to say so");
        let four = [rises(1), rises(2), rises(3), rises(4)];
        assert_eq!(trend("controller", &four).1, ["controller (+60 MiB)"]);
        let foreign: Vec<Vec<Row>> =
            (1..=4).map(|process| life("host-csi-resizer", process, &[60, 64, 68, 72, 76, 80, 84, 88])).collect();
        let (trend, growing) = trend("host-csi-resizer", &foreign);
        assert!(growing.is_empty() && trend.in_an_hour() == "+240 MiB", "it is told, and not ours: {trend:?}");
    }

    #[test]
    fn what_a_process_takes_as_it_begins_again_is_no_growth() {
        let short: Vec<Vec<Row>> = (1..=9).map(|process| life("agent", process, &[40, 60, 90])).collect();
        let (trend, growing) = trend("agent", &short);
        assert!(growing.is_empty() && trend.in_an_hour() == "–", "{trend:?}");
    }
}
