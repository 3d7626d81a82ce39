//! A real process that is killed at moments nobody chose, with whatever programs it runs.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::{
    DISK, disk,
    ground::{Ground, Loop, inside},
};
use crate::kinds::{VOLUME, way};

const NAME: &str = "real::kills::killed_at_any_moment_it_goes_on";
const VICTIM: &str = "KOSMOS_CSI_MOUNT_VICTIM";
const KILLS: usize = 20;

#[test]
fn killed_at_any_moment_it_goes_on() {
    if env::var_os(VICTIM).is_some() {
        return live_for_ever(&Ground::of_this_process());
    }
    inside(NAME, |ground| {
        // Each disk is formatted by a process that may die at it, and used by some more.
        for round in 0..4 {
            fs::remove_file(ground.path("by-id/disk-1")).ok();
            let _disk = Loop::new(ground, "disk-1", DISK);
            let mut had_data = false;
            for kill in 0..KILLS / 4 {
                let victim = start_victim();
                thread::sleep(Duration::from_millis(fastrand::u64(1..if kill == 0 { 60 } else { 400 })));
                end(victim);
                had_data = go_on(ground, had_data, round);
            }
        }
    });
}

fn start_victim() -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(VICTIM, "1")
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn end(mut victim: Child) {
    killpg(Pid::from_raw(i32::try_from(victim.id()).unwrap()), Signal::SIGKILL).unwrap();
    victim.wait().unwrap();
}

fn live_for_ever(ground: &Ground) {
    loop {
        one_life(ground);
    }
}

fn one_life(ground: &Ground) -> bool {
    let machine = ground.machine();
    let (staging, target) = (ground.staging(), ground.target(1));
    mount::stage::stage(&machine, &disk("ext4"), &staging, &way()).unwrap();
    mount::publish::publish(&machine, &disk("ext4"), &staging, &target, &way(), false).unwrap();
    let file = target.join("data");
    let had_data = file.exists();
    if !had_data {
        let writing = fs::File::create(target.join("half")).unwrap();
        writing.sync_all().unwrap();
        fs::rename(target.join("half"), &file).unwrap();
    }
    mount::undo::unpublish(&machine, VOLUME, &target).unwrap();
    mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
    had_data
}

/// Whether there is data by now, which stays from then on.
fn go_on(ground: &Ground, had_data: bool, round: usize) -> bool {
    assert!(one_life(ground) || !had_data, "data is gone in round {round}");
    ground.assert_nothing_is_left();
    assert!(!ground.target(1).exists());
    true
}
