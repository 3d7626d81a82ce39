//! A member whose etcd is restored from a backup: what was made since is gone there, what was removed is back, what was changed
//! is as it was, and the versions begin again with lower numbers. Its storage is as it is.

mod drawn;
mod photos;

use std::time::Duration;

use serde_json::Value;
use simulate::{Backup, text};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Script},
    people::delete_leaf_claim,
    reclaim::{self, CLAIM, SETTLED, ends_well, events, leaf, policy, provisioned, until},
    virtual_time,
};

/// From the restore until the driver goes by what is there.
const SEEN: Duration = Duration::from_secs(30);
/// And until it is sure that what is not seen is not there.
const MISSED: Duration = Duration::from_secs(90);

pub fn roll_back(bench: &Bench, backup: &Backup) {
    roll_back_member(bench, 0, backup);
}

/// Nothing of the host is to blame for what is gone.
pub fn roll_back_member(bench: &Bench, at: usize, backup: &Backup) {
    bench.guard.look();
    for claim in bench.members[at].list("persistentvolumeclaims") {
        lock(&bench.guard.history).deleted_by_people(text(&claim, "/metadata/uid"));
    }
    bench.guard.note(|| format!("m{at} is restored from a backup"));
    bench.members[at].restore_from(backup);
}

#[test]
fn user_is_told_that_his_leaf_is_not_in_the_backup_and_no_empty_one_takes_its_place() {
    // A handle that would be too long does not say where the leaf was.
    for claim in [CLAIM, &"a".repeat(120)] {
        virtual_time::run(1, async {
            let bench = reclaim::bench().await;
            let backup = bench.members[0].backup();
            let mut caller = provisioned(&bench, Script::new(claim)).await;
            // A quiet member, whose watches are told of nothing.
            sleep(Duration::from_mins(20)).await;
            roll_back(&bench, &backup);
            until(&bench, MISSED, "the user is told", || events(&bench).contains("LeafLost: ")).await;
            caller.publish(&caller.node()).await.unwrap_err();
            let refused = caller.create().await.unwrap_err();
            assert_eq!(refused.code(), Code::Aborted, "{refused}");
            assert!(leaf(&bench, claim).is_none());
            assert_eq!(bench.storages[0].volumes().len(), 1, "the storage keeps what it has");
        });
    }
}

#[test]
fn policy_that_the_host_has_set_since_the_backup_is_set_again() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let backup = bench.members[0].backup();
        caller.set_policy("Retain");
        until(&bench, SEEN, "it is retained", || policy(&bench, &caller) == "Retain").await;
        sleep(Duration::from_mins(20)).await;
        roll_back(&bench, &backup);
        assert_eq!(policy(&bench, &caller), "Delete");
        until(&bench, SEEN, "it is retained again", || policy(&bench, &caller) == "Retain").await;
    });
}

/// The backup has a node on record that was unpublished since. Nobody but a person can tell that from one that is still there.
#[test]
fn volume_that_the_backup_has_on_a_node_says_what_to_do_and_is_removed_then() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        caller.publish(&caller.node()).await.unwrap();
        let backup = bench.members[0].backup();
        caller.unpublish().await.unwrap();
        sleep(Duration::from_mins(20)).await;
        roll_back(&bench, &backup);
        sleep(SEEN).await;
        caller.delete_claim();
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("remove annotation kosmos.csi.io/published"), "{refused}");
        let forget = |claim: &mut Value| {
            claim["metadata"]["annotations"].as_object_mut().unwrap().remove("kosmos.csi.io/published");
        };
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, forget).unwrap();
        ends_well(&bench, caller).await;
    });
}

#[test]
fn volume_that_the_backup_has_on_no_node_is_unpublished_and_removed_as_always() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let backup = bench.members[0].backup();
        caller.publish(&caller.node()).await.unwrap();
        sleep(Duration::from_mins(20)).await;
        roll_back(&bench, &backup);
        caller.unpublish().await.unwrap();
        ends_well(&bench, caller).await;
    });
}

/// The storage removed the volume, and its objects are back. Nobody takes it for one that may be used, and it is told of.
#[test]
fn leaf_that_was_removed_since_the_backup_is_counted_as_nobodys_and_stays() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let backup = bench.members[0].backup();
        caller.delete_claim();
        timeout(SETTLED, caller.reclaim()).await.unwrap();
        sleep(Duration::from_mins(20)).await;
        roll_back(&bench, &backup);
        sleep(Duration::from_hours(1)).await;
        let told = "kosmos_csi_member_volumes{member=\"m0\",state=\"stray\"} 1\n";
        assert!(bench.metrics().contains(told), "{}", bench.metrics());
        assert!(leaf(&bench, CLAIM).is_some_and(|leaf| leaf.pointer("/metadata/deletionTimestamp").is_none()));
        let other = Caller::new(&bench, Script::new(CLAIM));
        let refused = other.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    });
}

/// It was recreated since, under another UID.
#[test]
fn leaf_that_was_healed_since_the_backup_is_the_leaf_as_before() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let backup = bench.members[0].backup();
        let was = delete_leaf_claim(&bench, CLAIM);
        sleep(Duration::from_mins(1)).await;
        assert_ne!(text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid"), was);
        sleep(Duration::from_mins(20)).await;
        roll_back(&bench, &backup);
        sleep(SEEN).await;
        let now = leaf(&bench, CLAIM).unwrap_or_else(|| panic!("{}", bench.guard.trace().join("\n")));
        assert!(now.pointer("/metadata/deletionTimestamp").is_none(), "{now}");
        caller.publish(&caller.node()).await.unwrap();
        assert_eq!(bench.storages[0].volumes().len(), 1);
    });
}
