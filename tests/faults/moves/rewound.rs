//! The host is restored from a backup, in place, while a volume moves: its move says that less was done than was.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::text;
use tokio::time::{Instant, sleep};

use super::{
    CLAIM, CLAIMS, DATA, MOVED, STEP, Story, VOLUMES, YARD, at_the_end,
    forgotten::SURE,
    gone::{SEEN, approves, condition, of, told},
    hands::{MOST_A_MINUTE, calls_off},
    killed::story_in,
    play::Mood,
};
use crate::{
    bench::{DRIVER_NAMESPACE, SHOP},
    caller::Ending,
    gone::forget,
    host_restored::restore,
    reclaim::events,
    virtual_time,
};

/// The claim by which the source is lent.
fn is_lent(story: &Story) -> bool {
    let lent = story.bench.members[0].get(CLAIMS, YARD, &story.lent());
    lent.is_some_and(|claim| text(&claim, "/status/phase") == "Bound")
}

/// Nothing would bring its claim home.
#[test]
fn source_that_was_lent_since_the_backup_is_not_waited_for_and_the_volume_moves() {
    virtual_time::run(1, async {
        let story = story_in("Waiting").await;
        let backup = story.bench.host.backup();
        story.play.is(Mood::Linger);
        story.bench.members[0].delete("pods", SHOP, "theirs").unwrap();
        story.comes_to("Copying").await;
        assert!(is_lent(&story), "{}", story.trace());
        restore(&story.bench, &backup);
        assert_eq!(story.phase(), "Waiting");
        story.play.is(Mood::Well);
        sleep(SEEN).await;
        assert_eq!(story.phase(), "Ready", "{}\n{}", story.status(), story.trace());
        approves(&story);
        story.comes_to("Succeeded").await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
        assert_eq!((story.kept(0), story.left()), (vec![DATA.to_owned()], Vec::new()), "{}", story.trace());
    });
}

/// What keeps it from going on.
fn is_told(story: &Story, phase: &str, words: &str) {
    let stalled = condition(story, "Stalled");
    let (state, message) = told(&stalled);
    assert_eq!((story.phase().as_str(), state), (phase, ["True", "LeafStuck"]), "{message}\n{}", story.trace());
    assert!(message.contains(words), "{phase}: {message}");
}

/// Pods may have written on it, and another one would be made beside it again and again.
#[test]
fn copy_that_was_placed_since_the_backup_is_not_written_and_who_waits_is_told() {
    for phase in ["Preparing", "Copying"] {
        virtual_time::run(1, async {
            let story = story_in(phase).await;
            let backup = story.bench.host.backup();
            story.play.is(Mood::Well);
            story.comes_to("Ready").await;
            restore(&story.bench, &backup);
            sleep(SEEN).await;
            is_told(&story, phase, "member m1: the copy has its leaf claim where pods look for it");
            let sent = story.bench.guard.sent();
            sleep(Duration::from_mins(1)).await;
            let sent = story.bench.guard.sent() - sent;
            assert!(sent < MOST_A_MINUTE, "{phase}: {sent} requests\n{}", story.trace());
            calls_off(&story);
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{phase}");
        });
    }
}

/// Its user would think that all was lost, or that the source is whole, which is older; and in Preparing a second copy would be made beside
/// the volume.
#[test]
fn copy_that_is_an_ordinary_leaf_since_the_backup_is_not_said_to_be_gone_and_stays() {
    for phase in ["Preparing", "Waiting", "Copying", "Ready"] {
        virtual_time::run(1, async {
            let story = story_in(phase).await;
            let backup = story.bench.host.backup();
            story.play.is(Mood::Well);
            let _ = story.bench.members[0].delete("pods", SHOP, "theirs");
            story.comes_to("Ready").await;
            approves(&story);
            story.comes_to("Succeeded").await;
            sleep(Duration::from_secs(5)).await;
            restore(&story.bench, &backup);
            sleep(SEEN).await;
            is_told(&story, phase, "member m1: the copy is an ordinary leaf already");
            calls_off(&story);
            sleep(SEEN).await;
            assert!(of(&story).is_null(), "{phase}: {}\n{}", story.status(), story.trace());
            let held = story.bench.members[1].list(VOLUMES).into_iter();
            let held = held.filter(|one| one["metadata"]["deletionTimestamp"].is_null());
            let held: Vec<String> = held.map(|one| story.play.read(1, text(&one, "/metadata/name"))).collect();
            assert_eq!((held, story.kept(0)), (vec![DATA.to_owned()], vec![DATA.to_owned()]), "{phase}");
        });
    }
}

/// From a backup in which the claim waits for its volume, and there is no move that anybody could call off.
#[test]
fn source_of_a_move_is_given_back_to_its_claim_where_the_host_knows_neither_volume_nor_move() {
    for phase in ["Waiting", "Copying", "Ready"] {
        virtual_time::run(1, async {
            let mut story = story_in(phase).await;
            restore(&story.bench, &story.waiting);
            sleep(SURE).await;
            let end = Instant::now() + MOVED;
            while let Err(status) = story.caller.create().await {
                assert!(Instant::now() < end, "{phase}: {status}\n{}", story.trace());
                sleep(STEP * 10).await;
            }
            assert_eq!(story.caller.provision().await, Ending::Provisioned, "{phase}");
            sleep(SURE * 2).await;
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{phase}: {}", story.trace());
            assert_eq!(story.left(), [""; 0], "{phase}: {}", story.trace());
            assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{phase}: {}", story.trace());
        });
    }
}

