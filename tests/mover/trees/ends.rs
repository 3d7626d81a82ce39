//! Hard trees, and many files, through the real ends: a sender and a receiver as processes, and a line between them.

use std::{
    convert::Infallible,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use super::{
    copies::{TREES, sides},
    dress::set,
    ground::{Filesystem, inside, is_thorough, seeds},
    rsync::left_to_do,
    tree::Tree,
    witness,
};
use crate::{
    ends::{End, Ended, Ground, join, started_by},
    refusals::which,
};

/// Where there is little time.
const SOME: u64 = 9;
const FEW_FILES: u64 = 10_000;

const FILES: u64 = 100_000;
/// In a folder.
const TOGETHER: u64 = 1_000;
/// Of memory on a side: for an end, and for all that it has started.
const MOST: u64 = 96 << 20;
/// More than a small tree takes.
const SOON: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

async fn carried(source: &Path, copy: &Path) -> [Ended; 2] {
    let keys = Ground::new();
    let mut sender = End::start(&["send"], source, &keys.path("sender"), None);
    let mut receiver = keys.receiver_into(copy, &["--must-be-empty"]);
    join(&mut sender, &mut receiver, || None).await;
    [sender.ended().await, receiver.ended().await]
}

#[test]
fn copies_of_random_trees_by_two_ends_are_equal_to_a_witness() {
    inside("trees::ends::copies_of_random_trees_by_two_ends_are_equal_to_a_witness", |ground| {
        let ([sources, copies], runtime) = (sides(ground), Runtime::new().unwrap());
        for seed in seeds(if is_thorough() { TREES } else { SOME }) {
            let (pair, name) = (usize::try_from(seed % 9).unwrap(), seed.to_string());
            let (source, copy) = (sources[pair / 3].join(&name), copies[pair % 3].join(&name));
            Tree::grow(&source, seed);
            fs::create_dir(&copy).unwrap();
            let [sent, taken] = runtime.block_on(carried(&source, &copy));
            assert!(sent.status.success() && taken.status.success(), "seed {seed}: {sent:?}\n{taken:?}");
            assert_eq!(sent.result, taken.result, "seed {seed}");
            assert_eq!(witness::finds(&source, &copy), None, "seed {seed}, {} to {}", source.display(), copy.display());
            for side in [&source, &copy] {
                fs::remove_dir_all(side).unwrap();
            }
        }
    });
}

/// The other end waits for what does not come, and hears all the while that somebody is there.
#[test]
fn source_that_can_be_copied_and_not_be_read_again_fails_at_both_ends() {
    inside("trees::ends::source_that_can_be_copied_and_not_be_read_again_fails_at_both_ends", |ground| {
        let [source, copy, programs] = ["source", "copy", "programs"].map(|name| ground.folder(name));
        fs::create_dir(source.join("inner")).unwrap();
        let (real, program, inner) = (which("rsync"), programs.join("rsync"), source.join("inner"));
        let covers = format!("mount -t tmpfs tmpfs {}", inner.display());
        let script = format!("#!/bin/sh\n{real} \"$@\" || exit $?\ncase \"$1\" in --version) ;; *) {covers} ;; esac\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
        let ended = Runtime::new().unwrap().block_on(async {
            let keys = Ground::new();
            let mut sender = End::start(&["send"], &source, &keys.path("sender"), Some(Path::new(&path)));
            let mut receiver = keys.receiver_into(&copy, &["--must-be-empty"]);
            timeout(SOON, join(&mut sender, &mut receiver, || None)).await.unwrap();
            [sender.ended().await, receiver.ended().await]
        });
        for end in ended {
            assert!(end.reason() == "Unreadable" && end.message().contains("\"inner\""), "{end:?}");
        }
    });
}

/// As on nodes where a process has 1024 to itself, unless it asks for what it may have.
#[test]
fn folders_within_more_folders_than_a_process_may_first_have_open_are_carried() {
    const OPEN_FILES: u64 = 64;
    inside("trees::ends::folders_within_more_folders_than_a_process_may_first_have_open_are_carried", |ground| {
        let [source, copy] = ["source", "copy"].map(|name| ground.folder(name));
        fs::create_dir_all(source.join("d/".repeat(300))).unwrap();
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN_FILES), maximum }).unwrap();
        let [sent, taken] = Runtime::new().unwrap().block_on(carried(&source, &copy));
        assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
        assert_eq!((&sent.result["copied"]["entries"], &sent.result), (&301.into(), &taken.result));
        assert_eq!(left_to_do(&source, &copy), "");
    });
}

/// The kernel says that there is no space left. Whoever makes room would do it in vain.
#[test]
fn more_attributes_than_the_copys_filesystem_takes_are_not_told_as_full_storage() {
    inside("trees::ends::more_attributes_than_the_copys_filesystem_takes_are_not_told_as_full_storage", |ground| {
        let (source, copy) = (ground.mounted(Filesystem::Xfs, "source"), ground.mounted(Filesystem::Ext4, "copy"));
        let file = source.join("file");
        fs::write(&file, "data").unwrap();
        for name in ["user.one", "user.other"] {
            set(&file, name.as_bytes(), &[1; 3000]);
        }
        for end in Runtime::new().unwrap().block_on(carried(&source, &copy)) {
            assert!(end.reason() == "CopyFailed" && end.message().contains("setxattr("), "{end:?}");
        }
    });
}

fn grow(root: &Path, files: u64) {
    for number in 0..files {
        let folder = root.join((number / TOGETHER).to_string());
        if number.is_multiple_of(TOGETHER) {
            fs::create_dir(&folder).unwrap();
        }
        fs::write(folder.join(format!("{number:08}-of-very-many")), [number.to_le_bytes(); 512].as_flattened())
            .unwrap();
    }
}

/// The most that a process has had, or nothing of one that has ended.
fn most_of(process: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    line.map_or(0, |line| line.trim().parse::<u64>().unwrap() << 10)
}

/// The most that each end has had with all that it has started, and what that has had of it.
async fn look_at(ends: [i32; 2], most: &mut [(u64, u64); 2]) -> Infallible {
    loop {
        for (end, most) in ends.into_iter().zip(&mut *most) {
            let others: u64 = started_by(end).into_iter().map(most_of).sum();
            *most = (most.0.max(most_of(end) + others), most.1.max(others));
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

#[tokio::test]
async fn many_small_files_are_carried_and_judged_in_little_memory() {
    let (ground, files) = (Ground::new(), if is_thorough() { FILES } else { FEW_FILES });
    grow(&ground.path("source"), files);
    let began = Instant::now();
    let (mut sender, mut receiver) = (ground.sender(), ground.receiver(&["--must-be-empty"]));
    let ends = [&sender, &receiver].map(|end| end.child.id().unwrap().cast_signed());
    let mut most = [(0, 0); 2];
    tokio::select! {
        () = join(&mut sender, &mut receiver, || None) => {}
        never = look_at(ends, &mut most) => match never {},
    }
    let (sent, taken) = (sender.ended().await, receiver.ended().await);
    assert!(sent.status.success() && taken.status.success(), "{sent:?}\n{taken:?}");
    assert_eq!((&sent.result["copied"]["files"], &sent.result), (&files.into(), &taken.result));
    for (side, (all, others)) in ["source", "copy"].iter().zip(most) {
        eprintln!("figure: {files} files: {} KiB at the {side}, {} KiB of them for rsync", all >> 10, others >> 10);
        assert!(others > 0, "rsync was not looked at");
        assert!(all <= MOST, "{all} bytes at the {side}");
    }
    eprintln!("  in {:.1} s", began.elapsed().as_secs_f64());
}
