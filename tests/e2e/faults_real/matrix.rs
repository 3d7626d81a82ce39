//! All that was seen, as one table: a row for each fault, and a column for each promise.

use std::fmt::Write as _;

use super::row::{PROMISES, Part, Row, after};

/// In Markdown.
pub fn matrix(parts: &[Part]) -> String {
    let rows: Vec<(&str, &Row)> =
        parts.iter().flat_map(|part| part.rows.iter().map(|row| (part.name.as_str(), row))).collect();
    let mut told = format!("# Faults on real clusters\n\n{}\n\n", sum(parts, &rows));
    let first = ["part", "fault", "what users see", "times", "recovered after", "clean after"];
    let columns = [&first[..], &PROMISES].concat();
    let _ = writeln!(told, "| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    for (part, row) in &rows {
        let _ = writeln!(told, "| {part} | {} |", cells(row).join(" | "));
    }
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

fn sum(parts: &[Part], rows: &[(&str, &Row)]) -> String {
    let recovered: Vec<f64> = rows.iter().filter_map(|(_, row)| row.recovered_after).collect();
    let longest = recovered.iter().copied().fold(0.0, f64::max);
    let broken: usize = rows.iter().map(|(_, row)| row.broken().count()).sum();
    let mut seeds: Vec<String> = parts.iter().map(|part| part.seed.to_string()).collect();
    seeds.sort();
    seeds.dedup();
    format!(
        "Faults: {}, of which users recovered from {}, in {longest:.1} s at most. Promises that were broken: {broken}. Seed: {}. A \
         promise is not asked for where there is a dash.",
        rows.len(),
        recovered.len(),
        seeds.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::faults_real::row::tests::row;

    fn part(name: &str, rows: Vec<Row>) -> Part {
        Part { name: name.to_owned(), seed: 7, rows }
    }

    #[test]
    fn every_fault_is_a_row_and_every_promise_a_column() {
        let told = matrix(&[part("a", vec![row(Ok(()))]), part("b", vec![row(Ok(()))])]);
        let table: Vec<&str> = told.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(table.len(), 4, "{told}");
        let columns = |line: &str| line.matches('|').count();
        assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{told}");
        assert!(PROMISES.iter().all(|promise| table[0].contains(&format!("| {promise} |"))), "{told}");
        let cells = "| a | 500 | Claims wait. | 3 | 1.5 s | never | yes | yes | yes | – |";
        assert!(table[2].starts_with(cells), "{told}");
        assert!(told.contains("Faults: 2, of which users recovered from 2, in 1.5 s at most"), "{told}");
        assert!(told.contains("broken: 0. Seed: 7.") && !told.contains("## What was broken"), "{told}");
    }

    #[test]
    fn what_was_broken_is_told_below_with_what_was_seen() {
        let told = matrix(&[part("a", vec![row(Err(anyhow!("two\nleaves")))])]);
        assert!(told.contains("| yes | **NO** | yes |"), "{told}");
        assert!(told.contains("broken: 1."), "{told}");
        assert!(told.ends_with("- 500: not so: nothing is lost: two leaves\n"), "{told}");
    }
}
