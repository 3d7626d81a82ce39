//! What rsync calls for its remote shell, as a process.

use std::{
    io::{ErrorKind, Write},
    os::{fd::OwnedFd, unix::net::UnixStream as Socket},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    process::Command,
    time::timeout,
};

/// In which whoever does not wait has ended.
const ENDS: Duration = Duration::from_secs(1);
const SAID: usize = 1 << 20;

#[tokio::test]
async fn pipe_waits_for_an_rsync_that_does_not_read_and_hands_on_all() {
    let name = format!("kosmos-csi-mover-of-a-test-{}", std::process::id());
    let listener = UnixListener::bind(format!("\0{name}")).unwrap();
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
    let mut pipe = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
        .args(["mover", "pipe", "receiver", "rsync"])
        .env(mover::pipe::SOCKET, &name)
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(stdout))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut other_end, _) = listener.accept().await.unwrap();
    let mut words = vec![0; other_end.read_u32().await.unwrap() as usize];
    other_end.read_exact(&mut words).await.unwrap();
    assert_eq!(words, br#"["receiver","rsync"]"#);
    let saying = tokio::spawn(async move { other_end.write_all(&vec![1; SAID]).await });
    assert!(timeout(ENDS, pipe.wait()).await.is_err(), "it ends instead of waiting");
    let mut heard = Vec::new();
    UnixStream::from_std(rsync).unwrap().read_to_end(&mut heard).await.unwrap();
    saying.await.unwrap().unwrap();
    assert!(pipe.wait().await.unwrap().success());
    assert!(heard == [vec![0; full], vec![1; SAID]].concat(), "{} bytes of {}", heard.len(), full + SAID);
}
