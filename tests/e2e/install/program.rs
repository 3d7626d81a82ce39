//! The program of the images: the command without the simulated clusters that `dev` has.

use std::{path::PathBuf, process::Command};

use anyhow::{Result, ensure};

use super::release::PROGRAM;
use crate::clusters::guardian::profile_folder;

/// Said by what plays a host's scheduler and a member's storage.
const PLAYED: [&str; 3] = ["dev-scheduler", "dev-provisioner", "storage.simulated"];

pub fn of_images() -> Result<PathBuf> {
    let program = profile_folder()?.join("image/kosmos-csi");
    ensure!(program.exists(), "{} is missing: `make build` builds it", program.display());
    Ok(program)
}

fn words_in(program: &std::path::Path) -> Vec<&'static str> {
    let bytes = std::fs::read(program).unwrap();
    let has = |word: &&str| bytes.windows(word.len()).any(|window| window == word.as_bytes());
    PLAYED.into_iter().filter(has).collect()
}

#[test]
fn program_of_images_has_no_simulated_clusters_and_says_so() {
    let program = of_images().unwrap();
    assert_eq!(words_in(PROGRAM.as_ref()), PLAYED, "the words are not those of the simulated clusters");
    assert_eq!(words_in(&program), [] as [&str; 0]);
    let typed = Command::new(&program).args(["dev", "--members=3"]).output().unwrap();
    let said = String::from_utf8_lossy(&typed.stderr);
    assert_eq!(typed.status.code(), Some(64), "{said}");
    assert!(said.contains("has no simulated ones in it") && said.contains("make dev"), "{said}");
    let help = Command::new(&program).arg("--help").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("simulated"));
}
