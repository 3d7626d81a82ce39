//! What of a move comes late, as claims in the yard, and forged ones, and leaves that another move has left there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::volume::{HostId, VolumeHash};
use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{Instant, sleep, timeout};

use super::{
    CLAIM, CLAIMS, DATA, ENDED, MOMENTS, MOVED, MOVES, SOME, STEP, Story, VOLUMES, YARD, at_the_end, disturbed,
    forgotten::{SURE, remove_by_force},
    none_is_wrong,
    play::Mood,
    some_writes_are_late,
};
use crate::{
    bench::{SHOP, lock},
    caller::Script,
    extent::drawn,
    fixture,
    late::{LATE, creates},
    shared::has_alias,
    virtual_time,
};

pub(super) const GONE: &str = "shop/none/01234567-89ab-cdef-0123-456789abcdef";
const FORGED: &str = "forged";
/// Which move has a leaf.
const SAYS: &str = "/metadata/annotations/kosmos.csi.io~1move";

impl Story {
    fn leaf(&self) -> Value {
        (*self.bench.members[0].get(CLAIMS, SHOP, CLAIM).unwrap()).clone()
    }

    /// A claim like the leaf's, elsewhere, that says what it wants of itself.
    fn forge(&self, at: usize, (namespace, name): (&str, &str), part: &str, volume: &str, class: &str) {
        let mut claim = self.leaf();
        let metadata = json!({"name": name, "namespace": namespace, "labels": claim["metadata"]["labels"],
            "annotations": claim["metadata"]["annotations"], "finalizers": claim["metadata"]["finalizers"]});
        claim["metadata"] = metadata;
        claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(format!("{GONE}/{part}"));
        if volume.is_empty() {
            let says = claim["metadata"]["annotations"].as_object_mut().unwrap();
            says.retain(|key, _| !key.starts_with("pv.kubernetes.io/") && key != "kosmos.csi.io/had-pv");
        }
        claim["spec"]["volumeName"] = json!(volume);
        claim["spec"]["storageClassName"] = json!(class);
        claim["status"] = json!({});
        self.bench.members[at].create(CLAIMS, claim).unwrap();
    }

    fn hash(&self) -> String {
        VolumeHash::new(&HostId(self.bench.host_id()), self.caller.volume()).to_string()
    }

    /// Its claim in the yard.
    pub(super) fn lent(&self) -> String {
        format!("{}-{}", &self.hash()[..16], self.bench.host_id())
    }
}

async fn story() -> Story {
    let script = Script { places: vec![0], leaf_class: fixture::NOW, ..Script::new(CLAIM) };
    Story::new(script).await
}

/// Whose source is kept, and whose move is no more.
pub(super) async fn moved() -> Story {
    let story = story().await;
    story.asks(1, &json!({}));
    story.comes_to("Succeeded").await;
    sleep(Duration::from_secs(5)).await;
    story.bench.host.delete(MOVES, SHOP, "to").unwrap();
    story
}

/// Whoever may write claims in some namespace of the member, and waits for the leaf to be recreated.
#[test]
fn claim_that_is_labelled_as_the_leaf_and_older_than_it_is_not_where_the_volume_goes() {
    for part in ["source", "isolated-source", "copy"] {
        virtual_time::run(1, async {
            let story = story().await;
            story.bench.members[0].create("namespaces", json!({"metadata": {"name": FORGED}})).unwrap();
            story.forge(0, (FORGED, FORGED), part, "", "none");
            sleep(Duration::from_secs(5)).await;
            let leaf = text(&story.leaf(), "/metadata/uid").to_owned();
            lock(&story.bench.guard.history).deleted_by_people(&leaf);
            story.bench.members[0].delete(CLAIMS, SHOP, CLAIM).unwrap();
            sleep(SURE).await;
            // Its place is free for what the driver may have been led to believe.
            let member = &story.bench.members[0];
            let unheld = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
            drop(member.change(CLAIMS, FORGED, FORGED, unheld));
            drop(member.delete(CLAIMS, FORGED, FORGED));
            sleep(SURE).await;
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{part}: {}", story.trace());
            let volume = story.bench.leaf_behind(text(&story.host_volume(), "/spec/csi/volumeHandle")).unwrap();
            let volume = story.bench.members[0].get(VOLUMES, "", text(&volume, "/spec/volumeName")).unwrap();
            assert_eq!(text(&volume, "/spec/claimRef/namespace"), SHOP, "{part}: {}", story.trace());
        });
    }
}

