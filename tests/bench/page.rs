//! Tables of what was seen, for a page that people read: they stand between two marks in it.

use std::{
    ffi::OsStr,
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
/// Begins the mark of a section, and what is said of those that have none.
const OF: &str = "<!-- of ";
const LEFT: &str = "Nothing was seen yet of ";
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

/// Of results that are not there the page keeps what it has.
pub fn write(page: &Path, results: &[PathBuf]) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let mut seen = Vec::new();
    for file in results {
        let name = file.file_stem().and_then(OsStr::to_str).with_context(|| format!("name {}", file.display()))?;
        let sheet = file.exists().then(|| Sheet::read(file)).transpose()?;
        if sheet.is_none() {
            println!("{} is not there: the page keeps what it has of that", file.display());
        }
        seen.push((name, sheet));
    }
    ensure!(seen.iter().any(|(_, sheet)| sheet.is_some()), "none of the results is there: {results:?}");
    let all = put(&text, &seen).with_context(|| format!("write into {}", page.display()))?;
    fs::write(page, all).with_context(|| format!("write {}", page.display()))
}

/// The page with what was seen, by name, between its marks.
pub fn put(page: &str, seen: &[(&str, Option<Sheet>)]) -> Result<String> {
    let marks = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (old, after)) = marks.with_context(|| format!("it has not both marks: {BEGIN} {END}"))?;
    let (mut sections, mut missing) = (Vec::new(), Vec::new());
    for (at, (name, sheet)) in seen.iter().enumerate() {
        let now = sheet.as_ref().map(|sheet| tables(sheet, like(&seen[..at], sheet)));
        match now.or_else(|| kept(old, name)) {
            Some(section) => sections.push(format!("{}\n\n{}\n\n", mark(name), section.trim())),
            None => missing.push(format!("`{name}`")),
        }
    }
    let left = (!missing.is_empty()).then(|| format!("{LEFT}{}.\n\n", missing.join(", ")));
    Ok(format!("{before}{BEGIN}\n\n{}{}{END}{after}", sections.concat(), left.unwrap_or_default()))
}

/// Where a section begins.
fn mark(name: &str) -> String {
    format!("{OF}{name} -->")
}

/// What a page had of this name.
fn kept(old: &str, name: &str) -> Option<String> {
    let (_, rest) = old.split_once(&mark(name))?;
    let end = [OF, LEFT].iter().filter_map(|next| rest.find(next)).min().unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

/// Who was seen before that is unlike life in the same.
fn like<'a>(before: &[(&'a str, Option<Sheet>)], sheet: &Sheet) -> Option<&'a str> {
    let is_alike = |other: &Sheet| unlike_life(other.head()).eq(unlike_life(sheet.head()));
    before.iter().find(|(_, other)| other.as_ref().is_some_and(is_alike)).map(|(name, _)| *name)
}

fn tables(sheet: &Sheet, like: Option<&str>) -> String {
    let (first, last) = (sheet.runs().first(), sheet.runs().last());
    let when = first.zip(last).map_or_else(String::new, |(first, last)| {
        if first == last { format!("on {first}") } else { format!("from {first} to {last}") }
    });
    let sentences: Vec<String> = unlike_life(sheet.head()).map(|sentence| format!("- {sentence}\n")).collect();
    let unlike_life = like.map_or_else(
        || format!("In this it is unlike life:\n\n{}", sentences.concat()),
        |name| format!("It is unlike life in the same as that of `{name}`.\n"),
    );
    let tables: Vec<String> = sheet.parts().into_iter().map(|part| table(sheet, part)).collect();
    format!(
        "Seen {when}: {}. Of each the middle of all rounds, and from the least to the most. {unlike_life}{}",
        told(sheet.head()),
        tables.concat()
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
