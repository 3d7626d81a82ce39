//! Those who want a node to mount, show or remove what is not theirs.

use std::path::{Path, PathBuf};

use domain::{
    error::Error,
    volume::{
        VolumeMode,
        backing::{Attached, Backing},
    },
};
use mount::{Permitted, VolumeUse};

use crate::{
    fake::{Content, Fake, Moment},
    kinds::{Act, Kind, STAGING, TARGETS, VOLUME, all, attached, device, machine, machine_with, way},
};

fn kind(name: &str) -> Kind {
    all().into_iter().find(|kind| kind.name == name).unwrap()
}

fn local() -> Kind {
    kind("local")
}

/// Everything that can be seen of a machine but its calls.
fn picture(fake: &Fake) -> String {
    let model = fake.see();
    format!("{:#?} {:#?} {:#?} {:#?}", model.trees, model.mounts, model.disks, model.files)
}

/// What a call must leave as it was, whatever it answers.
fn refuses<T: std::fmt::Debug>(fake: &Fake, what: &str, call: impl FnOnce() -> Result<T, Error>) -> Error {
    let before = picture(fake);
    let Err(error) = call() else { panic!("{what} is allowed") };
    assert_eq!(picture(fake), before, "{what}: {error}");
    error
}

#[test]
fn paths_of_requests_lead_nowhere_else() {
    let kind = local();
    let fake = kind.machine();
    let machine = machine(&fake);
    fake.change().link("/kubelet/pods/u1/swapped", "/etc");
    fake.change().link("/kubelet/linked", "/canary");
    for path in [
        "",
        "/",
        "relative/mount",
        "/kubelet/../etc",
        "/kubelet/./a",
        "/kubelet//a",
        "/kubelet/a/",
        "/kubelet/a\nb",
        "/kubelet/pods/u1/swapped",
        "/kubelet/pods/u1/swapped/deep",
        "/kubelet/linked/deep",
    ] {
        let path = Path::new(path);
        refuses(&fake, &format!("stage {path:?}"), || mount::stage::stage(&machine, &kind.attached, path, &kind.way));
    }
    kind.act(&fake, Act::Stage).unwrap();
    for path in ["", "/", "a", "/kubelet/../etc/x", "/kubelet/pods/u1/swapped", "/kubelet/linked/deep", "/canary"] {
        let path = Path::new(path);
        let (staging, attached) = (Path::new(STAGING), &kind.attached);
        refuses(&fake, &format!("publish {path:?}"), || {
            mount::publish::publish(&machine, attached, staging, path, &kind.way, false)
        });
        refuses(&fake, &format!("unpublish {path:?}"), || mount::undo::unpublish(&machine, VOLUME, path));
    }
    for path in [STAGING.to_owned(), format!("{STAGING}/inside")] {
        let error = refuses(&fake, &path, || {
            mount::publish::publish(&machine, &kind.attached, Path::new(STAGING), Path::new(&path), &kind.way, false)
        });
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
}

#[test]
fn target_that_is_swapped_for_a_link_is_left_alone() {
    for kind in all().into_iter().filter(|kind| kind.name != "csi") {
        let fake = kind.machine();
        kind.act(&fake, Act::Stage).unwrap();
        fake.change().link(TARGETS[0], "/etc");
        let error = refuses(&fake, kind.name, || kind.act(&fake, Act::Publish(0)));
        assert!(error.to_string().contains("link"), "{error}");
        refuses(&fake, kind.name, || kind.act(&fake, Act::Unpublish(0)));
    }
}

#[test]
fn folder_with_data_is_never_removed_and_never_hidden() {
    let kind = local();
    let fake = kind.machine();
    kind.act(&fake, Act::Stage).unwrap();
    fake.change().file(&format!("{}/precious", TARGETS[0]), 4);
    let error = refuses(&fake, "publish over data", || kind.act(&fake, Act::Publish(0)));
    assert!(error.to_string().contains("move away"), "{error}");
    let error = refuses(&fake, "unpublish of data", || kind.act(&fake, Act::Unpublish(0)));
    assert!(matches!(error, Error::Refused(_)), "{error}");
}

#[test]
fn folders_of_the_machine_are_not_shown_to_pods() {
    let fake = local().machine();
    let machine = machine(&fake);
    fake.change().link("/mnt/disks/linked", "/etc");
    for folder in [
        "/",
        "/etc",
        "/etc/kubernetes",
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/boot",
        "/proc",
        "/sys",
        "/dev",
        "/run",
        "/root",
        "/kubelet",
        "/kubelet/pods",
        "/mnt/disks/../../etc",
        "/mnt/disks/linked",
        "relative",
        "",
        "/missing",
        "/mnt/disks/a/data",
    ] {
        let attached = attached(Backing::Local { path: folder.to_owned() });
        refuses(&fake, folder, || mount::stage::stage(&machine, &attached, Path::new(STAGING), &way()));
    }
}

#[test]
fn disks_are_named_within_their_folder_and_lie_below_dev() {
    let fake = kind("blank disk").machine();
    fake.change().link("/dev/disk/id-file", "/etc/shadow");
    fake.change().put("/canary/sdz", &crate::fake::What::Device((8, 32)));
    fake.change().link("/dev/disk/id-elsewhere", "/canary/sdz");
    for name in ["../sdb", "..", ".", "", "a/b", "id-file", "id-elsewhere", "sd\nb"] {
        let backing = Backing::Device { names: vec![name.to_owned()], filesystem: String::new() };
        refuses(&fake, name, || mount::stage::stage(&machine(&fake), &attached(backing), Path::new(STAGING), &way()));
    }
    let raw = VolumeUse { mode: VolumeMode::Block, ..way() };
    for path in ["/canary/sdz", "/etc/shadow", "/canary"] {
        let attached = attached(Backing::Local { path: path.to_owned() });
        refuses(&fake, path, || mount::stage::stage(&machine(&fake), &attached, Path::new(STAGING), &raw));
    }
}

/// It has come in the place of the one that had this name, and udev has heard of neither yet.
#[test]
fn disk_that_says_it_is_another_one_is_not_taken_for_the_one_that_its_link_names() {
    for name in ["blank disk", "disk with ext4 to grow", "raw disk"] {
        let kind = kind(name);
        let fake = kind.machine();
        fake.change().disk("sdb").ids = vec!["naa.sdc".to_owned()];
        let error = refuses(&fake, name, || kind.act(&fake, Act::Stage));
        let told = |word: &str| error.to_string().contains(word);
        assert!(matches!(error, Error::InProgress(_)) && told("/dev/disk/id-sdb") && told("naa.sdc"), "{error}");
        fake.change().disk("sdb").ids = vec!["naa.sdb".to_owned()];
        kind.act(&fake, Act::Stage).unwrap();
    }
}

/// It was taken from the machine while blkid looked at it or mkfs was at it, which ends with an error then.
#[test]
fn disk_that_comes_in_the_place_of_a_blank_one_meanwhile_is_not_formatted() {
    for program in ["blkid", "mkfs.ext4"] {
        for ids in [vec!["naa.sdc".to_owned()], vec![]] {
            let kind = kind("blank disk");
            let fake = kind.machine();
            fake.change().ends_formats = 1;
            fake.change().replaced_after = Some((program, ids.clone()));
            let error = kind.act(&fake, Act::Stage).unwrap_err();
            assert!(matches!(error, Error::InProgress(_)), "{program} {ids:?}: {error}");
            let mut model = fake.change();
            let disk = model.disk("sdb");
            assert_eq!((&disk.content, disk.formats), (&Content::Bytes, 0), "{program} {ids:?}");
        }
    }
}

#[test]
fn disk_that_the_machine_uses_is_shown_raw_to_nobody() {
    for name in ["raw disk", "local raw"] {
        let kind = kind(name);
        let fake = kind.machine();
        let stage = || mount::stage::stage(&machine(&fake), &kind.attached, Path::new(STAGING), &kind.way);
        fake.change().held.insert("/dev/sdb".into());
        let error = refuses(&fake, name, stage);
        assert!(
            matches!(&error, Error::Refused(told) if told.contains("/dev/sdb or a part of it is in use")),
            "{error}"
        );
        fake.change().held.clear();
        stage().unwrap();
        kind.act(&fake, Act::Publish(0)).unwrap();
        // Its own pod may keep it for itself.
        fake.change().held.insert("/dev/sdb".into());
        stage().unwrap();
    }
}

#[test]
fn servers_and_options_that_reach_out_are_refused_by_name() {
    let fake = local().machine();
    let machine = machine(&fake);
    for (server, path) in [("-o", "/a"), ("a b", "/a"), ("a:/x", "/a"), ("a", "b"), ("a", "/b/../c"), ("", "/")] {
        let attached = attached(Backing::Nfs { server: server.to_owned(), path: path.to_owned() });
        refuses(&fake, &format!("{server}:{path}"), || {
            mount::stage::stage(&machine, &attached, Path::new(STAGING), &way())
        });
    }
    for option in [
        "bind",
        "rbind",
        "remount",
        "move",
        "shared",
        "loop",
        "LOOP=/dev/loop0",
        "noatime,addr=1.2.3.4",
        "bg",
        "hard,retry=10000",
        "x-mount.mkdir",
    ] {
        for (leaf, request) in [(vec![option.to_owned()], vec![]), (vec![], vec![option.to_owned()])] {
            let attached = Attached { options: leaf, ..attached(device("")) };
            let way = VolumeUse { flags: request, ..way() };
            let error = refuses(&fake, option, || mount::stage::stage(&machine, &attached, Path::new(STAGING), &way));
            let name = option.rsplit(',').next().unwrap();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(name)), "{error}");
        }
    }
}