/// Each kind of them: of a copy that waits for its first pod, of one that was provisioned, and of a source that was to be recreated.
const STRAYS: [(usize, &str, bool, &str); 4] = [
    (1, "copy", false, fixture::LATER),
    (1, "copy", false, fixture::NOW),
    (0, "isolated-source", false, fixture::LATER),
    (0, "isolated-source", true, fixture::NOW),
];

/// Under the name that claims in the yard have, and under the one that they had.
fn strays() -> impl Iterator<Item = ((usize, &'static str, bool, &'static str), bool)> {
    STRAYS.into_iter().flat_map(|stray| [false, true].map(|is_former| (stray, is_former)))
}

impl Story {
    fn has_stray(&self, (at, part, is_named, class): (usize, &str, bool, &str), is_former: bool) {
        let volume = text(&self.leaf(), "/spec/volumeName").to_owned();
        let name = if is_former { self.hash() } else { self.lent() };
        self.forge(at, (YARD, &name), part, if is_named { &volume } else { "" }, class);
    }
}

#[test]
fn claim_that_came_late_to_the_yard_is_in_no_moves_way() {
    for (stray, is_former) in strays() {
        virtual_time::run(1, async {
            let story = story().await;
            story.has_stray(stray, is_former);
            sleep(Duration::from_secs(5)).await;
            story.asks(1, &json!({}));
            story.comes_to("Succeeded").await;
            // The stray itself is there beside the leaf for a while.
            let is_stray = |wrong: &String| wrong.starts_with("I2: ") && wrong.contains("2 leaf claims at once");
            let wrong = at_the_end(&story, &[true]).await;
            let wrong: Vec<_> = wrong[wrong.len().min(1)..].iter().filter(|wrong| !is_stray(wrong)).collect();
            assert!(wrong.is_empty(), "{stray:?} {is_former}: {wrong:?}");
        });
    }
}

#[test]
fn claim_that_came_late_to_the_yard_goes_even_if_nobody_moves_the_volume() {
    for (stray, is_former) in strays() {
        virtual_time::run(1, async {
            let story = story().await;
            let leaf = text(&story.leaf(), "/spec/volumeName").to_owned();
            let said = || {
                let volume = story.bench.members[0].get(VOLUMES, "", &leaf).unwrap();
                (volume["spec"].clone(), volume["metadata"]["annotations"].clone())
            };
            let before = said();
            story.has_stray(stray, is_former);
            sleep(SURE).await;
            assert_eq!(said(), before, "{stray:?} {is_former}");
            assert_eq!(story.left(), [""; 0], "{stray:?} {is_former}: {}", story.trace());
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{stray:?}");
            assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{stray:?}");
        });
    }
}

