//! What is allowed, what is done already, and what is told, on a model of a machine.

use std::path::Path;

use domain::{
    error::Error,
    volume::backing::{Attached, Backing, CsiLeaf, GroupPolicy},
};
use mount::{Access, Amounts, Expanded, Progress, Trouble, VolumeUse};

use crate::{
    fake::{Content, Fake, NFS, ROOT, Unreadable},
    kinds::{Act, GROUP, Kind, STAGING, TARGETS, VOLUME, all, attached, device, leaf, machine, way},
};

fn kind(name: &str) -> Kind {
    all().into_iter().find(|kind| kind.name == name).unwrap()
}

/// A machine with a volume staged, and published at the first so many targets.
fn with(kind: &Kind, targets: usize) -> Fake {
    let fake = kind.machine();
    kind.act(&fake, Act::Stage).unwrap();
    for number in 0..targets {
        kind.act(&fake, Act::Publish(number)).unwrap();
    }
    fake
}

fn mounts(fake: &Fake) -> Vec<String> {
    fake.see().mounts.iter().map(|mounted| mounted.target.display().to_string()).collect()
}

#[test]
fn same_call_again_changes_nothing() {
    for kind in all() {
        let fake = with(&kind, 2);
        let (there, files) = (mounts(&fake), fake.see().files.clone());
        for act in [Act::Stage, Act::Publish(0), Act::Publish(1)] {
            kind.act(&fake, act).unwrap();
        }
        assert_eq!((mounts(&fake), &fake.see().files), (there, &files), "{}", kind.name);
    }
}

#[test]
fn another_way_at_the_same_path_exists_already() {
    for kind in all() {
        let fake = with(&kind, 1);
        let other = |change: fn(&mut VolumeUse)| {
            let mut way = kind.way.clone();
            change(&mut way);
            way
        };
        let ways = [
            other(|way| way.access = Access::MultiNodeMultiWriter),
            other(|way| way.group = Some(7)),
            other(|way| way.flags = vec!["nosuid".to_owned()]),
        ];
        // Files are given to a group where they are shown.
        for way in [&ways[0], &ways[2]] {
            let error = mount::stage::stage(&machine(&fake), &kind.attached, Path::new(STAGING), way).unwrap_err();
            assert!(matches!(error, Error::Exists(_)), "{}: {error}", kind.name);
        }
        let target = Path::new(TARGETS[0]);
        for (way, readonly) in [(&ways[0], kind.readonly), (&ways[1], kind.readonly), (&kind.way, !kind.readonly)] {
            let error =
                mount::publish::publish(&machine(&fake), &kind.attached, Path::new(STAGING), target, way, readonly)
                    .unwrap_err();
            assert!(matches!(error, Error::Exists(_)), "{}: {error}", kind.name);
        }
    }
}

/// A kubelet that has started again stages once more, for whichever pod has the volume by then.
#[test]
fn what_is_staged_is_staged_again_for_a_pod_of_another_group() {
    for kind in all() {
        let fake = with(&kind, 1);
        let there = mounts(&fake);
        let other = Kind { way: VolumeUse { group: Some(7), ..kind.way.clone() }, ..kind };
        other.act(&fake, Act::Stage).unwrap();
        assert_eq!(mounts(&fake), there, "{}", other.name);
        for act in [Act::Unpublish(0), Act::Unstage] {
            other.act(&fake, act).unwrap();
        }
    }
}

#[test]
fn one_staging_path_at_a_time() {
    let other = "/kubelet/plugins/other";
    for kind in all() {
        let fake = with(&kind, 1);
        let error = mount::stage::stage(&machine(&fake), &kind.attached, Path::new(other), &kind.way).unwrap_err();
        assert!(matches!(&error, Error::Refused(message) if message.contains(STAGING)), "{}: {error}", kind.name);
        fake.reboot();
        mount::stage::stage(&machine(&fake), &kind.attached, Path::new(other), &kind.way).unwrap();
    }
}

