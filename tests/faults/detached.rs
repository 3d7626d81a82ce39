//! A node that leaves a volume while its leaf claim goes and comes back is not on record for ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Change, Script},
    late::{LATE, creates, delay_next, patches},
    people::{delete_leaf_claim, hold},
    reclaim::{CLAIM, SETTLED, bench, ends_well, events, leaf, phase, policy, provisioned, retained, until, wrong},
    virtual_time,
};

/// Of a pod that uses the claim.
const IN_USE: &str = "example.com/in-use";

/// A volume on a node, whose leaf somebody has deleted while a pod uses it; its user is told.
async fn deleted_in_use() -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
    caller.change(Change::Publish).await;
    hold(&bench, CLAIM, IN_USE, true);
    delete_leaf_claim(&bench, CLAIM);
    until(&bench, SETTLED, "it is told", || events(&bench).contains("LeafWaits: ")).await;
    (bench, caller)
}

/// The leaf is there again, and on no node; and it can be published, and removed.
async fn is_on_no_node(bench: &Arc<Bench>, mut caller: Caller) {
    until(bench, SETTLED, "it is there again", || phase(leaf(bench, CLAIM)) == "Bound").await;
    sleep(SETTLED).await;
    assert_eq!(text(&leaf(bench, CLAIM).unwrap(), "/metadata/annotations/kosmos.csi.io~1published"), "");
    assert_eq!(wrong(bench, &caller, false), Vec::<String>::new());
    caller.change(Change::Publish).await;
    ends_well(bench, caller).await;
}

#[test]
fn node_that_leaves_while_the_leaf_is_held_is_forgotten() {
    virtual_time::run(1, async {
        let (bench, mut caller) = deleted_in_use().await;
        caller.unpublish().await.unwrap();
        hold(&bench, CLAIM, IN_USE, false);
        is_on_no_node(&bench, caller).await;
    });
}

#[test]
fn node_that_leaves_while_no_leaf_is_there_is_forgotten() {
    virtual_time::run(1, async {
        let (bench, mut caller) = deleted_in_use().await;
        // The next look is half a minute away.
        sleep(SETTLED).await;
        hold(&bench, CLAIM, IN_USE, false);
        assert!(leaf(&bench, CLAIM).is_none());
        caller.unpublish().await.unwrap();
        is_on_no_node(&bench, caller).await;
    });
}

#[test]
fn node_that_leaves_while_the_leaf_is_being_made_is_forgotten() {
    fn makes_a_claim(asked: &Asked) -> bool {
        asked.verb == Verb::Create && asked.resource == "persistentvolumeclaims"
    }
    virtual_time::run(1, async {
        let (bench, mut caller) = deleted_in_use().await;
        bench.guard.set_fate(|_, at, asked| {
            if at > 0 && makes_a_claim(asked) { Action::Delay(Duration::from_secs(3)) } else { Action::Pass }
        });
        hold(&bench, CLAIM, IN_USE, false);
        let sent = || bench.guard.trace().iter().any(|line| line.contains("Create persistentvolumeclaims"));
        let before = bench.guard.trace().len();
        until(&bench, SETTLED, "it is being made", || bench.guard.trace().len() > before && sent()).await;
        assert!(leaf(&bench, CLAIM).is_none());
        caller.unpublish().await.unwrap();
        assert!(leaf(&bench, CLAIM).is_none(), "the claim with the record of before is still on its way");
        is_on_no_node(&bench, caller).await;
    });
}

#[test]
fn nothing_is_published_of_a_leaf_that_is_being_recreated() {
    virtual_time::run(1, async {
        let (bench, mut caller) = deleted_in_use().await;
        caller.unpublish().await.unwrap();
        // Recreated, it waits for its volume.
        bench.guard.set_fate(
            |_, at, asked| {
                if at > 0 && gives_the_volume(asked) { Action::Refuse } else { Action::Pass }
            },
        );
        hold(&bench, CLAIM, IN_USE, false);
        until(&bench, SETTLED, "it is there again", || phase(leaf(&bench, CLAIM)) == "Pending").await;
        let node = caller.node();
        let refused = caller.publish(&node).await.unwrap_err();
        assert!(refused.message().contains("is being recreated"), "{refused}");
        bench.guard.set_fate(|_, _, _| Action::Pass);
        caller.unpublish().await.unwrap();
        is_on_no_node(&bench, caller).await;
    });
}

fn gives_the_volume(asked: &Asked) -> bool {
    let mut changes = asked.body.as_array().into_iter().flatten();
    asked.verb == Verb::Patch && changes.any(|change| text(change, "/path") == "/spec/claimRef")
}