#[test]
fn what_the_nodes_own_configuration_does_not_name_is_refused_by_the_flag_that_would() {
    let (staging, target) = (Path::new(STAGING), Path::new(TARGETS[0]));
    for kind in all() {
        let fake = kind.machine();
        let bare = machine_with(&fake, Permitted::default());
        let flag = match &kind.attached.backing {
            Backing::Device { .. } => {
                mount::stage::stage(&bare, &kind.attached, staging, &kind.way).unwrap();
                continue;
            }
            Backing::Csi(_) => "--leaf-driver of kosmos-csi node (in the chart: node.members[].leafDrivers)",
            Backing::Nfs { .. } => "--nfs-server of kosmos-csi node (in the chart: node.members[].nfsServers)",
            Backing::Local { .. } => "--local-folder of kosmos-csi node (in the chart: node.members[].localFolders)",
        };
        let error = refuses(&fake, kind.name, || mount::stage::stage(&bare, &kind.attached, staging, &kind.way));
        assert!(matches!(&error, Error::Refused(told) if told.contains(flag)), "{}: {error}", kind.name);
        // Taken back while a volume is here, it holds from the next time on: what is here is taken away as ever.
        for act in [Act::Stage, Act::Publish(0)] {
            kind.act(&fake, act).unwrap();
        }
        mount::undo::unpublish(&bare, VOLUME, target).unwrap();
        kind.act(&fake, Act::Unpublish(0)).unwrap();
        mount::undo::unstage(&bare, VOLUME, staging).unwrap();
    }
}

