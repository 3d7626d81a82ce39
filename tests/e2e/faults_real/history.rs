//! Every fault that was played, whatever files and seed it was played with, one in a line: what the page of the game day is made from, and
//! how much was played in sum.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    row::{Part, Row},
    sum::Sum,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Played {
    part: String,
    seed: u64,
    row: Row,
}

/// Of each fault what was seen last, and the sum of all.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub sum: Sum,
    pub parts: Vec<Part>,
}

/// The last line, and so at once or not at all.
pub fn append(file: &Path, part: &Part, row: &Row) -> Result<()> {
    let played = Played { part: part.name.clone(), seed: part.seed, row: row.clone() };
    // One that was cut as it was written takes no other one with it.
    let is_cut = fs::read(file).is_ok_and(|text| text.last().is_some_and(|last| *last != b'\n'));
    let line = format!("{}{}\n", if is_cut { "\n" } else { "" }, serde_json::to_string(&played)?);
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let mut opened = opened.with_context(|| format!("open {}", file.display()))?;
    opened.write_all(line.as_bytes()).with_context(|| format!("write to {}", file.display()))
}

/// Of faults that are none any more nothing is kept.
pub fn seen(file: &Path, is_fault: impl Fn(&str, &str) -> bool) -> Result<Seen> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    // One that was cut as it was written tells nothing.
    let all = text.lines().filter_map(|line| serde_json::from_str::<Played>(line).ok());
    let all: Vec<Played> = all.filter(|played| is_fault(&played.part, &played.row.fault)).collect();
    let sum = Sum::of(all.iter().map(|played| (played.part.as_str(), played.seed, &played.row)));
    let mut last: BTreeMap<(String, String), Played> = BTreeMap::new();
    for played in all {
        last.insert((played.part.clone(), played.row.fault.clone()), played);
    }
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    for Played { part, seed, row } in last.into_values() {
        let new = Part { name: part.clone(), seed, rows: Vec::new() };
        parts.entry(part).or_insert(new).rows.push(row);
    }
    Ok(Seen { sum, parts: parts.into_values().collect() })
}

impl Seen {
    /// The sum, and then a line for each fault, as people compare files.
    pub fn text(&self) -> Result<String> {
        let mut lines = vec![serde_json::to_string(&self.sum)?];
        for part in &self.parts {
            for row in &part.rows {
                let played = Played { part: part.name.clone(), seed: part.seed, row: row.clone() };
                lines.push(serde_json::to_string(&played)?);
            }
        }
        Ok(lines.join("\n") + "\n")
    }

    pub fn read(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let sum = serde_json::from_str(lines.next().context("it has no sum")?).context("read the sum")?;
        let mut seen = Self { sum, parts: Vec::new() };
        for line in lines {
            let Played { part, seed, row } = serde_json::from_str(line).context("read what was seen")?;
            match seen.parts.iter_mut().find(|there| there.name == part) {
                Some(there) => there.rows.push(row),
                None => seen.parts.push(Part { name: part, seed, rows: vec![row] }),
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults_real::row::tests::row;

    #[test]
    fn last_row_of_each_fault_is_kept_and_all_of_them_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.jsonl");
        let part = Part { name: "a".to_owned(), seed: 7, rows: Vec::new() };
        for (fault, times) in [("500", 1), ("401", 2), ("500", 3), ("gone", 4)] {
            append(&file, &part, &Row { fault: fault.to_owned(), times, ..row(Ok(())) }).unwrap();
        }
        OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"part\":\"a\",\"se").unwrap();
        append(&file, &part, &Row { fault: "504".to_owned(), times: 5, ..row(Ok(())) }).unwrap();
        let seen = seen(&file, |_, fault| fault != "gone").unwrap();
        assert_eq!((seen.sum.faults, seen.parts.len()), (4, 1));
        let again = Seen::read(&seen.text().unwrap()).unwrap();
        assert_eq!(again.sum, seen.sum);
        let told: Vec<(&str, usize)> = again.parts[0].rows.iter().map(|row| (&*row.fault, row.times)).collect();
        assert_eq!(told, [("401", 2), ("500", 3), ("504", 5)]);
    }
}
