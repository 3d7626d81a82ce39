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

use std::{env, fs, hint::black_box, path::PathBuf};

use callgrind::{Callgrind, by_function};
use figures::Figures;
use uncounted::{Uncounted, counted};
use world::World;

/// Says to this program that it is counted, among so many members.
const AMONG: &str = "KOSMOS_CSI_COUNTED_AMONG";
const MEMBERS: usize = 8;
/// The first ones find nothing yet of what the later ones do.
const NOT_COUNTED: usize = 3;
const VOLUMES: usize = 14;
const MANY: usize = 1000;
/// In a hundred: so much a CreateVolume may take among many members, of what it takes with one.
const AMONG_MANY: u64 = 120;
/// The test that is played to be counted.
const COUNTED_TEST: &str = "volume_takes_as_many_instructions_as_before";
/// Where it is told which functions take how many; without it, target/profile.
const PROFILE: &str = "KOSMOS_CSI_PROFILE";
/// So many of the dearest are told at once.
const DEAREST: usize = 45;
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
    let counted = callgrind.count(COUNTED_TEST, AMONG, MEMBERS);
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

#[test]
#[ignore = "takes minutes: make bench-goals"]
fn volume_takes_hardly_more_instructions_among_a_thousand_members_than_with_one() {
    let Some(callgrind) = Callgrind::find() else { panic!("there is no valgrind here: `make tools` installs it") };
    let taken = |members: usize| {
        let counted = callgrind.count(COUNTED_TEST, AMONG, members);
        Figures::of(&counted[2 * NOT_COUNTED..]).of_a_creation()
    };
    let (alone, among) = (taken(1), taken(MANY));
    let told = format!("CreateVolume takes {among} instructions among {MANY} members, and {alone} with one");
    assert!(among * 100 <= alone * AMONG_MANY, "{told}");
    println!("{told}");
}

#[test]
#[ignore = "for a person who looks where they are: make profile"]
fn volume_takes_its_instructions_in_these_functions() {
    let Some(callgrind) = Callgrind::find() else { panic!("there is no valgrind here: `make tools` installs it") };
    let folder = env::var_os(PROFILE).map_or_else(|| PathBuf::from("target/profile"), PathBuf::from);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    let parts = callgrind.play(&folder, COUNTED_TEST, AMONG, MEMBERS);
    // Of a volume in the middle.
    for (call, part) in ["CreateVolume", "DeleteVolume"].into_iter().zip(&parts[2 * (VOLUMES / 2)..]) {
        let by_itself = by_function(part, false);
        fs::write(folder.join(format!("{call}.txt")), &by_itself).unwrap();
        fs::write(folder.join(format!("{call}-with-called.txt")), by_function(part, true)).unwrap();
        println!("{call}:\n{}", by_itself.lines().take(DEAREST).collect::<Vec<_>>().join("\n"));
    }
    println!("all of it, and what functions take with those they call, is in {}", folder.display());
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
