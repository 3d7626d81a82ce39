//! Whatever is killed: the copy is one in the end, and nobody says so before.

use std::{fs, time::Duration};

use fastrand::Rng;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    ends::{Ended, Ground, join},
    tree::grow,
    trees::rsync::left_to_do,
};

/// For whoever is left to come to an end, where he does.
const LONG: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(2);

/// More of them where there is time.
fn rounds() -> u64 {
    if std::env::var_os("KOSMOS_CSI_THOROUGH").is_some() { 300 } else { 10 }
}

/// What a process has started, by whichever of its threads, and what that has.
fn started_by(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut found = Vec::new();
    for child in children.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
        let child = child.parse().unwrap();
        found.push(child);
        found.extend(started_by(child));
    }
    found
}

/// Kills a process at some moment, or something that it has started: what is there by then, or comes next.
async fn strike(end: i32, at_rsync: bool, after: Duration, chance: &mut Rng) {
    tokio::time::sleep(after).await;
    loop {
        let victim = if at_rsync { chance.choice(started_by(end)) } else { Some(end) };
        if victim.is_some_and(|victim| kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok()) {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// An attempt, with one kill somewhere. Whoever is left is ended by who has started both. Whether an rsync or its shell was killed.
async fn attempt(ground: &Ground, at_rsync: bool, chance: &mut Rng) -> (Ended, Ended, bool) {
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&[]));
    let end = chance.choice([&sender, &receiver]).unwrap().child.id().unwrap().cast_signed();
    let after = Duration::from_millis(chance.u64(..if at_rsync { 200 } else { 1_000 }));
    let struck = tokio::select! {
        () = join(&mut sender, &mut receiver, || None) => false,
        () = strike(end, at_rsync, after, chance) => true,
    };
    // Both end by themselves where what they had started was killed, and go on over another line where it was not.
    let _ = tokio::time::timeout(LONG, join(&mut sender, &mut receiver, || None)).await;
    for end in [&mut sender, &mut receiver] {
        let _ = end.child.start_kill();
    }
    (sender.ended().await, receiver.ended().await, struck && at_rsync)
}

#[tokio::test]
async fn copy_is_one_wherever_an_end_or_its_rsync_is_killed() {
    let seed =
        std::env::var("KOSMOS_CSI_SEED").map_or_else(|_| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap());
    println!("KOSMOS_CSI_SEED={seed}");
    let (mut chance, mut rsyncs) = (Rng::with_seed(seed), 0);
    for round in 0..rounds() {
        let ground = Ground::new();
        grow(&ground.path("source"), chance.u64(..));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (sent, taken, of_rsync) = attempt(&ground, (round + attempts) % 2 == 0, &mut chance).await;
            rsyncs += usize::from(of_rsync);
            let says_so = |ended: &Ended| ended.result.get("copied").is_some();
            if says_so(&sent) || says_so(&taken) {
                let differ = left_to_do(&ground.path("source"), &ground.path("copy"));
                assert_eq!(differ, "", "seed {seed}, round {round}: {sent:?}\n{taken:?}");
            }
            if says_so(&sent) && says_so(&taken) {
                break;
            }
            assert!(attempts < 50, "seed {seed}, round {round}: {sent:?}\n{taken:?}");
            for keys in ["sender", "receiver"] {
                let _ = fs::remove_file(ground.path(keys).join("result"));
            }
        }
    }
    println!("{rsyncs} of the kills were of an rsync or its shell");
    assert!(rsyncs > 0, "no rsync was killed");
}
