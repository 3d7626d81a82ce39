//! What the backup of the host did not know, at its worst moments.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::{LOOKED, has_its_data_again, restore, restored};
use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock},
    caller::{Caller, Change, Ending, Script},
    fixture,
    late::creates,
    late_snapshots::{asked_again, volume},
    placed::{next_record, record},
    reclaim::{CLAIM, SETTLED, bench, ends_well, events, leaf, phase, provisioned, released, retained, until},
    snapshotter::{CONTENTS, GROUP_CONTENTS, GROUPS, KEPT, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish},
    taken::{give, take_off},
    virtual_time,
};

/// The leader has renewed its Lease more than once, and watches have been told how far the host is.
const A_WHILE: Duration = Duration::from_mins(3);
/// For what nobody waits for to be withdrawn.
const FORGOTTEN: Duration = Duration::from_mins(20);

/// A StatefulSet was deleted, with its claim and data, and made again. The restored host has the first claim, the member the second leaf.
#[test]
fn user_is_told_that_his_leaf_is_gone_also_where_a_later_one_has_its_name() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut first = provisioned(&bench, Script::new(CLAIM)).await;
        let backup = bench.host.backup();
        first.delete_claim();
        first.reclaim().await;
        let second = provisioned(&bench, Script::new(CLAIM)).await;
        sleep(A_WHILE).await;
        restore(&bench, &backup);
        until(&bench, LOOKED, "the user is told", || events(&bench).contains("LeafLost: ")).await;
        assert!(first.publish(&first.node()).await.is_err(), "it would be another claim's data");
        let there = leaf(&bench, CLAIM).unwrap();
        assert_eq!(Some(text(&there, "/spec/volumeName")), second.leaf_volume(), "it stays, with its data");
        first.delete_claim();
        first.reclaim().await;
        assert_eq!(bench.storages[0].volumes(), [second.leaf_volume().unwrap()]);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The member refuses the mark that says that the host has a volume, where it comes by itself, and a pod has come and gone before that is
/// tried again. The host goes back to when the claim waited, and the scheduler sends its pod elsewhere.
#[test]
fn leaf_that_a_pod_has_used_is_not_taken_back_though_its_mark_was_refused() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new(CLAIM) });
        let backup = bench.host.backup();
        bench.guard.set_fate(|_, at, asked| {
            let writes = |key: &str| asked.body.to_string().contains(&format!("kosmos.csi.io~1{key}"));
            let only_marks = asked.verb == Verb::Patch && writes("had-pv") && !writes("published");
            if at > 0 && only_marks { Action::Answer { code: 500, reason: "InternalError" } } else { Action::Pass }
        });
        assert_eq!(caller.provision().await, Ending::Provisioned);
        caller.change(Change::Publish).await;
        caller.change(Change::Unpublish).await;
        sleep(Duration::from_secs(20)).await;
        let used = caller.leaf_volume().unwrap().to_owned();
        restore(&bench, &backup);
        bench.guard.heal();
        caller.goes_to(vec![1]);
        for _ in 0..20 {
            let given_out = caller.create().await;
            assert!(given_out.is_err(), "{given_out:?}\n{}", bench.guard.trace().join("\n"));
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(bench.storages[0].volumes(), [used.as_str()], "{}", bench.guard.trace().join("\n"));
        caller.goes_to(vec![0]);
        has_its_data_again(&bench, &mut caller, &used).await;
        ends_well(&bench, caller).await;
    });
}

