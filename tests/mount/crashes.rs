//! A process that dies at every call there is, one by one and in pairs, and is called again.

use std::path::Path;

use crate::{
    fake::{Content, Fake, Moment},
    kinds::{Act, GROUP, Kind, LIFE, STAGING, TARGETS, all},
};

const MOMENTS: [Moment; 3] = [Moment::Before, Moment::Within, Moment::After];

/// What follows a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    CallAgain,
    Reboot,
    Undo,
}

/// Plays a volume's life, in which the process dies at these calls. Answers how many calls it took.
fn live(kind: &Kind, dies_at: &[(usize, Moment)], then: Then) -> usize {
    let fake = kind.machine();
    let before = fake.data();
    fake.change().dies_at = dies_at.to_vec();
    let story = format!("{} dying at {dies_at:?}, then {then:?}", kind.name);
    let mut next = 0;
    while next < LIFE.len() {
        let act = LIFE[next];
        match kind.act(&fake, act) {
            Ok(()) => {
                check_done(kind, &fake, act, &story);
                next += 1;
            }
            Err(error) => {
                assert!(fake.see().is_dead, "{story}: {act:?}: {error}");
                next = resume(&fake, next, then);
            }
        }
    }
    check_end(kind, &fake, &before, &story);
    let calls = fake.see().calls;
    // Whatever was left half done, the volume can be used again by somebody who knows nothing of it.
    fake.change().dies_at.clear();
    for act in [Act::Stage, Act::Unstage].into_iter().filter(|_| then == Then::Undo) {
        kind.act(&fake, act).unwrap_or_else(|error| panic!("{story}: afterwards {act:?}: {error}"));
    }
    check_end(kind, &fake, &before, &story);
    calls
}

fn resume(fake: &Fake, at: usize, then: Then) -> usize {
    let undoing = LIFE.iter().position(|act| matches!(act, Act::Unpublish(_))).unwrap();
    match then {
        Then::Reboot => fake.reboot(),
        Then::CallAgain | Then::Undo => fake.revive(),
    }
    match then {
        Then::Reboot if at < undoing => 0,
        Then::Undo if at < undoing => undoing,
        _ => at,
    }
}

fn check_done(kind: &Kind, fake: &Fake, act: Act, story: &str) {
    let count = |path: &str| fake.see().mounts.iter().filter(|mounted| mounted.target == Path::new(path)).count();
    // A kubelet would not unstage it.
    assert!(kind.is_mounted_where_staged() || count(STAGING) == 0, "{story}: {act:?}");
    match act {
        Act::Stage => {
            assert_eq!(count(STAGING), usize::from(kind.is_mounted_where_staged()), "{story}");
        }
        Act::Publish(number) => {
            let target = TARGETS[number];
            assert_eq!(count(target), 1, "{story}");
            let model = fake.see();
            let mounted = model.mounts.iter().rfind(|mounted| mounted.target == Path::new(target)).unwrap();
            // What the leaf driver mounts is its own affair.
            if kind.name != "csi" {
                assert_eq!(mounted.options.contains(&"ro".to_owned()), kind.readonly, "{story}");
            }
            let has_group = kind.way.group.is_some() && !kind.readonly && !kind.name.starts_with("nfs");
            assert_eq!(model.node(Path::new(target)).unwrap().group == GROUP, has_group, "{story}");
            drop(model);
            if kind.disk.is_some() && !kind.way.mode.is_block() {
                fake.change().file(&format!("{target}/data"), 4);
            }
        }
        Act::Expand => {
            for disk in fake.see().disks.values() {
                if let Content::Filesystem { size, .. } = disk.content {
                    assert_eq!(size, disk.size, "{story}");
                }
            }
        }
        Act::Unpublish(number) => assert!(!fake.exists(TARGETS[number]), "{story}"),
        Act::Unstage => assert_eq!(count(STAGING), 0, "{story}"),
    }
}

fn check_end(kind: &Kind, fake: &Fake, before: &[(mount::kernel::Number, std::path::PathBuf, u64)], story: &str) {
    let model = fake.see();
    assert_eq!(model.mounts.len(), 2, "{story}: still mounted: {:?}", model.mounts);
    assert!(model.files.is_empty(), "{story}: a record is left");
    for target in TARGETS {
        assert!(model.node(Path::new(target)).is_none(), "{story}: {target} is left");
    }
    for disk in model.disks.values() {
        let was_blank = kind.disk == Some(Content::Blank);
        let formatted = matches!(disk.content, Content::Filesystem { .. });
        assert_eq!(disk.formats, usize::from(was_blank && formatted), "{story}");
        assert!(was_blank || disk.content == Content::Bytes || formatted, "{story}");
        assert!(!disk.is_locked, "{story}");
    }
    drop(model);
    let after = fake.data();
    assert!(before.iter().all(|file| after.contains(file)), "{story}: data is gone");
}

#[test]
fn every_kind_lives_and_leaves_nothing() {
    for kind in all() {
        let calls = live(&kind, &[], Then::CallAgain);
        assert!(calls > 20, "{}: only {calls} calls", kind.name);
    }
}

#[test]
fn whatever_call_a_process_dies_at_the_next_one_goes_on() {
    for kind in all() {
        let calls = live(&kind, &[], Then::CallAgain);
        for call in 0..calls {
            for moment in MOMENTS {
                live(&kind, &[(call, moment)], Then::CallAgain);
            }
            live(&kind, &[(call, MOMENTS[call % 3])], [Then::Reboot, Then::Undo][call / 3 % 2]);
        }
    }
}

/// Of the pairs only some are played, unless it is to be thorough.
#[test]
fn dying_twice_is_no_worse() {
    let thorough = std::env::var_os("KOSMOS_CSI_THOROUGH").is_some();
    // The second death falls into what the first left to do.
    let gaps = if thorough { (1..24).collect() } else { vec![4] };
    for kind in all() {
        let calls = live(&kind, &[], Then::CallAgain);
        for (first, gap) in (0..calls).flat_map(|first| gaps.iter().map(move |gap| (first, gap))) {
            let number = first + gap;
            let pairs = MOMENTS.into_iter().flat_map(|one| MOMENTS.map(|two| (one, two)));
            let chosen = pairs.enumerate().filter(|(place, _)| thorough || *place == number % 9);
            for (_, (one, two)) in chosen {
                let then = [Then::CallAgain, Then::CallAgain, Then::Reboot][first % 3];
                live(&kind, &[(first, one), (first + gap, two)], then);
            }
        }
    }
}
