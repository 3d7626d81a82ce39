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

/// Those results that are there, and the names of those that are not.
pub fn write(page: &Path, results: &[PathBuf]) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let (there, missing): (Vec<&PathBuf>, Vec<&PathBuf>) = results.iter().partition(|file| file.exists());
    let sheets = there.into_iter().map(|file| Sheet::read(file)).collect::<Result<Vec<_>>>()?;
    ensure!(!sheets.is_empty(), "none of the results is there: {results:?}");
    let missing: Vec<String> = missing.into_iter().filter_map(|file| Some(stem(file)?.to_owned())).collect();
    for name in &missing {
        println!("there is nothing of {name} yet");
    }
    let all = put(&text, &told_of(&sheets, &missing)).with_context(|| format!("write into {}", page.display()))?;
    fs::write(page, all).with_context(|| format!("write {}", page.display()))
}

fn stem(file: &Path) -> Option<&str> {
    file.file_stem()?.to_str()
}

/// Between the marks.
pub fn put(page: &str, tables: &str) -> Result<String> {
    let marks = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marks.with_context(|| format!("it has not both marks: {BEGIN} {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

/// What was seen under the same conditions stands together.
pub fn told_of(sheets: &[Sheet], missing: &[String]) -> String {
    let alike: Vec<String> = sheets.chunk_by(|one, next| one.head() == next.head()).map(tables).collect();
    let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let left = (!missing.is_empty()).then(|| format!("\nNothing was seen yet of {}.\n", missing.join(", ")));
    format!("{}{}", alike.join("\n"), left.unwrap_or_default())
}

/// Of one head.
fn tables(sheets: &[Sheet]) -> String {
    let Some(first) = sheets.first() else { return String::new() };
    let runs: Vec<&String> = sheets.iter().flat_map(Sheet::runs).collect();
    let when = runs.iter().min().zip(runs.iter().max()).map_or_else(String::new, |(first, last)| {
        if first == last { format!("on {first}") } else { format!("from {first} to {last}") }
    });
    let unlike_life: Vec<String> = unlike_life(first.head()).map(|sentence| format!("- {sentence}\n")).collect();
    let tables = sheets.iter().flat_map(|sheet| sheet.parts().into_iter().map(move |part| table(sheet, part)));
    format!(
        "Seen {when}: {}. Of each the middle of all rounds, and from the least to the most; in this it is unlike life:\n\n{}{}",
        told(first.head()),
        unlike_life.concat(),
        tables.collect::<String>()
    )
}

fn table(sheet: &Sheet, part: &str) -> String {
    let subjects = sheet.subjects(part);
    let row = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let rounds = match sheet.whole_rounds(part) {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let head = row(&format!("{part}: {rounds}"), subjects.iter().map(|subject| format!("`{subject}`")).collect());
    let line = format!("|---|{}\n", "---|".repeat(subjects.len()));
    let figures = sheet.figures(part).into_iter().filter(|figure| !LEFT_OUT.contains(figure));
    let cells = |figure: &str| subjects.iter().map(|who| sheet.cell(part, who, figure)).collect();
    let rows: Vec<String> = figures.map(|figure| row(figure, cells(figure))).collect();
    format!("\n{head}{line}{}", rows.concat())
}