#[test]
fn context_of_another_volume_publishes_nothing() {
    let kind = local();
    let fake = kind.machine();
    kind.act(&fake, Act::Stage).unwrap();
    let (staging, target) = (Path::new(STAGING), Path::new(TARGETS[0]));
    let forged = Attached { backing: Backing::Local { path: "/canary".to_owned() }, ..kind.attached.clone() };
    let error = refuses(&fake, "forged", || {
        mount::publish::publish(&machine(&fake), &forged, staging, target, &kind.way, false)
    });
    assert!(error.to_string().contains("publish context"), "{error}");
    let other = Attached { volume: "cluster38/shop/other/0123456789abcdef".to_owned(), ..kind.attached.clone() };
    refuses(&fake, "other", || mount::publish::publish(&machine(&fake), &other, staging, target, &kind.way, false));
    let elsewhere = Attached { volume: other.volume, ..attached(Backing::Local { path: "/canary".to_owned() }) };
    let error =
        refuses(&fake, "staged over it", || mount::stage::stage(&machine(&fake), &elsewhere, staging, &kind.way));
    assert!(error.to_string().contains(&format!("belongs to volume {VOLUME}")), "{error}");
}

#[test]
fn mounts_of_others_are_not_unmounted() {
    let kind = local();
    let fake = kind.machine();
    kind.act(&fake, Act::Stage).unwrap();
    kind.act(&fake, Act::Publish(0)).unwrap();
    fake.change().add_mount("/srv", (9, 9), "/", "ext4", "/dev/sdy");
    let pods = "/kubelet/pods/u9/volumes/kubernetes.io~csi/pv-9/mount";
    fake.change().add_mount(pods, (9, 9), "/", "ext4", "/dev/sdy");
    let other = "cluster38/shop/other/0123456789abcdef";
    let paths: [(&str, &[&str]); 2] = [(VOLUME, &["/srv", pods]), (other, &["/srv", TARGETS[0], STAGING])];
    for (volume, paths) in paths {
        for path in paths.iter().map(Path::new) {
            refuses(&fake, &format!("unpublish {path:?}"), || mount::undo::unpublish(&machine(&fake), volume, path));
            refuses(&fake, &format!("unstage {path:?}"), || mount::undo::unstage(&machine(&fake), volume, path));
        }
    }
}

