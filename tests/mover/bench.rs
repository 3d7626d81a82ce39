//! `make bench-move`: what a copy costs beside plain rsync over the same folders, and what a second pass carries. It tells, and fails where
//! a copy is not one, or where it carries much of what is there already.
#![expect(clippy::print_stdout, reason = "it speaks to a person")]

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::{
    ends::{End, Ended, Ground, join, pass},
    trees::rsync::left_to_do,
};

const MEBIBYTE: u64 = 1 << 20;
/// In files of 32 MiB.
const LARGE: u64 = 2048;
/// Files of 4 KiB.
const SMALL: u64 = 20_000;
/// As databases write.
const PAGE: usize = 4096;
/// In a hundred bytes, of a second pass after one in a hundred has changed.
const MOST: u64 = 5;

/// After its start, at the latest.
const SERVES: Duration = Duration::from_secs(10);

/// An rsync that serves a folder, until it is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// With the port on which it serves.
    fn start(ground: &Ground, folder: &Path) -> (Self, u16) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = ground.path("rsyncd.conf");
        let text = "use chroot = no\nuid = 0\ngid = 0\n[copy]\nread only = false\npath = ";
        fs::write(&config, format!("{text}{}\n", folder.display())).unwrap();
        let arguments = ["--daemon", "--no-detach", "--address=127.0.0.1", &format!("--port={port}"), "--config"];
        let mut child = Command::new("rsync").args(arguments).arg(&config).stdin(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().unwrap().is_none() && began.elapsed() < SERVES, "rsync does not serve");
            std::thread::yield_now();
        }
        (Self(child), port)
    }
}

fn large(folder: &Path) -> u64 {
    let mut piece = vec![0; 1 << 20];
    for number in 0..LARGE / 32 {
        let mut file = fs::File::create(folder.join(format!("large-{number}"))).unwrap();
        for _ in 0..32 {
            Rng::with_seed(number).fill(&mut piece);
            file.write_all(&piece).unwrap();
        }
    }
    LARGE * MEBIBYTE
}

fn small(folder: &Path) -> u64 {
    for number in 0..SMALL {
        let within = folder.join((number / 1000).to_string());
        if number.is_multiple_of(1000) {
            fs::create_dir(&within).unwrap();
        }
        fs::write(within.join(number.to_string()), [number.to_le_bytes(); 512].as_flattened()).unwrap();
    }
    SMALL * 4096
}

fn plain(ground: &Ground) -> Duration {
    let to = ground.path("plain");
    fs::create_dir(&to).unwrap();
    let (_daemon, port) = Daemon::start(ground, &to);
    let began = Instant::now();
    // It takes times of one second for the same otherwise, and a folder may be made in the second of its source.
    let flags = ["-aHAXXS", "--numeric-ids", "--delete", "--whole-file", "--inplace", "--modify-window=-1"];
    let from = format!("{}/", ground.path("source").display());
    let copied =
        Command::new("rsync").args(flags).args([from, format!("rsync://127.0.0.1:{port}/copy/")]).status().unwrap();
    assert!(copied.success());
    let took = began.elapsed();
    assert_eq!(left_to_do(&ground.path("source"), &to), "", "plain rsync has copied elsewhere");
    fs::remove_dir_all(to).unwrap();
    took
}

/// Seconds between two lines of a log.
fn between(ended: &Ended, first: &str, last: &str) -> f64 {
    let at = |words: &str| {
        let line =
            ended.log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {}", ended.log));
        let time = line.split(['T', 'Z']).nth(1).unwrap();
        time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
    };
    at(last) - at(first)
}

async fn moved(ground: &Ground) -> (Ended, Ended) {
    let (mut sender, mut receiver): (End, End) = (ground.sender(), ground.receiver(&[]));
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    (sent, taken)
}

async fn measured(what: &str, grow: fn(&Path) -> u64) {
    let ground = Ground::new();
    let bytes = grow(&ground.path("source"));
    #[expect(clippy::cast_precision_loss, reason = "it speaks to a person")]
    let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
    let plain = rate(plain(&ground).as_secs_f64());
    let (sent, taken) = moved(&ground).await;
    let copied = rate(between(&sent, "rsync copies", "comparing source and copy"));
    let judged = rate(between(&taken, "comparing source and copy", "are the same"));
    let share = copied / plain * 100.0;
    println!(
        "figure: {what}: plain rsync {plain:.0} MB/s, mover {copied:.0} MB/s ({share:.0} %), judge {judged:.0} MB/s"
    );
}

/// One byte in a hundred, in pages all over each file; how many there were.
fn change(folder: &Path) -> u64 {
    let (mut chance, mut page) = (Rng::with_seed(1), [0; PAGE]);
    let (length, mut changed) = (PAGE as u64, 0);
    for file in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let file = fs::File::options().write(true).open(file.path()).unwrap();
        let pages = file.metadata().unwrap().len() / length;
        for _ in 0..pages / 100 {
            chance.fill(&mut page);
            file.write_all_at(&page, chance.u64(..pages) * length).unwrap();
            changed += length;
        }
    }
    changed
}

/// One direction, as far as it goes.
async fn hand_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, carried: &AtomicU64) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        carried.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

/// How many bytes go over a line, in both directions together.
async fn carried(from: TcpStream, to: TcpStream) -> u64 {
    let ((from, to_sender), (to, to_receiver)) = (from.into_split(), to.into_split());
    let carried = AtomicU64::new(0);
    tokio::select! {
        () = hand_on(from, to_receiver, &carried) => {}
        () = hand_on(to, to_sender, &carried) => {}
    }
    carried.into_inner()
}

/// It looks for what is there already, as after a line that broke.
#[tokio::test]
#[ignore = "it measures: make bench-move"]
async fn second_pass_carries_little_but_what_has_changed() {
    let ground = Ground::new();
    let bytes = large(&ground.path("source"));
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&[]));
    // With what the line itself needs, the last of the last file is not there yet.
    let (mut from, mut to) = (sender.connect().await.unwrap(), receiver.connect().await.unwrap());
    pass(&mut from, &mut to, bytes).await;
    drop((from, to));
    let changed = change(&ground.path("source"));
    let carried = carried(sender.connect().await.unwrap(), receiver.connect().await.unwrap()).await;
    join(&mut sender, &mut receiver, || None).await;
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert_eq!(left_to_do(&ground.path("source"), &ground.path("copy")), "");
    let share = |part: u64| format!("{part} ({} in a thousand)", part * 1000 / bytes);
    println!(
        "figure: second pass over {bytes} bytes: {} have changed, {} over the line",
        share(changed),
        share(carried)
    );
    assert!(carried >= changed && carried * 100 <= bytes * MOST, "{carried} of {bytes} bytes");
}

#[tokio::test]
#[ignore = "it measures: make bench-move"]
async fn copy_against_plain_rsync() {
    measured("2 GiB in 64 files", large).await;
    measured("20,000 files of 4 KiB", small).await;
}
