//! The same on the real kernel: loop devices, tmpfs, and what people do to folders meanwhile. Each test runs in a process
//! and a mount namespace of its own, so that whatever it leaves mounted ends with it.

mod ground;
mod kills;
mod links;
mod silent;

use std::{fs, io::Write, os::unix::fs::MetadataExt, path::Path, process::Command, thread, time::Duration};

use domain::{
    error::Error,
    volume::{
        VolumeMode,
        backing::{Attached, Backing},
    },
};
use mount::{Access, Expanded, Kernel, Linux, Progress, Record, VolumeUse, records::Records};

use crate::{
    folders::references,
    kinds::{GROUP, VOLUME, attached, way},
};
use ground::{Ground, Loop, inside};

pub const DISK: u64 = 64 << 20;

fn disk(filesystem: &str) -> Attached {
    attached(Backing::Device { names: vec!["disk-1".to_owned()], filesystem: filesystem.to_owned() })
}

/// A volume's life with data that stays, whatever its disk is.
fn lives(ground: &Ground, attached: &Attached) {
    let machine = ground.machine();
    let (staging, one, two) = (ground.staging(), ground.target(1), ground.target(2));
    for round in 0..2 {
        assert_eq!(mount::stage::stage(&machine, attached, &staging, &way()).unwrap(), Progress::Done);
        mount::publish::publish(&machine, attached, &staging, &one, &way(), false).unwrap();
        mount::publish::publish(&machine, attached, &staging, &two, &way(), true).unwrap();
        let file = one.join("data");
        assert_eq!(file.exists(), round == 1, "data stays, and a new volume has none");
        fs::write(&file, "precious").unwrap();
        assert_eq!(fs::read_to_string(two.join("data")).unwrap(), "precious");
        let refused = fs::write(two.join("data"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let folder = fs::metadata(&one).unwrap();
        assert_eq!((folder.gid(), folder.mode() & 0o2070), (GROUP, 0o2070));
        assert!(mount::measure::usage(&machine, VOLUME, &one).unwrap().bytes.unwrap().total > 0);
        assert!(mount::measure::health(&machine, VOLUME).unwrap().is_empty());
        for target in [&one, &two] {
            mount::undo::unpublish(&machine, VOLUME, target).unwrap();
            assert!(!target.exists());
        }
        assert_eq!(mount::undo::unstage(&machine, VOLUME, &staging).unwrap(), Progress::Done);
        ground.assert_nothing_is_left();
    }
}

#[test]
fn ext4_lives_and_grows() {
    inside("real::ext4_lives_and_grows", |ground| {
        let device = Loop::new(ground, "disk-1", DISK);
        lives(ground, &disk("ext4"));
        device.resize(2 * DISK);
        let machine = ground.machine();
        let (staging, target) = (ground.staging(), ground.target(1));
        mount::stage::stage(&machine, &disk(""), &staging, &way()).unwrap();
        let total = || mount::measure::usage(&machine, VOLUME, &staging).unwrap().bytes.unwrap().total;
        assert!(total() > DISK, "it has grown before a pod has it");
        mount::publish::publish(&machine, &disk(""), &staging, &target, &way(), false).unwrap();
        device.resize(3 * DISK);
        match mount::measure::expand(&machine, VOLUME, &target, 3 * DISK) {
            Ok(grown) => assert!(grown == Expanded::To(3 * DISK) && total() > 2 * DISK),
            // Not everywhere may ext4 grow while it is mounted.
            Err(error) => assert!(error.to_string().contains("next staged"), "{error}"),
        }
    });
}

/// As resize2fs leaves it that is killed while nothing is mounted, or whose node is lost.
#[test]
fn growth_that_was_cut_short_is_repaired_where_the_record_has_it() {
    inside("real::growth_that_was_cut_short_is_repaired_where_the_record_has_it", |ground| {
        let device = Loop::new(ground, "disk-1", DISK);
        lives(ground, &disk("ext4"));
        // Its resize inode is gone, and it says that it has errors.
        for command in ["clri <7>", "ssv state 2"] {
            device.change(command);
        }
        let (machine, staging) = (ground.machine(), ground.staging());
        let error = mount::stage::stage(&machine, &disk("ext4"), &staging, &way()).unwrap_err();
        let is_told = |told: &str| told.contains("by hand") && told.contains("Resize inode not valid");
        assert!(matches!(&error, Error::Refused(told) if is_told(told)), "{error}");
        let mut record = Record::new(&disk("ext4"), &staging, &way());
        let head = Linux.head(&ground.path("by-id/disk-1").canonicalize().unwrap()).unwrap();
        record.growing = mount::disk::last_mount(&head);
        Records::new(ground.path("kubelet/plugins/kosmos.csi.io/volumes")).keep(&Linux, &record).unwrap();
        mount::stage::stage(&machine, &disk("ext4"), &staging, &way()).unwrap();
        assert_eq!(fs::read_to_string(staging.join("data")).unwrap(), "precious");
        assert_eq!(machine.record(VOLUME).unwrap().unwrap().growing, None);
    });
}

#[test]
fn xfs_lives_and_grows_beside_its_copy() {
    inside("real::xfs_lives_and_grows_beside_its_copy", |ground| {
        let size = 320 << 20;
        let device = Loop::new(ground, "disk-1", size);
        lives(ground, &disk("xfs"));
        let machine = ground.machine();
        let staging = ground.staging();
        mount::stage::stage(&machine, &disk("xfs"), &staging, &way()).unwrap();
        device.resize(2 * size);
        assert_eq!(mount::measure::expand(&machine, VOLUME, &staging, 2 * size).unwrap(), Expanded::To(2 * size));
        assert!(mount::measure::usage(&machine, VOLUME, &staging).unwrap().bytes.unwrap().total > size);
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        let _copy = device.copy(ground, "disk-2");
        mount::stage::stage(&machine, &disk(""), &staging, &way()).unwrap();
        let copy = Attached {
            volume: "cluster38/shop/copy/0123456789abcdef".to_owned(),
            ..attached(Backing::Device { names: vec!["disk-2".to_owned()], filesystem: String::new() })
        };
        mount::stage::stage(&machine, &copy, &ground.folder("kubelet/copy/globalmount"), &way()).unwrap();
    });
}

/// As mkfs.xfs leaves it that is killed late: recognised by its name, and mounted by no kernel.
#[test]
fn xfs_whose_format_was_cut_short_is_formatted_again_where_the_record_has_it() {
    inside("real::xfs_whose_format_was_cut_short_is_formatted_again_where_the_record_has_it", |ground| {
        let device = Loop::new(ground, "disk-1", 320 << 20);
        lives(ground, &disk("xfs"));
        // Its superblock says that its format goes on.
        device.spoil(126, 1);
        let (machine, staging) = (ground.machine(), ground.staging());
        let error = mount::stage::stage(&machine, &disk("xfs"), &staging, &way()).unwrap_err();
        assert!(matches!(&error, Error::Refused(told) if told.contains("is damaged")), "{error}");
        let mut record = Record::new(&disk("xfs"), &staging, &way());
        record.formatting = true;
        Records::new(ground.path("kubelet/plugins/kosmos.csi.io/volumes")).keep(&Linux, &record).unwrap();
        mount::stage::stage(&machine, &disk("xfs"), &staging, &way()).unwrap();
        assert!(!staging.join("data").exists() && !machine.record(VOLUME).unwrap().unwrap().formatting);
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        lives(ground, &disk("xfs"));
    });
}

#[test]
fn raw_disk_is_shown_as_it_is() {
    inside("real::raw_disk_is_shown_as_it_is", |ground| {
        let device = Loop::new(ground, "disk-1", DISK);
        let machine = ground.machine();
        let (staging, target) = (ground.staging(), ground.target(1));
        let block = VolumeUse { mode: VolumeMode::Block, flags: vec![], group: None, ..way() };
        for _ in 0..2 {
            mount::stage::stage(&machine, &disk(""), &staging, &block).unwrap();
            mount::publish::publish(&machine, &disk(""), &staging, &target, &block, false).unwrap();
        }
        fs::OpenOptions::new().write(true).open(&target).unwrap().write_all(b"raw data").unwrap();
        let usage = mount::measure::usage(&machine, VOLUME, &target).unwrap();
        assert_eq!((usage.bytes.unwrap().total, usage.inodes), (DISK, None));
        device.resize(2 * DISK);
        let grown = mount::measure::expand(&machine, VOLUME, Path::new("/any/other"), 2 * DISK).unwrap();
        assert_eq!(grown, Expanded::To(2 * DISK));
        mount::undo::unpublish(&machine, VOLUME, &target).unwrap();
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        assert!(device.begins_with(b"raw data"));
        ground.assert_nothing_is_left();
        // It holds data that is no filesystem.
        let error = mount::stage::stage(&machine, &disk("ext4"), &staging, &way()).unwrap_err();
        assert!(matches!(error, Error::Refused(_)) && device.begins_with(b"raw data"), "{error}");
        let reading = VolumeUse { access: Access::MultiNodeReaderOnly, ..block };
        mount::stage::stage(&machine, &disk(""), &staging, &reading).unwrap();
        mount::publish::publish(&machine, &disk(""), &staging, &target, &reading, true).unwrap();
        let written = fs::OpenOptions::new().write(true).open(&target).and_then(|mut file| file.write_all(b"x"));
        assert!(written.is_err(), "it is only to be read");
        mount::undo::unpublish(&machine, VOLUME, &target).unwrap();
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
    });
}

#[test]
fn raw_disk_that_the_kernel_keeps_for_somebody_is_refused() {
    inside("real::raw_disk_that_the_kernel_keeps_for_somebody_is_refused", |ground| {
        let device = Loop::new(ground, "disk-1", DISK);
        let machine = ground.machine();
        let block = VolumeUse { mode: VolumeMode::Block, flags: vec![], group: None, ..way() };
        // As a RAID, a volume group, or a mount in whatever namespace does.
        let kept = device.keep();
        let error = mount::stage::stage(&machine, &disk(""), &ground.staging(), &block).unwrap_err();
        assert!(matches!(&error, Error::Refused(told) if told.contains("in use on this machine")), "{error}");
        drop(kept);
        mount::stage::stage(&machine, &disk(""), &ground.staging(), &block).unwrap();
        mount::undo::unstage(&machine, VOLUME, &ground.staging()).unwrap();
    });
}

#[test]
fn folder_of_this_machine_is_shown_with_its_flags() {
    inside("real::folder_of_this_machine_is_shown_with_its_flags", |ground| {
        let folder = ground.folder("disks/a");
        fs::write(folder.join("kept"), "precious").unwrap();
        let local = attached(Backing::Local { path: folder.display().to_string() });
        let machine = ground.machine();
        let (staging, target) = (ground.staging(), ground.target(1));
        let reading = VolumeUse { flags: vec!["noexec".to_owned()], ..way() };
        mount::stage::stage(&machine, &local, &staging, &reading).unwrap();
        mount::publish::publish(&machine, &local, &staging, &target, &reading, true).unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(target.to_str().unwrap())).unwrap();
        for option in ["ro", "noexec", "nodev", "nosuid"] {
            assert!(line.split([' ', ',']).any(|word| word == option), "{option}: {line}");
        }
        mount::undo::unpublish(&machine, VOLUME, &target).unwrap();
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        lives_beside(ground, &local);
        assert_eq!(fs::read_to_string(folder.join("kept")).unwrap(), "precious");
    });
}

/// As local disks mostly are.
#[test]
fn folder_that_is_a_mount_of_the_machine_is_no_reason_for_a_kubelet_not_to_unstage_it() {
    inside("real::folder_that_is_a_mount_of_the_machine_is_no_reason_for_a_kubelet_not_to_unstage_it", |ground| {
        let folder = ground.folder("disks/a");
        let (nothing, flags) = (None::<&str>, nix::mount::MsFlags::empty());
        nix::mount::mount(Some("disk"), &folder, Some("tmpfs"), flags, nothing).unwrap();
        let local = attached(Backing::Local { path: folder.display().to_string() });
        let (machine, staging, target) = (ground.machine(), ground.staging(), ground.target(1));
        let nobody = || assert_eq!(references(&Linux.mountinfo().unwrap(), &staging), Vec::<String>::new());
        mount::stage::stage(&machine, &local, &staging, &way()).unwrap();
        nobody();
        mount::publish::publish(&machine, &local, &staging, &target, &way(), false).unwrap();
        fs::write(target.join("data"), "precious").unwrap();
        assert_eq!(fs::read_to_string(folder.join("data")).unwrap(), "precious");
        assert_eq!(ground.mounts(), [&folder, &target].map(|path| path.display().to_string()));
        mount::undo::unpublish(&machine, VOLUME, &target).unwrap();
        nobody();
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        assert_eq!(ground.mounts(), [folder.display().to_string()], "the machine's own is left");
        nix::mount::umount(&folder).unwrap();
        ground.assert_nothing_is_left();
    });
}

/// A kubelet starts the pod all the same, where it gives the files itself.
#[test]
fn file_that_nobody_may_change_keeps_its_group_and_no_pod_from_its_volume() {
    inside("real::file_that_nobody_may_change_keeps_its_group_and_no_pod_from_its_volume", |ground| {
        let _device = Loop::new(ground, "disk-1", DISK);
        let (machine, staging, target) = (ground.machine(), ground.staging(), ground.target(1));
        mount::stage::stage(&machine, &disk("ext4"), &staging, &way()).unwrap();
        for name in ["fixed", "free"] {
            fs::write(staging.join(name), "").unwrap();
        }
        let fixed = Command::new("chattr").arg("+i").arg(staging.join("fixed")).status().unwrap();
        assert!(fixed.success());
        let told = mount::publish::publish(&machine, &disk("ext4"), &staging, &target, &way(), false).unwrap();
        assert_eq!(told, Progress::Kept(1));
        let group = |name: &str| fs::metadata(target.join(name)).unwrap().gid();
        assert_eq!((group("fixed"), group("free"), group(".")), (0, GROUP, GROUP));
    });
}

/// By a mount option, or since an error.
#[test]
fn filesystem_that_can_only_be_read_keeps_its_groups_and_no_pod_from_its_volume() {
    inside("real::filesystem_that_can_only_be_read_keeps_its_groups_and_no_pod_from_its_volume", |ground| {
        let _device = Loop::new(ground, "disk-1", DISK);
        lives(ground, &disk("ext4"));
        let (machine, staging, target) = (ground.machine(), ground.staging(), ground.target(1));
        let reading = VolumeUse { flags: vec!["ro".to_owned()], group: Some(GROUP + 1), ..way() };
        mount::stage::stage(&machine, &disk("ext4"), &staging, &reading).unwrap();
        let told = mount::publish::publish(&machine, &disk("ext4"), &staging, &target, &reading, false).unwrap();
        assert!(matches!(told, Progress::Kept(files) if files > 0), "{told:?}");
        assert_eq!(fs::read_to_string(target.join("data")).unwrap(), "precious");
        assert_eq!(fs::metadata(&target).unwrap().gid(), GROUP);
    });
}

/// Whoever keeps the mount may never know that it does.
#[test]
fn disk_that_another_container_keeps_mounted_is_staged_again() {
    inside("real::disk_that_another_container_keeps_mounted_is_staged_again", |ground| {
        let _device = Loop::new(ground, "disk-1", DISK);
        let (machine, staging) = (ground.machine(), ground.staging());
        mount::stage::stage(&machine, &disk("ext4"), &staging, &way()).unwrap();
        fs::write(staging.join("data"), "precious").unwrap();
        let mut keeper = Command::new("unshare");
        let mut keeper = keeper.args(["--mount", "--propagation", "private", "sleep", "60"]).spawn().unwrap();
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap();
        while namespace(&keeper.id().to_string()) == namespace("self") {
            thread::sleep(Duration::from_millis(5));
        }
        mount::undo::unstage(&machine, VOLUME, &staging).unwrap();
        let staged = mount::stage::stage(&machine, &disk("ext4"), &staging, &way());
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        staged.unwrap();
        assert_eq!(fs::read_to_string(staging.join("data")).unwrap(), "precious");
    });
}

fn lives_beside(ground: &Ground, local: &Attached) {
    lives(ground, local);
    ground.assert_nothing_is_left();
}

#[test]
fn filesystem_that_is_broken_is_refused() {
    inside("real::filesystem_that_is_broken_is_refused", |ground| {
        let device = Loop::new(ground, "disk-1", DISK);
        lives(ground, &disk("ext4"));
        // The superblock is still one, and what it speaks of is not.
        device.spoil(4096, 1 << 20);
        let error = mount::stage::stage(&ground.machine(), &disk(""), &ground.staging(), &way()).unwrap_err();
        assert!(matches!(&error, Error::Refused(message) if message.contains("disk /dev/loop")), "{error}");
        ground.assert_nothing_is_left();
    });
}
