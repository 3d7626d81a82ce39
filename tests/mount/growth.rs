//! An ext4 on a machine that lets it grow only while it is not mounted, and a growth that is cut short.

use domain::error::Error;

use crate::{
    fake::{Content, Fake, Moment, Unreadable},
    kinds::{Act, Kind, STAGING, all},
};

fn kind() -> Kind {
    all().into_iter().find(|kind| kind.name == "disk with ext4 to grow").unwrap()
}

fn machine_that_denies_growth() -> Fake {
    let fake = kind().machine();
    fake.change().denies_growth = true;
    fake
}

/// As where the memory was full.
fn with_a_growth_cut_short() -> Fake {
    let fake = machine_that_denies_growth();
    fake.change().kills = Some("resize2fs");
    let error = kind().act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(&error, Error::InProgress(told) if told.contains("resize2fs")), "{error}");
    {
        let mut model = fake.change();
        assert!(model.disk("sdb").has_errors);
        model.kills = None;
        model.programs_run.clear();
    }
    fake
}

fn is_grown(fake: &Fake) -> bool {
    matches!(fake.change().disk("sdb").content, Content::Filesystem { size, .. } if size == 1 << 30)
}

#[test]
fn growth_that_was_cut_short_is_repaired_before_anything_else_and_done_again() {
    for reboots in [false, true] {
        let fake = with_a_growth_cut_short();
        if reboots {
            fake.reboot();
        }
        kind().act(&fake, Act::Stage).unwrap();
        let programs = fake.see().programs_run.clone();
        let changes = programs.iter().find(|line| !line.starts_with("blkid") && !line.starts_with("e2fsck -f -n"));
        assert_eq!(changes.map(String::as_str), Some("e2fsck -f -y /dev/sdb"), "{programs:?}");
        assert!(fake.is_mounted(STAGING) && is_grown(&fake));
    }
}

#[test]
fn growth_that_was_cut_short_is_repaired_before_the_disk_leaves() {
    let fake = with_a_growth_cut_short();
    fake.change().kills = Some("e2fsck");
    assert!(matches!(kind().act(&fake, Act::Unstage), Err(Error::InProgress(_))));
    fake.change().kills = None;
    kind().act(&fake, Act::Unstage).unwrap();
    assert!(!fake.change().disk("sdb").has_errors);
    assert!(fake.see().files.is_empty());
}

/// A kubelet ends pods then because the disk is full.
#[test]
fn growth_that_was_cut_short_is_repaired_before_the_disk_leaves_also_where_no_record_can_be_written() {
    let fake = with_a_growth_cut_short();
    fake.change().unwritable = Some("No space left on device");
    kind().act(&fake, Act::Unstage).unwrap();
    assert!(!fake.change().disk("sdb").has_errors && fake.see().files.is_empty());
}

/// As where a path to the storage fails. A person sees to it where the disk has to leave.
#[test]
fn growth_that_was_cut_short_is_not_repaired_on_a_disk_that_cannot_be_read_everywhere() {
    let fake = with_a_growth_cut_short();
    fake.change().disk("sdb").unreadable = Some(Unreadable::Block);
    let error = kind().act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(&error, Error::InProgress(told) if told.contains("could not read all")), "{error}");
    fake.change().disk("sdb").unreadable = None;
    kind().act(&fake, Act::Stage).unwrap();
    assert!(fake.is_mounted(STAGING) && is_grown(&fake));
    let fake = with_a_growth_cut_short();
    fake.change().disk("sdb").unreadable = Some(Unreadable::Block);
    kind().act(&fake, Act::Unstage).unwrap();
    assert!(fake.change().disk("sdb").has_errors && fake.see().files.is_empty());
}