/// It was provisioned for another claim once, by an API server whose clock was ahead, and people have made it available since.
#[test]
fn volume_that_a_claim_which_came_late_to_the_yard_has_found_there_stays() {
    virtual_time::run(1, async {
        let story = story().await;
        let member = &story.bench.members[1];
        let mut theirs = fixture::volume("theirs", &json!({}));
        theirs["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "storage.simulated"});
        theirs["spec"]["storageClassName"] = json!(fixture::NOW);
        theirs["spec"]["capacity"]["storage"] = json!("4Gi");
        lock(&story.bench.guard.history).plant(&member.create(VOLUMES, theirs).unwrap());
        let ahead = |volume: &mut Value| volume["metadata"]["creationTimestamp"] = json!("2200-01-01T00:00:00Z");
        member.change(VOLUMES, "", "theirs", ahead).unwrap();
        sleep(Duration::from_secs(1)).await;
        story.has_stray((1, "copy", false, fixture::NOW), false);
        sleep(Duration::from_secs(5)).await;
        let there = || member.get(VOLUMES, "", "theirs").unwrap();
        assert_eq!(text(&there(), "/spec/claimRef/namespace"), YARD, "it was found: {}", story.trace());
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
        assert_eq!(text(&there(), "/spec/persistentVolumeReclaimPolicy"), "Retain", "{}", story.trace());
        assert!(there()["metadata"]["labels"]["kosmos.csi.io/volume"].is_null(), "{}", there());
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
        assert_eq!(story.left(), [""; 0], "{}", story.trace());
    });
}

#[test]
fn source_that_a_move_removed_by_force_has_left_is_kept_by_the_next_move_to_its_member() {
    for is_called_off in [false, true] {
        virtual_time::run(1, async {
            let story = moved().await;
            story.asks(0, &json!({}));
            story.comes_to("Finishing").await;
            remove_by_force(&story);
            sleep(Duration::from_secs(5)).await;
            story.asks(1, &json!({}));
            sleep(Duration::from_secs(20)).await;
            if is_called_off {
                let _ = story.bench.host.delete(MOVES, SHOP, "to");
            } else {
                story.comes_to("Succeeded").await;
            }
            sleep(SURE).await;
            let at = usize::from(!is_called_off);
            assert_eq!(story.found(), Ok((at, DATA.to_owned())), "{is_called_off}: {}", story.trace());
            assert_eq!(story.kept(1), [DATA], "{is_called_off}: {}", story.trace());
            assert_eq!(story.left(), [""; 0], "{is_called_off}");
        });
    }
}

/// As where a move ended between the two writes that are the last of it.
#[test]
fn source_that_is_kept_stays_when_the_claim_that_it_had_in_the_yard_is_removed() {
    for (of_people, is_moved) in [(false, false), (false, true), (true, true)] {
        virtual_time::run(1, async {
            let story = moved().await;
            let member = &story.bench.members[0];
            let kept = member
                .list(VOLUMES)
                .into_iter()
                .find(|one| !one["metadata"]["labels"]["kosmos.csi.io/moved"].is_null());
            let kept = text(&kept.unwrap(), "/metadata/name").to_owned();
            let mut claim = (*story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap()).clone();
            claim["metadata"] = json!({"name": story.lent(), "namespace": YARD, "labels": claim["metadata"]["labels"],
                "annotations": claim["metadata"]["annotations"], "finalizers": claim["metadata"]["finalizers"]});
            claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(format!("{GONE}/isolated-source"));
            claim["spec"]["volumeName"] = json!(kept);
            let claim = member.create(CLAIMS, claim).unwrap();
            let bind = |volume: &mut Value| {
                volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": YARD,
                    "name": story.lent(), "uid": claim["metadata"]["uid"]});
                if of_people {
                    volume["metadata"]["labels"] = json!({});
                    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
                }
            };
            member.change(VOLUMES, "", &kept, bind).unwrap();
            sleep(Duration::from_secs(2)).await;
            if is_moved {
                story.asks(0, &json!({}));
                if of_people {
                    sleep(SURE).await;
                    assert!(story.status().contains("give that volume the policy Retain"), "{}", story.status());
                    let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
                    member.change(VOLUMES, "", &kept, keep).unwrap();
                }
                story.comes_to("Succeeded").await;
            }
            sleep(SURE).await;
            assert_eq!(story.found(), Ok((usize::from(!is_moved), DATA.to_owned())), "{}", story.trace());
            assert_eq!(story.play.read(0, &kept), DATA);
            let there = member.get(VOLUMES, "", &kept).unwrap();
            assert_eq!(text(&there, "/spec/persistentVolumeReclaimPolicy"), "Retain", "{of_people}: {}", story.trace());
            let is_unlabelled = there["metadata"]["labels"]["kosmos.csi.io/moved"].is_null();
            assert_eq!(is_unlabelled, of_people, "{there}");
            assert_eq!(story.left(), [""; 0], "{of_people} {is_moved}");
        });
    }
}

