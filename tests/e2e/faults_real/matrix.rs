//! All that was seen, as one table: a row for each fault, and a column for each promise.

use std::fmt::Write as _;

use super::{
    row::{PROMISES, Part, Row, after},
    sum::{Sum, peaks},
};

/// In Markdown.
pub fn matrix(parts: &[Part]) -> String {
    let rows: Vec<(&Part, &Row)> = parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row))).collect();
    let sum = Sum::of(rows.iter().map(|(part, row)| (part.name.as_str(), part.seed, *row)));
    let mut told = format!("# Faults on real clusters\n\n{}", sum.told());
    let _ = writeln!(told, " A promise is not asked for where there is a dash.\n");
    let first = ["part", "fault", "what users see", "times", "recovered after", "clean after"];
    let columns = [&first[..], &PROMISES].concat();
    let _ = writeln!(told, "| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    for (part, row) in &rows {
        let _ = writeln!(told, "| {} | {} |", part.name, cells(row).join(" | "));
    }
    told += &memory(parts);
    let broken: Vec<String> = rows.iter().flat_map(|(_, row)| row.broken()).collect();
    if !broken.is_empty() {
        let _ = writeln!(told, "\n## What was broken\n");
    }
    for broken in broken {
        let _ = writeln!(told, "- {}", broken.replace('\n', " "));
    }
    told
}

fn cells(row: &Row) -> Vec<String> {
    let word = |promise: &&str| match row.holds(promise) {
        Some(true) => "yes",
        Some(false) => "**NO**",
        None => "–",
    };
    let verdicts = PROMISES.iter().map(|promise| word(promise).to_owned());
    let (recovered, clean) = (after(row.recovered_after), after(row.clean_after));
    let first = [row.fault.clone(), row.seen.clone(), row.times.to_string(), recovered, clean];
    first.into_iter().chain(verdicts).collect()
}

fn memory(parts: &[Part]) -> String {
    let mut told =
        "\n## Memory of each process, in MiB\n\nThe most that it had while one fault was played.\n\n".to_owned();
    told += "| part | process | faults | in the first one | in any | in the last one |\n|---|---|---|---|---|---|\n";
    for peaks in peaks(parts) {
        let (part, process) = (peaks.part, peaks.process);
        let [first, highest, last] = [peaks.first, peaks.highest, peaks.last];
        let _ = writeln!(told, "| {part} | {process} | {} | {first} | {highest} | {last} |", peaks.faults);
    }
    told
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::anyhow;

    use super::*;
    use crate::faults_real::row::{Memory, tests::row};

    fn part(name: &str, rows: Vec<Row>) -> Part {
        Part { name: name.to_owned(), seed: 7, rows }
    }

    #[test]
    fn every_fault_is_a_row_and_every_promise_a_column() {
        let told = matrix(&[part("a", vec![row(Ok(()))]), part("b", vec![row(Ok(()))])]);
        let table: Vec<&str> = told.lines().filter(|line| line.starts_with('|')).take(4).collect();
        let columns = |line: &str| line.matches('|').count();
        assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{told}");
        assert!(PROMISES.iter().all(|promise| table[0].contains(&format!("| {promise} |"))), "{told}");
        let cells = "500 | Claims wait. | 3 | 1.5 s | never | yes | yes | yes | – |";
        assert!(table[2].starts_with(&format!("| a | {cells}")) && table[3].starts_with("| b |"), "{told}");
        assert!(told.contains("Faults: 2, ") && told.contains("broken: 0. "), "{told}");
        assert!(!told.contains("## What was broken"), "{told}");
    }

    #[test]
    fn what_was_broken_is_told_below_with_what_was_seen() {
        let told = matrix(&[part("a", vec![row(Err(anyhow!("two\nleaves")))])]);
        assert!(told.contains("| yes | **NO** | yes |"), "{told}");
        assert!(told.contains("broken: 1."), "{told}");
        assert!(told.ends_with("- 500: not so: nothing is lost: two leaves\n"), "{told}");
    }

    #[test]
    fn memory_of_each_process_is_a_row() {
        let memory =
            BTreeMap::from([("controller".to_owned(), Memory { process: 1, began: Some(50), peak: 70, ended: 60 })]);
        let told = matrix(&[part("a", vec![Row { memory, ..row(Ok(())) }])]);
        assert!(told.contains("| a | controller | 1 | 70 | 70 | 70 |\n"), "{told}");
    }
}