/// What was decided on the leaf of before is looked at again, and finds one that is on its way out.
#[test]
fn nothing_is_published_of_a_leaf_that_is_let_go_meanwhile() {
    let changes = |asked: &Asked, of: &str| {
        let mut changes = asked.body.as_array().into_iter().flatten();
        asked.verb == Verb::Patch && changes.any(|change| change["value"] == of || text(change, "/path").ends_with(of))
    };
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        let is_first = AtomicBool::new(true);
        bench.guard.set_fate(move |_, at, asked| match at {
            1 if changes(asked, "kosmos.csi.io~1published") && is_first.swap(false, Ordering::Relaxed) => {
                Action::Delay(Duration::from_secs(2))
            }
            1 if changes(asked, "kosmos.csi.io/protect") => Action::Delay(Duration::from_secs(3)),
            _ => Action::Pass,
        });
        let goes = async {
            sleep(Duration::from_millis(500)).await;
            bench.host.delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
        };
        let node = caller.node();
        let (published, ()) = tokio::join!(caller.publish(&node), goes);
        let refused = published.unwrap_err();
        assert!(refused.message().contains("is being removed there"), "{refused}");
        until(&bench, SETTLED, "it is let go", || leaf(&bench, CLAIM).is_none()).await;
        caller.unpublish().await.unwrap();
        assert_eq!(wrong(&bench, &caller, true), Vec::<String>::new());
    });
}

/// Somebody deletes the leaf claim, and nobody can recreate it until that is healed.
async fn has_gone(bench: &Bench) {
    bench.guard.set_fate(|_, at, asked| {
        if at > 0 && creates(asked, "persistentvolumeclaims") { Action::Refuse } else { Action::Pass }
    });
    delete_leaf_claim(bench, CLAIM);
    until(bench, SETTLED, "it has gone, and is not recreated", || leaf(bench, CLAIM).is_none()).await;
}

/// Nobody unpublishes it: the host's attachment was removed by force. The claim is not there to say on which node it is.
#[test]
fn volume_is_not_removed_while_what_it_keeps_of_its_claim_names_a_node() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        caller.publish(&caller.node()).await.unwrap();
        has_gone(&bench).await;
        caller.delete_claim();
        let handle = caller.handle().unwrap().to_owned();
        sleep(Duration::from_secs(2)).await;
        let refused = caller.delete(&handle).await.unwrap_err();
        assert!(
            refused.code() == Code::FailedPrecondition && refused.message().contains("is published on"),
            "{refused}"
        );
        sleep(SETTLED).await;
        assert_eq!((policy(&bench, &caller).as_str(), bench.storages[0].volumes().len()), ("Retain", 1));
        caller.unpublish().await.unwrap();
        caller.delete(&handle).await.unwrap();
        assert!(bench.storages[0].volumes().is_empty());
        bench.guard.heal();
        caller.reclaim().await;
        assert_eq!(bench.guard.wrong(), [""; 0]);
    });
}

/// What describes the claim is written down when the node has left, and the claim is still there to say so.
#[test]
fn volume_is_removed_though_a_late_write_keeps_the_node_that_its_claim_has_left() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        caller.publish(&caller.node()).await.unwrap();
        hold(&bench, CLAIM, IN_USE, true);
        let sent = delay_next(&bench, |asked| patches(asked, "kosmos.csi.io~1healing"));
        delete_leaf_claim(&bench, CLAIM);
        until(&bench, SETTLED, "the write is on its way", || sent.load(Ordering::Relaxed)).await;
        caller.unpublish().await.unwrap();
        caller.delete_claim();
        sleep(LATE + Duration::from_secs(5)).await;
        hold(&bench, CLAIM, IN_USE, false);
        assert!(timeout(SETTLED, caller.reclaim()).await.is_ok(), "{}", bench.guard.trace().join("\n"));
        assert!(bench.storages[0].volumes().is_empty());
        assert_eq!(bench.guard.wrong(), [""; 0]);
    });
}

/// Of another version, or edited by a person: nobody can tell on which node it is.
#[test]
fn volume_is_not_removed_by_what_it_keeps_that_cannot_be_read() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        has_gone(&bench).await;
        let name = caller.leaf_volume().unwrap().to_owned();
        let note = |text: &'static str| {
            bench.members[0].change("persistentvolumes", "", &name, |volume| {
                volume["metadata"]["annotations"]["kosmos.csi.io/healing"] = text.into();
            })
        };
        note("edited").unwrap();
        caller.delete_claim();
        let handle = caller.handle().unwrap().to_owned();
        sleep(Duration::from_secs(2)).await;
        let refused = caller.delete(&handle).await.unwrap_err();
        assert!(refused.message().contains("is not what this driver wrote"), "{refused}");
        assert_eq!(bench.storages[0].volumes().len(), 1);
        let bare = |volume: &mut serde_json::Value| {
            volume["metadata"]["annotations"].as_object_mut().unwrap().remove("kosmos.csi.io/healing");
        };
        bench.members[0].change("persistentvolumes", "", &name, bare).unwrap();
        bench.guard.heal();
        caller.reclaim().await;
        assert_eq!(bench.guard.wrong(), [""; 0]);
    });
}
