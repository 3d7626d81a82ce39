//! Whatever is killed: the copy is one in the end, and nobody says so before.

use std::{fs, time::Duration};

use fastrand::Rng;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    ends::{End, Ended, Ground, join},
    tree::{differences, grow},
};

/// More of them where there is time.
fn rounds() -> u64 {
    if std::env::var_os("KOSMOS_CSI_THOROUGH").is_some() { 300 } else { 10 }
}

/// rsyncs that a process has started, or their children.
fn rsyncs(of: Option<u32>) -> Vec<i32> {
    let Some(of) = of else { return Vec::new() };
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let mut found: Vec<i32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    found.extend(found.clone().into_iter().flat_map(|child| rsyncs(u32::try_from(child).ok())));
    found
}

/// Kills one of the two, or one of what it has started.
fn kill_one(chance: &mut Rng, ends: [&End; 2]) {
    let end = chance.choice(ends).unwrap().child.id();
    let mut there = rsyncs(end);
    there.extend(end.map(u32::cast_signed));
    if let Some(victim) = chance.choice(there) {
        let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
    }
}

/// An attempt, with one kill somewhere. Whoever is left is ended by who has started both.
async fn attempt(ground: &Ground, chance: &mut Rng) -> (Ended, Ended) {
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&[]));
    let after = Duration::from_millis(chance.u64(..1_000));
    let joined = tokio::time::timeout(after, join(&mut sender, &mut receiver, || None)).await;
    if joined.is_err() {
        kill_one(chance, [&sender, &receiver]);
        // Both end by themselves where what they had started was killed, and go on over another line where it was not.
        let _ = tokio::time::timeout(Duration::from_secs(5), join(&mut sender, &mut receiver, || None)).await;
    }
    for end in [&mut sender, &mut receiver] {
        let _ = end.child.start_kill();
    }
    (sender.ended().await, receiver.ended().await)
}

#[tokio::test]
async fn copy_is_one_wherever_an_end_or_its_rsync_is_killed() {
    let seed =
        std::env::var("KOSMOS_CSI_SEED").map_or_else(|_| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap());
    println!("KOSMOS_CSI_SEED={seed}");
    let mut chance = Rng::with_seed(seed);
    for round in 0..rounds() {
        let ground = Ground::new();
        grow(&ground.path("source"), chance.u64(..));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (sent, taken) = attempt(&ground, &mut chance).await;
            let says_so = |ended: &Ended| ended.result.get("copied").is_some();
            if says_so(&sent) || says_so(&taken) {
                let differ = differences(&ground.path("source"), &ground.path("copy"));
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
}