#[test]
fn disk_with_anything_on_it_is_never_formatted() {
    let other = |name: &str| Content::Filesystem { name: name.to_owned(), size: 1 << 30 };
    for content in [Content::Bytes, Content::Partitions, other("btrfs"), other("xfs"), other("LVM2_member")] {
        let kind = Kind { disk: Some(content.clone()), attached: attached(device("ext4")), ..kind("blank disk") };
        let fake = kind.machine();
        let before = fake.see().disks.clone();
        let error = kind.act(&fake, Act::Stage).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{content:?}: {error}");
        assert_eq!(fake.see().disks, before);
        assert!(fake.see().files.is_empty() && fake.see().mounts.len() == 2, "{content:?}: nothing is left behind");
    }
}

/// It has died in the middle of the format.
fn with_a_format_begun(kind: &Kind) -> Fake {
    let fake = kind.machine();
    let calls = (0..99).find(|number| {
        fake.change().dies_at = vec![(*number, Moment::Within)];
        fake.change().calls = 0;
        kind.act(&fake, Act::Stage).unwrap_err();
        fake.revive();
        fake.change().disk("sdb").content == Content::Bytes
    });
    assert!(calls.is_some(), "no call formats");
    fake.change().dies_at.clear();
    fake
}

/// A kubelet that is told so for good never unstages, and the next node would find a disk that looks like somebody's.
#[test]
fn format_that_ended_half_way_is_not_the_end_and_is_done_before_the_disk_leaves() {
    let kind = kind("blank disk");
    let fake = kind.machine();
    fake.change().ends_formats = usize::MAX;
    for _ in 0..2 {
        let error = kind.act(&fake, Act::Stage).unwrap_err();
        assert!(matches!(&error, Error::InProgress(told) if told.contains("mkfs.ext4")), "{error}");
    }
    fake.change().ends_formats = 0;
    kind.act(&fake, Act::Unstage).unwrap();
    let ext4 = Content::Filesystem { name: "ext4".to_owned(), size: 1 << 30 };
    assert_eq!(fake.change().disk("sdb").content, ext4);
    assert!(fake.see().files.is_empty());
}

/// Where the memory is full, the kernel kills whichever program has most of it: that says nothing of the disk.
#[test]
fn disk_does_not_leave_while_what_is_to_end_its_format_is_killed() {
    let kind = kind("blank disk");
    let fake = with_a_format_begun(&kind);
    for program in ["blkid", "mkfs.ext4"] {
        fake.change().kills = Some(program);
        for act in [Act::Stage, Act::Unstage] {
            let error = kind.act(&fake, act).unwrap_err();
            let is_told = |told: &str| told.contains(program) && told.contains("was killed");
            assert!(matches!(&error, Error::InProgress(told) if is_told(told)), "{act:?}: {error}");
        }
    }
    fake.change().kills = None;
    kind.act(&fake, Act::Unstage).unwrap();
    let ext4 = Content::Filesystem { name: "ext4".to_owned(), size: 1 << 30 };
    assert_eq!(fake.change().disk("sdb").content, ext4);
    assert!(fake.see().files.is_empty());
}

