//! A test of this program, played once more under callgrind.

use std::{env, fs, path::PathBuf, process::Command};

use super::uncounted::{COUNTED, UNCOUNTED};

pub struct Callgrind(PathBuf);

impl Callgrind {
    /// None where there is no valgrind.
    pub fn find() -> Option<Self> {
        let folders = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&folders).map(|folder| folder.join("valgrind")).find(|program| program.is_file()).map(Self)
    }

    /// What each counted call took, in the order in which they were made. The test is told so by a variable.
    pub fn count(&self, test: &str, variable: &str, value: usize) -> Vec<u64> {
        let folder = tempfile::tempdir().unwrap();
        let part = |number: u32| folder.path().join(format!("part.{number}"));
        let mut alone = Command::new(&self.0);
        alone.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", folder.path().join("part").display()));
        // Outside of the calls it is the other way round. All about the one first: of two names that begin alike, callgrind forgets what it was
        // told of the first one when it hears of that again.
        alone.args(["toggle-collect", "zero-before", "dump-after"].map(|what| format!("--{what}={COUNTED}")));
        alone.arg(format!("--toggle-collect={UNCOUNTED}"));
        alone.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture", "--test-threads=1"]);
        let played = alone.env(variable, value.to_string()).output().unwrap();
        let said = [played.stdout, played.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(played.status.success(), "{}", said.join("\n"));
        (1..).map_while(|number| fs::read_to_string(part(number)).ok()).map(|part| total(&part)).collect()
    }
}

fn total(part: &str) -> u64 {
    part.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap().trim().parse().unwrap()
}