#[test]
fn nothing_is_published_that_is_not_staged_there() {
    for kind in all() {
        let fake = kind.machine();
        let (staging, target) = (Path::new(STAGING), Path::new(TARGETS[0]));
        let publish = |staging: &Path| {
            mount::publish::publish(&machine(&fake), &kind.attached, staging, target, &kind.way, kind.readonly)
        };
        assert!(matches!(publish(staging), Err(Error::Refused(_))), "{}", kind.name);
        kind.act(&fake, Act::Stage).unwrap();
        for elsewhere in ["", "/kubelet/elsewhere"] {
            assert!(matches!(publish(Path::new(elsewhere)), Err(Error::Refused(_))), "{}", kind.name);
        }
        if kind.is_mounted_where_staged() && kind.name != "csi" {
            fake.reboot();
            let error = publish(staging).unwrap_err();
            assert!(matches!(&error, Error::Refused(message) if message.contains("stage it again")), "{error}");
        }
    }
}

#[test]
fn second_target_is_for_access_modes_that_share() {
    for access in Access::ALL {
        let kind = Kind { way: VolumeUse { access, ..way() }, ..kind("local") };
        let fake = with(&kind, 1);
        let second = kind.act(&fake, Act::Publish(1));
        let shared = [
            Access::SingleNodeMultiWriter,
            Access::MultiNodeReaderOnly,
            Access::MultiNodeSingleWriter,
            Access::MultiNodeMultiWriter,
        ];
        match second {
            Ok(()) => assert!(shared.contains(&access), "{access:?}"),
            Err(Error::Refused(message)) => {
                assert!(!shared.contains(&access) && message.contains(TARGETS[0]), "{access:?}: {message}");
                // What was mounted before the machine started counts no longer.
                fake.reboot();
                kind.act(&fake, Act::Stage).unwrap();
                kind.act(&fake, Act::Publish(1)).unwrap();
            }
            Err(error) => panic!("{access:?}: {error}"),
        }
    }
}

#[test]
fn single_writer_joins_nobody() {
    let kind = kind("local");
    let fake = with(&kind, 1);
    let alone = VolumeUse { access: Access::SingleNodeSingleWriter, ..kind.way.clone() };
    let (staging, target) = (Path::new(STAGING), Path::new(TARGETS[1]));
    let error = mount::publish::publish(&machine(&fake), &kind.attached, staging, target, &alone, false).unwrap_err();
    assert!(matches!(&error, Error::Refused(message) if message.contains(TARGETS[0])), "{error}");
}

#[test]
fn what_is_only_read_is_mounted_so() {
    for (name, leaf, access, readonly) in [
        ("local", true, Access::SingleNodeMultiWriter, false),
        ("local", false, Access::MultiNodeReaderOnly, false),
        ("local", false, Access::SingleNodeMultiWriter, true),
        ("disk with xfs to grow", true, Access::SingleNodeMultiWriter, false),
        ("nfs by the kernel", false, Access::SingleNodeReaderOnly, false),
    ] {
        let kind = kind(name);
        let kind = Kind {
            attached: Attached { readonly: leaf, ..kind.attached },
            way: VolumeUse { access, ..kind.way },
            readonly,
            ..kind
        };
        let fake = with(&kind, 1);
        let model = fake.see();
        let read_only = |path: &str| {
            model
                .mounts
                .iter()
                .rfind(|there| there.target == Path::new(path))
                .unwrap()
                .options
                .contains(&"ro".to_owned())
        };
        assert!(read_only(TARGETS[0]), "{name}");
        assert!(!kind.is_mounted_where_staged() || read_only(STAGING) != readonly, "{name}");
        let programs: Vec<&String> = model.programs_run.iter().filter(|line| !line.starts_with("blkid")).collect();
        assert!(programs.is_empty(), "{name}: {programs:?}");
        assert!(model.trees.values().flat_map(|tree| tree.values()).all(|node| node.group == 0), "{name}");
    }
}