/// It was sent before the scheduler chose again, and the leaf was made in another member. In the host of then nothing speaks against it.
#[test]
fn record_that_arrives_late_in_a_host_that_went_back_is_put_right_by_where_the_data_is() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = Caller::new(&bench, Script { places: vec![1], ..Script::new(CLAIM) });
        let backup = bench.host.backup();
        next_record(&bench, Action::Late(LOOKED));
        assert!(caller.create().await.is_err());
        caller.goes_to(vec![0]);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(Duration::from_secs(10)).await;
        let used = caller.leaf_volume().unwrap().to_owned();
        restore(&bench, &backup);
        sleep(LOOKED).await;
        assert_eq!(record(&bench)[0], "m1", "the late one has arrived");
        has_its_data_again(&bench, &mut caller, &used).await;
        assert_eq!(record(&bench)[0], "m0", "{}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// The driver has begun again, and lists the member that has the data while the host is asked to write down another one: before its claim was
/// read, and after that, where the claim has come with what another one had on record.
#[test]
fn leaf_that_comes_into_sight_while_the_choice_is_written_down_is_where_the_volume_is() {
    for (was_in, said_first) in
        [(None, "still has its data in member m0"), (Some(1), "member m0: a leaf of it is seen there now")]
    {
        virtual_time::run(1, async {
            let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
            let mut caller = restored(&bench, Script { places: vec![0], was_in, ..Script::new(CLAIM) }).await;
            let used = caller.leaf_volume().unwrap().to_owned();
            bench.guard.set_fate(move |_, at, asked| match (at, asked.verb, asked.resource.as_str()) {
                (0, Verb::Patch, "persistentvolumeclaims") if was_in.is_none() || asked.body.is_object() => {
                    Action::Delay(Duration::from_secs(3))
                }
                (1, Verb::List, "persistentvolumeclaims" | "persistentvolumes") => {
                    Action::Delay(Duration::from_secs(2))
                }
                _ => Action::Pass,
            });
            bench.start();
            bench.serves().await;
            sleep(Duration::from_millis(500)).await;
            caller.goes_to(vec![1]);
            let refused = caller.create().await.unwrap_err();
            assert!(refused.message().contains(said_first), "{refused}");
            bench.guard.heal();
            let refused = caller.create().await.unwrap_err();
            assert!(refused.message().contains("still has its data in member m0"), "{refused}");
            assert!(bench.storages[1].volumes().is_empty(), "{}", bench.guard.trace().join("\n"));
            caller.goes_to(vec![0]);
            has_its_data_again(&bench, &mut caller, &used).await;
            ends_well(&bench, caller).await;
        });
    }
}

/// The driver has begun again, and of the member that has the data one list has come before the other one.
#[test]
fn leaf_of_which_the_volume_alone_is_listed_yet_is_waited_for() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = restored(&bench, Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let used = caller.leaf_volume().unwrap().to_owned();
        bench.guard.set_fate(|_, at, asked| {
            let lists_claims = at == 1 && asked.verb == Verb::List && asked.resource == "persistentvolumeclaims";
            if lists_claims { Action::Delay(Duration::from_secs(2)) } else { Action::Pass }
        });
        bench.start();
        bench.serves().await;
        sleep(Duration::from_millis(500)).await;
        caller.goes_to(vec![1]);
        let refused = caller.create().await.unwrap_err();
        let words = "member m0: the driver cannot tell yet whether this volume is there";
        assert!(refused.message().contains(words), "{refused}");
        bench.guard.heal();
        assert!(bench.storages[1].volumes().is_empty(), "{}", bench.guard.trace().join("\n"));
        caller.goes_to(vec![0]);
        has_its_data_again(&bench, &mut caller, &used).await;
        ends_well(&bench, caller).await;
    });
}

/// The member takes long to delete the leaf claim, and the host goes back meanwhile to when its claim waited for the first time.
#[test]
fn removal_that_the_host_has_forgotten_takes_nothing_from_the_claim_that_waits_again() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script::new(CLAIM));
        let backup = bench.host.backup();
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(Duration::from_secs(10)).await;
        let used = caller.leaf_volume().unwrap().to_owned();
        let sent = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&sent);
        bench.guard.set_fate(move |_, at, asked| {
            let deletes = at > 0 && asked.verb == Verb::Delete && asked.resource == "persistentvolumeclaims";
            let is_first = deletes && !told.swap(true, Ordering::Relaxed);
            if is_first { Action::Delay(Duration::from_secs(5)) } else { Action::Pass }
        });
        caller.delete_claim();
        let asks = caller.clone();
        tokio::join!(caller.reclaim(), async {
            until(&bench, SETTLED, "it is being removed", || sent.load(Ordering::Relaxed)).await;
            sleep(Duration::from_secs(1)).await;
            restore(&bench, &backup);
            let given_out = asks.create().await;
            assert!(given_out.is_err(), "{given_out:?}\n{}", bench.guard.trace().join("\n"));
        });
        has_its_data_again(&bench, &mut caller, &used).await;
        ends_well(&bench, caller).await;
    });
}