/// Outside of a container a program goes on when the plugin has died.
#[test]
fn disk_does_not_leave_while_the_format_that_a_dead_plugin_has_begun_goes_on() {
    let kind = kind("blank disk");
    let fake = with_a_format_begun(&kind);
    fake.change().held.insert("/dev/sdb".into());
    for act in [Act::Stage, Act::Unstage] {
        let error = kind.act(&fake, act).unwrap_err();
        assert!(matches!(&error, Error::InProgress(told) if told.contains("in use")), "{act:?}: {error}");
    }
    {
        let mut model = fake.change();
        model.held.clear();
        model.disk("sdb").content = Content::Filesystem { name: "ext4".to_owned(), size: 1 << 30 };
    }
    kind.act(&fake, Act::Unstage).unwrap();
    assert!(fake.see().files.is_empty());
    assert_eq!(fake.change().disk("sdb").formats, 0);
}

/// What whoever has it writes there would not be taken for data later.
#[test]
fn blank_disk_that_somebody_else_has_is_not_on_record_as_one_whose_format_was_begun() {
    let kind = kind("blank disk");
    let fake = kind.machine();
    fake.change().held.insert("/dev/sdb".into());
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(&error, Error::Refused(told) if told.contains("in use on this machine")), "{error}");
    assert!(fake.see().files.is_empty());
    fake.change().held.clear();
    fake.change().disk("sdb").content = Content::Bytes;
    kind.act(&fake, Act::Stage).unwrap_err();
    assert_eq!(fake.change().disk("sdb").content, Content::Bytes);
}

#[test]
fn disk_whose_format_was_begun_is_not_formatted_over_what_somebody_put_there() {
    let kind = Kind { attached: attached(device("ext4")), ..kind("blank disk") };
    for name in ["btrfs", "xfs"] {
        let fake = with_a_format_begun(&kind);
        let content = Content::Filesystem { name: name.to_owned(), size: 1 << 30 };
        fake.change().disk("sdb").content = content.clone();
        kind.act(&fake, Act::Stage).unwrap_err();
        kind.act(&fake, Act::Unstage).unwrap();
        assert_eq!(fake.change().disk("sdb").content, content);
    }
}

/// The machine was lost then, a person has zeroed the disk, and a pod elsewhere had it formatted and has written on it: now it is wanted here again,
/// and cannot be mounted. Where nobody has used what is there, it is what the format has left.
#[test]
fn disk_whose_format_was_begun_is_not_formatted_again_where_it_may_have_been_used_elsewhere() {
    for (name, mounted) in [("ext4", 1), ("xfs", 1), ("ext4", 0), ("xfs", 0)] {
        let kind = Kind { attached: attached(device(name)), ..kind("blank disk") };
        let fake = with_a_format_begun(&kind);
        {
            let mut model = fake.change();
            let disk = model.disk("sdb");
            disk.content = Content::Filesystem { name: name.to_owned(), size: 1 << 30 };
            (disk.mounted, disk.has_errors) = (mounted, true);
        }
        let staged = kind.act(&fake, Act::Stage);
        assert_eq!(staged.is_ok(), mounted == 0, "{name}: {staged:?}");
        kind.act(&fake, Act::Unstage).unwrap();
        assert_eq!(fake.change().disk("sdb").formats, usize::from(mounted == 0), "{name}");
    }
}

#[test]
fn disk_that_is_in_use_elsewhere_is_not_touched() {
    for name in ["blank disk", "disk with ext4 to grow", "raw disk"] {
        let kind = kind(name);
        let fake = kind.machine();
        fake.change().add_mount("/srv", (8, 16), "/", "ext4", "/dev/sdb");
        let error = refuses(&fake, name, || kind.act(&fake, Act::Stage));
        assert!(error.to_string().contains("is mounted at /srv"), "{error}");
    }
}

#[test]
fn damaged_record_is_refused_with_its_path() {
    let kind = local();
    for damage in ["", "{}", "{\"volume\":\"other\"}"] {
        let fake = kind.machine();
        kind.act(&fake, Act::Stage).unwrap();
        let file: PathBuf = fake.see().files.keys().next().unwrap().clone();
        fake.change().files.insert(file.clone(), damage.to_owned());
        for act in [Act::Stage, Act::Publish(0), Act::Unpublish(0), Act::Unstage, Act::Expand] {
            let error = refuses(&fake, damage, || kind.act(&fake, act));
            assert!(error.to_string().contains(file.to_str().unwrap()), "{act:?}: {error}");
        }
    }
}
