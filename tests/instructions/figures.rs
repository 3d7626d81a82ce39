//! The figures that are held, and where they stand.

use std::{env, fs};

const FILE: &str = "tests/instructions/figures.txt";
/// Has them written again.
const WRITE: &str = "KOSMOS_CSI_WRITE_FIGURES";
/// In a hundred: so far a figure may move before somebody has to say why.
const UNSEEN: f64 = 5.0;

/// How many instructions each call takes.
#[derive(Debug)]
pub struct Figures([(&'static str, u64); 2]);

impl Figures {
    /// Of calls that were counted in turns.
    pub fn of(counted: &[u64]) -> Self {
        let every_other = |first: usize| counted.iter().copied().skip(first).step_by(2).collect();
        Self([("CreateVolume", middle(every_other(0))), ("DeleteVolume", middle(every_other(1)))])
    }

    pub fn of_a_creation(&self) -> u64 {
        self.0[0].1
    }

    /// A line for each. Fails where one has moved.
    pub fn held(&self) -> String {
        let path = format!("{}/{FILE}", env!("CARGO_MANIFEST_DIR"));
        let rows: Vec<String> = self.0.iter().map(|(call, now)| format!("{call} {now}\n")).collect();
        if env::var_os(WRITE).is_some() {
            fs::write(path, rows.concat()).unwrap();
            return format!("{FILE} says from now on:\n{}", rows.concat());
        }
        // What is built with optimization takes other ones, and nobody holds those.
        if !cfg!(debug_assertions) {
            return format!("no figures of such a build stand in {FILE}:\n{}", rows.concat());
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        let before = |call: &str| text.lines().find_map(|line| line.strip_prefix(call)?.trim().parse::<u64>().ok());
        let verdicts = self.0.iter().map(|(call, now)| verdict(call, before(call), *now));
        let (lines, has_moved): (Vec<String>, Vec<bool>) = verdicts.unzip();
        assert!(!has_moved.contains(&true), "{}", lines.join("\n"));
        lines.join("\n")
    }
}

fn middle(mut counted: Vec<u64>) -> u64 {
    counted.sort_unstable();
    counted[counted.len() / 2]
}

/// How far a figure has moved, and whether that is too far.
#[expect(clippy::cast_precision_loss, reason = "millions")]
fn verdict(call: &str, before: Option<u64>, now: u64) -> (String, bool) {
    let way_out = "`make instructions` writes it again";
    let Some(before) = before else {
        return (format!("{call} takes {now} instructions, and {FILE} has no figure of it: {way_out}"), true);
    };
    let by = (now as f64 / before as f64 - 1.0) * 100.0;
    let than = if by < 0.0 { "less" } else { "more" };
    let line = format!("{call} takes {now} instructions, {:.1} % {than} than the {before} of {FILE}", by.abs());
    if by.abs() <= UNSEEN {
        return (line, false);
    }
    (format!("{line}. Where that is meant, {way_out}, and the commit that does so says why"), true)
}

#[test]
fn figure_that_moves_by_more_than_a_twentieth_is_told_with_what_to_do() {
    for (before, now, words, has_moved) in [
        (Some(1000), 1049, "4.9 % more", false),
        (Some(1000), 951, "4.9 % less", false),
        (Some(1000), 1000, "0.0 % more", false),
        (Some(1000), 1051, "5.1 % more", true),
        (Some(1000), 900, "10.0 % less", true),
        (None, 1, "has no figure of it", true),
    ] {
        let (line, moved) = verdict("CreateVolume", before, now);
        assert!(line.contains(words) && moved == has_moved, "{line}");
        assert_eq!(line.contains("make instructions"), moved, "{line}");
    }
}