/// Its sidecar asks until a snapshot can be used, and goes by what its watch has told: that hears nothing in a host that has gone back.
#[test]
fn snapshot_that_was_given_out_is_not_withdrawn_as_the_host_has_forgotten_it() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        sleep(A_WHILE).await;
        let backup = bench.host.backup();
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        sleep(A_WHILE).await;
        restore(&bench, &backup);
        for _ in 0..5 {
            let _ = snapshot.ask().await;
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", bench.guard.trace().join("\n"));
        assert_eq!((bench.members[0].list(SNAPSHOTS).len(), bench.storages[0].snapshots().len()), (1, 1));
    });
}

/// Whoever removes a snapshot or a group is told late that nothing of this kind stands behind it any more.
fn is_read_late(bench: &Bench, kind: &'static str) {
    bench.guard.set_fate(move |_, at, asked| {
        let reads = at > 0 && asked.verb == Verb::Get && asked.resource == kind;
        if reads { Action::Delay(Duration::from_millis(3500)) } else { Action::Pass }
    });
}

/// The member takes long to remove it, and the host goes back meanwhile to when it was asked for.
#[test]
fn removal_of_a_snapshot_that_the_host_has_forgotten_takes_nothing_that_is_cut_for_it_again() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        let backup = bench.host.backup();
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        snapshot.discard();
        let asks = snapshot.clone();
        let (removed, given_out) = tokio::join!(timeout(Duration::from_millis(1500), snapshot.remove()), async {
            sleep(Duration::from_secs(1)).await;
            is_read_late(&bench, CONTENTS);
            restore(&bench, &backup);
            asks.ask().await
        });
        let trace = || bench.guard.trace().join("\n");
        assert!(removed.is_err() && given_out.is_err(), "it is being removed: {}", trace());
        assert!(snapshot.learn_again() && snapshot.make().await, "{}", trace());
        sleep(A_WHILE).await;
        bench.guard.heal();
        snapshot.look().await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", trace());
        assert_eq!(
            (bench.members[0].list(SNAPSHOTS).len(), bench.storages[0].snapshots().len()),
            (1, 1),
            "{}",
            trace()
        );
    });
}

/// Another replica may have had it cut again for the host that went back. Whoever asks for its removal still has that go as well.
#[test]
fn removal_of_a_snapshot_for_which_nobody_waits_takes_nothing_that_came_since() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let was = member.list(SNAPSHOTS).remove(0);
        snapshot.discard();
        assert!(timeout(Duration::from_secs(1), snapshot.remove()).await.is_err(), "the member is at work still");
        is_read_late(&bench, CONTENTS);
        until(&bench, SETTLED, "it has gone", || member.list(SNAPSHOTS).is_empty()).await;
        member.create(SNAPSHOTS, asked_again(&was)).unwrap();
        sleep(A_WHILE).await;
        assert_eq!(member.list(SNAPSHOTS).len(), 1, "{}", bench.guard.trace().join("\n"));
        bench.guard.heal();
        snapshot.remove().await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", bench.guard.trace().join("\n"));
    });
}

/// Its class keeps what stands behind it. Another replica has cut it again, and given it out, before this one has looked for what is kept.
#[test]
fn removal_of_a_snapshot_for_which_nobody_waits_takes_nothing_that_is_kept_of_one_that_came_since() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), KEPT));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let first = member.list(CONTENTS).remove(0);
        snapshot.discard();
        is_read_late(&bench, CONTENTS);
        assert!(timeout(Duration::from_secs(1), snapshot.remove()).await.is_err(), "the member is at work still");
        let mut since =
            json!({"metadata": {"name": "since", "labels": first["metadata"]["labels"]}, "spec": first["spec"]});
        since["spec"]["volumeSnapshotRef"]["uid"] = json!("since");
        member.create(CONTENTS, since).unwrap();
        sleep(A_WHILE).await;
        let since = member.get(CONTENTS, "", "since");
        let stays = since.is_some_and(|since| since["metadata"]["deletionTimestamp"].is_null());
        assert!(stays, "{}", bench.guard.trace().join("\n"));
    });
}

