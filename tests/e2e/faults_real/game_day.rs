//! The page of the game day, `docs/game-day.md`: for each fault what breaks, what is seen of it, what to do, and how long it took. It is
//! made from the faults and from what was seen of them last, `seen.jsonl`; `make game-day` writes both again.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    fault::{Fault, Words},
    history::Seen,
    memory::Trend,
    parts::PartOf,
    row::{Part, Row, after},
    words::{brief, in_all, often},
};

const BEGINNING: &str = "# Game day

For each fault: what breaks, what users see, what to do, how long it takes after the fault until everything is there that users have asked for
meanwhile, and how long until nothing of that is left once they have removed it. `make faults-real` plays the faults on real clusters, while users
make claims, pods and snapshots, let claims grow, move them, and remove them; [tests](design/testing.md) says what has to hold. `make game-day` makes
this page from what was seen there.

Of the objects, `now` is a claim that is bound at once, `later` one that waits for its pod, `user`; `photo` a snapshot of a claim with data,
and `restored` a claim made of it; `grows` a claim that grows, `old` and `called-off` claims that are removed; `other` a claim of another
member, `local` one of storage that can be full, `near` one on a real node of the host, with its pod; `travels` a claim that moves to the
other member, of which `ClaimLost` is said [for a moment](moving.md#move-one); `album` a group of snapshots, of `kept` and `ledger`, and `of-kept` and `of-ledger`
claims made of these; `cloned` a claim made of `ledger` itself; `guest` claims that come and go all the while; `db-0` and `db-1` pods of
a StatefulSet that rolls. Of what was said, `rpc error: code = … desc =` is left out, and `…` stands for what is another one each time.
";
const NOT_YET: &str = "No fault has been played since this page was begun.";
const HEAD: &str =
    "| What breaks | What is said on the objects | Well again after | Nothing left after |\n|---|---|---|---|";
const NOT_PLAYED: &str = "| not played yet |";
const ALWAYS: &str =
    "Of a quarter of all faults or more, whatever breaks, is said on the objects, and is not told again below:";
const MEMORY: &str = "The most that each process had while one fault was played, in MiB. Each life of a process ends with its cluster, or where a fault has it \
                      begun again; how much more it takes in an hour is how much more it had at the end of its lives than in the middle of \
                      these. The sidecars are Kubernetes' own, and collect their garbage seldom.";
const OF_ALL: &str = "**What is said on the objects of all of these:**";
/// What would be more than text in a table.
const SIGNS: [(&str, &str); 6] =
    [("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("[", "&#91;"), ("]", "&#93;"), ("`", "&#96;")];

/// A fault that was played, and in short what was said meanwhile.
struct Played<'seen> {
    row: &'seen Row,
    said: Vec<String>,
}

/// In Markdown.
pub fn page(parts: &[PartOf], seen: &Seen) -> String {
    let sum = if seen.sum.faults == 0 { NOT_YET.to_owned() } else { seen.sum.told() };
    let mut played = played(&seen.parts);
    let always = often(played.values().map(|played| &played.said));
    for played in played.values_mut() {
        played.said.retain(|sentence| !always.contains(sentence));
    }
    let mut told = format!("{BEGINNING}\n{sum}\n{}", list(ALWAYS, &always));
    for part in parts {
        let _ = writeln!(told, "\n## {}", part.title);
        for words in words_of(part.faults) {
            let faults: Vec<&Fault> = part.faults.iter().filter(|fault| fault.words == words).collect();
            told += &group(words, &faults, |fault| played.get(&(part.name, fault.name)));
        }
    }
    told + &memory(&seen.sum.memory)
}

/// By part and fault.
fn played(parts: &[Part]) -> BTreeMap<(&str, &str), Played<'_>> {
    let all = parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row)));
    let by_name = all.map(|(part, row)| {
        let said = brief(&row.said, &part.name);
        ((part.name.as_str(), row.fault.as_str()), Played { row, said })
    });
    by_name.collect()
}

