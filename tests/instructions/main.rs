//! How many instructions the driver takes for a volume, counted by callgrind: in this process, between simulated clusters, on one thread
//! and on a clock that jumps, so that the same is done each time. What gRPC, sockets and TLS take is not in it, nor what the clusters take.
//!
//! Times on a machine that others use differ by more than most changes are worth. What is left to chance here is how hash tables are
//! seeded, some thousandths: so each call is made several times, and the middle one counts.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../authority.rs"]
mod authority;
mod callgrind;
mod figures;
#[path = "../provisioner.rs"]
mod provisioner;
mod uncounted;
mod world;

use std::{env, hint::black_box};

use callgrind::Callgrind;
use figures::Figures;
use uncounted::{Uncounted, counted};
use world::World;

/// Says to this program that it is counted, among so many members.
const AMONG: &str = "KOSMOS_CSI_COUNTED_AMONG";
const MEMBERS: usize = 8;
/// The first ones find nothing yet of what the later ones do.
const NOT_COUNTED: usize = 3;
const VOLUMES: usize = 14;
/// Says to this program that it is counted at steps alone, and how many of them the clusters take in a call.
const STEPS: &str = "KOSMOS_CSI_COUNTED_STEPS";
/// Each takes an instruction at least: more than all else in such a call.
const OF_CLUSTERS: usize = 100_000;
/// So many more does the driver take in each call.
const MORE: u64 = 50;

#[test]
fn volume_takes_as_many_instructions_as_before() {
    if let Ok(members) = env::var(AMONG) {
        return play(members.parse().unwrap());
    }
    let Some(callgrind) = Callgrind::find() else {
        return eprintln!("instructions are not counted: there is no valgrind here (`make tools` installs it)");
    };
    let counted = callgrind.count("volume_takes_as_many_instructions_as_before", AMONG, MEMBERS);
    assert_eq!(counted.len(), 2 * VOLUMES, "{counted:?}");
    println!("{}", Figures::of(&counted[2 * NOT_COUNTED..]).held());
}

/// Of each volume its creation is counted, and then its removal.
fn play(members: usize) {
    let world = World::new(members);
    for number in 0..VOLUMES {
        let volume = world.create(number);
        world.delete(&volume);
    }
}

/// Which is which callgrind knows by their names, and what it does not know counts for nothing.
#[test]
fn what_the_clusters_do_is_not_counted_and_what_the_driver_does_is() {
    if let Ok(of_clusters) = env::var(STEPS) {
        return walk(of_clusters.parse().unwrap());
    }
    let Some(callgrind) = Callgrind::find() else { return };
    let test = "what_the_clusters_do_is_not_counted_and_what_the_driver_does_is";
    let told = callgrind.count(test, STEPS, OF_CLUSTERS);
    let [_, first, second, third] = told[..] else { panic!("{told:?}") };
    assert!(third < OF_CLUSTERS as u64, "{told:?}");
    let (more, as_many) = (second - first, third - second);
    assert!(more >= MORE && more.abs_diff(as_many) < more / 10, "{told:?}");
}

fn walk(of_clusters: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for call in 1..=4 {
        let walking = async move {
            steps(MORE * call);
            Uncounted::new(async { steps(of_clusters) }).await;
        };
        counted(&runtime, Box::pin(walking));
    }
}

fn steps(number: u64) {
    for step in 0..number {
        black_box(step);
    }
}
