//! Folders of the machine, which are mounted where pods have them and nowhere else, on a model of a machine.

use std::path::Path;

use domain::error::Error;
use mount::{Trouble, kernel::Number};

use crate::{
    fake::{Fake, Mounted, NFS, ROOT},
    kinds::{Act, Kind, LIFE, STAGING, TARGETS, VOLUME, all, machine},
};

const FOLDER: &str = "/mnt/disks/a";
const DISK: Number = (8, 48);

fn local() -> Kind {
    all().into_iter().find(|kind| kind.name == "local").unwrap()
}

/// A machine on which this was done.
fn after(acts: &[Act]) -> Fake {
    let fake = local().machine();
    for act in acts {
        local().act(&fake, *act).unwrap();
    }
    fake
}

/// As where the machine mounts a disk only now.
fn mount_a_disk_on_the_folder(fake: &Fake) {
    fake.change().add_mount(FOLDER, DISK, "/", "ext4", "/dev/sdd");
}

/// As a former version staged it, seen by a plugin in another container: a remount is told to nobody.
fn mount_where_it_is_staged(fake: &Fake) {
    let mut model = fake.change();
    let root = model.mounts[0].clone();
    model.push(Mounted { root: FOLDER.into(), target: STAGING.into(), ..root });
}

/// What a kubelet looks for before it has a volume unstaged, which it refuses as long as it finds any (`SearchMountPoints` of its `mount-utils`).
pub fn references(table: &str, path: &Path) -> Vec<String> {
    let mounts = || table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let on = mounts().rfind(|mount| path.starts_with(mount[4])).unwrap();
    let root = Path::new(on[3]).join(path.strip_prefix(on[4]).unwrap());
    let is_another = |mount: &Vec<&str>| mount[0] != on[0] && mount[2] == on[2] && Path::new(mount[3]) == root;
    mounts().filter(is_another).map(|mount| mount[4].to_owned()).collect()
}

/// With nothing of its own mounted there, a disk on the volume's folder, and that from a server.
fn machines(kind: &Kind) -> [Fake; 3] {
    let [bare, disk, server] = [(); 3].map(|()| kind.machine());
    mount_a_disk_on_the_folder(&disk);
    server.change().add_mount("/mnt/disks", NFS, "/", "nfs4", "filer.example:/disks");
    server.change().folder(FOLDER);
    [bare, disk, server]
}

#[test]
fn kubelet_finds_no_reason_not_to_unstage_a_volume_that_no_pod_has() {
    for kind in all() {
        for fake in machines(&kind) {
            let before = fake.see().mounts.len();
            for act in LIFE {
                kind.act(&fake, act).unwrap();
                let is_published = TARGETS.iter().any(|target| fake.is_mounted(target));
                let found = references(&fake.see().mountinfo(), Path::new(STAGING));
                assert!(is_published || found.is_empty(), "{}: after {act:?}: {found:?}", kind.name);
            }
            assert_eq!(fake.see().mounts.len(), before, "{}", kind.name);
        }
    }
}

#[test]
fn folder_that_a_former_version_has_mounted_where_it_is_staged_is_shown_and_leaves() {
    let shown = [Act::Publish(0), Act::Publish(1), Act::Unpublish(1), Act::Unpublish(0), Act::Unstage];
    for acts in [&shown[..], &[Act::Unstage], &[Act::Stage, Act::Publish(0), Act::Unpublish(0), Act::Unstage]] {
        let fake = after(&[Act::Stage]);
        mount_where_it_is_staged(&fake);
        for act in acts {
            local().act(&fake, *act).unwrap();
            assert!(!fake.is_mounted(STAGING), "after {act:?}");
            if *act == Act::Publish(0) {
                let model = fake.see();
                let shown = model.mounts.iter().rfind(|mounted| mounted.target == Path::new(TARGETS[0])).unwrap();
                for flag in ["nosuid", "nodev", "noatime"] {
                    assert!(shown.options.iter().any(|option| option == flag), "{flag}: {:?}", shown.options);
                }
            }
        }
        assert!(fake.see().mounts.len() == 2 && fake.see().files.is_empty());
    }
}

