//! Links, and folders that are swapped for links while a call is under way.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use domain::volume::backing::Backing;
use mount::{
    Kernel, Linux, Machine,
    kernel::{Failure, Point},
};

use super::ground::{Ground, inside};
use crate::kinds::{GROUP, VOLUME, attached, way};

#[test]
fn no_call_follows_a_link() {
    inside("real::links::no_call_follows_a_link", |ground| {
        let canary = ground.folder("canary");
        fs::write(canary.join("file"), "").unwrap();
        fs::create_dir(canary.join("empty")).unwrap();
        let (link, through) = (ground.path("link"), ground.path("link/empty"));
        symlink(&canary, &link).unwrap();
        for path in [&link, &through] {
            assert_eq!(Linux.look(path), Err(Failure::Link));
            assert_eq!(Linux.is_empty(path), Err(Failure::Link));
            assert_eq!(Linux.filled(path), Err(Failure::Link));
            assert_eq!(Linux.give(path, 7), Err(Failure::Link));
            assert!(Linux.remove(path, Point::Folder).is_err());
            assert!(Linux.unmount(path, true).is_err());
        }
        assert_eq!(Linux.make(&ground.path("link/new"), Point::Folder), Err(Failure::Link));
        assert_eq!(Linux.remove(&ground.path("link/file"), Point::File), Err(Failure::Link));
        let seen = Linux.look(&canary).unwrap();
        assert_eq!(Linux.bind(&canary, &seen, &through), Err(Failure::Link));
        assert_eq!(Linux.bind(&through, &seen, &canary), Err(Failure::Link));
        assert!(matches!(Linux.bind(&canary.join("empty"), &seen, &canary), Err(Failure::Other(_))), "replaced");
        assert_eq!(Linux.remove(&canary, Point::Folder), Err(Failure::NotEmpty));
        fs::write(canary.join("full"), "x").unwrap();
        assert_eq!(Linux.remove(&canary.join("full"), Point::File), Err(Failure::NotEmpty));
        assert_eq!(fs::read_dir(&canary).unwrap().count(), 3);
        assert!(ground.mounts().is_empty());
    });
}

#[test]
fn kubelets_own_folder_may_be_reached_by_a_link() {
    inside("real::links::kubelets_own_folder_may_be_reached_by_a_link", |ground| {
        symlink(ground.path("kubelet"), ground.path("linked")).unwrap();
        let folder = ground.folder("disks/a");
        let local = attached(Backing::Local { path: folder.display().to_string() });
        let by_link =
            |path: std::path::PathBuf| ground.path("linked").join(path.strip_prefix(ground.path("kubelet")).unwrap());
        let (staging, target) = (by_link(ground.staging()), by_link(ground.target(1)));
        let state = ground.path("kubelet/plugins/kosmos.csi.io/volumes");
        let machine = Machine::new(Linux, state, ground.path("by-id"), ground.path("linked"), ground.permitted());
        for _ in 0..2 {
            mount::stage::stage(&machine, &local, &staging, &way()).unwrap();
            mount::publish::publish(&machine, &local, &staging, &target, &way(), false).unwrap();
        }
        assert_eq!(ground.mounts().len(), 1);
        mount::undo::unpublish(&machine, VOLUME, &target).unwrap();
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        ground.assert_nothing_is_left();
    });
}

#[test]
fn folders_swapped_for_links_meanwhile_lead_nobody_astray() {
    inside("real::links::folders_swapped_for_links_meanwhile_lead_nobody_astray", |ground| {
        let canary = ground.folder("canary/volumes/kubernetes.io~csi/pv");
        let folder = ground.folder("disks/a");
        let local = attached(Backing::Local { path: folder.display().to_string() });
        let (machine, staging, target) = (ground.machine(), ground.staging(), ground.target(1));
        mount::stage::stage(&machine, &local, &staging, &way()).unwrap();
        let (pod, hidden) = (ground.path("kubelet/pods/u1"), ground.path("kubelet/pods/hidden"));
        let done = AtomicBool::new(false);
        let (mut published, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    fs::rename(&pod, &hidden).ok();
                    symlink(ground.path("canary"), &pod).ok();
                    fs::remove_file(&pod).ok();
                    fs::rename(&hidden, &pod).ok();
                }
            });
            for _ in 0..400 {
                match mount::publish::publish(&machine, &local, &staging, &target, &way(), false) {
                    Ok(_) => published += 1,
                    Err(_) => refused += 1,
                }
                mount::undo::unpublish(&machine, VOLUME, &target).ok();
                assert_eq!(fs::read_dir(&canary).unwrap().count(), 0, "something was made behind the link");
                let astray = ground.mounts().into_iter().find(|target| target.contains("canary"));
                assert_eq!(astray, None);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(published > 0 && refused > 0, "{published} published, {refused} refused: nothing was raced");
    });
}

#[test]
fn group_gets_what_is_below_and_nothing_else() {
    inside("real::links::group_gets_what_is_below_and_nothing_else", |ground| {
        let outside = ground.folder("outside");
        let volume = ground.folder("volume/deep/deeper");
        fs::write(outside.join("file"), "").unwrap();
        fs::write(volume.join("file"), "").unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        symlink(outside.join("file"), ground.path("volume/link")).unwrap();
        let mounted = ground.folder("volume/mounted");
        Linux.bind(&outside, &Linux.look(&outside).unwrap(), &mounted).unwrap();
        Linux.give(&ground.path("volume"), GROUP).unwrap();
        let of = |path: &std::path::Path| {
            let told = fs::metadata(path).unwrap();
            (told.gid(), told.mode() & 0o2070)
        };
        for folder in ["volume", "volume/deep", "volume/deep/deeper"] {
            assert_eq!(of(&ground.path(folder)), (GROUP, 0o2070), "{folder}");
        }
        assert_eq!(of(&volume.join("file")), (GROUP, 0o060));
        for path in [&outside, &outside.join("file")] {
            assert_eq!(of(path).0, 0, "{}", path.display());
        }
        keeps_others_rights(ground);
    });
}

#[test]
fn folder_of_very_many_files_takes_no_memory_to_give() {
    inside("real::links::folder_of_very_many_files_takes_no_memory_to_give", |ground| {
        let volume = ground.folder("volume");
        let first = volume.join("first");
        fs::write(&first, "").unwrap();
        for number in 0..60_000 {
            fs::hard_link(&first, volume.join(format!("{number:0200}"))).unwrap();
        }
        // What came before counts no longer.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = most_memory();
        Linux.give(&volume, GROUP).unwrap();
        let grown = most_memory() - before;
        assert_eq!(fs::metadata(&first).unwrap().gid(), GROUP);
        assert!(grown < 4 << 10, "{grown} KiB for what 12 MiB of names say");
    });
}

/// That this process has had at one time, in KiB.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    line.unwrap().trim().parse().unwrap()
}

fn keeps_others_rights(ground: &Ground) {
    let told = fs::metadata(ground.path("volume")).unwrap();
    assert_eq!((told.uid(), told.mode() & 0o7707), (0, 0o2705));
}
