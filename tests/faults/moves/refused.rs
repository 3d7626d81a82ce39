//! Moves that cannot be.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    storage::{Settings, Work},
    text,
};
use tokio::time::{sleep, timeout};

use super::{CLAIM, CLAIMS, DATA, MOVES, STEP, Story, VOLUMES, at_the_end, users::stranger};
use crate::{
    bench::{DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Change, Ending, Script},
    fixture,
    shared::has_alias,
    virtual_time,
};

const CLASSES: &str = "storageclasses.storage.k8s.io";

/// What speaks against a move, and what is said then.
const REFUSED: [(&str, &str); 13] = [
    ("another claim", "is not there"),
    ("a claim elsewhere", "is not the name of a claim"),
    ("what is no name", "is not the name of a claim"),
    ("the same member", "is in member m0 already"),
    ("a member that is none", "no member was ever called m7"),
    ("a cordoned member", "is cordoned"),
    ("the name is taken", "already exists"),
    ("the class names a member", "does not let its volumes be in member m1"),
    ("its volume was another claim's", "is being moved by VolumeMove elsewhere/before"),
    ("another volume leads to its leaf", "remove PersistentVolume beside first"),
    ("another volume calls its member otherwise", "remove PersistentVolume beside first"),
    ("another volume calls its member by a name that has left", "remove PersistentVolume beside first"),
    ("a finalizer of somebody's", "finalizer example.com/backup"),
];

