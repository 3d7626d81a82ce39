//! Whatever is killed: the copy is one in the end, and nobody says so before.

use std::{fs, time::Duration};

use fastrand::Rng;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    ends::{Ended, Ground, join, started_by},
    tree::grow,
    trees::{ground::is_thorough, rsync::left_to_do},
};

/// More than it takes until one of both has ended, also where the machine is busy.
const LONG: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_millis(2);

/// More of them where there is time.
fn rounds() -> usize {
    if is_thorough() { 300 } else { 10 }
}

/// Who is killed: an end, something that one of them has started, or who joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    End,
    Rsync,
    Line,
}

const VICTIMS: [Victim; 3] = [Victim::End, Victim::Rsync, Victim::Line];

impl Victim {
    /// As long as there is something to kill, mostly.
    fn milliseconds(self) -> u64 {
        match self {
            Self::End => 1_000,
            Self::Rsync | Self::Line => 200,
        }
    }
}

/// Kills a process at some moment, or something that it has started: what is there by then, or comes next. The line ends with whoever
/// waits for that.
async fn strike(end: i32, at: Victim, chance: &mut Rng) {
    tokio::time::sleep(Duration::from_millis(chance.u64(..at.milliseconds()))).await;
    loop {
        let victim = match at {
            Victim::End => Some(end),
            Victim::Rsync => chance.choice(started_by(end)),
            Victim::Line => return,
        };
        if victim.is_some_and(|victim| kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok()) {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// An attempt, with one kill somewhere. Once one end is over, whoever is left is ended by who has started both. Whether something was there to be
/// killed.
async fn attempt(ground: &Ground, at: Victim, chance: &mut Rng) -> (Ended, Ended, bool) {
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&[]));
    let end = chance.choice([&sender, &receiver]).unwrap().child.id().unwrap().cast_signed();
    let struck = tokio::select! {
        () = join(&mut sender, &mut receiver, || None) => false,
        () = strike(end, at, chance) => true,
    };
    // Both end by themselves where what they had started was killed, and go on over another line where it was not.
    let over = tokio::time::timeout(LONG, join(&mut sender, &mut receiver, || None)).await;
    for end in [&mut sender, &mut receiver] {
        let _ = end.child.start_kill();
    }
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(over.is_ok(), "{at:?} was killed, and neither end has ended after {LONG:?}: {sent:?}\n{taken:?}");
    (sent, taken, struck)
}

#[tokio::test]
async fn copy_is_one_wherever_an_end_its_rsync_or_the_line_is_killed() {
    let seed =
        std::env::var("KOSMOS_CSI_SEED").map_or_else(|_| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap());
    println!("KOSMOS_CSI_SEED={seed}");
    let (mut chance, mut kills) = (Rng::with_seed(seed), VICTIMS.map(|victim| (victim, 0)));
    for round in 0..rounds() {
        let ground = Ground::new();
        grow(&ground.path("source"), chance.u64(..));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (victim, killed) = &mut kills[(round + attempts) % VICTIMS.len()];
            let (sent, taken, struck) = attempt(&ground, *victim, &mut chance).await;
            *killed += usize::from(struck);
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
    println!("figure: {} copies with kills: {kills:?}", rounds());
    // Of a few, an end may be none: a copy is soon over.
    let is_met = |(victim, killed): &(Victim, usize)| *killed > 0 || *victim == Victim::End && !is_thorough();
    assert!(kills.iter().all(is_met), "{kills:?}");
}