/// The host led to its copy for a while, which may have what the source lacks.
#[test]
fn source_whose_copy_pods_may_have_had_is_given_back_to_no_claim_that_waits() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let had = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/had-pv"] = json!("of the copy");
        story.bench.members[1].change(CLAIMS, SHOP, CLAIM, had).unwrap();
        restore(&story.bench, &story.waiting);
        sleep(SURE).await;
        assert!(story.caller.create().await.is_err(), "{}", story.trace());
        assert!(is_lent(&story), "{}", story.trace());
        assert_eq!(story.bench.members[1].list(VOLUMES).len(), 1, "{}", story.trace());
        let told = events(&story.bench);
        assert!(told.contains("LeafElsewhere: ") && told.contains("the copy with handle m1/"), "{told}");
    });
}

fn is_free(one: &mut Value) {
    one["metadata"]["finalizers"] = json!([]);
}

/// By force, while its volume stays: that.
fn copy_loses_its_claim(story: &Story) -> Arc<Value> {
    let member = &story.bench.members[1];
    let held = member.list(VOLUMES);
    assert_eq!(held.len(), 1, "{held:?}");
    let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    member.change(VOLUMES, "", text(&held[0], "/metadata/name"), keep).unwrap();
    member.change(CLAIMS, SHOP, CLAIM, is_free).unwrap();
    member.delete(CLAIMS, SHOP, CLAIM).unwrap();
    Arc::clone(&held[0])
}

/// It alone said whether pods had it.
#[test]
fn source_whose_copy_has_lost_its_claim_is_given_back_to_no_claim_that_waits_before_its_volume_has_gone() {
    virtual_time::run(1, async {
        let mut story = story_in("Ready").await;
        let copy = copy_loses_its_claim(&story);
        let (member, volume) = (&story.bench.members[1], text(&copy, "/metadata/name"));
        restore(&story.bench, &story.waiting);
        sleep(SURE).await;
        assert!(story.caller.create().await.is_err(), "{}", story.trace());
        assert!(is_lent(&story), "{}", story.trace());
        let told = events(&story.bench);
        assert!(told.contains("LeafElsewhere: ") && told.contains("of member m1 has no leaf claim"), "{told}");
        assert!(told.contains(&format!("used it; its handle is m1/{SHOP}/{CLAIM}/")), "{told}");
        member.change(VOLUMES, "", volume, is_free).unwrap();
        member.delete(VOLUMES, "", volume).unwrap();
        sleep(SURE).await;
        let end = Instant::now() + MOVED;
        while let Err(status) = story.caller.create().await {
            assert!(Instant::now() < end, "{status}\n{}", story.trace());
            sleep(STEP * 10).await;
        }
        assert_eq!(story.caller.provision().await, Ending::Provisioned);
        sleep(SURE).await;
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
    });
}

/// The event tells the handle, and the page on troubles what else the host's volume needs.
#[test]
fn copy_that_has_lost_its_claim_is_used_once_a_person_has_made_the_volume_of_the_host_that_leads_to_it() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let (former, copy) = (story.host_volume(), copy_loses_its_claim(&story));
        restore(&story.bench, &story.waiting);
        sleep(SURE).await;
        let told = events(&story.bench);
        let handle = told.split("its handle is ").nth(1).and_then(|rest| rest.split(". ").next());
        let mut spec: Value = serde_json::from_str(&former["spec"].to_string().replace("m0", "m1")).unwrap();
        spec["csi"]["volumeHandle"] = json!(handle.unwrap());
        spec["csi"]["volumeAttributes"] =
            json!({"leafClaimUID": copy["spec"]["claimRef"]["uid"], "leafVolume": copy["metadata"]["name"]});
        let again = json!({"metadata": {"name": story.caller.volume()}, "spec": spec});
        story.bench.host.create(VOLUMES, again).unwrap();
        sleep(SURE * 2).await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
    });
}

/// Nobody would hear of it.
#[test]
fn leaf_that_a_move_has_is_a_stray_where_the_host_has_neither_move_nor_volume_nor_claim() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let stray = |count: u32| format!("kosmos_csi_member_volumes{{member=\"m0\",state=\"stray\"}} {count}");
        sleep(Duration::from_mins(25)).await;
        assert!(story.bench.metrics().contains(&stray(0)), "{}", story.bench.metrics());
        restore(&story.bench, &story.waiting);
        story.bench.host.delete(CLAIMS, SHOP, CLAIM).unwrap();
        sleep(Duration::from_mins(25)).await;
        assert!(story.bench.metrics().contains(&stray(1)), "{}", story.bench.metrics());
        assert!(is_lent(&story), "{}", story.trace());
    });
}

/// Which may have a copy that pods have had.
#[test]
fn source_is_given_back_to_no_claim_that_waits_before_a_member_that_has_left_is_forgotten() {
    virtual_time::run(1, async {
        let mut story = story_in("Ready").await;
        let record = story.bench.host.get("configmaps", DRIVER_NAMESPACE, "kosmos-csi-members").unwrap();
        restore(&story.bench, &story.waiting);
        let has_both = |restored: &mut Value| restored["data"] = record["data"].clone();
        story.bench.host.change("configmaps", DRIVER_NAMESPACE, "kosmos-csi-members", has_both).unwrap();
        story.bench.host.delete("secrets", DRIVER_NAMESPACE, "m1").unwrap();
        sleep(SURE).await;
        assert!(is_lent(&story), "{}", story.trace());
        let told = events(&story.bench);
        assert!(told.contains("LeafElsewhere: ") && told.contains("`kosmos-csi member forget m1`"), "{told}");
        forget(&story.bench, "m1");
        sleep(SURE).await;
        let end = Instant::now() + MOVED;
        while let Err(status) = story.caller.create().await {
            assert!(Instant::now() < end, "{status}\n{}", story.trace());
            sleep(STEP * 10).await;
        }
        assert_eq!(story.caller.provision().await, Ending::Provisioned);
        sleep(SURE).await;
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
    });
}
