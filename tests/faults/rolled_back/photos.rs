//! Snapshots that are back after they were seen to go: as they were, under the UID they had.

use std::time::Duration;

use csi::v1::{self, volume_content_source};
use simulate::faults::{Action, Verb};
use tokio::time::{sleep, timeout};

use super::{SEEN, roll_back};
use crate::{
    bench::SHOP,
    caller::{Caller, Ending, Script},
    late_snapshots::volume,
    reclaim::SETTLED,
    snapshotter::{KEPT, Kind, SNAPSHOTS, Snapshotter, Wish},
    virtual_time,
};

/// The member has no such class, so nothing is ever cut by it.
const MISSING: &str = "missing";

fn wish(caller: &Caller, class: &'static str) -> Wish {
    Wish::photo(Kind::Snapshot, caller.handle().unwrap(), class)
}

/// A hand in the member has deleted it, and its class has kept the data.
#[test]
fn snapshot_that_was_deleted_since_the_backup_is_restored_from_and_removed() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let mut snapshot = Snapshotter::new(&bench, wish(&caller, KEPT));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let snapshot_id = snapshot.handle().unwrap().to_owned();
        let name = snapshot_id.split('/').nth(2).unwrap();
        sleep(SEEN).await;
        let backup = bench.members[0].backup();
        snapshot.let_go();
        bench.members[0].delete(SNAPSHOTS, SHOP, name).unwrap();
        sleep(SEEN).await;
        assert!(bench.members[0].get(SNAPSHOTS, SHOP, name).is_none());
        roll_back(&bench, &backup);
        sleep(SEEN).await;
        let source = volume_content_source::SnapshotSource { snapshot_id: snapshot_id.clone() };
        let source = v1::VolumeContentSource { r#type: Some(volume_content_source::Type::Snapshot(source)) };
        let mut copy = Caller::new(&bench, Script { source: Some(source), ..Script::new("copy") });
        let ending = timeout(SETTLED, copy.provision()).await;
        assert_eq!(ending.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
        snapshot.discard();
        timeout(SETTLED, snapshot.remove()).await.unwrap();
        assert!(bench.storages[0].snapshots().is_empty());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", bench.guard.trace().join("\n"));
    });
}

/// It was never cut, and the user has deleted it.
#[test]
fn snapshot_that_a_member_keeps_and_says_to_be_gone_is_deleted_again_until_it_is() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        bench.guard.set_fate(|_, at, asked| match asked.verb {
            Verb::Delete if at > 0 && asked.resource == SNAPSHOTS => Action::Answer { code: 200, reason: "" },
            _ => Action::Pass,
        });
        let mut snapshot = Snapshotter::new(&bench, wish(&caller, MISSING));
        let user = snapshot.clone();
        let (made, ()) = tokio::join!(snapshot.make(), async {
            sleep(Duration::from_secs(5)).await;
            user.discard();
            sleep(Duration::from_mins(2)).await;
            assert_eq!(bench.members[0].list(SNAPSHOTS).len(), 1, "it is kept");
            bench.guard.heal();
        });
        assert!(!made && bench.members[0].list(SNAPSHOTS).is_empty());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", bench.guard.trace().join("\n"));
    });
}