/// What the move has kept of the source.
fn kept_of(story: &Story) -> String {
    let is_kept = |one: &Arc<Value>| !one["metadata"]["labels"]["kosmos.csi.io/moved"].is_null();
    let kept = story.bench.members[0].list(VOLUMES).into_iter().find(is_kept).unwrap();
    text(&kept, "/metadata/name").to_owned()
}

/// As it was recreated for that where somebody had deleted it before the move.
pub(super) fn is_recreated_late(story: &Story) {
    let mut claim = (*story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap()).clone();
    claim["metadata"] = json!({"name": CLAIM, "namespace": SHOP, "labels": claim["metadata"]["labels"],
        "annotations": claim["metadata"]["annotations"], "finalizers": claim["metadata"]["finalizers"]});
    let says = claim["metadata"]["annotations"].as_object_mut().unwrap();
    says.retain(|key, _| !key.starts_with("pv.kubernetes.io/") && key != "kosmos.csi.io/move");
    says.insert("kosmos.csi.io/former".to_owned(), json!("01234567-89ab-cdef-0123-456789abcdef"));
    claim["spec"]["volumeName"] = json!(kept_of(story));
    claim["status"] = json!({});
    story.bench.members[0].create(CLAIMS, claim).unwrap();
}

/// It would keep its name from a move back, and wait for ever.
#[test]
fn claim_of_the_source_that_is_recreated_late_goes_once_the_volume_has_moved_away() {
    virtual_time::run(1, async {
        let story = moved().await;
        let member = &story.bench.members[0];
        is_recreated_late(&story);
        sleep(Duration::from_mins(5)).await;
        let there = member.get(CLAIMS, SHOP, CLAIM);
        assert!(there.is_some_and(|claim| text(&claim, "/status/phase") != "Bound"), "{}", story.trace());
        sleep(Duration::from_mins(25)).await;
        assert!(member.get(CLAIMS, SHOP, CLAIM).is_none(), "{}", story.trace());
        assert_eq!((story.found(), story.kept(0)), (Ok((1, DATA.to_owned())), vec![DATA.to_owned()]));
        story.asks(0, &json!({}));
        story.comes_to("Succeeded").await;
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
    });
}

/// By whoever in the member takes off it which claim it was for, as to import it. The class is not the claim's yet.
#[test]
fn claim_of_the_source_that_is_recreated_late_stays_where_somebody_gives_it_what_the_move_has_kept() {
    virtual_time::run(1, async {
        let story = moved().await;
        let (member, kept) = (&story.bench.members[0], kept_of(&story));
        let free = |volume: &mut Value| {
            volume["spec"].as_object_mut().unwrap().remove("claimRef");
            volume["spec"]["storageClassName"] = json!("another");
        };
        member.change(VOLUMES, "", &kept, free).unwrap();
        is_recreated_late(&story);
        sleep(Duration::from_mins(45)).await;
        let claim = member.get(CLAIMS, SHOP, CLAIM);
        let stays = claim.is_some_and(|claim| claim["metadata"]["deletionTimestamp"].is_null());
        assert!(stays, "{}", story.trace());
        assert_eq!((story.found(), story.kept(0)), (Ok((1, DATA.to_owned())), vec![DATA.to_owned()]));
    });
}