/// It hears of their classes some time after they have said who they are.
#[test]
fn move_is_not_refused_for_what_a_restarted_driver_does_not_know_of_a_member_yet() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.bench.guard.set_fate(|_, at, asked| {
            let is_asked = at == 2 && asked.resource == CLASSES;
            if is_asked { Action::Hang } else { Action::Pass }
        });
        story.bench.start();
        story.asks(1, &json!({}));
        sleep(Duration::from_mins(1)).await;
        assert_eq!(story.phase(), "", "{}\n{}", story.status(), story.trace());
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn move_that_cannot_be_is_refused_before_anything_is_done_and_says_why() {
    for (case, words) in REFUSED {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let host = &story.bench.host;
            let mut spec = json!({"claimName": CLAIM, "to": {"member": "m1"}});
            match case {
                "another claim" => spec["claimName"] = json!("another"),
                "a claim elsewhere" => spec["claimName"] = json!("../../elsewhere/persistentvolumeclaims/data"),
                // In a request's path it would name that claim.
                "what is no name" => spec["claimName"] = json!(format!("{CLAIM}?of=it")),
                "the same member" => spec["to"]["member"] = json!("m0"),
                "a member that is none" => spec["to"]["member"] = json!("m7"),
                "a cordoned member" => {
                    let cordon = |secret: &mut Value| {
                        secret["metadata"]["annotations"] = json!({"kosmos.csi.io/cordon": "true"});
                    };
                    host.change("secrets", DRIVER_NAMESPACE, "m1", cordon).unwrap();
                }
                "the name is taken" => {
                    let theirs = json!({"metadata": {"name": CLAIM, "namespace": SHOP}, "spec": {
                        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
                    story.bench.members[1].create(CLAIMS, theirs).unwrap();
                }
                "the class names a member" => {
                    host.change(CLASSES, "", "kosmos", |class| class["parameters"]["member"] = json!("m0")).unwrap();
                }
                "its volume was another claim's" => {
                    host.create("namespaces", json!({"metadata": {"name": "elsewhere"}})).unwrap();
                    let spec = json!({"claimName": "before", "to": {"member": "m1"}});
                    let before = json!({"metadata": {"name": "before", "namespace": "elsewhere"}, "spec": spec});
                    host.create(MOVES, before).unwrap();
                    let pinned = json!({"name": story.caller.volume(), "uid": "u", "claimUid": "c"});
                    let undoing = json!({"phase": "Cancelling", "volume": pinned});
                    host.change(MOVES, "elsewhere", "before", |of| of["status"] = undoing.clone()).unwrap();
                }
                "another volume leads to its leaf"
                | "another volume calls its member otherwise"
                | "another volume calls its member by a name that has left" => {
                    let mut beside = (*host.get(VOLUMES, "", story.caller.volume()).unwrap()).clone();
                    beside["metadata"] = json!({"name": "beside"});
                    if case == "another volume calls its member otherwise" {
                        has_alias(&story.bench).await;
                    }
                    if case != "another volume leads to its leaf" {
                        let handle = text(&beside, "/spec/csi/volumeHandle").replacen("m0/", "alias/", 1);
                        beside["spec"]["csi"]["volumeHandle"] = json!(handle);
                    }
                    beside["spec"].as_object_mut().unwrap().remove("claimRef");
                    host.create(VOLUMES, beside).unwrap();
                }
                _ => {
                    let hold = |volume: &mut Value| volume["metadata"]["finalizers"] = json!(["example.com/backup"]);
                    host.change(VOLUMES, "", story.caller.volume(), hold).unwrap();
                }
            }
            is_refused(&story, &spec, case, words).await;
        });
    }
}

async fn is_refused(story: &Story, spec: &Value, case: &str, words: &str) {
    let host = &story.bench.host;
    sleep(Duration::from_secs(5)).await;
    host.create(MOVES, json!({"metadata": {"name": "to", "namespace": SHOP}, "spec": spec})).unwrap();
    story.comes_to("Refused").await;
    assert!(story.status().contains(words), "{case}: {}", story.status());
    assert_eq!(story.left(), [""; 0], "{case}");
    assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{case}");
    host.delete(MOVES, SHOP, "to").unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(host.get(MOVES, SHOP, "to").is_none(), "{case}: nothing holds it");
}

/// What speaks against a move in the claim itself, its volume or its class.
const UNMOVABLE: [(&str, &str); 8] = [
    ("it was made for a pod", "was made for a pod, and goes with it"),
    ("it is being deleted", "is being deleted, or its volume is"),
    ("its volume is being deleted", "is being deleted, or its volume is"),
    ("it is a block volume", "is a block volume"),
    ("it is a disk of virtual machines", "is a disk of virtual machines"),
    ("its class has topologies", "does not let its volumes be in member m1"),
    ("its class names one that is not in the member", "member m1 has no StorageClass fast for it"),
    ("its class is gone", "is not there any more: make it again"),
];

#[test]
fn claim_that_cannot_move_by_what_it_is_stays_where_it_is_and_its_user_is_told_why() {
    for (case, words) in UNMOVABLE {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let (host, volume) = (&story.bench.host, story.caller.volume());
            let change_class = |change: fn(&mut Value)| drop(host.change(CLASSES, "", "kosmos", change).unwrap());
            match case {
                "it was made for a pod" => {
                    let pod = host.create("pods", stranger("web")).unwrap();
                    let owner =
                        json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"]});
                    let own = |claim: &mut Value| claim["metadata"]["ownerReferences"] = json!([owner]);
                    host.change(CLAIMS, SHOP, CLAIM, own).unwrap();
                }
                "it is being deleted" => {
                    let hold = |claim: &mut Value| claim["metadata"]["finalizers"] = json!(["example.com/backup"]);
                    host.change(CLAIMS, SHOP, CLAIM, hold).unwrap();
                    host.delete(CLAIMS, SHOP, CLAIM).unwrap();
                }
                "its volume is being deleted" => host.delete(VOLUMES, "", volume).unwrap(),
                "it is a block volume" => {
                    let block = |volume: &mut Value| volume["spec"]["volumeMode"] = json!("Block");
                    host.change(VOLUMES, "", volume, block).unwrap();
                }
                "it is a disk of virtual machines" => {
                    change_class(|class| class["parameters"]["attachMode"] = json!("virtual-machine"));
                }
                "its class has topologies" => change_class(|class| {
                    let only = json!({"key": "topology.kosmos.csi.io/member", "values": ["m0"]});
                    class["allowedTopologies"] = json!([{"matchLabelExpressions": [only]}]);
                }),
                "its class names one that is not in the member" => {
                    change_class(|class| class["parameters"]["leafStorageClass.m1"] = json!("fast"));
                }
                _ => host.delete(CLASSES, "", "kosmos").unwrap(),
            }
            is_refused(&story, &json!({"claimName": CLAIM, "to": {"member": "m1"}}), case, words).await;
        });
    }
}

/// How much the claims of a namespace may ask for in the other member, and what it says to one of 1Gi.
const LIMITS: [(&str, &str, &str, &str); 4] = [
    ("resourcequotas", "persistentvolumeclaims", "0", "exceeded quota: few, requested: persistentvolumeclaims=1"),
    ("resourcequotas", "requests.storage", "512Mi", "exceeded quota: few, requested: requests.storage=1Gi"),
    ("limitranges", "max", "512Mi", "maximum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Gi"),
    ("limitranges", "min", "2Gi", "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"),
];

