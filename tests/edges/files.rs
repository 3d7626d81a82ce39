//! The files that commands leave behind, and what is left of those that are ended before.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{net::TcpListener, time::timeout};

use super::{
    PATIENCE,
    driver::{begin, begin_without_terminal, end_by},
    folder, host,
};

/// An empty one would be taken for what there is, and keeps the next try from writing it.
#[tokio::test]
async fn command_that_a_signal_ends_while_it_asks_leaves_no_file() {
    let folder = folder();
    let file = folder.path().join("output");
    let output = format!("--output={}", file.display());
    for (command, signal) in [
        (vec!["support-bundle"], Signal::SIGINT),
        (vec!["host", "backup"], Signal::SIGTERM),
        (vec!["host", "backup"], Signal::SIGHUP),
    ] {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let flag = host::write(folder.path(), &format!("http://{}", silent.local_addr().unwrap()));
        let running = begin(&[&command[..], &[flag.as_str(), output.as_str()]].concat());
        let _connection = timeout(PATIENCE, silent.accept()).await.unwrap().unwrap();
        assert!(!file.exists() && partial(folder.path()).len() == 1, "{command:?}");
        let (code, said) = end_by(signal, running).await;
        assert_eq!(code, 2, "{command:?}: {said}");
        assert!(said.starts_with(&format!("error: {signal} ended this command")), "{command:?}: {said}");
        assert!(!file.exists() && partial(folder.path()).is_empty(), "{command:?}");
    }
}

#[tokio::test]
async fn command_that_is_killed_while_it_asks_leaves_no_file_of_the_name_that_was_asked_for() {
    let folder = folder();
    let file = folder.path().join("output");
    let output = format!("--output={}", file.display());
    for killed in 1..=2 {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let flag = host::write(folder.path(), &format!("http://{}", silent.local_addr().unwrap()));
        let running = begin(&["host", "backup", &flag, &output]);
        let _connection = timeout(PATIENCE, silent.accept()).await.unwrap().unwrap();
        end_by(Signal::SIGKILL, running).await;
        let left = partial(folder.path());
        assert!(!file.exists() && left.len() == killed, "{left:?}");
        assert!(left.iter().all(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o600), "{left:?}");
    }
}

#[tokio::test]
async fn command_that_outlives_its_terminal_goes_on() {
    let folder = folder();
    let output = format!("--output={}/output", folder.path().display());
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flag = host::write(folder.path(), &format!("http://{}", silent.local_addr().unwrap()));
    let running = begin_without_terminal(&["host", "backup", &flag, &output]);
    let _connection = timeout(PATIENCE, silent.accept()).await.unwrap().unwrap();
    kill(Pid::from_raw(running.id().unwrap().cast_signed()), Signal::SIGHUP).unwrap();
    let (_, said) = end_by(Signal::SIGTERM, running).await;
    assert!(said.starts_with("error: SIGTERM ended this command"), "{said}");
}

/// The files that say of themselves that they are not whole.
fn partial(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "partial")).collect()
}
