//! A machine whose own disk is full.

use crate::kinds::{Act, STAGING, TARGETS, all};

/// A kubelet ends pods then because the disk is full.
#[test]
fn pods_end_and_volumes_leave_where_no_record_can_be_written() {
    for kind in all() {
        let fake = kind.machine();
        for act in [Act::Stage, Act::Publish(0), Act::Publish(1)] {
            kind.act(&fake, act).unwrap();
        }
        fake.change().unwritable = Some("No space left on device");
        for act in [Act::Unpublish(0), Act::Unpublish(0), Act::Unpublish(1), Act::Unstage] {
            kind.act(&fake, act).unwrap();
        }
        assert!(TARGETS.iter().all(|target| !fake.exists(target)) && !fake.is_mounted(STAGING), "{}", kind.name);
        assert!(fake.see().files.is_empty(), "{}: a record is left", kind.name);
    }
}