/// A pod sees the machine's mounts, not those of the plugin's container.
#[test]
fn what_is_staged_is_shown_with_its_flags_also_by_a_plugin_that_was_replaced_since() {
    let kind = kind("local");
    let kind = Kind { attached: Attached { readonly: true, ..kind.attached }, ..kind };
    let fake = with(&kind, 0);
    fake.begin_in_another_container();
    kind.act(&fake, Act::Publish(0)).unwrap();
    fake.begin_in_another_container();
    let model = fake.see();
    let shown = model.mounts.iter().rfind(|mounted| mounted.target == Path::new(TARGETS[0])).unwrap();
    for flag in ["ro", "nosuid", "nodev", "noatime"] {
        assert!(shown.options.iter().any(|option| option == flag), "{flag}: {:?}", shown.options);
    }
}

/// Where one pod asks to read alone, kubelet keeps its containers from writing, and others may write.
#[test]
fn disk_of_a_raw_volume_is_read_only_by_its_access_mode_alone() {
    let kind = kind("raw disk");
    let kind = Kind { readonly: true, ..kind };
    assert!(!with(&kind, 1).change().disk("sdb").is_locked);
    let kind = Kind { way: VolumeUse { access: Access::MultiNodeReaderOnly, ..kind.way }, ..kind };
    let fake = with(&kind, 1);
    assert!(fake.change().disk("sdb").is_locked);
    kind.act(&fake, Act::Unpublish(0)).unwrap();
    kind.act(&fake, Act::Unstage).unwrap();
    assert!(!fake.change().disk("sdb").is_locked);
}

#[test]
fn blank_disk_that_is_only_to_be_read_stays_blank() {
    let kind = kind("blank disk");
    let kind = Kind { attached: Attached { readonly: true, ..kind.attached }, ..kind };
    let fake = kind.machine();
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(&error, Error::Refused(message) if message.contains("is blank")), "{error}");
    assert_eq!(fake.change().disk("sdb").content, Content::Blank);
}

#[test]
fn disk_that_cannot_be_read_is_not_blank() {
    let kind = kind("blank disk");
    let fake = kind.machine();
    fake.change().disk("sdb").unreadable = Some(Unreadable::All);
    assert!(matches!(kind.act(&fake, Act::Stage), Err(Error::Refused(_))));
    assert_eq!(fake.change().disk("sdb").formats, 0);
}

#[test]
fn disk_that_has_lost_its_size_is_not_blank() {
    let kind = kind("disk with ext4 to grow");
    let fake = kind.machine();
    fake.change().disk("sdb").size = 0;
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(&error, Error::Refused(message) if message.contains("has no size")), "{error}");
    assert!(fake.see().files.is_empty(), "it is on record that a format was begun");
}

#[test]
fn disk_that_is_not_there_yet_is_waited_for_by_name() {
    let kind = kind("blank disk");
    let fake = kind.machine();
    fake.change().link("/dev/disk/id-late", "/dev/sdq");
    let backing =
        Backing::Device { names: vec!["id-late".to_owned(), "id-never".to_owned()], filesystem: String::new() };
    let error = mount::stage::stage(&machine(&fake), &attached(backing), Path::new(STAGING), &kind.way).unwrap_err();
    let told = |word: &str| error.to_string().contains(word);
    assert!(matches!(error, Error::InProgress(_)) && told("id-late or id-never") && told("/dev/disk"), "{error}");
}

#[test]
fn filesystem_is_checked_before_it_is_mounted() {
    let kind = kind("disk with ext4 to grow");
    let fake = kind.machine();
    fake.change().disk("sdb").has_errors = true;
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(&error, Error::Refused(message) if message.contains("errors that are not repaired")), "{error}");
    assert!(!fake.is_mounted(STAGING) && fake.see().files.is_empty());
}

