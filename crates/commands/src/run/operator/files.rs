//! Files that a command leaves behind.

use std::{
    fs::{File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use k8s_openapi::jiff::Timestamp;
use rustix::io::Errno;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::run::{Misuse, Signals};

/// What `--output` names. It is begun before anybody is asked anything, as that takes its time, and under another name, so that whoever takes
/// the newest file takes none that is not whole. Nothing is left where it fails or a signal ends it; what is left where it is killed has that
/// other name.
pub(super) async fn output<T>(
    path: &Path,
    write: impl AsyncFnOnce(&mut File) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (mut signals, hangup) = (Signals::new()?, hangup());
    let misuse = |error: std::io::Error| Misuse(format!("--output {}: {error}", path.display()));
    if path.symlink_metadata().is_ok() {
        return Err(misuse(Errno::EXIST.into()).into());
    }
    let partial = partial_of(path);
    let mut file = create_new(&partial).map_err(misuse)?;
    let ended_by = |signal: &str| {
        anyhow!("{signal} ended this command before it had asked everything: it wrote no {}", path.display())
    };
    let written = tokio::select! {
        written = write(&mut file) => written,
        signal = signals.next() => Err(ended_by(signal)),
        signal = hung_up(hangup) => Err(ended_by(signal)),
    };
    let written = written.and_then(|written| {
        // A file system may say only then that it is full.
        let put = file.sync_all().and_then(|()| put(&partial, path));
        put.with_context(|| format!("write {}", path.display()))?;
        Ok(written)
    });
    let _ = std::fs::remove_file(&partial);
    written
}

/// One that was killed does not keep the next from writing.
fn partial_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", Timestamp::now().as_nanosecond()));
    name.into()
}

/// Over no file that has come meanwhile.
fn put(partial: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(partial, path) {
        // Not every file system has links. There the name is taken first.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            create_new(path)?;
            std::fs::rename(partial, path).inspect_err(|_| drop(std::fs::remove_file(path)))
        }
        linked => linked,
    }
}

/// None where SIGHUP is ignored, as under `nohup`: whoever waits for it ignores it no more.
fn hangup() -> Option<Signal> {
    if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() }
}

async fn hung_up(hangup: Option<Signal>) -> &'static str {
    let Some(mut hangup) = hangup else { return std::future::pending().await };
    hangup.recv().await;
    "SIGHUP"
}

/// Also where nobody says so, as on a Mac.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 != 0)
}

/// Nobody else may read it, from the first byte on; and none that is there is written over.
pub(super) fn create_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[tokio::test]
    async fn file_gets_its_name_once_it_is_whole_and_takes_the_place_of_none() {
        let folder = std::env::temp_dir().join(format!("kosmos-csi-files-{}", Timestamp::now().as_nanosecond()));
        fs::create_dir(&folder).unwrap();
        let names = || -> Vec<PathBuf> { fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
        let (whole, other) = (folder.join("whole"), folder.join("other"));
        let write = async |file: &mut File| -> anyhow::Result<()> {
            let begun = names();
            assert!(begun.len() == 1 && begun[0].display().to_string().ends_with(".partial"), "{begun:?}");
            file.write_all(b"all")?;
            Ok(())
        };
        output(&whole, write).await.unwrap();
        assert_eq!((names(), fs::read(&whole).unwrap()), (vec![whole.clone()], b"all".to_vec()));
        assert_eq!(fs::metadata(&whole).unwrap().permissions().mode() & 0o777, 0o600);

        let overtaken = async |file: &mut File| -> anyhow::Result<()> {
            file.write_all(b"late")?;
            fs::write(&other, "first")?;
            Ok(())
        };
        let refused = output(&other, overtaken).await.unwrap_err();
        assert!(refused.to_string().ends_with("other"), "{refused}");
        assert_eq!((names().len(), fs::read(&other).unwrap()), (2, b"first".to_vec()));
        let unasked = async |_: &mut File| -> anyhow::Result<()> { panic!("a file is there") };
        output(&other, unasked).await.unwrap_err();
        let full = async |_: &mut File| -> anyhow::Result<()> { Err(anyhow!("the disk is full")) };
        output(&folder.join("none"), full).await.unwrap_err();
        assert_eq!(names().len(), 2, "nothing is left of it");
        fs::remove_dir_all(&folder).unwrap();
    }
}
