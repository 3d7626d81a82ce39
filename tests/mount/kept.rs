//! What a container keeps that was once given all files of the machine, with what was mounted then.

use crate::kinds::{Act, STAGING, all};

#[test]
fn disk_that_somebody_keeps_mounted_elsewhere_is_staged_again() {
    for kind in all().into_iter().filter(|kind| kind.disk.is_some() && !kind.way.mode.is_block()) {
        let fake = kind.machine();
        for act in [Act::Stage, Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        fake.change().held.insert("/dev/sdb".into());
        kind.act(&fake, Act::Stage).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        assert!(fake.is_mounted(STAGING), "{}", kind.name);
    }
}
