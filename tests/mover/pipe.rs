//! What rsync calls for its remote shell, as a process.

use std::{
    io::{ErrorKind, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream as Socket},
    process::Stdio,
    time::Duration,
};

use mover::pipe::{Call, Pipe, SOCKET};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{Child, Command},
    time::timeout,
};

/// In which whoever does not wait has ended.
const ENDS: Duration = Duration::from_secs(1);
const SAID: usize = 1 << 20;

/// The shell of an rsync, and what the sender has of it.
async fn called(number: u32, stdin: OwnedFd, stdout: OwnedFd) -> (Child, Call) {
    let pipe = Pipe::listen(number).unwrap();
    let shell = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
        .args(["mover", "pipe", "receiver", "rsync"])
        .env(SOCKET, pipe.name())
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let call = pipe.accept().await.unwrap();
    assert_eq!(call.arguments, ["receiver", "rsync"]);
    (shell, call)
}

#[tokio::test]
async fn pipe_waits_for_an_rsync_that_does_not_read_and_hands_on_all() {
    // As rsync makes it: whoever writes into it when it is full gets an error.
    let (rsync, mut stdout) = Socket::pair().unwrap();
    rsync.set_nonblocking(true).unwrap();
    stdout.set_nonblocking(true).unwrap();
    let mut full = 0;
    let error = loop {
        match stdout.write(&[0; 512]) {
            Ok(length) => full += length,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let (mut shell, call) = called(1, Socket::pair().unwrap().1.into(), stdout.into()).await;
    let Call { mut heard, .. } = call;
    let saying = tokio::spawn(async move { heard.write_all(&vec![1; SAID]).await });
    assert!(timeout(ENDS, shell.wait()).await.is_err(), "it ends instead of waiting");
    let mut hears = Vec::new();
    UnixStream::from_std(rsync).unwrap().read_to_end(&mut hears).await.unwrap();
    saying.await.unwrap().unwrap();
    assert!(shell.wait().await.unwrap().success());
    assert!(hears == [vec![0; full], vec![1; SAID]].concat(), "{} bytes of {}", hears.len(), full + SAID);
}

/// The sender goes on reading what rsync says: of that it is to come to the end.
#[tokio::test]
async fn rsync_that_hears_no_more_has_nobody_to_speak_to_either() {
    let ((mut rsync, stdin), (mut hears, stdout)) = (Socket::pair().unwrap(), Socket::pair().unwrap());
    let (mut shell, call) = called(2, stdin.into(), stdout.into()).await;
    let Call { mut said, heard, .. } = call;
    rsync.write_all(b"said").unwrap();
    drop(heard);
    assert!(shell.wait().await.unwrap().success());
    assert_eq!(hears.read(&mut [0]).unwrap(), 0);
    assert_eq!(rsync.write_all(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut all = Vec::new();
    said.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"said");
}

/// It has them where it was built on another kind of machine than it runs on.
#[tokio::test]
async fn rsync_that_has_pipes_is_spoken_to_as_well() {
    let ((stdin, mut rsync), (mut hears, stdout)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let (mut shell, call) = called(3, stdin.into(), stdout.into()).await;
    let Call { mut said, mut heard, .. } = call;
    rsync.write_all(b"said").unwrap();
    drop(rsync);
    heard.write_all(b"heard").await.unwrap();
    drop(heard);
    let (mut all_said, mut all_heard) = (Vec::new(), Vec::new());
    said.read_to_end(&mut all_said).await.unwrap();
    hears.read_to_end(&mut all_heard).unwrap();
    assert!(shell.wait().await.unwrap().success());
    assert_eq!((&*all_said, &*all_heard), (&b"said"[..], &b"heard"[..]));
}
