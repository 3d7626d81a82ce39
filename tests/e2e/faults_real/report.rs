//! What was seen of each fault: a line as soon as it is over, all of a part as JSON, and with what is there of the other parts the
//! matrix.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{
    matrix::matrix,
    row::{PROMISES, Part, Row, after},
};
use crate::clusters::logs;

/// Says where a run is kept that goes on where it was ended.
const FOLDER: &str = "KOSMOS_CSI_FAULTS_FOLDER";

pub struct Report {
    folder: PathBuf,
    part: Part,
}

impl Report {
    /// A run that goes on has the rows of before, but for those in which something was broken.
    pub fn begin(name: &str, seed: u64) -> Result<Self> {
        let kept = env::var_os(FOLDER).map(PathBuf::from);
        let folder = kept.clone().map_or_else(logs::folder, Ok)?;
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let part = Part { name: name.to_owned(), seed, rows: Vec::new() };
        let mut report = Self { folder, part };
        if kept.is_some() {
            let before = read(&report.file()).filter(|before| before.seed == seed);
            report.part.rows = before.map(|before| before.rows).unwrap_or_default();
            report.part.rows.retain(|row| row.broken().next().is_none());
        }
        Ok(report)
    }

    pub fn has(&self, fault: &str) -> bool {
        self.part.rows.iter().any(|row| row.fault == fault)
    }

    pub fn add(&mut self, row: Row) -> Result<()> {
        let name = &self.part.name;
        if self.part.rows.is_empty() {
            eprintln!("{name}: {}", head());
        }
        eprintln!("{name}: {}", line(&row));
        self.part.rows.push(row);
        self.keep()
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

    /// Fails with all that was broken.
    pub fn verdict(&self) -> Result<()> {
        let broken: Vec<String> = self.part.rows.iter().flat_map(Row::broken).collect();
        ensure!(broken.is_empty(), "{}", broken.join("\n"));
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
    use crate::faults_real::row::tests::row;

    fn report(folder: &Path, rows: Vec<Row>) -> Report {
        Report { folder: folder.to_owned(), part: Part { name: "test".to_owned(), seed: 7, rows } }
    }

    #[test]
    fn report_fails_with_what_was_broken_and_by_which_fault() {
        let nowhere = Path::new("nowhere");
        assert!(report(nowhere, vec![row(Ok(()))]).verdict().is_ok());
        let broken = report(nowhere, vec![row(Ok(())), row(Err(anyhow!("two leaves")))]);
        assert_eq!(broken.verdict().unwrap_err().to_string(), format!("500: not so: {}: two leaves", PROMISES[1]));
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
