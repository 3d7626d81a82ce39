//! What was seen of each fault: a line as soon as it is over, all of a part as JSON, and with what is there of the other parts the
//! matrix.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    fault::Fault,
    history,
    limits::seconds,
    matrix::matrix,
    row::{PROMISES, Part, Row, after},
};
use crate::clusters::{Fleet, logs};

/// Says where a run is kept that goes on where it was ended, and where all runs are, a fault in a line.
const FOLDER: &str = "KOSMOS_CSI_FAULTS_FOLDER";
const HISTORY: &str = "KOSMOS_CSI_FAULTS_HISTORY";
/// Says when this run has begun, in seconds since 1970. What was broken since is not played again, and what was broken before is.
const SINCE: &str = "KOSMOS_CSI_FAULTS_SINCE";

pub struct Report {
    folder: PathBuf,
    part: Part,
    /// How often each fault is to be in it.
    rounds: usize,
}

impl Report {
    /// A run that goes on has the rows of before, but for those in which something was broken then.
    pub fn begin(name: &str, seed: u64, rounds: usize) -> Result<Self> {
        let kept = env::var_os(FOLDER).map(PathBuf::from);
        let folder = kept.clone().map_or_else(logs::folder, Ok)?;
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let part = Part { name: name.to_owned(), seed, rows: Vec::new() };
        let mut report = Self { folder, part, rounds };
        if kept.is_some() {
            let before = read(&report.file()).filter(|before| before.seed == seed);
            report.part.rows = before.map(|before| before.rows).unwrap_or_default();
            report.forget_what_was_broken_before(seconds(SINCE));
        }
        Ok(report)
    }

    fn forget_what_was_broken_before(&mut self, since: Option<u64>) {
        self.part.rows.retain(|row| row.is_well() || since.is_some_and(|since| row.ended >= since));
    }

    pub fn name(&self) -> &str {
        &self.part.name
    }

    fn times(&self, fault: &Fault) -> usize {
        self.part.rows.iter().filter(|row| row.fault == fault.name).count()
    }

    /// Of all that is to be played, in its order, what it does not have.
    pub fn left(&self, all: &[(Fault, Duration)]) -> Vec<(Fault, Duration)> {
        let mut left: Vec<(Fault, Duration)> = Vec::new();
        for (place, (fault, moment)) in all.iter().enumerate() {
            let before = all[..place].iter().filter(|(former, _)| former.name == fault.name).count();
            if before >= self.times(fault) {
                left.push((*fault, *moment));
            }
        }
        left
    }

    pub fn add(&mut self, row: Row) -> Result<()> {
        let name = &self.part.name;
        if self.part.rows.is_empty() {
            eprintln!("{name}: {}", head());
        }
        eprintln!("{name}: {}", line(&row));
        if let Some(history) = env::var_os(HISTORY) {
            history::append(Path::new(&history), &self.part, &row)?;
        }
        self.part.rows.push(row);
        self.keep()
    }

    /// What the fleet's processes have said last, beside the report of a run that goes on: its next clusters have logs of their own.
    pub fn keep_logs(&self, fleet: &Fleet, fault: &str) -> Result<()> {
        if env::var_os(FOLDER).is_none() {
            return Ok(());
        }
        let name: String =
            fault.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let folder = self.folder.join("logs").join(&self.part.name).join(name);
        logs::keep_ends(fleet, &folder)?;
        eprintln!("{}: {fault}: the ends of the logs are in {}", self.part.name, folder.display());
        Ok(())
    }

    /// Other parts may be written by other processes.
    fn keep(&self) -> Result<()> {
        let lock = File::open(&self.folder).context("open the folder of the report")?;
        lock.lock().context("lock the folder of the report")?;
        write(&self.file(), &serde_json::to_string_pretty(&self.part)?)?;
        let parts = parts(&self.folder)?;
        write(&self.folder.join("matrix.json"), &serde_json::to_string_pretty(&parts)?)?;
        write(&self.folder.join("matrix.md"), &matrix(&parts))
    }

    fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.part.name))
    }

    /// Fails with all that was broken, and with how many of these faults are left for another time.
    pub fn verdict(&self, faults: &[Fault]) -> Result<()> {
        let mut wrong: Vec<String> = self.part.rows.iter().flat_map(Row::broken).collect();
        let left: usize = faults.iter().map(|fault| self.rounds.saturating_sub(self.times(fault))).sum();
        if left > 0 {
            wrong.push(format!("{left} of {} faults are left", faults.len() * self.rounds));
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

/// Whole or not at all, whoever reads it meanwhile.
fn write(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text).with_context(|| format!("write {}", new.display()))?;
    fs::rename(&new, file).with_context(|| format!("put {} in place", file.display()))
}

/// Of a file that is one.
fn read(file: &Path) -> Option<Part> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

/// All that are there, by name.
fn parts(folder: &Path) -> Result<Vec<Part>> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let files = entries.flatten().map(|entry| folder.join(entry.file_name()));
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let mut parts: Vec<Part> = files.filter_map(|file| read(&file)).collect();
    parts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(parts)
}

