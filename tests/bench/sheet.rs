//! What was seen: a table with the middle, the least and the most of all rounds, and the same as JSON with every round, which later
//! runs go on with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::measure::median;

/// Between two columns.
const GAP: usize = 2;
/// Columns beside each other: more are no longer read in one line.
const ABREAST: usize = 4;

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
    /// Where all of it is kept.
    #[serde(skip)]
    file: PathBuf,
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
        let read: Self = serde_json::from_str(&text).with_context(|| format!("understand {}", file.display()))?;
        Ok(Self { file: file.to_owned(), ..read })
    }

    /// What a run adds to. A share goes on with what earlier ones have put into the file, as long as that was seen of the same commit on such
    /// a machine; all else begins again, and what the file had stays beside it.
    pub fn begin(file: &Path, is_share: bool, head: Value, run: String) -> Result<Self> {
        if is_share && file.exists() {
            match Self::read(file) {
                Ok(mut sheet) if sheet.head == head => {
                    sheet.runs.push(run);
                    return Ok(sheet);
                }
                Ok(_) => println!("{} is of another commit or machine", file.display()),
                // As an earlier form of the bench has written it.
                Err(error) => println!("nothing can be added to what is there: {error:#}"),
            }
        }
        set_aside(file)?;
        Ok(Self { results: Vec::new(), runs: vec![run], head, file: file.to_owned() })
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
            println!("\n{}", self.table(part));
        }
    }

    pub fn table(&self, part: &str) -> String {
        let few = |subjects: &[&str]| self.columns(part, subjects);
        self.subjects(part).chunks(ABREAST).map(few).collect::<Vec<String>>().join("\n\n")
    }

    /// Each as wide as what stands in it.
    fn columns(&self, part: &str, subjects: &[&str]) -> String {
        let head = std::iter::once(part).chain(subjects.iter().copied()).map(str::to_owned);
        let mut lines: Vec<Vec<String>> = vec![head.collect()];
        lines.extend(self.figures(part).into_iter().map(|figure| {
            let cells = subjects.iter().map(|subject| self.cell(part, subject, figure));
            std::iter::once(figure.to_owned()).chain(cells).collect::<Vec<String>>()
        }));
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
        let (first, wide) = (width(0), (1..=subjects.len()).map(|at| GAP + width(at)).collect::<Vec<usize>>());
        let line = |line: &Vec<String>| {
            let cells = line[1..].iter().zip(wide.iter().copied()).map(|(cell, wide)| format!("{cell:>wide$}"));
            format!("{:<first$}{}", line[0], cells.collect::<Vec<_>>().concat())
        };
        lines.iter().map(line).collect::<Vec<String>>().join("\n")
    }

    /// In the place of what its file said before, in one step: who is ended meanwhile leaves one or the other.
    pub fn write(&self) -> Result<()> {
        let file = &self.file;
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
        f64::MIN_POSITIVE..0.1 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}
