//! What was seen of each fault: a line of a table as soon as it is over, and all of them as JSON.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::clusters::logs;

#[derive(Debug, Serialize)]
pub struct Row {
    pub fault: &'static str,
    /// How often it has taken place.
    pub times: usize,
    /// Seconds from its end until all that was asked for was there, and until nothing was left once that had been removed.
    pub recovered_after: Option<f64>,
    pub clean_after: Option<f64>,
    pub verdicts: [Verdict; 6],
}

#[derive(Debug, Serialize)]
pub struct Verdict {
    pub promise: &'static str,
    /// What was seen instead.
    pub broken: Option<String>,
}

impl Verdict {
    pub fn new(promise: &'static str, seen: Result<()>) -> Self {
        Self { promise, broken: seen.err().map(|error| format!("{error:#}")) }
    }
}

pub struct Report {
    name: String,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), rows: Vec::new() }
    }

    pub fn add(&mut self, row: Row) -> Result<()> {
        if self.rows.is_empty() {
            eprintln!("{}: {}", self.name, head(&row));
        }
        eprintln!("{}: {}", self.name, line(&row));
        self.rows.push(row);
        let file = self.file()?;
        fs::write(&file, serde_json::to_string_pretty(&self.rows)?).with_context(|| format!("write {}", file.display()))
    }

    fn file(&self) -> Result<PathBuf> {
        let folder = logs::folder()?;
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(folder.join(format!("{}.json", self.name)))
    }

    /// Fails with all that was broken.
    pub fn verdict(&self) -> Result<()> {
        let all = self.rows.iter().flat_map(|row| row.verdicts.iter().map(move |verdict| (row.fault, verdict)));
        let broken = all.filter_map(|(fault, verdict)| {
            let seen = verdict.broken.as_ref()?;
            Some(format!("{fault}: not so: {}: {seen}", verdict.promise))
        });
        let broken: Vec<String> = broken.collect();
        ensure!(broken.is_empty(), "{}", broken.join("\n"));
        Ok(())
    }
}

fn head(row: &Row) -> String {
    let promises: Vec<&str> = row.verdicts.iter().map(|verdict| verdict.promise).collect();
    format!("{:<46} {:>5} {:>9} {:>9}  {}", "fault", "times", "recovered", "clean", promises.join(" | "))
}

fn line(row: &Row) -> String {
    let after = |seconds: Option<f64>| seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1} s"));
    let word = |verdict: &Verdict| {
        let held = if verdict.broken.is_none() { "yes" } else { "NO" };
        format!("{held:<width$}", width = verdict.promise.len())
    };
    let verdicts: Vec<String> = row.verdicts.iter().map(word).collect();
    let (recovered, clean) = (after(row.recovered_after), after(row.clean_after));
    format!("{:<46} {:>5} {recovered:>9} {clean:>9}  {}", row.fault, row.times, verdicts.join(" | "))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn row(seen: Result<()>) -> Row {
        let verdicts = ["a", "b", "c", "d", "e", "f"].map(|promise| Verdict::new(promise, Ok(())));
        let mut row = Row { fault: "500", times: 3, recovered_after: Some(1.5), clean_after: None, verdicts };
        row.verdicts[1] = Verdict::new("b", seen);
        row
    }

    #[test]
    fn report_fails_with_what_was_broken_and_by_which_fault() {
        let mut report = Report::new("test");
        report.rows.push(row(Ok(())));
        assert!(report.verdict().is_ok());
        report.rows.push(row(Err(anyhow!("two leaves"))));
        assert_eq!(report.verdict().unwrap_err().to_string(), "500: not so: b: two leaves");
    }

    #[test]
    fn line_says_how_long_it_took_and_which_promise_was_broken() {
        let told = line(&row(Err(anyhow!("two leaves"))));
        assert!(told.starts_with("500 ") && told.contains("1.5 s") && told.contains("never"), "{told}");
        assert!(told.ends_with("yes | NO | yes | yes | yes | yes"), "{told}");
        assert!(head(&row(Ok(()))).ends_with("a | b | c | d | e | f"));
    }
}
