//! A server that does not answer: whoever calls a hard mount of it waits without an end.

use std::path::Path;

use domain::{error::Error, volume::backing::Attached};
use mount::Trouble;

use crate::{
    fake::{Fake, NFS},
    kinds::{Act, Kind, STAGING, TARGETS, VOLUME, all, machine},
};

fn of_a_server() -> impl Iterator<Item = Kind> {
    all().into_iter().filter(|kind| kind.name.starts_with("nfs"))
}

fn at_two_pods(kind: &Kind) -> Fake {
    let fake = kind.machine();
    for act in [Act::Stage, Act::Publish(0), Act::Publish(1)] {
        kind.act(&fake, act).unwrap();
    }
    fake
}

fn is_told(error: &Error) -> bool {
    matches!(error, Error::InProgress(told) if told.contains("does not answer"))
}

/// A kubelet that has started again stages and publishes once more, for pods that run.
#[test]
fn whatever_meets_a_server_that_does_not_answer_ends_and_changes_nothing() {
    for kind in of_a_server() {
        let fake = at_two_pods(&kind);
        let there = fake.see().mounts.clone();
        fake.change().silent_filesystems.push(NFS);
        for act in [Act::Stage, Act::Publish(0), Act::Publish(1), Act::Expand] {
            let error = kind.act(&fake, act).unwrap_err();
            assert!(is_told(&error), "{}: {act:?}: {error}", kind.name);
        }
        let usage = mount::measure::usage(&machine(&fake), VOLUME, Path::new(TARGETS[0]));
        assert!(usage.as_ref().is_err_and(is_told), "{}: {usage:?}", kind.name);
        let troubles = [STAGING, TARGETS[0], TARGETS[1]].map(|path| Trouble::Dead(path.into()));
        assert_eq!(mount::measure::health(&machine(&fake), VOLUME).unwrap(), troubles, "{}", kind.name);
        assert_eq!(fake.see().mounts, there, "{}", kind.name);
        fake.change().silent_filesystems.clear();
        for act in [Act::Stage, Act::Publish(0), Act::Publish(1)] {
            kind.act(&fake, act).unwrap();
        }
        assert_eq!(fake.see().mounts, there, "{}", kind.name);
    }
}

/// The questions that hang keep the mounts busy.
#[test]
fn pods_end_and_a_volume_leaves_while_its_server_does_not_answer() {
    for kind in of_a_server() {
        let fake = at_two_pods(&kind);
        {
            let mut model = fake.change();
            model.silent_filesystems.push(NFS);
            model.busy = [STAGING, TARGETS[0]].map(Into::into).into();
        }
        assert!(kind.act(&fake, Act::Stage).is_err());
        for act in [Act::Unpublish(0), Act::Unpublish(1), Act::Unstage] {
            kind.act(&fake, act).unwrap_or_else(|error| panic!("{}: {act:?}: {error}", kind.name));
        }
        assert_eq!(fake.see().mounts.len(), 2, "{}", kind.name);
        assert!(fake.see().files.is_empty() && TARGETS.iter().all(|target| !fake.exists(target)), "{}", kind.name);
        fake.change().silent_filesystems.clear();
        kind.act(&fake, Act::Stage).unwrap();
    }
}

/// As a pod can that is privileged and has the volume with `mountPropagation: Bidirectional`.
#[test]
fn what_somebody_else_has_mounted_in_a_volume_does_not_go_with_it() {
    for kind in of_a_server() {
        let (fake, theirs) = (at_two_pods(&kind), format!("{}/theirs", TARGETS[0]));
        fake.change().add_mount(&theirs, (8, 32), "/", "ext4", "/dev/sdc");
        fake.change().silent_filesystems.push(NFS);
        let error = kind.act(&fake, Act::Unpublish(0)).unwrap_err();
        assert!(is_told(&error) && fake.is_mounted(&theirs) && fake.is_mounted(TARGETS[0]), "{}: {error}", kind.name);
        fake.change().mounts.retain(|mounted| mounted.target != Path::new(&theirs));
        kind.act(&fake, Act::Unpublish(0)).unwrap();
    }
}

/// The folder of a local volume may be one that the machine itself has mounted.
#[test]
fn folder_that_the_machine_has_from_a_server_keeps_no_turn_either() {
    let kind = all().into_iter().find(|kind| kind.name == "local").unwrap();
    let fake = kind.machine();
    {
        let mut model = fake.change();
        model.add_mount("/mnt/disks", NFS, "/", "nfs4", "filer.example:/disks");
        model.folder("/mnt/disks/a");
    }
    for act in [Act::Stage, Act::Publish(0), Act::Publish(1)] {
        kind.act(&fake, act).unwrap();
    }
    fake.change().silent_filesystems.push(NFS);
    for act in [Act::Stage, Act::Publish(0), Act::Expand] {
        let error = kind.act(&fake, act).unwrap_err();
        assert!(is_told(&error), "{act:?}: {error}");
    }
    for act in [Act::Unpublish(0), Act::Unpublish(1), Act::Unstage] {
        kind.act(&fake, act).unwrap_or_else(|error| panic!("{act:?}: {error}"));
    }
    assert_eq!(fake.see().mounts.len(), 3, "the machine's own is left");
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(is_told(&error) && fake.see().files.is_empty(), "{error}");
}

/// It leaves the node after that, with what is not written.
#[test]
fn disk_that_does_not_answer_and_is_in_use_is_waited_for() {
    let kind = all().into_iter().find(|kind| kind.name == "disk with xfs to grow").unwrap();
    let kind = Kind { attached: Attached { readonly: true, ..kind.attached }, ..kind };
    let fake = kind.machine();
    kind.act(&fake, Act::Stage).unwrap();
    fake.change().silent_filesystems.push((8, 16));
    fake.change().busy.push(STAGING.into());
    let error = kind.act(&fake, Act::Unstage).unwrap_err();
    assert!(is_told(&error) && fake.is_mounted(STAGING), "{error}");
}