/// Made by a person to have the source, with a second name of its member, or with the hash alone.
#[test]
fn claim_of_the_source_that_is_recreated_late_stays_while_another_volume_of_the_host_leads_to_it() {
    for is_hashed in [false, true] {
        virtual_time::run(1, async {
            let story = moved().await;
            has_alias(&story.bench).await;
            let (host, hash) = (&story.bench.host, story.hash());
            let handle =
                if is_hashed { format!("m0///{hash}") } else { format!("alias/{SHOP}/{CLAIM}/{}", &hash[..16]) };
            let mut by_hand = Value::clone(&story.host_volume());
            by_hand["metadata"] = json!({"name": "by-hand"});
            let spec = by_hand["spec"].as_object_mut().unwrap();
            spec.remove("claimRef");
            spec.insert("persistentVolumeReclaimPolicy".to_owned(), json!("Retain"));
            by_hand["spec"]["csi"]["volumeHandle"] = json!(handle);
            by_hand["spec"]["csi"].as_object_mut().unwrap().remove("volumeAttributes");
            host.create(VOLUMES, by_hand).unwrap();
            is_recreated_late(&story);
            sleep(Duration::from_mins(45)).await;
            let claim = story.bench.members[0].get(CLAIMS, SHOP, CLAIM);
            let stays = claim.is_some_and(|claim| claim["metadata"]["deletionTimestamp"].is_null());
            assert!(stays, "{handle}: {}", story.trace());
            host.delete(VOLUMES, "", "by-hand").unwrap();
            sleep(Duration::from_mins(45)).await;
            assert!(story.bench.members[0].get(CLAIMS, SHOP, CLAIM).is_none(), "{handle}: {}", story.trace());
            assert_eq!((story.found(), story.kept(0)), (Ok((1, DATA.to_owned())), vec![DATA.to_owned()]));
        });
    }
}

/// As one has it that began before names in the yard said whose they are.
#[test]
fn leaf_that_is_in_the_yard_under_its_former_name_is_found_by_the_move_that_has_it() {
    for is_called_off in [false, true] {
        virtual_time::run(1, async {
            let story = story().await;
            let (leaf, source) = (text(&story.leaf(), "/spec/volumeName").to_owned(), &story.bench.members[0]);
            story.asks(1, &json!({"cutover": "Manual"}));
            story.comes_to("Ready").await;
            assert!(source.get(CLAIMS, YARD, &story.lent()).is_some(), "{}", story.trace());
            let told = json!(format!("{YARD}/{}", story.hash()));
            let place = |volume: &mut Value| volume["metadata"]["annotations"]["kosmos.csi.io/place"] = told.clone();
            source.change(VOLUMES, "", &leaf, place).unwrap();
            sleep(Duration::from_secs(30)).await;
            let former = source.get(CLAIMS, YARD, &story.hash());
            assert!(former.is_some_and(|claim| text(&claim, "/status/phase") == "Bound"), "{}", story.trace());
            if is_called_off {
                story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            } else {
                story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
            }
            assert_eq!(at_the_end(&story, &[!is_called_off]).await, [""; 0], "{is_called_off}");
        });
    }
}

/// By whoever may write claims in the namespace where the copy is by then.
#[test]
fn copy_that_is_said_to_be_of_another_move_stays_while_its_own_is_under_way() {
    virtual_time::run(1, async {
        let story = story().await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        let forge =
            |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(format!("{GONE}/copy"));
        story.bench.members[1].change(CLAIMS, SHOP, CLAIM, forge).unwrap();
        sleep(SURE).await;
        assert_eq!(story.phase(), "Ready", "{}", story.trace());
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// It is called off and asked for again meanwhile. Refused is one that finds the mark of the other.
#[test]
fn writes_of_a_move_that_was_called_off_hinder_the_next_one_in_no_way_though_they_are_late() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true, false], &async |story: &mut Story| {
            some_writes_are_late(story, moment);
            sleep(Duration::from_secs(5)).await;
            let (host, end) = (&story.bench.host, Instant::now() + MOVED);
            let _ = host.delete(MOVES, SHOP, "to");
            while host.get(MOVES, SHOP, "to").is_some() && Instant::now() < end {
                sleep(STEP).await;
            }
            if host.get(MOVES, SHOP, "to").is_none() && story.found().is_ok_and(|(at, _)| at == 0) {
                story.asks(1, &json!({}));
            }
            sleep(Duration::from_mins(1)).await;
            story.bench.guard.heal();
        })
    }));
}