#[test]
fn unknown_filesystem_is_named() {
    for (backing, request) in [(device("btrfs"), ""), (device(""), "btrfs")] {
        let fake = kind("blank disk").machine();
        let way = VolumeUse { filesystem: request.to_owned(), ..way() };
        let error = mount::stage::stage(&machine(&fake), &attached(backing), Path::new(STAGING), &way).unwrap_err();
        assert!(matches!(&error, Error::Invalid(message) if message.contains("btrfs")), "{error}");
    }
}

/// Where the node is lost, or the program killed, while it grows what is not mounted, `e2fsck -p` repairs nothing of it.
#[test]
fn filesystem_grows_by_the_kernel_when_it_is_staged_where_this_machine_lets_it() {
    for denies in [false, true] {
        let kind = kind("disk with ext4 to grow");
        let fake = kind.machine();
        fake.change().denies_growth = denies;
        kind.act(&fake, Act::Stage).unwrap();
        assert!(matches!(fake.change().disk("sdb").content, Content::Filesystem { size, .. } if size == 1 << 30));
        let is_whole_check = |line: &String| line.starts_with("e2fsck -p -f");
        assert_eq!(fake.see().programs_run.iter().any(is_whole_check), denies);
        assert!(fake.is_mounted(STAGING));
    }
}

#[test]
fn growth_that_this_machine_denies_comes_with_the_next_stage() {
    let kind = kind("disk with ext4 to grow");
    let fake = with(&kind, 0);
    fake.change().denies_growth = true;
    fake.change().disk("sdb").size = 2 << 30;
    let error = kind.act(&fake, Act::Expand).unwrap_err();
    assert!(matches!(&error, Error::Refused(message) if message.contains("next staged")), "{error}");
    kind.act(&fake, Act::Unstage).unwrap();
    kind.act(&fake, Act::Stage).unwrap();
    assert!(matches!(fake.change().disk("sdb").content, Content::Filesystem { size, .. } if size == 2 << 30));
}

#[test]
fn filesystem_grows_once_the_machine_has_heard_that_its_disk_is_larger() {
    for name in ["disk with xfs to grow", "disk with ext4 to grow"] {
        let kind = kind(name);
        let fake = with(&kind, 1);
        fake.change().hears_after = Some(3);
        let expand = |size| mount::measure::expand(&machine(&fake), VOLUME, Path::new(TARGETS[0]), size).unwrap();
        assert_eq!(expand(2 << 30), Expanded::To(2 << 30), "{name}");
        assert!(matches!(fake.change().disk("sdb").content, Content::Filesystem { size, .. } if size == 2 << 30));
        assert_eq!(expand(3 << 30), Expanded::To(2 << 30), "{name}: it is not waited for without an end");
    }
}

#[test]
fn filesystem_that_a_mount_option_has_read_only_is_staged_as_large_as_it_is() {
    for name in ["disk with xfs to grow", "disk with ext4 to grow"] {
        let kind = kind(name);
        let way = VolumeUse { flags: vec!["ro".to_owned()], ..kind.way.clone() };
        let kind = Kind { way, readonly: true, ..kind };
        let fake = with(&kind, 1);
        let error = kind.act(&fake, Act::Expand).unwrap_err();
        assert!(matches!(&error, Error::Refused(message) if message.contains("only read on this node")), "{error}");
    }
}

#[test]
fn size_after_growing_is_the_disks_or_what_the_server_has() {
    for (name, expected) in
        [("disk with xfs to grow", 1 << 30), ("raw disk", 1 << 30), ("local", 409_600), ("nfs by the kernel", 409_600)]
    {
        let fake = with(&kind(name), 1);
        assert_eq!(
            mount::measure::expand(&machine(&fake), VOLUME, Path::new(TARGETS[0]), 0).unwrap(),
            Expanded::To(expected),
            "{name}"
        );
    }
    let fake = with(&kind("local"), 0);
    for (volume, path) in [(VOLUME, TARGETS[0]), ("cluster38/a/b/0123456789abcdef", STAGING)] {
        let grown = mount::measure::expand(&machine(&fake), volume, Path::new(path), 0);
        assert!(matches!(grown, Err(Error::NotFound(_))));
    }
}