/// Those of a part of which the same is seen, and is to do.
fn group<'seen>(
    Words { seen, does }: Words,
    faults: &[&Fault],
    played: impl Fn(&Fault) -> Option<&'seen Played<'seen>>,
) -> String {
    let said: Vec<Vec<String>> = faults.iter().filter_map(|fault| Some(played(fault)?.said.clone())).collect();
    let of_all = in_all(&said);
    let mut told =
        format!("\n**What is seen:** {seen}.\n\n**What to do:** {does}.\n{}\n{HEAD}\n", list(OF_ALL, &of_all));
    for fault in faults {
        let cells = played(fault).map_or_else(|| NOT_PLAYED.to_owned(), |played| cells(played, &of_all));
        let _ = writeln!(told, "| {} | {cells} |", fault.name);
    }
    told
}

/// Nothing where nothing is in it.
fn list(head: &str, said: &[String]) -> String {
    if said.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = said.iter().map(|sentence| format!("- {}\n", text(sentence))).collect();
    format!("\n{head}\n\n{}", lines.concat())
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

fn text(said: &str) -> String {
    SIGNS.iter().fold(said.to_owned(), |said, (sign, name)| said.replace(sign, name))
}

fn cells(Played { row, said }: &Played<'_>, of_all: &[String]) -> String {
    let said: Vec<String> = said.iter().filter(|said| !of_all.contains(said)).map(|said| text(said)).collect();
    let broken = if row.is_well() { "" } else { "; **a promise was broken**" };
    format!("{} | {}{broken} | {}", said.join("<br>"), after(row.recovered_after), after(row.clean_after))
}

/// Of each process that was looked at.
fn memory(trends: &BTreeMap<String, Trend>) -> String {
    if trends.is_empty() {
        return String::new();
    }
    let mut told = format!("\n## Memory\n\n{MEMORY}\n\n");
    told += "| Process | Faults | At most | Longest life, in faults | In the first of these | In the last of these | More in an hour |\n";
    told += "|---|---|---|---|---|---|---|\n";
    for (process, trend) in trends {
        let Trend { faults, highest, longest, first, last, .. } = trend;
        let hour = trend.in_an_hour();
        let _ = writeln!(told, "| {process} | {faults} | {highest} | {longest} | {first} | {last} | {hour} |");
    }
    told
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;
    use crate::faults_real::{history, memory::growing, parts::PARTS, row::tests::row};

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
        assert!(growing(&seen.sum.memory).is_empty(), "they grow: {:?}", growing(&seen.sum.memory));
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

    /// Each of the first faults of a part has said the same, but for its place and a time.
    fn said_by(part: &PartOf, faults: usize) -> Part {
        let (name, claim) = (part.name.to_owned(), "PersistentVolumeClaim");
        let rows = part.faults.iter().take(faults).zip(0..).map(|(fault, second)| {
            let waits = format!("{claim} now: ProvisioningFailed: create claim {name}/now: HTTP 500");
            let moves = format!("{claim} travels: ClaimLost: since 2026-11-30T01:02:0{second}Z");
            Row { fault: fault.name.to_owned(), said: vec![waits, moves], ..row(Ok(())) }
        });
        Part { rows: rows.collect(), name, seed: 7 }
    }

    #[test]
    fn what_is_said_of_all_faults_of_which_the_same_is_seen_or_of_many_whatever_breaks_is_told_once() {
        let told = |parts: Vec<Part>| page(&PARTS, &Seen { parts, ..Seen::default() });
        let (waits, moves) = ("ProvisioningFailed: create claim …: HTTP 500", "ClaimLost: since …");
        let few = told(vec![said_by(&PARTS[0], 7)]);
        // One of these seven has words of its own.
        assert_eq!((few.matches(waits).count(), few.matches(moves).count()), (2, 2), "{few}");
        assert!(few.contains(&format!("- PersistentVolumeClaim now: {waits}\n")), "{few}");
        let many = told(vec![said_by(&PARTS[0], 7), said_by(&PARTS[1], 1)]);
        assert_eq!((many.matches(waits).count(), many.matches(moves).count()), (1, 1), "{many}");
        assert!(many.find(moves) < many.find("\n## "), "{many}");
    }
}