/// The same of a group, which is looked for once more where somebody in the member has removed a part of it.
#[test]
fn removal_of_a_group_for_which_nobody_waits_takes_nothing_that_came_since() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), USUAL));
        assert!(group.make().await, "{}", bench.guard.trace().join("\n"));
        let (was, part) = (member.list(GROUPS).remove(0), member.list(SNAPSHOTS).remove(0));
        group.discard();
        group.let_go();
        member.delete(SNAPSHOTS, SHOP, text(&part, "/metadata/name")).unwrap();
        until(&bench, SETTLED, "the part has gone", || member.list(SNAPSHOTS).is_empty()).await;
        is_read_late(&bench, GROUP_CONTENTS);
        assert!(timeout(Duration::from_secs(1), group.remove()).await.is_err(), "the member is at work still");
        until(&bench, SETTLED, "it has gone", || member.list(GROUPS).is_empty()).await;
        member.create(GROUPS, asked_again(&was)).unwrap();
        sleep(A_WHILE).await;
        assert_eq!(member.list(GROUPS).len(), 1, "{}", bench.guard.trace().join("\n"));
        bench.guard.heal();
        group.remove().await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", bench.guard.trace().join("\n"));
    });
}

/// A hand in the member had removed it, its class retains what stood behind it, and what had made it has arrived once more.
#[test]
fn what_is_kept_of_a_snapshot_is_not_withdrawn_with_one_that_came_late_as_the_host_has_forgotten_it() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        sleep(A_WHILE).await;
        let backup = bench.host.backup();
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), KEPT));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let was = member.list(SNAPSHOTS).remove(0);
        snapshot.let_go();
        member.delete(SNAPSHOTS, SHOP, text(&was, "/metadata/name")).unwrap();
        until(&bench, SETTLED, "it has gone", || member.list(SNAPSHOTS).is_empty()).await;
        member.create(SNAPSHOTS, asked_again(&was)).unwrap();
        until(&bench, SETTLED, "the late one is cut", || bench.storages[0].snapshots().len() == 2).await;
        restore(&bench, &backup);
        for _ in 0..5 {
            let answer = snapshot.ask().await;
            assert!(answer.is_err(), "it is of another moment: {}", bench.guard.trace().join("\n"));
            sleep(Duration::from_secs(5)).await;
        }
        let kept = member.get(CONTENTS, "", &format!("snapcontent-{}", text(&was, "/metadata/uid"))).unwrap();
        assert_eq!(text(&kept, "/spec/deletionPolicy"), "Retain", "{}", bench.guard.trace().join("\n"));
        assert_eq!(kept.pointer("/metadata/deletionTimestamp"), None);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The volume was given to another claim since the backup, and the leaf claim for that is on its way while the host goes back: there it has
/// its first claim.
async fn restored_while_a_leaf_claim_is_on_its_way() -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    let mut caller = provisioned(&bench, retained()).await;
    sleep(A_WHILE).await;
    let backup = bench.host.backup();
    released(&bench, &mut caller).await;
    let sent = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&sent);
    bench.guard.set_fate(move |_, at, asked| {
        let is_first = at > 0 && creates(asked, "persistentvolumeclaims") && !told.swap(true, Ordering::Relaxed);
        if is_first { Action::Late(LOOKED) } else { Action::Pass }
    });
    caller.clone().claim_again("again");
    until(&bench, SETTLED, "its leaf claim is on its way", || sent.load(Ordering::Relaxed)).await;
    restore(&bench, &backup);
    (bench, caller)
}

