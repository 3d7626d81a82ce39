//! What has become of specs: read from what the suites keep of each, and held against those that have passed before.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

const PASSED: &str = "passed";
/// It does not concern this driver, as it has itself found out.
const SKIPPED: &str = "skipped";
/// Which specs have passed is written anew.
const WRITE: &str = "KOSMOS_CSI_WRITE_GOLDEN";

/// How a spec has ended.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Ended {
    pub name: String,
    pub state: String,
    pub seconds: f64,
    #[serde(default)]
    pub message: String,
}

/// The last end of each spec.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<String, Ended>);

impl Ends {
    /// A line that is cut is of a spec whose run was ended as it was written: it is run again.
    pub fn read(files: &[PathBuf]) -> Result<Self> {
        let mut ends = Self::default();
        for file in files {
            let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            ends.add(&text);
        }
        Ok(ends)
    }

    /// Of several ends of a spec in several files nobody knows which was last: that one counts with which it need not be run again.
    fn add(&mut self, text: &str) {
        for ended in text.lines().filter_map(|line| serde_json::from_str::<Ended>(line).ok()) {
            if !self.is_settled(&ended.name) {
                self.0.insert(ended.name.clone(), ended);
            }
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// It need not be run again.
    pub fn is_settled(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|ended| [PASSED, SKIPPED].contains(&ended.state.as_str()))
    }

    fn passed(&self, chosen: &[String]) -> BTreeSet<String> {
        let has_passed = |name: &&String| self.0.get(*name).is_some_and(|ended| ended.state == PASSED);
        chosen.iter().filter(has_passed).cloned().collect()
    }

    fn failed(&self, chosen: &[String]) -> Vec<String> {
        let not_well = chosen.iter().filter(|name| !self.is_settled(name));
        let told = |name: &String| match self.0.get(name) {
            Some(ended) => {
                format!("{name}: {} after {:.0} s: {}", ended.state, ended.seconds, first_line(&ended.message))
            }
            None => format!("{name}: it was not run to its end"),
        };
        not_well.map(told).collect()
    }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim()
}

/// The names of specs that have passed, one a line.
#[derive(Debug)]
pub struct Listed {
    file: PathBuf,
    names: Option<BTreeSet<String>>,
}

impl Listed {
    pub fn of(part: &str) -> Result<Self> {
        Self::at(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/e2e/suites/listed/{part}.txt")))
    }

    fn at(file: PathBuf) -> Result<Self> {
        let text = file.exists().then(|| fs::read_to_string(&file)).transpose()?;
        let names = text.map(|text| text.lines().map(str::to_owned).collect());
        Ok(Self { file, names })
    }

    fn write(&self, passed: &BTreeSet<String>) -> Result<()> {
        fs::create_dir_all(self.file.parent().context("a file lies in a folder")?)?;
        let mut lines = passed.iter().cloned().collect::<Vec<_>>().join("\n");
        lines.push('\n');
        fs::write(&self.file, lines).with_context(|| format!("write {}", self.file.display()))
    }

    /// What is not as it is listed.
    fn differences(&self, passed: &BTreeSet<String>) -> Vec<String> {
        let Some(names) = &self.names else {
            return vec![format!("{} is not there: {WRITE}=1 writes it", self.file.display())];
        };
        let gone = names.difference(passed).map(|name| format!("{name}: it is listed, and has not passed"));
        let new = passed.difference(names).map(|name| format!("{name}: it has passed, and is not listed: {WRITE}=1"));
        gone.chain(new).collect()
    }
}

/// Whether which specs have passed is written anew.
pub fn is_written() -> bool {
    env::var_os(WRITE).is_some()
}

/// Fails with all that is not as it should be.
pub fn judge(chosen: &[String], ends: &Ends, listed: &Listed, is_written: bool) -> Result<()> {
    let passed = ends.passed(chosen);
    let mut wrong = ends.failed(chosen);
    if is_written {
        listed.write(&passed)?;
    } else {
        wrong.extend(listed.differences(&passed));
    }
    ensure!(
        wrong.is_empty(),
        "{} of {} specs have passed; what is wrong:\n{}",
        passed.len(),
        chosen.len(),
        wrong.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::parts::PARTS, *};

    fn line(name: &str, state: &str) -> String {
        format!("{{\"name\":\"{name}\",\"state\":\"{state}\",\"seconds\":3.25,\"message\":\"\\nwhy\\nat\"}}\n")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn run_goes_on_with_what_has_not_passed_and_with_what_was_cut() {
        let mut ends = Ends::default();
        ends.add(&[line("a", "passed"), line("b", "failed"), line("c", "skipped")].concat());
        ends.add(&format!("{}{}", line("a", "interrupted"), &line("d", "passed")[..20]));
        let settled: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|name| ends.is_settled(name)).collect();
        assert_eq!(settled, ["a", "c"]);
        ends.add(&line("b", "passed"));
        assert!(ends.is_settled("b"));
    }

    #[test]
    fn spec_that_has_failed_was_not_run_or_is_not_as_it_is_listed_is_told() {
        let mut ends = Ends::default();
        ends.add(&[line("well", "passed"), line("bad", "failed"), line("not ours", "skipped")].concat());
        let chosen = names(&["well", "bad", "not ours", "not run"]);
        let folder = tempfile::tempdir().unwrap();
        let listed = |names: Option<&[&str]>| Listed {
            file: folder.path().join("listed.txt"),
            names: names.map(|names| names.iter().map(ToString::to_string).collect()),
        };
        let said = judge(&chosen, &ends, &listed(Some(&["well", "not ours"])), false).unwrap_err().to_string();
        for words in [
            "1 of 4 specs have passed",
            "bad: failed after 3 s: why",
            "not run: it was not run to its end",
            "not ours: it is listed, and has not passed",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let chosen = names(&["well", "not ours"]);
        judge(&chosen, &ends, &listed(Some(&["well"])), false).unwrap();
        assert!(judge(&chosen, &ends, &listed(Some(&[])), false).is_err());
        assert!(judge(&chosen, &ends, &listed(None), false).is_err(), "nothing is listed yet");
        judge(&chosen, &ends, &listed(None), true).unwrap();
        judge(&chosen, &ends, &Listed::at(folder.path().join("listed.txt")).unwrap(), false).unwrap();
    }

    #[test]
    fn page_says_how_many_specs_pass() {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/development.md")).unwrap();
        for part in PARTS {
            let passed = Listed::of(part.name).unwrap().names.expect("the part was run").len();
            let row = page.lines().find(|line| line.starts_with(&format!("| `suites-of-{}` ", part.name))).unwrap();
            assert!(row.ends_with(&format!(" {passed} |")), "{passed}: {row}");
        }
    }
}