/// By a move that was called off, and arrives when the next one has lent the source: its volume has another claim by then.
#[test]
fn claim_that_is_recreated_late_where_the_source_was_goes_and_the_volume_moves() {
    virtual_time::run(1, async {
        let story = story().await;
        story.play.is(Mood::Linger);
        story.asks(1, &json!({}));
        story.comes_to("Copying").await;
        let is_sent = Arc::new(AtomicBool::new(false));
        let sent = Arc::clone(&is_sent);
        story.bench.guard.set_fate(move |_, at, asked| {
            let recreates = at == 1 && creates(asked, CLAIMS) && asked.namespace == SHOP;
            if recreates && !sent.swap(true, Ordering::Relaxed) { Action::Late(LATE * 2) } else { Action::Pass }
        });
        let end = Instant::now() + MOVED * 2;
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        while story.bench.host.get(MOVES, SHOP, "to").is_some() && Instant::now() < end {
            sleep(STEP).await;
        }
        assert!(is_sent.load(Ordering::Relaxed), "{}", story.trace());
        story.asks(1, &json!({}));
        story.comes_to("Copying").await;
        let is_there = || story.bench.members[0].get(CLAIMS, SHOP, CLAIM).is_some();
        for expected in [false, true, false] {
            while is_there() != expected && Instant::now() < end {
                sleep(STEP).await;
            }
            assert_eq!(is_there(), expected, "{}\n{}", story.status(), story.trace());
        }
        story.play.is(Mood::Well);
        story.comes_to("Succeeded").await;
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// Which was called off, and is as little under way as one that was never there.
#[test]
fn move_that_is_to_begin_where_a_former_one_has_closed_the_volume_late_waits_until_that_is_opened() {
    virtual_time::run(1, async {
        let story = story().await;
        let close = |claim: &mut Value| {
            claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(format!("{GONE}/source"));
        };
        story.bench.members[0].change(CLAIMS, SHOP, CLAIM, close).unwrap();
        sleep(STEP * 10).await;
        story.asks(1, &json!({}));
        sleep(STEP * 50).await;
        assert_eq!(story.phase(), "", "{}\n{}", story.status(), story.trace());
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// As what a backup tool restores, which nobody opens.
#[test]
fn move_of_a_leaf_that_names_a_former_one_and_is_not_opened_is_refused_and_says_what_to_take_off() {
    virtual_time::run(1, async {
        let story = story().await;
        let restore = |claim: &mut Value| {
            claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(format!("{GONE}/source"));
            claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        };
        story.bench.members[0].change(CLAIMS, SHOP, CLAIM, restore).unwrap();
        sleep(STEP * 10).await;
        story.asks(1, &json!({}));
        story.comes_to("Refused").await;
        let seen = story.status();
        assert!(seen.contains("take annotation kosmos.csi.io/move off the claim"), "{seen}\n{}", story.trace());
    });
}

/// Which was called off meanwhile, and the next one has the same name and was begun by then.
#[test]
fn volume_that_a_move_has_closed_late_is_moved_by_the_next_one() {
    virtual_time::run(1, async {
        let story = story().await;
        let [is_sent, is_held] = [false; 2].map(|no| Arc::new(AtomicBool::new(no)));
        let (sent, held) = (Arc::clone(&is_sent), Arc::clone(&is_held));
        story.bench.guard.set_fate(move |_, at, asked| {
            let closes = at == 1 && text(&asked.body, SAYS).ends_with("/source");
            let starts = at == 2 && creates(asked, "pods");
            match () {
                () if closes && !sent.swap(true, Ordering::Relaxed) => Action::Late(LATE),
                () if starts && held.load(Ordering::Relaxed) => Action::Answer { code: 403, reason: "Forbidden" },
                () => Action::Pass,
            }
        });
        let end = Instant::now() + MOVED;
        story.asks(1, &json!({}));
        while !is_sent.load(Ordering::Relaxed) && Instant::now() < end {
            sleep(STEP).await;
        }
        // The next one comes no further until that has arrived.
        is_held.store(true, Ordering::Relaxed);
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        while story.bench.host.get(MOVES, SHOP, "to").is_some() && Instant::now() < end {
            sleep(STEP).await;
        }
        story.asks(1, &json!({}));
        while text(&story.leaf(), SAYS).is_empty() && Instant::now() < end {
            sleep(STEP).await;
        }
        let seen = (story.phase(), text(&story.leaf(), SAYS).ends_with("/source"));
        assert_eq!(seen, ("Preparing".to_owned(), true), "{}\n{}", story.status(), story.trace());
        is_held.store(false, Ordering::Relaxed);
        story.comes_to("Succeeded").await;
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn claim_of_a_volume_that_is_to_stay_is_deleted_at_any_moment_and_no_copy_is_left() {
    for phase in
        ["Preparing", "Closing", "Waiting", "Copying", "Placing", "Ready", "Switching", "Finishing", "Succeeded"]
    {
        virtual_time::run(1, async {
            let mut story = story().await;
            story.caller.set_policy("Retain");
            story.asks(1, &if phase == "Ready" { json!({"cutover": "Manual"}) } else { json!({}) });
            let end = Instant::now() + MOVED;
            while story.phase() != phase && story.phase() != "Succeeded" && Instant::now() < end {
                sleep(STEP / 4).await;
            }
            story.caller.delete_claim();
            let _ = timeout(MOVED, story.caller.reclaim()).await;
            let end = Instant::now() + ENDED;
            while !story.left().is_empty() && Instant::now() < end {
                sleep(STEP).await;
            }
            assert_eq!(story.left(), [""; 0], "{phase}: {}\n{}", story.status(), story.trace());
            sleep(MOVED).await;
            let handle = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
            let at = usize::from(handle.starts_with("m1/"));
            let held = |at: usize| {
                let volumes = story.bench.members[at].list(VOLUMES).into_iter();
                volumes.map(|one| story.play.read(at, text(&one, "/metadata/name"))).collect::<Vec<_>>()
            };
            assert_eq!(held(at), [DATA], "{phase}: {}\n{}", story.status(), story.trace());
            assert!(at == 1 || held(1).is_empty(), "{phase}: {:?}", held(1));
        });
    }
}

/// Its claim has the name of the one by which the volume was lent before, which the member's scheduler still sees.
#[test]
fn mover_that_got_a_node_for_a_former_claim_is_recreated() {
    virtual_time::run(1, async {
        let mut storage = fixture::steady(STEP);
        storage.pods.goes_by_former_claims = MOVED / 2;
        let script = Script { places: vec![0], leaf_class: fixture::LATER, ..Script::new(CLAIM) };
        let story = Story::in_members(2, &storage, script).await;
        for to in [1, 0] {
            story.asks(to, &json!({}));
            let second = || story.bench.members[to].list("pods").into_iter().find(|pod| is_of_attempt(pod, "1"));
            while to == 0 && second().is_none() {
                sleep(STEP).await;
            }
            // Its volume is to be new all the same.
            let is_checked = second().is_none_or(|pod| pod["spec"]["containers"][0]["args"][2] == "--must-be-empty");
            assert!(is_checked, "{:?}", second());
            story.comes_to("Succeeded").await;
            assert_eq!(story.found(), Ok((to, DATA.to_owned())));
            story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            sleep(STEP * 20).await;
        }
    });
}

fn is_of_attempt(pod: &Value, attempt: &str) -> bool {
    text(pod, "/metadata/labels/kosmos.csi.io~1attempt") == attempt
}
