//! A test of this program, played once more under callgrind.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

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
        let parts = self.play(folder.path(), test, variable, value);
        parts.iter().map(|part| total(&fs::read_to_string(part).unwrap())).collect()
    }

    /// A file of each counted call, in a folder that is empty.
    pub fn play(&self, folder: &Path, test: &str, variable: &str, value: usize) -> Vec<PathBuf> {
        let part = |number: u32| folder.join(format!("part.{number}"));
        let mut alone = Command::new(&self.0);
        alone.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", folder.join("part").display()));
        // Outside of the calls it is the other way round. All about the one first: of two names that begin alike, callgrind forgets what it was
        // told of the first one when it hears of that again.
        alone.args(["toggle-collect", "zero-before", "dump-after"].map(|what| format!("--{what}={COUNTED}")));
        alone.arg(format!("--toggle-collect={UNCOUNTED}"));
        alone.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture", "--test-threads=1"]);
        let played = alone.env(variable, value.to_string()).output().unwrap();
        let said = [played.stdout, played.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(played.status.success(), "{}", said.join("\n"));
        (1..1_000).map(part).take_while(|part| part.is_file()).collect()
    }
}

/// What of a call each function has taken, the dearest first: by itself, or with all that it has called.
pub fn by_function(part: &Path, with_called: bool) -> String {
    let inclusive = if with_called { "--inclusive=yes" } else { "--inclusive=no" };
    let told = Command::new("callgrind_annotate").args(["--auto=no", "--threshold=99", inclusive]).arg(part).output();
    let told = told.unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8_lossy(&told.stdout).into_owned()
}

fn total(part: &str) -> u64 {
    part.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap().trim().parse().unwrap()
}