#[test]
fn usage_is_told_only_of_a_live_mount_of_the_volume() {
    for kind in all() {
        let fake = with(&kind, 1);
        let usage = mount::measure::usage(&machine(&fake), VOLUME, Path::new(TARGETS[0])).unwrap();
        if kind.way.mode.is_block() {
            let total = Amounts { total: 1 << 30, ..Amounts::default() };
            assert_eq!((usage.bytes, usage.inodes), (Some(total), None));
        } else {
            assert_eq!(usage.bytes, Some(Amounts { total: 409_600, available: 204_800, used: 163_840 }));
            assert_eq!(usage.inodes, Some(Amounts { total: 100, available: 50, used: 40 }));
        }
        for (volume, path) in
            [(VOLUME, TARGETS[1]), (VOLUME, "/canary"), ("cluster38/a/b/0123456789abcdef", TARGETS[0])]
        {
            assert!(
                matches!(mount::measure::usage(&machine(&fake), volume, Path::new(path)), Err(Error::NotFound(_))),
                "{}",
                kind.name
            );
        }
        fake.reboot();
        assert!(matches!(
            mount::measure::usage(&machine(&fake), VOLUME, Path::new(TARGETS[0])),
            Err(Error::NotFound(_))
        ));
    }
}

#[test]
fn nfs_is_mounted_by_exactly_these_calls() {
    let asked = |kind: &Kind| with(kind, 1).see().mounts_asked.clone();
    let (of, ours, flags) = ("filer.example:/export", "nosharecache,addr=10.0.0.1", "{NoSuid, NoDev, NoAtime}");
    assert_eq!(asked(&kind("nfs by the kernel")), [format!("nfs {of} {ours} {flags}")]);
    assert_eq!(asked(&kind("nfs by its program")), [format!("mount.nfs {of} -o nosuid,nodev,noatime,nosharecache")]);
    let mut newer = kind("nfs by the kernel");
    newer.attached.options = vec!["nfsvers=4.1".to_owned(), "hard".to_owned()];
    assert_eq!(asked(&newer), [format!("nfs4 {of} nfsvers=4.1,hard,{ours} {flags}")]);
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.trim_start_matches("nodev").trim().starts_with("nfs")) {
        eprintln!("this machine's kernel has no NFS client: NFS is held to these calls on the model alone");
    }
}

#[test]
fn mount_that_is_dead_is_cleared_and_not_trusted() {
    let kind = kind("nfs by the kernel");
    let fake = with(&kind, 1);
    fake.change().dead_filesystems.push(NFS);
    fake.change().busy.push(STAGING.into());
    assert_eq!(
        mount::measure::health(&machine(&fake), VOLUME).unwrap(),
        [STAGING, TARGETS[0]].map(|path| Trouble::Dead(path.into()))
    );
    let id = || fake.see().mounts.iter().find(|mounted| mounted.target == Path::new(STAGING)).map(|mounted| mounted.id);
    let before = id();
    kind.act(&fake, Act::Stage).unwrap();
    assert!(id().is_some() && id() != before, "it is replaced although it was busy");
    fake.change().busy.push(TARGETS[0].into());
    kind.act(&fake, Act::Unpublish(0)).unwrap();
}

#[test]
fn busy_mount_is_waited_for() {
    let kind = kind("local");
    let fake = with(&kind, 1);
    fake.change().busy.push(TARGETS[0].into());
    assert!(matches!(kind.act(&fake, Act::Unpublish(0)), Err(Error::InProgress(_))));
    assert!(fake.is_mounted(TARGETS[0]));
    fake.change().busy.clear();
    kind.act(&fake, Act::Unpublish(0)).unwrap();
}

