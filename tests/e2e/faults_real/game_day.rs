//! The page of the game day, `docs/game-day.md`: for each fault what breaks, what is seen of it, what to do, and how long it took. It is
//! made from the faults and from what was seen of them last, `seen.jsonl`; `make game-day` writes both again.

use std::fmt::Write as _;

use super::{
    fault::{Fault, Words},
    history::Seen,
    parts::PartOf,
    row::{Part, Row, after},
    sum::{Peaks, peaks},
};

const BEGINNING: &str = "# Game day

What breaks, what users see of it, what there is to do, and how long it takes from its end until all that was asked for meanwhile has
come about, and until nothing is left once that was removed. All of it is played on real clusters (`make faults-real`), while users
make claims, pods and snapshots, let claims grow, move them, and remove them; [tests](design/testing.md) says what has to hold. This page is made
from what was seen there (`make game-day`).

Of the objects, `now` is a claim that is bound at once, `later` one that waits for its pod, `user`; `photo` a snapshot of a claim with data,
and `restored` a claim made of it; `grows` a claim that grows, `old` and `called-off` claims that are removed; `other` a claim of another
member, `local` one of storage that can be full, `near` one on a real node of the host, with its pod; `travels` a claim that moves to the
other member; `album` a group of snapshots, of `kept` and `ledger`, and `of-kept` and `of-ledger` claims made of these; `db-0` and `db-1` pods of
a StatefulSet that rolls.
";
const NOT_YET: &str = "Nothing of it was played since this page was begun.";
const HEAD: &str =
    "| What breaks | What is said on the objects | Well again after | Nothing left after |\n|---|---|---|---|";
const NOT_PLAYED: &str = "| not played yet |";
/// What would be more than text in a table.
const SIGNS: [(&str, &str); 6] =
    [("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("[", "&#91;"), ("]", "&#93;"), ("`", "&#96;")];

/// In Markdown.
pub fn page(parts: &[PartOf], seen: &Seen) -> String {
    let sum = if seen.sum.faults == 0 { NOT_YET.to_owned() } else { seen.sum.told() };
    let mut told = format!("{BEGINNING}\n{sum}\n");
    for part in parts {
        let there = seen.parts.iter().find(|there| there.name == part.name);
        let rows = there.map_or(&[][..], |there| &there.rows[..]);
        let _ = writeln!(told, "\n## {}", part.title);
        for words in words_of(part.faults) {
            let Words { seen, does } = words;
            let _ = writeln!(told, "\n**What is seen:** {seen}.\n\n**What to do:** {does}.\n\n{HEAD}");
            for fault in part.faults.iter().filter(|fault| fault.words == words) {
                let row = rows.iter().find(|row| row.fault == fault.name);
                let cells = row.map_or_else(|| NOT_PLAYED.to_owned(), cells);
                let _ = writeln!(told, "| {} | {cells} |", fault.name);
            }
        }
    }
    told + &memory(&seen.parts)
}

/// Each once.
fn words_of(faults: &[Fault]) -> Vec<Words> {
    let mut all = Vec::new();
    for fault in faults {
        if !all.contains(&fault.words) {
            all.push(fault.words);
        }
    }
    all
}

fn cells(row: &Row) -> String {
    let text = |said: &String| SIGNS.iter().fold(said.clone(), |said, (sign, name)| said.replace(sign, name));
    let said: Vec<String> = row.said.iter().map(text).collect();
    let broken = if row.is_well() { "" } else { "; **a promise was broken**" };
    format!("{} | {}{broken} | {}", said.join("<br>"), after(row.recovered_after), after(row.clean_after))
}

/// Of each process where it was looked at most often.
fn memory(parts: &[Part]) -> String {
    let mut longest: Vec<Peaks> = Vec::new();
    for peaks in peaks(parts) {
        match longest.iter_mut().find(|there| there.process == peaks.process) {
            Some(there) if there.faults >= peaks.faults => {}
            Some(there) => *there = peaks,
            None => longest.push(peaks),
        }
    }
    if longest.is_empty() {
        return String::new();
    }
    longest.sort_by(|one, other| one.process.cmp(&other.process));
    let mut told = "\n## Memory\n\nThe most that each process had while one fault was played, in MiB.\n\n".to_owned();
    told += "| Process | Faults | In the first one | In any | In the last one |\n|---|---|---|---|---|\n";
    for Peaks { process, faults, first, highest, last, .. } in longest {
        let _ = writeln!(told, "| {process} | {faults} | {first} | {highest} | {last} |");
    }
    told
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;
    use crate::faults_real::{history, parts::PARTS, row::tests::row};

    /// Says where all that was played is kept, to write page and file again.
    const HISTORY: &str = "KOSMOS_CSI_GAME_DAY";

    fn is_fault(part: &str, fault: &str) -> bool {
        PARTS.iter().any(|there| there.name == part && there.faults.iter().any(|one| one.name == fault))
    }

    #[test]
    fn page_of_the_game_day_is_what_was_seen() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
        let [file, shown] = ["tests/e2e/faults_real/seen.jsonl", "docs/game-day.md"].map(|file| checkout.join(file));
        if let Some(history) = env::var_os(HISTORY) {
            let seen = history::seen(Path::new(&history), is_fault).unwrap();
            fs::write(&file, seen.text().unwrap()).unwrap();
            fs::write(&shown, page(&PARTS, &seen)).unwrap();
        }
        let seen = Seen::read(&fs::read_to_string(file).unwrap()).unwrap();
        for row in seen.parts.iter().flat_map(|part| part.rows.iter().map(move |row| (&part.name, &row.fault))) {
            assert!(is_fault(row.0, row.1), "{row:?} is no fault any more: make game-day");
        }
        assert_eq!(fs::read_to_string(shown).unwrap(), page(&PARTS, &seen), "`make game-day` writes it again");
    }

    #[test]
    fn page_has_every_fault_and_of_each_that_was_played_what_was_said_and_how_long_it_took() {
        let part = PARTS[0];
        let said = vec!["Pod user: Failed: [a] | b".to_owned(), "c".to_owned()];
        let fault = part.faults[0].name.to_owned();
        let rows = vec![Row { fault, said, clean_after: Some(2.0), ..row(Ok(())) }];
        let parts = vec![Part { name: part.name.to_owned(), seed: 7, rows }];
        let told = page(&PARTS, &Seen { parts, ..Seen::default() });
        let line =
            format!("| {} | Pod user: Failed: &#91;a&#93; &#124; b<br>c | 1.5 s | 2.0 s |\n", part.faults[0].name);
        assert!(told.contains(&line), "{told}");
        for fault in PARTS.iter().flat_map(|part| part.faults).skip(1) {
            assert!(told.contains(&format!("| {} | | not played yet | |\n", fault.name)), "{}", fault.name);
        }
    }
}
