//! A filesystem that never answers: FUSE with nobody behind it.

use std::{
    fs::{self, OpenOptions},
    os::fd::AsRawFd,
    path::Path,
    thread,
    time::Duration,
};

use mount::{Kernel, Linux, kernel::Failure, table::Table};
use nix::mount::{MsFlags, mount};

use super::ground::inside;

/// Whether this process has it open.
fn is_open(path: &Path) -> bool {
    let mut open = fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap);
    open.any(|entry| fs::read_link(entry.path()).is_ok_and(|there| there == path))
}

#[test]
fn mount_that_does_not_answer_is_unmounted_while_a_question_to_it_hangs() {
    inside("real::silent::mount_that_does_not_answer_is_unmounted_while_a_question_to_it_hangs", |ground| {
        let Ok(server) = OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
            eprintln!("this machine has no FUSE: what does not answer is held to a model alone");
            return;
        };
        let place = ground.folder("silent");
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        mount(Some("fuse"), &place, Some("fuse"), MsFlags::empty(), Some(data.as_str())).unwrap();
        let table = Table::parse(&Linux.mountinfo().unwrap()).unwrap();
        let (at, filesystem) = (place.clone(), table.at(&place).unwrap().device);
        let question = thread::spawn(move || Linux.ask(&at, filesystem));
        while !is_open(&place) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(Linux.unmount(&place, false), Err(Failure::Busy));
        assert_eq!(Linux.unmount(&place, true), Ok(()));
        assert!(ground.mounts().is_empty() && !question.is_finished());
        drop(server);
        assert_eq!(question.join().unwrap(), Err(Failure::Dead));
    });
}