fn head() -> String {
    format!("{:<46} {:>5} {:>9} {:>9}  {}", "fault", "times", "recovered", "clean", PROMISES.join(" | "))
}

fn line(row: &Row) -> String {
    let word = |promise: &&str| {
        let held = match row.holds(promise) {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        format!("{held:<width$}", width = promise.len())
    };
    let verdicts: Vec<String> = PROMISES.iter().map(word).collect();
    let (recovered, clean) = (after(row.recovered_after), after(row.clean_after));
    format!("{:<46} {:>5} {recovered:>9} {clean:>9}  {}", row.fault, row.times, verdicts.join(" | "))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::faults_real::{requests::ANSWERS, row::tests::row};

    fn report(folder: &Path, rows: Vec<Row>) -> Report {
        Report { folder: folder.to_owned(), part: Part { name: "test".to_owned(), seed: 7, rows }, rounds: 1 }
    }

    #[test]
    fn fault_is_left_as_often_as_it_was_not_played_in_all_rounds() {
        let [mut one, mut other] = [ANSWERS[0], ANSWERS[1]];
        (one.name, other.name) = ("500", "504");
        let all: Vec<(Fault, Duration)> =
            [one, other, other, one, one].into_iter().map(|fault| (fault, Duration::ZERO)).collect();
        let played = Report { rounds: 3, ..report(Path::new("nowhere"), vec![row(Ok(())), row(Ok(()))]) };
        let left: Vec<&str> = played.left(&all).iter().map(|(fault, _)| fault.name).collect();
        assert_eq!(left, ["504", "504", "500"]);
        let told = played.verdict(&[one, other]).unwrap_err().to_string();
        assert_eq!(told, "4 of 6 faults are left");
    }

    #[test]
    fn report_fails_with_what_was_broken_and_by_which_fault_and_with_what_is_left() {
        let nowhere = Path::new("nowhere");
        let fails = |seen: Result<()>, faults: &[Fault]| {
            let report = report(nowhere, vec![row(Ok(())), row(seen)]);
            report.verdict(faults).err().map(|error| error.to_string())
        };
        let (played, broken) =
            (ANSWERS.map(|fault| Fault { name: "500", ..fault }), "500: not so: nothing is lost: two leaves");
        assert_eq!(fails(Ok(()), &played), None);
        assert_eq!(fails(Err(anyhow!("two leaves")), &played).as_deref(), Some(broken));
        assert_eq!(fails(Ok(()), &ANSWERS).as_deref(), Some("6 of 7 faults are left"));
        let both = format!("{broken}\n6 of 7 faults are left");
        assert_eq!(fails(Err(anyhow!("two leaves")), &ANSWERS), Some(both));
    }

    #[test]
    fn what_was_broken_is_played_again_in_the_next_run_and_not_in_the_same_one() {
        let five_hundred = Fault { name: "500", ..ANSWERS[0] };
        for (since, is_kept) in [(None, false), (Some(1_001), false), (Some(1_000), true)] {
            let mut broken = report(Path::new("nowhere"), vec![row(Err(anyhow!("two leaves")))]);
            broken.forget_what_was_broken_before(since);
            assert_eq!(broken.times(&five_hundred), usize::from(is_kept), "{since:?}");
            let mut well = report(Path::new("nowhere"), vec![row(Ok(()))]);
            well.forget_what_was_broken_before(since);
            assert_eq!(well.times(&five_hundred), 1, "{since:?}");
        }
    }

    #[test]
    fn line_says_how_long_it_took_which_promise_was_broken_and_which_was_not_asked_for() {
        let told = line(&row(Err(anyhow!("two leaves"))));
        assert!(told.starts_with("500 ") && told.contains("1.5 s") && told.contains("never"), "{told}");
        assert!(told.contains("  yes") && told.contains("| NO") && told.contains("| - "), "{told}");
        assert!(head().ends_with(&PROMISES.join(" | ")));
    }

    #[test]
    fn what_is_kept_is_read_again_and_what_is_no_part_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let kept = report(folder.path(), vec![row(Ok(()))]);
        fs::write(folder.path().join("other.json"), "[]").unwrap();
        kept.keep().unwrap();
        kept.keep().unwrap();
        let parts = parts(folder.path()).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].name.as_str(), parts[0].seed, parts[0].rows.len()), ("test", 7, 1));
        assert!(fs::read_to_string(folder.path().join("matrix.md")).unwrap().contains("| 500 |"));
    }
}
