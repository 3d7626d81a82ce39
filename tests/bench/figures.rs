//! The bench's arithmetic: what it makes of what it has seen, and how runs in shares come together.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "a part of another program"
)]

mod conditions;
mod flame;
mod goals;
mod measure;
mod page;
mod question;
mod report;
mod sheet;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use flame::Flame;
use measure::{Load, OF_ACCEPTED, OF_BARE, PROCESSOR, RATE, Run, TURN, median, percentile};
use question::{Question, idle};
use report::{Row, missed};
use serde_json::{Value, json};
use sheet::Sheet;

const PART: &str = "1 callers, 300 volumes";
const OWN: &str = "kosmos-csi";

fn head(commit: &str) -> Value {
    json!({"commit": commit, "unlike life": ["Nobody is at home."]})
}

/// A run of this commit, at this time.
fn begun(file: &Path, is_share: bool, commit: &str, at: &str) -> Sheet {
    Sheet::begin(file, is_share, head(commit), at.to_owned()).unwrap()
}

fn results() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bench.json");
    (folder, file)
}

#[test]
fn a_median_is_one_that_was_seen() {
    assert_eq!(median(vec![3.0, 1.0, 2.0]).to_string(), "2");
    assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]).to_string(), "2");
    assert!(median(Vec::new()).is_nan());
}

#[test]
fn a_percentile_is_the_time_of_one_call() {
    let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
    assert_eq!(percentile(times.clone(), 50), Duration::from_millis(51));
    assert_eq!(percentile(times.clone(), 99), Duration::from_millis(100));
    assert_eq!(percentile(times, 100), Duration::from_millis(100));
    assert_eq!(percentile(Vec::new(), 50), Duration::ZERO);
}

#[test]
fn a_rate_is_of_calls_in_a_second() {
    let run = Run { took: Duration::from_millis(500), calls: vec![(); 20] };
    assert_eq!(run.rate().to_string(), "40");
}

#[test]
fn goals_are_missed_on_the_wrong_side_alone_and_by_what_is_no_number() {
    let most = |seen| Row::at_most("least is best".to_owned(), Some(5.0), seen);
    let least = |seen| Row::at_least("most is best".to_owned(), Some(5.0), seen);
    let rows = |seen| [most(seen), least(seen)];
    assert_eq!([4.0, 5.0, 6.0, f64::NAN].map(|seen| missed(&rows(seen))), [1, 0, 1, 2]);
    assert_eq!(missed(&[Row::at_most("told alone".to_owned(), None, f64::NAN)]), 0);
}

#[test]
fn goals_are_held_by_the_middle_of_what_was_seen_and_only_of_that() {
    let (_folder, file) = results();
    let mut sheet = begun(&file, true, "a", "1");
    let load = Load { callers: 100, volumes: 300, delay: 0 };
    let loads = || std::iter::once(load);
    assert!(goals::goals(&sheet, loads()).is_empty(), "nothing was seen");
    for (processor, of_bare) in [(0.4, 96.0), (0.6, 80.0), (0.5, 97.0)] {
        sheet.add(&load.part(), OWN, &[(PROCESSOR, processor), (OF_BARE, of_bare)]);
    }
    sheet.add(&load.part(), "kosmos-csi-accepted", &[(OF_ACCEPTED, 84.9)]);
    let rows = goals::goals(&sheet, loads());
    assert_eq!((rows.len(), missed(&rows)), (3, 1), "that which waits for nothing is too slow alone");
}

#[test]
fn one_caller_waits_for_two_requests_where_the_bare_driver_has_one_and_not_for_three() {
    let (_folder, file) = results();
    let load = Load { callers: 1, volumes: 300, delay: 0 };
    for (of_accepted, too_many) in [(34.0, 1), (46.0, 0)] {
        let mut sheet = begun(&file, true, "a", "1");
        sheet.add(&load.part(), "kosmos-csi-accepted", &[(OF_ACCEPTED, of_accepted)]);
        assert_eq!(missed(&goals::goals(&sheet, std::iter::once(load))), too_many);
    }
}