#[test]
fn leaf_claim_that_comes_late_for_a_claim_that_the_host_has_forgotten_goes_again() {
    virtual_time::run(1, async {
        let (bench, caller) = restored_while_a_leaf_claim_is_on_its_way().await;
        let has_its_leaf = || phase(leaf(&bench, CLAIM)) == "Bound" && leaf(&bench, "again").is_none();
        until(&bench, LOOKED, "the first claim has its leaf", has_its_leaf).await;
        until(&bench, LOOKED, "the late one arrives", || leaf(&bench, "again").is_some()).await;
        let other = Caller::new(&bench, Script::new("again"));
        let refused = other.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        let is_told = refused.message().contains("goes by itself") && !refused.message().contains("Delete");
        assert!(is_told, "nobody is to delete the volume that has the data: {refused}");
        other.delete_claim();
        sleep(FORGOTTEN).await;
        assert!(leaf(&bench, "again").is_none(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(text(&leaf(&bench, CLAIM).unwrap(), "/spec/volumeName"), caller.leaf_volume().unwrap());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        ends_well(&bench, caller).await;
    });
}

/// Its first claim gives the volume up as well before the late one has been looked for.
#[test]
fn leaf_claim_that_comes_late_goes_also_where_the_volume_is_kept_without_any_claim() {
    virtual_time::run(1, async {
        let (bench, mut caller) = restored_while_a_leaf_claim_is_on_its_way().await;
        until(&bench, LOOKED, "the first claim has its leaf", || phase(leaf(&bench, CLAIM)) == "Bound").await;
        until(&bench, LOOKED, "the late one arrives", || leaf(&bench, "again").is_some()).await;
        released(&bench, &mut caller).await;
        until(&bench, FORGOTTEN, "it goes as well", || leaf(&bench, "again").is_none()).await;
        assert_eq!(bench.storages[0].volumes(), [caller.leaf_volume().unwrap()]);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The volume was given to another claim since the backup, whose leaf claim was made and has not got it yet.
#[test]
fn claim_that_waits_again_gets_no_leaf_claim_beside_one_that_was_made_for_another_claim_since() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script { retain: true, ..Script::new(CLAIM) });
        let backup = bench.host.backup();
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(Duration::from_secs(10)).await;
        let used = caller.leaf_volume().unwrap().to_owned();
        released(&bench, &mut caller).await;
        bench.guard.set_fate(|_, at, asked| {
            let gives = asked.verb == Verb::Patch && asked.body.to_string().contains("/spec/claimRef");
            if at > 0 && gives { Action::Answer { code: 500, reason: "InternalError" } } else { Action::Pass }
        });
        caller.clone().claim_again("again");
        until(&bench, SETTLED, "its leaf claim is made", || leaf(&bench, "again").is_some()).await;
        restore(&bench, &backup);
        let told = ["shop/again", &used, "`kosmos-csi doctor` names the leaf claim"];
        for look in 0..5 {
            let refused = caller.create().await.unwrap_err();
            // The late one is found by the second look, as no claim of the host is called so any more, and goes.
            let is_told = look > 0 || told.iter().all(|it| refused.message().contains(it));
            assert!(refused.code() == Code::Aborted && is_told, "{refused}\n{}", bench.guard.trace().join("\n"));
            assert!(leaf(&bench, CLAIM).is_none() || leaf(&bench, "again").is_none(), "two leaf claims of one volume");
            sleep(Duration::from_secs(1)).await;
        }
        bench.guard.heal();
        has_its_data_again(&bench, &mut caller, &used).await;
        ends_well(&bench, caller).await;
    });
}

/// `kubectl delete pvc` in the member with all finalizers taken away, so that nothing is written on its volume.
fn delete_by_force(bench: &Bench, name: &str) {
    lock(&bench.guard.history).deleted_by_people(text(&leaf(bench, name).unwrap(), "/metadata/uid"));
    let unhold = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
    bench.members[0].change("persistentvolumeclaims", SHOP, name, unhold).unwrap();
    bench.members[0].delete("persistentvolumeclaims", SHOP, name).unwrap();
}

/// It was given to another claim since the backup, and is kept without that. The handle of a claim with a long name does not say where, and
/// a volume whose leaf claim was deleted by force does not say what that was.
#[test]
fn claim_that_waits_again_gets_no_empty_volume_where_its_own_is_kept_for_another_claim() {
    let long = format!("{CLAIM}-{}", "x".repeat(fixture::LONG));
    for (name, by_force) in [(CLAIM, false), (&*long, false), (&*long, true)] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = Caller::new(&bench, Script { retain: true, ..Script::new(name) });
            let backup = bench.host.backup();
            assert_eq!(caller.provision().await, Ending::Provisioned);
            sleep(Duration::from_secs(10)).await;
            released(&bench, &mut caller).await;
            caller.clone().claim_again("again");
            until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, "again")) == "Bound").await;
            sleep(A_WHILE).await;
            restore(&bench, &backup);
            if by_force {
                delete_by_force(&bench, "again");
            }
            until(&bench, LOOKED, "its leaf claim is let go", || leaf(&bench, "again").is_none()).await;
            for _ in 0..5 {
                let refused = caller.create().await.unwrap_err();
                let names = [caller.leaf_volume().unwrap(), caller.handle().unwrap(), "claim shop/again"];
                let is_told = names.iter().all(|name| refused.message().contains(name));
                let says = refused.message().contains("Do not delete the claim for that");
                let trace = || bench.guard.trace().join("\n");
                assert!(refused.code() == Code::Aborted && is_told && says, "{refused}\n{}", trace());
                sleep(Duration::from_secs(1)).await;
            }
            caller.delete_claim();
            let refused = caller.create().await.unwrap_err();
            let is_told = refused.message().contains(&format!("{} is retained", caller.leaf_volume().unwrap()));
            assert!(refused.code() == Code::Aborted && is_told, "something is left: {refused}");
            assert_eq!(bench.storages[0].volumes(), [caller.leaf_volume().unwrap()]);
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// Its leaf claim was deleted by force, and somebody has taken the claimRef off its volume: nothing there says what it was.
#[test]
fn claim_that_waits_again_is_told_how_to_have_a_volume_that_names_no_claim_and_has_it_so() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = restored(&bench, retained()).await;
        let (volume, handle) = (caller.leaf_volume().unwrap(), caller.handle().unwrap());
        delete_by_force(&bench, CLAIM);
        let was = take_off(&bench, &caller);
        sleep(LOOKED).await;
        let refused = caller.create().await.unwrap_err();
        for said in
            [volume, caller.volume(), handle, "names no claim", "names claim shop/data with any UID", "leafClaimUID"]
        {
            assert!(refused.message().contains(said), "{said}: {refused}");
        }
        give(&bench, &caller, was.clone());
        let by_hand = json!({
            "metadata": {"name": caller.volume()},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "kosmos",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP, "name": CLAIM},
                "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle, "volumeAttributes": {"leafClaimUID": was["uid"]}},
            },
        });
        bench.host.create("persistentvolumes", by_hand).unwrap();
        until(&bench, LOOKED, "its leaf claim is recreated", || phase(leaf(&bench, CLAIM)) == "Bound").await;
        assert_eq!(text(&leaf(&bench, CLAIM).unwrap(), "/spec/volumeName"), volume);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

fn close(bench: &Bench) {
    let close = |secret: &mut Value| secret["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!("true");
    bench.host.change("secrets", DRIVER_NAMESPACE, "m0", close).unwrap();
}

/// Watches go on from versions that the host has not come to again, and hear nothing until it has.
#[test]
fn member_that_is_closed_after_the_host_has_gone_back_takes_no_new_volume() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
        let backup = bench.host.backup();
        for number in 0..1000 {
            let others = json!({"metadata": {"name": format!("others-{number}"), "namespace": DRIVER_NAMESPACE}});
            bench.host.create("configmaps", others).unwrap();
        }
        sleep(A_WHILE).await;
        restore(&bench, &backup);
        sleep(SETTLED).await;
        close(&bench);
        sleep(A_WHILE).await;
        let caller = Caller::new(&bench, Script { places: vec![0], ..Script::new(CLAIM) });
        let answer = caller.create().await;
        let refused = answer.as_ref().err().map(tonic::Status::code);
        assert_eq!(refused, Some(Code::ResourceExhausted), "{answer:?}\n{}", bench.guard.trace().join("\n"));
    });
}