/// Programs refuse it as long as the kernel has it for another container.
#[test]
fn filesystem_that_another_container_has_is_mounted_as_large_as_it_is() {
    let fake = machine_that_denies_growth();
    fake.change().held.insert("/dev/sdb".into());
    kind().act(&fake, Act::Stage).unwrap();
    assert!(fake.is_mounted(STAGING) && !is_grown(&fake));
    let error = kind().act(&fake, Act::Expand).unwrap_err();
    assert!(error.to_string().contains("another container"), "{error}");
    fake.change().held.clear();
    for act in [Act::Unstage, Act::Stage] {
        kind().act(&fake, act).unwrap();
    }
    assert!(is_grown(&fake));
}

/// The node was lost then, a person has repaired the disk for another one, and now it is wanted here again.
#[test]
fn errors_that_others_have_left_are_repaired_by_nobody_but_a_person() {
    let fake = with_a_growth_cut_short();
    fake.reboot();
    fake.change().disk("sdb").mounted += 1;
    let error = kind().act(&fake, Act::Stage).unwrap_err();
    assert!(error.to_string().contains("by hand"), "{error}");
    kind().act(&fake, Act::Unstage).unwrap();
    assert!(fake.change().disk("sdb").has_errors);
    assert!(fake.see().files.is_empty() && !fake.see().programs_run.iter().any(|line| line.contains("-y")));
}

/// As where its storage does so just then. A kubelet that is refused asks no more while a pod has the volume.
#[test]
fn growth_that_fails_where_the_machine_lets_it_is_not_refused() {
    for (name, program) in [("disk with xfs to grow", "xfs_growfs"), ("disk with ext4 to grow", "resize2fs")] {
        let kind = all().into_iter().find(|kind| kind.name == name).unwrap();
        let fake = kind.machine();
        for act in [Act::Stage, Act::Publish(0)] {
            kind.act(&fake, act).unwrap();
        }
        fake.change().disk("sdb").size = 2 << 30;
        fake.change().fails = Some(program);
        let error = kind.act(&fake, Act::Expand).unwrap_err();
        assert!(matches!(&error, Error::InProgress(told) if told.contains(program)), "{name}: {error}");
        fake.change().fails = None;
        kind.act(&fake, Act::Expand).unwrap();
        assert!(matches!(fake.change().disk("sdb").content, Content::Filesystem { size, .. } if size == 2 << 30));
    }
}

/// A kubelet that has not heard of the former call would take a refusal for its end, and let the disk go with what is mounted.
#[test]
fn stage_is_not_refused_while_what_a_former_one_has_mounted_is_there() {
    let kind = all().into_iter().find(|kind| kind.name == "disk with xfs to grow").unwrap();
    let fake = kind.machine();
    fake.change().fails = Some("xfs_growfs");
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(error, Error::Refused(_)) && !fake.is_mounted(STAGING), "{error}");
    fake.change().fails = None;
    kind.act(&fake, Act::Stage).unwrap();
    fake.change().fails = Some("xfs_growfs");
    let error = kind.act(&fake, Act::Stage).unwrap_err();
    assert!(matches!(error, Error::InProgress(_)) && fake.is_mounted(STAGING), "{error}");
}

#[test]
fn wherever_a_process_dies_that_grows_a_filesystem_the_next_one_goes_on() {
    let fake = machine_that_denies_growth();
    kind().act(&fake, Act::Stage).unwrap();
    let (calls, mut cut_short) = (fake.see().calls, 0);
    for (call, moment) in
        (0..calls).flat_map(|call| [Moment::Before, Moment::Within, Moment::After].map(|at| (call, at)))
    {
        let fake = machine_that_denies_growth();
        fake.change().dies_at = vec![(call, moment)];
        kind().act(&fake, Act::Stage).ok();
        cut_short += usize::from(fake.change().disk("sdb").has_errors);
        fake.revive();
        kind().act(&fake, Act::Stage).unwrap_or_else(|error| panic!("{moment:?} {call}: {error}"));
        assert!(fake.is_mounted(STAGING) && is_grown(&fake), "{moment:?} {call}");
    }
    assert!(cut_short > 0, "no call grows it");
}