#[test]
fn shares_of_one_commit_come_together_and_those_of_another_stay_apart() {
    let (_folder, file) = results();
    for (at, rate) in [("1", 30.0), ("2", 10.0), ("3", 20.0)] {
        let mut share = begun(&file, true, "a", at);
        share.add(PART, OWN, &[(RATE, rate), (TURN, 9.0)]);
        share.write().unwrap();
    }
    let mut seen = Sheet::read(&file).unwrap();
    assert_eq!((seen.whole_rounds(PART), seen.rounds(PART, OWN, RATE)), (3, 3));
    assert_eq!(seen.cell(PART, OWN, RATE), "20.0 (10.0 to 30.0)");
    assert_eq!((seen.most(PART, OWN, RATE), seen.runs().len()), (Some(30.0), 3));
    seen.add(PART, OWN, &[(RATE, 40.0)]);
    assert_eq!(seen.whole_rounds(PART), 3, "a round of which a figure is missing is none");

    assert!(begun(&file, true, "b", "4").parts().is_empty());
    assert_eq!(Sheet::read(&file.with_extension("before-1.json")).unwrap().whole_rounds(PART), 3);
}

#[test]
fn a_run_that_is_no_share_begins_again_and_takes_nothing_away() {
    let (_folder, file) = results();
    for at in ["1", "2", "3"] {
        let mut run = begun(&file, false, "a", at);
        assert!(run.parts().is_empty());
        run.add(PART, at, &[(RATE, 1.0)]);
        run.write().unwrap();
    }
    for (kept, subject) in [("before-1.json", "1"), ("before-2.json", "2"), ("json", "3")] {
        assert_eq!(Sheet::read(&file.with_extension(kept)).unwrap().subjects(PART), [subject]);
    }
}

/// Those that always take part.
const ALWAYS: [&str; 3] = ["bare", "marked", OWN];

#[test]
fn subject_is_called_as_its_file_is_and_the_help_tells_of_it() {
    let help = include_str!("subjects/help.txt");
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/subjects")).unwrap() {
        let file = entry.unwrap().path();
        let Some(name) = file.to_str().unwrap().rsplit('/').next().unwrap().strip_suffix(".json") else { continue };
        let terms: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(terms["name"], name);
        assert!(ALWAYS.contains(&name) || help.contains(&format!("  {name}.json")), "--help does not tell of {name}");
    }
}

#[test]
fn flame_is_as_wide_as_its_share_of_the_samples_and_shows_who_called_whom() {
    let told =
        "\t 7f1 malloc\n\t 5a2 serve<a, b>\n\t 5a1 main\n\n 7f2 send\n 5a2 serve<a, b>\n 5a1 main\n\n 5a1 main\n";
    let picture = Flame::of(told).picture();
    let row = |name: &str| picture.lines().find(|line| line.contains(&format!("<title>{name}: "))).unwrap_or_default();
    assert!(row("main").contains("100.0 %") && row("main").contains("y=\"0\" width=\"1600.0\""), "{picture}");
    assert!(row("serve&lt;a, b&gt;").contains("66.7 %") && row("serve&lt;a, b&gt;").contains("y=\"17\""), "{picture}");
    assert!(row("malloc").contains("x=\"0.0\" y=\"34\" width=\"533.3\""), "{picture}");
    assert!(row("send").contains("x=\"533.3\" y=\"34\""), "{picture}");
    assert!(!Flame::of("").picture().contains("<rect"), "nothing was sampled");
}