/// By a dry run of its claim, so before anything is made there; and it moves once there is room.
#[test]
fn move_to_where_a_claim_of_its_size_is_not_taken_is_refused_in_that_members_words() {
    for (kind, what, bound, words) in LIMITS {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let spec = match kind {
                "limitranges" => json!({"limits": [{"type": "PersistentVolumeClaim", what: {"storage": bound}}]}),
                _ => json!({"hard": {what: bound}}),
            };
            let few = json!({"metadata": {"name": "few", "namespace": SHOP}, "spec": spec});
            story.bench.members[1].create(kind, few).unwrap();
            let spec = json!({"claimName": CLAIM, "to": {"member": "m1"}});
            is_refused(&story, &spec, what, words).await;
            story.bench.members[1].delete(kind, SHOP, "few").unwrap();
            story.asks(1, &json!({}));
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{what}");
        });
    }
}

/// As any other that somebody in the member has made, such as a webhook or a policy.
#[test]
fn move_whose_claim_the_other_member_forbids_is_refused_and_names_that_member() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let is_tried = |asked: &Asked| {
            asked.verb == Verb::Create && asked.resource == CLAIMS && asked.query.contains("dryRun=All")
        };
        story.bench.guard.set_fate(move |_, at, asked| {
            if at == 2 && is_tried(asked) { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        let spec = json!({"claimName": CLAIM, "to": {"member": "m1"}});
        is_refused(&story, &spec, "forbidden", "member m1: create claim shop/data: as a fault wants it").await;
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

#[test]
fn move_to_another_name_of_the_same_member_is_refused_and_says_which_it_is() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let mut secret = fixture::kubeconfig("m0");
        secret["metadata"]["name"] = json!("alias");
        secret["metadata"]["labels"]["kosmos.csi.io/member"] = json!("alias");
        story.bench.host.create("secrets", secret).unwrap();
        sleep(Duration::from_secs(30)).await;
        let spec = json!({"claimName": CLAIM, "to": {"member": "alias"}});
        is_refused(&story, &spec, "alias", "is in member alias already, which is another name of member m0").await;
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// Nobody knows yet where its data will be, and a pod that uses it first decides.
#[test]
fn claim_whose_leaf_waits_for_its_first_pod_is_not_moved_before_it_is_bound() {
    const DEFERRED: &str = "deferred";
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let script =
            Script { places: vec![0], leaf_class: fixture::LATER, binding: Some("deferred"), ..Script::new(DEFERRED) };
        let mut caller = Caller::new(&story.bench, script);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let spec = json!({"claimName": DEFERRED, "to": {"member": "m1"}});
        is_refused(&story, &spec, DEFERRED, "member m0: leaf claim shop/deferred is not bound to a volume").await;
    });
}

/// Another member could be given nothing but an empty volume.
#[test]
fn claim_whose_leaf_has_lost_its_volume_is_not_moved() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let (member, leaf) = (&story.bench.members[0], story.caller.leaf_volume().unwrap().to_owned());
        member.change(VOLUMES, "", &leaf, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
        member.delete(VOLUMES, "", &leaf).unwrap();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(text(&member.get(CLAIMS, SHOP, CLAIM).unwrap(), "/status/phase"), "Lost");
        story.asks(1, &json!({}));
        story.comes_to("Refused").await;
        let words = "member m0: leaf claim shop/data has lost its volume";
        assert!(story.status().contains(words), "{}", story.status());
        assert!(story.bench.members[1].list(CLAIMS).is_empty(), "{}", story.trace());
    });
}

#[test]
fn claim_that_is_being_enlarged_is_not_moved_before_that_has_ended() {
    virtual_time::run(1, async {
        let hour = Duration::from_hours(1);
        let storage = Settings { resizing: Work::takes(hour..=hour), ..fixture::steady(STEP) };
        let script = Script { places: vec![0], ..Script::new(CLAIM) };
        let mut story = Story::in_members(2, &storage, script).await;
        let asked = timeout(Duration::from_mins(1), story.caller.change(Change::Expand)).await;
        assert!(asked.is_err(), "it is large already");
        let spec = json!({"claimName": CLAIM, "to": {"member": "m1"}});
        is_refused(&story, &spec, "enlarged", "member m0: leaf claim shop/data is being enlarged").await;
    });
}

