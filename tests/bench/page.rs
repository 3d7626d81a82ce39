//! Tables of what was seen, for a page that people read: they stand between two marks in it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{
    conditions::{told, unlike_life},
    measure::TURN,
    sheet::Sheet,
};

const BEGIN: &str = "<!-- what the bench has seen: `make bench-page` writes it -->";
const END: &str = "<!-- the end of that -->";
/// What stands in the JSON alone.
const LEFT_OUT: [&str; 10] = [
    TURN,
    "… of the callers",
    "… of the long way",
    "… of the member's controllers",
    "asked again",
    "answered before the bind was told (%)",
    "delete, p50 (ms)",
    "delete, p99 (ms)",
    "left in the member",
    "memory at most (MB)",
];

/// Those results that are there.
pub fn write(page: &Path, results: &[PathBuf]) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let marks = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marks.with_context(|| format!("{} has not both marks: {BEGIN} {END}", page.display()))?;
    let there = results.iter().filter(|file| file.exists());
    let tables = there.map(|file| Sheet::read(file).map(|sheet| tables(&sheet))).collect::<Result<Vec<_>>>()?;
    ensure!(!tables.is_empty(), "none of the results is there: {results:?}");
    let all = format!("{before}{BEGIN}\n\n{}\n{END}{after}", tables.join("\n"));
    fs::write(page, all).with_context(|| format!("write {}", page.display()))
}

fn tables(sheet: &Sheet) -> String {
    let (first, last) = (sheet.runs().first(), sheet.runs().last());
    let when = first.zip(last).map_or_else(String::new, |(first, last)| {
        if first == last { format!("on {first}") } else { format!("from {first} to {last}") }
    });
    let unlike_life: Vec<String> = unlike_life(sheet.head()).map(|sentence| format!("- {sentence}\n")).collect();
    let tables: Vec<String> = sheet.parts().into_iter().map(|part| table(sheet, part)).collect();
    format!(
        "Seen {when}: {}. Of each the middle of all rounds, and from the least to the most; in this it is unlike life:\n\n{}{}",
        told(sheet.head()),
        unlike_life.concat(),
        tables.concat()
    )
}

fn table(sheet: &Sheet, part: &str) -> String {
    let subjects = sheet.subjects(part);
    let row = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let head = row(part, subjects.iter().map(|subject| format!("`{subject}`")).collect());
    let line = format!("|---|{}\n", "---|".repeat(subjects.len()));
    let figures = sheet.figures(part).into_iter().filter(|figure| !LEFT_OUT.contains(figure));
    let cells = |figure: &str| subjects.iter().map(|who| sheet.cell(part, who, figure)).collect();
    let rows: Vec<String> = figures.map(|figure| row(figure, cells(figure))).collect();
    format!("\n{head}{line}{}", rows.concat())
}
