//! What was seen: a table with the middle, the least and the most of all rounds, and the same as JSON with every round.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::measure::median;

const WIDE: usize = 40;
const CELL: usize = 26;

/// By part, figure and subject, as they came.
#[derive(Debug, Default)]
pub struct Sheet(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    part: String,
    subject: String,
    figure: &'static str,
    rounds: Vec<f64>,
}

impl Sheet {
    /// What one round gave.
    pub fn add(&mut self, part: &str, subject: &str, figures: &[(&'static str, f64)]) {
        for (figure, value) in figures {
            if let Some(entry) = self.0.iter_mut().find(|entry| entry.is(part, subject, figure)) {
                entry.rounds.push(*value);
            } else {
                let (part, subject) = (part.to_owned(), subject.to_owned());
                self.0.push(Entry { part, subject, figure, rounds: vec![*value] });
            }
        }
    }

    pub fn middle(&self, part: &str, subject: &str, figure: &str) -> Option<f64> {
        self.0.iter().find(|entry| entry.is(part, subject, figure)).map(|entry| median(entry.rounds.clone()))
    }

    pub fn print(&self) {
        for part in firsts(self.0.iter().map(|entry| entry.part.as_str())) {
            let of_part: Vec<&Entry> = self.0.iter().filter(|entry| entry.part == part).collect();
            let subjects = firsts(of_part.iter().map(|entry| entry.subject.as_str()));
            let head: Vec<String> = subjects.iter().map(|subject| format!("{subject:>CELL$}")).collect();
            println!("\n{part:<WIDE$}{}", head.concat());
            for figure in firsts(of_part.iter().map(|entry| entry.figure)) {
                let cell = |subject: &&str| {
                    let entry = of_part.iter().find(|entry| entry.is(part, subject, figure));
                    format!("{:>CELL$}", entry.map_or_else(|| "-".to_owned(), |entry| spread(&entry.rounds)))
                };
                println!("{figure:<WIDE$}{}", subjects.iter().map(cell).collect::<Vec<_>>().concat());
            }
        }
    }

    /// With what was measured, and how.
    pub fn write(&self, file: &Path, head: &Value) -> Result<()> {
        let results: Vec<Value> = self.0.iter().map(Entry::json).collect();
        let all = serde_json::to_string_pretty(&json!({"head": head, "results": results}))?;
        std::fs::write(file, all).with_context(|| format!("write {}", file.display()))?;
        println!("\nall rounds as JSON: {}", file.display());
        Ok(())
    }
}

impl Entry {
    fn is(&self, part: &str, subject: &str, figure: &str) -> bool {
        self.part == part && self.subject == subject && self.figure == figure
    }

    fn json(&self) -> Value {
        json!({"part": self.part, "subject": self.subject, "figure": self.figure, "median": median(self.rounds.clone()),
            "rounds": self.rounds})
    }
}

/// Each once.
fn firsts<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut firsts = Vec::new();
    for one in all {
        if !firsts.contains(&one) {
            firsts.push(one);
        }
    }
    firsts
}

/// The middle one, and from the least to the most.
fn spread(rounds: &[f64]) -> String {
    let (least, most) =
        rounds.iter().fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(*one), most.max(*one)));
    if rounds.len() == 1 {
        return short(least);
    }
    format!("{} ({} to {})", short(median(rounds.to_vec())), short(least), short(most))
}

fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
