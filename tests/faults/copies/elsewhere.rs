//! Snapshots of a volume that is used again by a claim of another namespace than its handle names.

use std::time::Duration;

use simulate::text;
use tokio::time::sleep;

use super::STEP;
use crate::{
    bench::Bench,
    caller::claim_again,
    fixture, invariants,
    reclaim::{SETTLED, provisioned, released, retained, until},
    snapshotter::{Kind, Snapshotter, USUAL, Wish, have_kinds},
    virtual_time,
};

const OTHER: &str = "default";
/// Enough for a few calls.
const WHILE: Duration = Duration::from_secs(5);

#[test]
fn volume_that_is_used_again_in_another_namespace_has_no_snapshots_and_the_user_is_told_what_to_do() {
    for kind in [Kind::Snapshot, Kind::Group] {
        virtual_time::run(1, async {
            let bench = Bench::new(1, 1, &fixture::steady(STEP)).await;
            have_kinds(&bench);
            bench.start();
            bench.serves().await;
            let mut caller = provisioned(&bench, retained()).await;
            released(&bench, &mut caller).await;
            claim_again(&bench, caller.volume(), OTHER, "again");
            let leaf = || bench.members[0].get("persistentvolumeclaims", OTHER, "again");
            let is_bound = || leaf().is_some_and(|leaf| text(&leaf, "/status/phase") == "Bound");
            until(&bench, SETTLED, "its leaf is there again", is_bound).await;
            sleep(WHILE).await;
            let mut snapshot = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), USUAL));
            let user = snapshot.clone();
            let (made, ()) = tokio::join!(snapshot.make(), async move {
                sleep(WHILE).await;
                user.discard();
            });
            sleep(WHILE).await;
            let trace = bench.guard.trace();
            assert!(!made && leaf().is_some(), "{}", trace.join("\n"));
            let told = |line: &String| line.contains("FailedPrecondition") && line.contains("clone it");
            assert!(trace.iter().any(told), "{}", trace.join("\n"));
            let wrong = [bench.guard.wrong(), invariants::snapshots(&bench)].concat();
            assert!(wrong.is_empty(), "{kind:?}: {wrong:#?}\n{}", trace.join("\n"));
        });
    }
}