/// Its data was there before the host, and is somebody's who has agreed to its use and to nothing else.
#[test]
fn imported_claim_is_not_moved_and_nothing_is_written_on_it() {
    const THEIRS: &str = "ledger";
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let (host, member) = (&story.bench.host, &story.bench.members[0]);
        let claim_of = |class: &str| {
            json!({"metadata": {"name": THEIRS, "namespace": SHOP}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}})
        };
        let mut theirs = claim_of(fixture::NOW);
        theirs["metadata"]["annotations"] = json!({"kosmos.csi.io/consent": story.bench.host_id()});
        member.create(CLAIMS, theirs).unwrap();
        let mut claim = claim_of("");
        claim["spec"]["volumeName"] = json!("by-hand");
        let claim = host.create(CLAIMS, claim).unwrap();
        let claim_ref = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP, "name": THEIRS,
            "uid": claim["metadata"]["uid"]});
        let handle = format!("m0/{SHOP}/{THEIRS}/0000000000000000");
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": claim_ref,
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle}});
        host.create(VOLUMES, json!({"metadata": {"name": "by-hand"}, "spec": spec})).unwrap();
        // The host's controller looks at a claim that names its volume by itself only.
        sleep(Duration::from_secs(30)).await;
        let leaf = member.get(CLAIMS, SHOP, THEIRS).unwrap();
        let objects = || {
            let volume = member.get(VOLUMES, "", text(&leaf, "/spec/volumeName")).unwrap();
            (member.get(CLAIMS, SHOP, THEIRS).unwrap(), volume)
        };
        let before = objects();
        let words =
            "there is no leaf claim of m0/shop/ledger/0000000000000000: the driver does not move imported claims";
        is_refused(&story, &json!({"claimName": THEIRS, "to": {"member": "m1"}}), THEIRS, words).await;
        assert_eq!(objects(), before);
    });
}

/// The claim had this name before as well, and the volume of then is kept.
#[test]
fn move_is_not_refused_for_a_kept_volume_whose_leaf_had_the_same_place() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let mut kept = (*story.host_volume()).clone();
        kept["metadata"] = json!({"name": "kept"});
        kept["spec"].as_object_mut().unwrap().remove("claimRef");
        kept["spec"]["csi"]["volumeHandle"] = json!(format!("m0/{SHOP}/{CLAIM}/0123456789abcdef"));
        story.bench.host.create(VOLUMES, kept).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())));
    });
}

/// By a policy of its own, say, which may judge the name. Before pods have to end, where it was there by then.
#[test]
fn volume_that_the_host_would_not_take_keeps_the_former_in_its_place_and_its_user_is_told_why() {
    for (phase, code, reason, is_called_off) in [
        ("Closing", 403, "Forbidden", false),
        ("Closing", 409, "Conflict", true),
        ("Ready", 409, "Conflict", false),
        ("Ready", 403, "Forbidden", true),
    ] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let uid = |story: &Story| text(&story.host_volume(), "/metadata/uid").to_owned();
            let before = uid(&story);
            let is_late = phase == "Ready";
            if is_late {
                story.asks(1, &json!({"cutover": "Manual"}));
                story.comes_to(phase).await;
            }
            let name = story.caller.volume().to_owned();
            let is_made = move |asked: &Asked| {
                asked.resource == VOLUMES && asked.verb == Verb::Create && text(&asked.body, "/metadata/name") == name
            };
            story.bench.guard.set_fate(move |_, at, asked| {
                if at == 0 && is_made(asked) { Action::Answer { code, reason } } else { Action::Pass }
            });
            if is_late {
                story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
            } else {
                story.asks(1, &json!({}));
                story.comes_to(phase).await;
            }
            sleep(Duration::from_mins(1)).await;
            assert_eq!((story.phase().as_str(), uid(&story)), (phase, before), "{}", story.trace());
            let is_told = ["StepFailed", "again (dry run)"].iter().all(|words| story.status().contains(words));
            assert!(is_told, "{phase} {code}: {}", story.status());
            let source = story.bench.members[0].get(CLAIMS, SHOP, CLAIM);
            let is_open =
                source.is_some_and(|claim| text(&claim, "/metadata/annotations/kosmos.csi.io~1move").is_empty());
            assert_eq!(is_open, !is_late, "{}", story.trace());
            if is_called_off {
                story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            } else {
                story.bench.guard.heal();
            }
            assert_eq!(at_the_end(&story, &[!is_called_off]).await, [""; 0], "{phase} {code}");
        });
    }
}
