//! Somebody else's opinion of a copy: what the tools of any machine print of both sides.

use std::{path::Path, process::Command};

use super::{ground::run, rsync};

pub fn all_of(tree: &Path) -> Vec<u8> {
    run(Command::new("bash").args(["-c", include_str!("witness.sh"), "witness"]).arg(tree))
}

/// What differs, or nothing.
pub fn finds(source: &Path, copy: &Path) -> Option<String> {
    let left = rsync::left_to_do(source, copy);
    let (here, there) = (all_of(source), all_of(copy));
    if left.is_empty() && here == there {
        return None;
    }
    let lines = |text: &[u8]| String::from_utf8_lossy(text).lines().map(str::to_owned).collect::<Vec<_>>();
    let (here, there) = (lines(&here), lines(&there));
    let first = here.iter().zip(&there).position(|(one, other)| one != other);
    let around = first.map(|first| [&here, &there].map(|lines| lines[first.saturating_sub(9)..=first].join("\n")));
    Some(format!(
        "rsync would still do {left:?}; of {} and {} lines these differ: {around:#?}",
        here.len(),
        there.len()
    ))
}