/// It is not asked for anything else before it has the volume unstaged.
#[test]
fn mount_of_a_former_version_where_a_folder_is_staged_goes_when_a_pod_ends() {
    for acts in [&[Act::Unpublish(0)][..], &[Act::Unpublish(1), Act::Unpublish(0)]] {
        let fake = after(&[Act::Stage, Act::Publish(0), Act::Publish(1)]);
        for _ in 0..2 {
            mount_where_it_is_staged(&fake);
        }
        for act in acts {
            local().act(&fake, *act).unwrap();
        }
        assert!(!fake.is_mounted(STAGING) && !fake.is_mounted(TARGETS[0]));
    }
}

#[test]
fn folder_that_is_not_what_other_pods_of_the_volume_have_is_shown_to_nobody() {
    let fake = after(&[Act::Stage, Act::Publish(0)]);
    mount_a_disk_on_the_folder(&fake);
    let error = local().act(&fake, Act::Publish(1)).unwrap_err();
    assert!(matches!(&error, Error::Refused(told) if told.contains(FOLDER) && told.contains(TARGETS[0])), "{error}");
    assert!(!fake.is_mounted(TARGETS[1]));
    for act in [Act::Unpublish(0), Act::Publish(1)] {
        local().act(&fake, act).unwrap();
    }
    assert!(fake.see().mounts.iter().any(|there| there.target == Path::new(TARGETS[1]) && there.device == DISK));
}

#[test]
fn folder_that_is_gone_is_shown_to_nobody_and_leaves() {
    let fake = after(&[Act::Stage, Act::Publish(0)]);
    fake.change().trees.get_mut(&ROOT).unwrap().retain(|path, _| !Path::new(path).starts_with(FOLDER));
    let error = local().act(&fake, Act::Publish(1)).unwrap_err();
    assert!(matches!(&error, Error::Refused(told) if told.contains("there is no such")), "{error}");
    for act in [Act::Unpublish(0), Act::Unstage] {
        local().act(&fake, act).unwrap();
    }
    assert!(fake.see().mounts.len() == 2 && fake.see().files.is_empty());
}

/// Like a raw volume.
#[test]
fn folder_is_staged_as_long_as_that_is_on_record() {
    let fake = after(&[Act::Stage]);
    let health = || mount::measure::health(&machine(&fake), VOLUME).unwrap();
    assert_eq!(health(), []);
    let usage = mount::measure::usage(&machine(&fake), VOLUME, Path::new(STAGING)).unwrap();
    assert_eq!(usage.bytes.unwrap().total, 409_600);
    local().act(&fake, Act::Publish(0)).unwrap();
    fake.reboot();
    assert_eq!(health(), [Trouble::NotMounted(TARGETS[0].into())]);
    local().act(&fake, Act::Publish(0)).unwrap();
    assert!(fake.is_mounted(TARGETS[0]) && health().is_empty());
    for act in [Act::Unpublish(0), Act::Unstage] {
        local().act(&fake, act).unwrap();
    }
    assert!(matches!(local().act(&fake, Act::Publish(0)), Err(Error::Refused(_))));
}

#[test]
fn folder_is_not_staged_where_somebody_else_has_mounted_something() {
    let fake = after(&[Act::Stage]);
    fake.change().add_mount(STAGING, DISK, "/", "ext4", "/dev/sdd");
    for (act, why) in [(Act::Stage, "is mounted already"), (Act::Publish(0), STAGING)] {
        let error = local().act(&fake, act).unwrap_err();
        assert!(matches!(&error, Error::Refused(told) if told.contains(why)), "{act:?}: {error}");
    }
    assert!(fake.is_mounted(STAGING) && !fake.is_mounted(TARGETS[0]));
}
