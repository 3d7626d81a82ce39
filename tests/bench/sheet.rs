//! What was seen: a table with the middle, the least and the most of all rounds, and the same as JSON with every round, which later
//! runs go on with.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::measure::median;

const WIDE: usize = 40;
const CELL: usize = 26;

/// By part, figure and subject, as they came.
#[derive(Debug, Default, Deserialize)]
pub struct Sheet {
    results: Vec<Entry>,
    /// When each run that gave them began.
    #[serde(default)]
    runs: Vec<String>,
    /// What was measured, and how: the same for all of them.
    #[serde(default)]
    head: Value,
}

#[derive(Debug, Deserialize)]
struct Entry {
    part: String,
    subject: String,
    figure: String,
    rounds: Vec<f64>,
}

impl Sheet {
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("understand {}", file.display()))
    }

    /// What a run adds to. A share goes on with what earlier ones have put into the file, as long as that was seen of the same commit on such
    /// a machine; all else begins again, and what the file had stays beside it.
    pub fn begin(file: &Path, is_share: bool, head: Value, run: String) -> Result<Self> {
        if is_share && file.exists() {
            let mut sheet = Self::read(file)?;
            if sheet.head == head {
                sheet.runs.push(run);
                return Ok(sheet);
            }
            println!("{} is of another commit or machine", file.display());
        }
        set_aside(file)?;
        Ok(Self { results: Vec::new(), runs: vec![run], head })
    }

    pub fn head(&self) -> &Value {
        &self.head
    }

    pub fn runs(&self) -> &[String] {
        &self.runs
    }

    /// What one round gave.
    pub fn add(&mut self, part: &str, subject: &str, figures: &[(&'static str, f64)]) {
        for (figure, value) in figures {
            if let Some(entry) = self.results.iter_mut().find(|entry| entry.is(part, subject, figure)) {
                entry.rounds.push(*value);
            } else {
                let [part, subject, figure] = [part, subject, *figure].map(str::to_owned);
                self.results.push(Entry { part, subject, figure, rounds: vec![*value] });
            }
        }
    }

    fn of(&self, part: &str, subject: &str, figure: &str) -> Option<&[f64]> {
        self.results.iter().find(|entry| entry.is(part, subject, figure)).map(|entry| entry.rounds.as_slice())
    }

    pub fn middle(&self, part: &str, subject: &str, figure: &str) -> Option<f64> {
        self.of(part, subject, figure).map(|rounds| median(rounds.to_vec()))
    }

    pub fn most(&self, part: &str, subject: &str, figure: &str) -> Option<f64> {
        self.of(part, subject, figure).map(|rounds| rounds.iter().copied().fold(f64::MIN, f64::max))
    }

    /// How often this was seen.
    pub fn rounds(&self, part: &str, subject: &str, figure: &str) -> usize {
        self.of(part, subject, figure).map_or(0, <[f64]>::len)
    }

    /// How many whole rounds of a part were seen.
    pub fn whole_rounds(&self, part: &str) -> usize {
        let of_part = self.results.iter().filter(|entry| entry.part == part);
        of_part.map(|entry| entry.rounds.len()).min().unwrap_or_default()
    }

    pub fn parts(&self) -> Vec<&str> {
        firsts(self.results.iter().map(|entry| entry.part.as_str()))
    }

    pub fn subjects(&self, part: &str) -> Vec<&str> {
        firsts(self.results.iter().filter(|entry| entry.part == part).map(|entry| entry.subject.as_str()))
    }

    pub fn figures(&self, part: &str) -> Vec<&str> {
        firsts(self.results.iter().filter(|entry| entry.part == part).map(|entry| entry.figure.as_str()))
    }

    /// The middle, and from the least to the most; a dash where it was not seen.
    pub fn cell(&self, part: &str, subject: &str, figure: &str) -> String {
        self.of(part, subject, figure).map_or_else(|| "-".to_owned(), spread)
    }

    pub fn print(&self) {
        for part in self.parts() {
            let subjects = self.subjects(part);
            let head: Vec<String> = subjects.iter().map(|subject| format!("{subject:>CELL$}")).collect();
            println!("\n{part:<WIDE$}{}", head.concat());
            for figure in self.figures(part) {
                let cell = |subject: &&str| format!("{:>CELL$}", self.cell(part, subject, figure));
                println!("{figure:<WIDE$}{}", subjects.iter().map(cell).collect::<Vec<_>>().concat());
            }
        }
    }

    /// In the place of what the file said before, in one step: who is ended meanwhile leaves one or the other.
    pub fn write(&self, file: &Path) -> Result<()> {
        let results: Vec<Value> = self.results.iter().map(Entry::json).collect();
        let all = serde_json::to_string_pretty(&json!({"head": self.head, "runs": self.runs, "results": results}))?;
        let unfinished = file.with_extension("unfinished");
        fs::write(&unfinished, all).with_context(|| format!("write {}", unfinished.display()))?;
        fs::rename(&unfinished, file).with_context(|| format!("write {}", file.display()))
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

/// Under a name that nothing has yet.
fn set_aside(file: &Path) -> Result<()> {
    if !file.exists() {
        return Ok(());
    }
    let beside = |number: u32| file.with_extension(format!("before-{number}.json"));
    let free = (1..u32::MAX).map(beside).find(|beside| !beside.exists()).context("find a name that nothing has")?;
    fs::rename(file, &free).with_context(|| format!("rename {}", file.display()))?;
    println!("what was in {} is in {} from now on", file.display(), free.display());
    Ok(())
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