#[test]
fn mounts_that_lie_on_each_other_go_together() {
    let kind = kind("disk with xfs to grow");
    let fake = with(&kind, 1);
    for target in [TARGETS[0], STAGING] {
        let top = fake.see().mounts.iter().rfind(|mounted| mounted.target == Path::new(target)).unwrap().clone();
        fake.change().push(top.clone());
        fake.change().push(top);
    }
    kind.act(&fake, Act::Unpublish(0)).unwrap();
    kind.act(&fake, Act::Unstage).unwrap();
    assert_eq!(mounts(&fake), ["/", "/dev"]);
}

#[test]
fn mount_of_which_the_kernel_keeps_a_copy_below_goes_with_that() {
    let kind = kind("disk with xfs to grow");
    let fake = with(&kind, 1);
    fake.change().copied = [TARGETS[0], STAGING].map(Into::into).into();
    for target in [TARGETS[0], STAGING] {
        let top = fake.see().mounts.iter().rfind(|mounted| mounted.target == Path::new(target)).unwrap().clone();
        fake.change().push(top);
    }
    kind.act(&fake, Act::Unpublish(0)).unwrap();
    kind.act(&fake, Act::Unstage).unwrap();
    assert_eq!(mounts(&fake), ["/", "/dev"]);
}

#[test]
fn undoing_what_is_not_there_is_done() {
    for kind in all() {
        let fake = kind.machine();
        for act in [Act::Unpublish(0), Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        kind.act(&fake, Act::Stage).unwrap();
        kind.act(&fake, Act::Publish(0)).unwrap();
        fake.reboot();
        for act in [Act::Unpublish(0), Act::Unpublish(0), Act::Unstage, Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        assert!(fake.see().files.is_empty() && !fake.exists(TARGETS[0]), "{}", kind.name);
    }
}

#[test]
fn volume_that_is_published_is_not_unstaged() {
    for kind in all() {
        let fake = with(&kind, 1);
        let error = kind.act(&fake, Act::Unstage).unwrap_err();
        assert!(matches!(&error, Error::Refused(message) if message.contains(TARGETS[0])), "{}: {error}", kind.name);
    }
}

#[test]
fn all_is_written_before_a_disk_leaves_the_node_also_where_somebody_keeps_it_mounted() {
    for name in ["blank disk", "disk with xfs to grow"] {
        let kind = kind(name);
        let fake = with(&kind, 1);
        fake.change().unwritten.insert((8, 16));
        for act in [Act::Unpublish(0), Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        assert!(fake.see().unwritten.is_empty(), "{name}");
    }
}

#[test]
fn lost_record_leaves_the_kubelet_its_own_paths() {
    for kind in all() {
        let fake = with(&kind, 2);
        fake.change().files.clear();
        for act in [Act::Unpublish(0), Act::Unpublish(1), Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        assert_eq!(mounts(&fake), ["/", "/dev"], "{}", kind.name);
        // Or the volume is used further.
        let fake = with(&kind, 2);
        fake.change().files.clear();
        for act in [Act::Stage, Act::Publish(0), Act::Unpublish(0), Act::Unpublish(1), Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        assert_eq!(mounts(&fake), ["/", "/dev"], "{}", kind.name);
    }
}

#[test]
fn leaf_driver_is_asked_for_its_own_volumes() {
    let kind = kind("csi");
    let fake = kind.machine();
    let machine = machine(&fake);
    let (staging, target) = (Path::new(STAGING), Path::new(TARGETS[0]));
    let ask = Progress::Ask(leaf());
    assert_eq!(
        mount::undo::unstage(&machine, VOLUME, staging).unwrap(),
        Progress::Done,
        "of one that is unknown nobody can be asked"
    );
    assert_eq!(mount::stage::stage(&machine, &kind.attached, staging, &kind.way).unwrap(), ask);
    assert_eq!(mount::stage::stage(&machine, &kind.attached, staging, &kind.way).unwrap(), ask);
    assert_eq!(mount::publish::publish(&machine, &kind.attached, staging, target, &kind.way, false).unwrap(), ask);
    assert_eq!(mount::measure::expand(&machine, VOLUME, target, 0).unwrap(), Expanded::Ask(leaf()));
    assert_eq!(mount::undo::unpublish(&machine, VOLUME, Path::new(TARGETS[1])).unwrap(), Progress::Done);
    assert_eq!(mount::undo::unpublish(&machine, VOLUME, target).unwrap(), ask);
    mount::undo::unpublished(&machine, VOLUME, target).unwrap();
    assert_eq!(mount::undo::unpublish(&machine, VOLUME, target).unwrap(), Progress::Done);
    assert_eq!(mount::undo::unstage(&machine, VOLUME, staging).unwrap(), ask);
    mount::undo::unstaged(&machine, VOLUME, staging).unwrap();
    assert_eq!(machine.record(VOLUME).unwrap(), None);
}

#[test]
fn leaf_drivers_policy_says_who_gives_files_to_the_group() {
    let many = Access::MultiNodeMultiWriter;
    let one = Access::SingleNodeMultiWriter;
    for (group_policy, filesystem, access, readonly, expected) in [
        (GroupPolicy::Always, "", many, false, true),
        (GroupPolicy::Always, "", many, true, false),
        (GroupPolicy::WithFilesystem, "ext4", one, false, true),
        (GroupPolicy::WithFilesystem, "", one, false, false),
        (GroupPolicy::WithFilesystem, "ext4", many, false, false),
        (GroupPolicy::Never, "ext4", one, false, false),
    ] {
        let leaf = CsiLeaf { group_policy, filesystem: filesystem.to_owned(), ..leaf() };
        let kind = Kind {
            attached: attached(Backing::Csi(leaf)),
            way: VolumeUse { access, ..way() },
            readonly,
            ..kind("csi")
        };
        let fake = with(&kind, 1);
        let group = fake.see().node(Path::new(TARGETS[0])).unwrap().group;
        assert_eq!(group == GROUP, expected, "{group_policy:?} {filesystem} {access:?} {readonly}");
    }
}

#[test]
fn health_tells_what_is_not_as_recorded() {
    let kind = kind("disk with xfs to grow");
    let fake = with(&kind, 1);
    let health = || mount::measure::health(&machine(&fake), VOLUME).unwrap();
    assert_eq!(health(), []);
    for said in ["ro", "rw,emergency_ro", "rw,shutdown"] {
        for mounted in &mut fake.change().mounts {
            mounted.super_options = said.to_owned();
        }
        assert_eq!(health(), [STAGING, TARGETS[0]].map(|path| Trouble::ReadOnly(path.into())), "{said}");
    }
    fake.reboot();
    assert_eq!(health(), [STAGING, TARGETS[0]].map(|path| Trouble::NotMounted(path.into())));
    assert!(matches!(
        mount::measure::health(&machine(&fake), "cluster38/a/b/0123456789abcdef"),
        Err(Error::NotFound(_))
    ));
}

#[test]
fn nothing_is_mounted_where_the_kubelet_does_not_see_it() {
    for kind in all().into_iter().filter(|kind| kind.name != "csi") {
        let fake = kind.machine();
        fake.change().add_mount("/kubelet", ROOT, "/kubelet", "ext4", "/dev/vda");
        kind.act(&fake, Act::Stage).unwrap();
        fake.change().peers = "";
        for act in [Act::Stage, Act::Publish(0)] {
            let error = kind.act(&fake, act).unwrap_err();
            assert!(matches!(&error, Error::Refused(told) if told.contains("Bidirectional")), "{}: {error}", kind.name);
        }
        kind.act(&fake, Act::Unstage).unwrap();
    }
}
