//! The pod of the member that writes numbers all the while. Where it begins again, as once its node has power again, it goes on after what
//! it has said: what it would say twice was lost.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::clusters::Cluster;

pub const WRITER: &str = "writer";

/// By the logs of its containers, as the node has them.
pub fn says_nothing_twice(cluster: &Cluster, namespace: &str) -> Result<()> {
    let pods = cluster.folder().join("log/pods");
    let of_writer = format!("{namespace}_{WRITER}_");
    let folders = fs::read_dir(&pods).with_context(|| format!("list {}", pods.display()))?.flatten();
    for folder in folders.filter(|folder| folder.file_name().to_string_lossy().starts_with(&of_writer)) {
        let logs = logs(&folder.path().join("main")).iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>();
        follow(&logs.context("read what the writer has said")?)?;
    }
    Ok(())
}

/// Of one container after the other, by how often the pod had begun again.
fn logs(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let mut logs: Vec<(u32, PathBuf)> =
        files.filter_map(|file| Some((file.file_stem()?.to_str()?.parse().ok()?, file))).collect();
    logs.sort();
    logs.into_iter().map(|(_, file)| file).collect()
}

fn follow(logs: &[String]) -> Result<()> {
    let mut said = 0;
    for log in logs {
        let mut numbers = log.lines().filter_map(number);
        if let Some(first) = numbers.next() {
            ensure!(first > said, "the writer had said {said}, and began again with {first}");
            said = numbers.next_back().unwrap_or(first);
        }
    }
    Ok(())
}

/// Of a line as containerd writes it.
fn number(line: &str) -> Option<u64> {
    let [_, "stdout", _, number] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writer_that_says_again_what_it_has_said_before_its_end_has_lost_that() {
        let log = |numbers: &[u64]| {
            let lines: Vec<String> = numbers.iter().map(|number| format!("t stdout F {number}\n")).collect();
            lines.concat() + "t stderr F 1\nt stdout F\n"
        };
        for (logs, is_well) in [
            (vec![log(&[1, 2, 3])], true),
            (vec![log(&[1, 2, 3]), log(&[4, 5]), log(&[]), log(&[7])], true),
            (vec![log(&[1, 2, 3]), log(&[3, 4])], false),
            (vec![log(&[5, 6]), log(&[]), log(&[1])], false),
        ] {
            assert_eq!(follow(&logs).is_ok(), is_well, "{logs:?}");
        }
    }

    #[test]
    fn logs_come_in_the_order_of_their_containers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["10.log", "9.log", "0.log", "other.log"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<String> =
            logs(folder.path()).iter().map(|log| log.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["0.log", "9.log", "10.log"]);
        assert!(logs(Path::new("/nowhere")).is_empty());
    }
}