#[test]
fn what_nothing_can_be_added_to_stays_beside_it() {
    let (_folder, file) = results();
    fs::write(&file, r#"{"results": {"of": "another form"}}"#).unwrap();
    let mut sheet = begun(&file, true, "a", "1");
    sheet.add(PART, OWN, &[(RATE, 1.0)]);
    sheet.write().unwrap();
    assert_eq!(begun(&file, true, "a", "2").whole_rounds(PART), 1);
    let before = fs::read_to_string(file.with_extension("before-1.json")).unwrap();
    assert!(before.contains("another form"), "{before}");
}

#[test]
fn columns_are_as_wide_as_what_stands_in_them() {
    let (_folder, file) = results();
    let mut sheet = begun(&file, true, "a", "1");
    sheet.add("started", "all alive", &[("most requests without an answer, of one member that is alive", 0.0)]);
    sheet.add("started", "one in ten dead, and others alive", &[("… of the callers", 12.0)]);
    let table = sheet.table("started");
    let wide: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert!(wide.len() == 3 && wide.iter().all(|one| *one == wide[0]), "{table}");
    assert!(table.lines().all(|line| line.contains("  ")), "{table}");
    for subject in ["third", "fourth", "fifth"] {
        sheet.add("started", subject, &[("… of the callers", 1.0)]);
    }
    let below = sheet.table("started");
    let heads: Vec<&str> = below.lines().filter(|line| line.starts_with("started ")).collect();
    assert!(heads.len() == 2 && heads[0].contains("fourth") && heads[1].ends_with("  fifth"), "{below}");
}

#[test]
fn what_is_less_than_a_tenth_is_told_with_more_digits() {
    let (_folder, file) = results();
    let mut sheet = begun(&file, true, "a", "1");
    for (figure, value, told) in
        [("requests", 0.0103, "0.0103"), ("none", 0.0, "0.00"), ("tenth", 0.1, "0.10"), ("more", 12.34, "12.3")]
    {
        sheet.add(PART, OWN, &[(figure, value)]);
        assert_eq!(sheet.cell(PART, OWN, figure), told);
    }
}

#[test]
fn few_and_a_thousand_members_are_asked_within_the_time_that_the_page_says() {
    let each = |members: usize| [Question::Idle, Question::Start].map(|ask| ask.expected(members, ask.rounds(3)));
    let whole: Duration = [1, 100, 1000].into_iter().flat_map(each).sum();
    assert!(whole <= Duration::from_mins(70), "{whole:?}");
    assert_eq!([1, 999, 1000].map(|members| idle(members).as_secs() / 60), [5, 5, 15]);
    assert!(Question::Start.expected(1000, 3) > Question::Start.expected(1000, 1), "rounds take time");
    assert_eq!([Question::Idle, Question::Files, Question::Takeover].map(|ask| ask.rounds(5)), [1, 5, 5]);
}

const EMPTY: &str =
    "before\n<!-- what the bench has seen: `make bench-page` writes it -->\n\nold\n\n<!-- the end of that -->\nafter\n";

/// In so many rounds.
fn seen(subject: &str, rates: &[f64]) -> Sheet {
    let (_folder, file) = results();
    let mut sheet = begun(&file, true, "a", "2026-12-01 10:00 UTC");
    for rate in rates {
        sheet.add(PART, subject, &[(RATE, *rate), (TURN, 30.0)]);
    }
    sheet
}

#[test]
fn what_is_told_by_thirds_makes_no_more_rounds_of_it() {
    let (_folder, file) = results();
    let mut sheet = begun(&file, true, "a", "1");
    sheet.add("idle", "leader", &[("idle: of a processor (%)", 2.0)]);
    for third in [1.0, 2.0, 4.0] {
        sheet.add("idle", "leader", &[(question::OF_A_THIRD, third)]);
    }
    assert_eq!(sheet.whole_rounds("idle"), 1);
    assert_eq!(sheet.cell("idle", "leader", question::OF_A_THIRD), "2.00 (1.00 to 4.00)");
}

#[test]
fn a_page_has_what_was_seen_and_the_names_of_what_was_not() {
    let all =
        [("bench", Some(seen(OWN, &[120.0]))), ("bench-subjects", Some(seen("other", &[9.0, 8.0]))), ("chain", None)];
    let page = page::put(EMPTY, &all).unwrap();
    assert!(page.starts_with("before\n<!--") && page.ends_with("<!-- the end of that -->\nafter\n"), "{page}");
    assert_eq!(page.matches("Seen on 2026-12-01 10:00 UTC: commit a").count(), 2, "{page}");
    assert_eq!(page.matches("- Nobody is at home.").count(), 1, "the same is told once: {page}");
    assert!(page.contains("It is unlike life in the same as that of `bench`."), "{page}");
    let tables = [
        "| 1 callers, 300 volumes: 1 round | `kosmos-csi` |\n|---|---|\n| volumes a second | 120 |\n",
        "| 1 callers, 300 volumes: 2 rounds | `other` |\n|---|---|\n| volumes a second | 8.00 (8.00 to 9.00) |\n",
    ];
    assert!(tables.iter().all(|table| page.contains(table)), "{page}");
    assert!(page.contains("Nothing was seen yet of `chain`."), "{page}");
    assert!(!page.contains("\nold\n") && !page.contains(TURN), "{page}");
    assert!(page::put("a page without marks", &all).is_err());
}

#[test]
fn a_page_keeps_what_was_seen_where_its_results_are_gone() {
    let before =
        page::put(EMPTY, &[("bench", Some(seen(OWN, &[120.0]))), ("chain", Some(seen(OWN, &[50.0])))]).unwrap();
    let both_gone = page::put(&before, &[("bench", None), ("chain", None)]).unwrap();
    assert_eq!(both_gone, before);
    let after = page::put(&before, &[("bench", None), ("chain", Some(seen(OWN, &[60.0]))), ("late", None)]).unwrap();
    let has = |rate: &str| after.contains(&format!("| volumes a second | {rate} |"));
    assert_eq!(["120", "50.0", "60.0"].map(has), [true, false, true], "{after}");
    assert_eq!(page::put(&after, &[("bench", None), ("chain", None), ("late", None)]).unwrap(), after);
}
