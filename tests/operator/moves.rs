//! The commands by which a user moves a volume. The driver is played by what it writes.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::sleep;

use crate::{
    clusters::{CLAIMS, Clusters, VOLUMES, identity},
    orphans::leaf,
};

const MOVES: &str = "volumemoves.kosmos.csi.io";
pub const DEFINITION: &str = include_str!("../../deploy/chart/kosmos-csi/files/volumemoves.yaml");

/// A host where volumes are moved.
fn moving() -> Clusters {
    let clusters = Clusters::new(1);
    let definition = serde_saphyr::from_str(DEFINITION).unwrap();
    clusters.host.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters
}

fn of(clusters: &Clusters, name: &str) -> Value {
    (*clusters.host.get(MOVES, "shop", name).unwrap_or_default()).clone()
}

pub fn is_in(clusters: &Clusters, name: &str, phase: &str) {
    let change = |of: &mut Value| {
        of["status"] = json!({"phase": phase, "attempt": 0, "from": {"member": "m0", "handle": "", "namespace": "", "claimName": ""}});
    };
    clusters.host.change(MOVES, "shop", name, change).unwrap();
}

fn stalls(clusters: &Clusters, name: &str, why: &str) {
    let stalled = json!([{"type": "Stalled", "status": "True", "reason": "StepFailed", "message": why,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    clusters.host.change(MOVES, "shop", name, |of| of["status"]["conditions"] = stalled.clone()).unwrap();
}

/// Looked at between two looks of the command.
async fn then(phases: &[&str], mut each: impl FnMut(&str)) {
    for phase in phases {
        sleep(Duration::from_millis(1500)).await;
        each(phase);
    }
}

/// Where its volume leads was read before that, or while it was made again.
#[tokio::test]
async fn backup_says_that_a_move_was_under_way_also_where_it_ends_while_volumes_are_read() {
    let clusters = moving();
    clusters.does("volume move shop/db --to=m1 --no-wait").await;
    is_in(&clusters, "db-to-m1", "Finishing");
    let host = clusters.host.clone();
    clusters.host.faults().set(move |asked| {
        if asked.verb == Verb::List && asked.resource == CLAIMS {
            host.change(MOVES, "shop", "db-to-m1", |of| of["status"]["phase"] = json!("Succeeded")).unwrap();
        }
        Action::Pass
    });
    let told = clusters.does("host backup --output=$backup").await;
    assert_eq!(of(&clusters, "db-to-m1")["status"]["phase"], "Succeeded");
    assert!(told.contains("Moves under way: 1. Make another backup once they have ended"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn move_is_made_and_followed_to_its_end() {
    let clusters = moving();
    let driver = then(&["Preparing", "Waiting", "Copying", "Succeeded"], |phase| is_in(&clusters, "db-to-m1", phase));
    let (said, ()) = tokio::join!(clusters.does("volume move shop/db --to=m1"), driver);
    assert!(said.contains("The volume of claim shop/db is in member m1. What was in member m0 is kept"), "{said}");
    let spec = &of(&clusters, "db-to-m1")["spec"];
    assert_eq!(
        [&spec["claimName"], &spec["to"]["member"], &spec["cutover"]],
        [&json!("db"), &json!("m1"), &json!("Automatic")]
    );
    clusters.refuses("volume move shop/db --to=m1", &["VolumeMove shop/db-to-m1 is there already", "--name"]).await;
    let made = clusters.does("volume move pvc/db -n shop --to=m2 --name=again --no-wait").await;
    assert!(made.contains("VolumeMove shop/again is made. `kosmos-csi volume status shop/again`"), "{made}");
}

#[tokio::test(start_paused = true)]
async fn move_that_is_refused_or_ends_otherwise_says_why_and_fails() {
    let clusters = moving();
    let refused = |_: &str| {
        is_in(&clusters, "db-to-m1", "Refused");
        stalls(&clusters, "db-to-m1", "claim shop/db is a block volume");
    };
    let refusal = clusters.refuses("volume move shop/db --to=m1", &["refused", "is a block volume"]);
    tokio::join!(refusal, then(&["Refused"], refused));
    let deleted = |_: &str| drop(clusters.host.delete(MOVES, "shop", "log-to-m1"));
    let gone = clusters.refuses("volume move shop/log --to=m1", &["somebody deleted VolumeMove"]);
    tokio::join!(gone, then(&["deleted"], deleted));
}

/// Its API server is being replaced, or is asked too much: the move may take hours, and goes on meanwhile.
#[tokio::test(start_paused = true)]
async fn move_is_followed_on_where_the_host_cannot_answer_for_a_while() {
    let clusters = moving();
    let looks_are = |action: Action| {
        clusters.host.faults().set(move |asked| {
            let is_look = asked.verb == Verb::Get && asked.resource == MOVES;
            if is_look { action.clone() } else { Action::Pass }
        });
    };
    let host = |phase: &str| match phase {
        "replaced" => looks_are(Action::Answer { code: 503, reason: "ServiceUnavailable" }),
        "busy" => looks_are(Action::Answer { code: 429, reason: "TooManyRequests" }),
        "away" => looks_are(Action::Refuse),
        phase => {
            looks_are(Action::Pass);
            is_in(&clusters, "db-to-m1", phase);
        }
    };
    let looks = then(&["Copying", "replaced", "busy", "away", "Succeeded"], host);
    let (said, ()) = tokio::join!(clusters.does("volume move shop/db --to=m1"), looks);
    assert!(said.contains("The volume of claim shop/db is in member m1"), "{said}");
    let forbids = |_: &str| looks_are(Action::Answer { code: 403, reason: "Forbidden" });
    let refusal = clusters.refuses("volume move shop/log --to=m1", &["get VolumeMove shop/log-to-m1: HTTP 403"]);
    tokio::join!(refusal, then(&["forbidden"], forbids));
}

#[tokio::test(start_paused = true)]
async fn move_by_hand_ends_with_how_it_is_approved_and_goes_on_then() {
    let clusters = moving();
    let ready = then(&["Ready"], |phase| is_in(&clusters, "db-to-m1", phase));
    let (said, ()) = tokio::join!(clusters.does("volume move shop/db --to=m1 --manual"), ready);
    assert!(said.contains("`kosmos-csi volume approve shop/db-to-m1` switches to it"), "{said}");
    let succeeds = then(&["Succeeded"], |phase| is_in(&clusters, "db-to-m1", phase));
    let (said, ()) = tokio::join!(clusters.does("volume approve shop/db"), succeeds);
    assert!(said.contains("is in member m1") && of(&clusters, "db-to-m1")["spec"]["approved"] == true, "{said}");
    clusters.refuses("volume approve shop/db", &["cannot be approved", "the volume is in member m1"]).await;
}

#[tokio::test(start_paused = true)]
async fn move_is_called_off_until_the_host_leads_to_the_copy() {
    let clusters = moving();
    clusters.does("volume move shop/db --to=m1 --no-wait").await;
    is_in(&clusters, "db-to-m1", "Switching");
    clusters.refuses("volume cancel shop/db", &["cannot be called off any more", "leads to member m1"]).await;
    is_in(&clusters, "db-to-m1", "Copying");
    let said = clusters.does("volume cancel volumemove/db-to-m1 -n shop").await;
    assert!(said.contains("is called off, and nothing of it is left"), "{said}");
    assert!(of(&clusters, "db-to-m1").is_null());
    clusters.refuses("volume cancel shop/db", &["no move called db, and none of a claim", "volume status shop"]).await;
}

#[tokio::test(start_paused = true)]
async fn status_is_a_table_or_all_of_one_and_stalls_are_told_by_doctor_and_trace() {
    let clusters = moving();
    assert_eq!(clusters.does("volume status").await, "");
    clusters.does("volume move shop/db --to=m1 --no-wait").await;
    is_in(&clusters, "db-to-m1", "Waiting");
    let table = clusters.does("volume status shop").await;
    assert!(table.contains("shop/db-to-m1   db      m0     m1   Waiting"), "{table}");
    let details = clusters.does("volume status shop/db").await;
    assert!(details.contains("End the pods that use the claim"), "{details}");
    let one: Value = serde_json::from_str(&clusters.does("volume status shop/db -o json").await).unwrap();
    assert_eq!((&one["metadata"]["name"], &one["spec"]["claimName"]), (&json!("db-to-m1"), &json!("db")), "{one:#}");
    clusters.refuses("volume status shop/none -o json", &["no move called none"]).await;
    stalls(&clusters, "db-to-m1", "pod send-0: NoSpace: the volume is full");
    let stalled = ["STALLED: pod send-0: NoSpace"];
    clusters.refuses("volume status", &stalled).await;
    for words in ["volume status shop/db", "volume status db -n shop", "volume status -n shop db-to-m1"] {
        clusters.refuses(words, &["stalled", "NoSpace"]).await;
    }
    clusters.refuses("volume status shop/db -n books", &["another namespace than --namespace books"]).await;
    let found = ["move:shop/db-to-m1", "does not go on: pod send-0: NoSpace", "volume status shop/db-to-m1"];
    clusters.refuses("doctor --interval=0s", &found).await;
    let claim = json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast", "volumeMode": "Filesystem"}});
    clusters.host.create(CLAIMS, claim).unwrap();
    clusters.refuses("trace shop/db", &["to member m1: Waiting, stalled: pod send-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_the_source_is_told_as_it_is() {
    let clusters = moving();
    clusters.does("volume move shop/db --to=m1 --no-wait --delete-source-after=72h").await;
    is_in(&clusters, "db-to-m1", "Succeeded");
    let has = |condition: Value| {
        let status = move |of: &mut Value| {
            of["status"]["completionTime"] = json!("2099-01-01T00:00:00Z");
            of["status"]["conditions"] = condition.clone();
        };
        clusters.host.change(MOVES, "shop", "db-to-m1", status).unwrap();
    };
    let told = |status: &str, reason: &str| {
        json!([{"type": "SourceDeleted", "status": status, "reason": reason, "message": "volume pv-db",
            "lastTransitionTime": "2099-01-01T00:00:00Z"}])
    };
    // One that is kept longer than was said before is.
    for (condition, words) in [
        (json!([]), "is kept until 2099-01-04T00:00:00Z, and then removed with its data"),
        (told("False", "Kept"), "is kept until 2099-01-04T00:00:00Z, and then removed with its data"),
        (told("False", "Deleting"), "is being removed: volume pv-db"),
        (told("True", "Deleted"), "is gone: volume pv-db"),
        (told("False", "Back"), "volume pv-db"),
    ] {
        let is_back = condition[0]["reason"] == "Back";
        has(condition);
        let details = clusters.does("volume status shop/db").await;
        assert!(details.contains(words), "{words}: {details}");
        assert_ne!(details.contains("`kosmos-csi volume discard` lists what member"), is_back, "{details}");
    }
}

#[tokio::test(start_paused = true)]
async fn dry_run_prints_the_object_and_asks_nobody() {
    let clusters = moving();
    let printed = clusters.does("volume move shop/db --to=m1 --manual --dry-run").await;
    let printed: Value = serde_saphyr::from_str(&printed).unwrap();
    assert_eq!((&printed["spec"]["cutover"], text(&printed, "/metadata/name")), (&json!("Manual"), "db-to-m1"));
    assert!(of(&clusters, "db-to-m1").is_null());
    let printed = clusters.does("volume move db --to=m1 --dry-run").await;
    assert!(printed.contains("namespace: default"), "that of the kubeconfig's context: {printed}");
    assert!(!printed.contains("deleteSourceAfter"), "{printed}");
    for (typed, told) in [("3days", "72h"), ("90m", "1h30m0s"), ("0s", "0s")] {
        let typed = format!("volume move shop/db --to=m1 --delete-source-after={typed} --dry-run");
        let printed: Value = serde_saphyr::from_str(&clusters.does(&typed).await).unwrap();
        assert_eq!(text(&printed, "/spec/deleteSourceAfter"), told);
    }
    let nowhere = Clusters::new(0);
    nowhere.refuses("volume move shop/db --to=m1", &["does not know the kind VolumeMove", "moves.enabled"]).await;
    nowhere.refuses("volume status", &["does not know the kind VolumeMove"]).await;
}

/// What a move has kept in m0.
fn kept(clusters: &Clusters, name: &str) {
    leaf(clusters, name, &format!("pvc-{name}"));
    let member = &clusters.members[0];
    let retired = |volume: &mut Value| {
        volume["metadata"]["labels"] = json!({"kosmos.csi.io/host": identity(&clusters.host), "kosmos.csi.io/moved": "0123456789abcdef0123456789abcdef"});
        volume["metadata"]["annotations"] =
            json!({"kosmos.csi.io/moved-to": "m1/shop/db/0123456789abcdef", "pv.kubernetes.io/provisioned-by": "x.io"});
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        volume["status"] = json!({"phase": "Released"});
    };
    member.change(VOLUMES, "", &format!("pv-{name}"), retired).unwrap();
    member.change(CLAIMS, "shop", name, |claim| claim["metadata"]["finalizers"] = json!([])).unwrap();
    member.delete(CLAIMS, "shop", name).unwrap();
}

fn policy(clusters: &Clusters, volume: &str) -> String {
    text(&clusters.members[0].get(VOLUMES, "", volume).unwrap(), "/spec/persistentVolumeReclaimPolicy").to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_a_move_has_kept_is_listed_and_given_up_by_name_alone() {
    let clusters = moving();
    clusters.join().await;
    clusters.pin("m0", 0);
    assert_eq!(clusters.does("volume discard").await, "No member keeps a volume that was moved.\n");
    kept(&clusters, "db");
    kept(&clusters, "log");
    let listed = clusters.does("volume discard").await;
    assert!(listed.contains("m0/pv-db") && listed.contains("m1/shop/db/0123456789abcdef"), "{listed}");
    let said = clusters.does("volume discard m0/pv-db --data-will-be-lost").await;
    assert!(said.contains("has the policy Delete now"), "{said}");
    assert_eq!((policy(&clusters, "pv-db").as_str(), policy(&clusters, "pv-log").as_str()), ("Delete", "Retain"));
}

#[tokio::test(start_paused = true)]
async fn what_is_used_or_not_of_a_move_or_not_ours_is_never_given_up() {
    let clusters = moving();
    clusters.join().await;
    clusters.pin("m0", 0);
    leaf(&clusters, "used", "pvc-used");
    clusters.refuses("volume discard m0/pv-used --data-will-be-lost", &["no move has kept it"]).await;
    clusters.refuses("volume discard m9/pv-used --data-will-be-lost", &["no member is called m9", "get members"]).await;
    let label =
        |key: &'static str, value: Value| move |volume: &mut Value| volume["metadata"]["labels"][key] = value.clone();
    let of_another = label("kosmos.csi.io/host", json!("another"));
    let a_leaf = label("kosmos.csi.io/volume", json!("0123456789abcdef0123456789abcdef"));
    let by_hand = |volume: &mut Value| volume["metadata"]["annotations"] = json!({});
    let used = |volume: &mut Value| volume["status"] = json!({"phase": "Bound"});
    let changes: [&dyn Fn(&mut Value); 4] = [&of_another, &a_leaf, &by_hand, &used];
    let said = ["another host", "the leaf of a volume", "people made it", "not Released"];
    for (name, (change, said)) in ["a", "b", "c", "d"].into_iter().zip(changes.into_iter().zip(said)) {
        kept(&clusters, name);
        clusters.members[0].change(VOLUMES, "", &format!("pv-{name}"), change).unwrap();
        clusters.refuses(&format!("volume discard m0/pv-{name} --data-will-be-lost"), &[said]).await;
        assert_eq!(policy(&clusters, &format!("pv-{name}")), "Retain", "{name}");
    }
    kept(&clusters, "e");
    let held = json!({"metadata": {"name": "e", "namespace": "shop"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast", "volumeMode": "Filesystem"}});
    let held = clusters.members[0].create(CLAIMS, held).unwrap();
    let bound = |volume: &mut Value| volume["spec"]["claimRef"]["uid"] = held["metadata"]["uid"].clone();
    clusters.members[0].change(VOLUMES, "", "pv-e", bound).unwrap();
    clusters.refuses("volume discard m0/pv-e --data-will-be-lost", &["claim shop/e in the member still has it"]).await;
    assert_eq!(policy(&clusters, "pv-e"), "Retain");
}

/// The host's volume of claim db, by such a name of its member, and with a leaf volume where it says one.
fn leads_to(clusters: &Clusters, member: &str, leaf_volume: Option<&str>) {
    let volume = json!({
        "metadata": {"name": "pvc-db"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": "x"}},
    });
    let _ = clusters.host.create(VOLUMES, volume);
    let told = leaf_volume.map_or_else(|| json!({}), |told| json!({"leafClaimUID": "c", "leafVolume": told}));
    let leads = |volume: &mut Value| {
        volume["spec"]["csi"]["volumeHandle"] = json!(format!("{member}/shop/db/0123456789abcdef"));
        volume["spec"]["csi"]["volumeAttributes"] = told;
    };
    clusters.host.change(VOLUMES, "", "pvc-db", leads).unwrap();
}

/// The host was restored from a backup of before the move: what was kept is all that its volume leads to.
#[tokio::test(start_paused = true)]
async fn source_to_which_the_volume_of_a_restored_host_leads_is_not_given_up() {
    let clusters = moving();
    clusters.join().await;
    clusters.pin("m0", 0);
    kept(&clusters, "db");
    let said = [
        "volume pvc-db of the host leads to it",
        "a restore of the host from a backup",
        "handle m1/shop/db/0123456789abcdef",
    ];
    for (member, leaf_volume) in [("m0", Some("pv-db")), ("m0", None), ("a-second-name", Some("pv-db"))] {
        leads_to(&clusters, member, leaf_volume);
        clusters.refuses("volume discard m0/pv-db --data-will-be-lost", &said).await;
        assert_eq!(policy(&clusters, "pv-db"), "Retain", "{member} {leaf_volume:?}");
    }
    // It has moved away and back.
    leads_to(&clusters, "m0", Some("pv-of-now"));
    clusters.does("volume discard m0/pv-db --data-will-be-lost").await;
    assert_eq!(policy(&clusters, "pv-db"), "Delete");
}

/// Between m0 and m1, as far as that; and how the source was.
fn has_moved(clusters: &Clusters, claim: &str, phase: &str) {
    let name = format!("{claim}-to-m1");
    let side = |member: &str| json!({"member": member, "handle": format!("{member}/shop/{claim}/0123456789abcdef"), "namespace": "shop", "claimName": claim});
    let status = json!({"phase": phase, "attempt": 0, "from": side("m0"), "to": side("m1"),
        "source": {"name": format!("pv-{claim}"), "uid": "u"}});
    clusters.host.change(MOVES, "shop", &name, |of| of["status"] = status.clone()).unwrap();
}

/// Whoever says that a member is gone for good is told what of moves is there, also where it was kept long ago.
#[tokio::test(start_paused = true)]
async fn member_that_a_move_waits_for_is_forgotten_by_force_alone_and_what_of_moves_is_there_is_named() {
    let clusters = moving();
    clusters.join().await;
    clusters.pin("m0", 0);
    for (claim, phase) in [("db", "Finishing"), ("log", "Succeeded"), ("old", "Succeeded"), ("undone", "Cancelled")] {
        clusters.does(&format!("volume move shop/{claim} --to=m1 --no-wait")).await;
        has_moved(&clusters, claim, phase);
    }
    let gone = json!([{"type": "SourceDeleted", "status": "True", "reason": "Deleted", "message": "volume pv-old",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    clusters.host.change(MOVES, "shop", "old-to-m1", |of| of["status"]["conditions"] = gone.clone()).unwrap();
    clusters.refuses("member remove m0", &["it has one move of the host (shop/db-to-m1)", "--force"]).await;
    clusters.does("member remove m0 --force").await;
    let sources = [
        "volume pv-db of member m0, the source of VolumeMove shop/db-to-m1 of claim shop/db",
        "volume pv-log of member m0, the source of VolumeMove shop/log-to-m1 of claim shop/log",
    ];
    let refusal = ["it has one move of the host (shop/db-to-m1)", "led their volumes elsewhere", "--force"];
    clusters.refuses("member forget m0", &[&refusal[..], &sources].concat()).await;
    let told = clusters.does("member forget m0 --force").await;
    assert!(sources.iter().all(|source| told.contains(source)), "{told}");
    assert!(!told.contains("pv-old") && !told.contains("pv-undone"), "{told}");
}

/// It was forgotten, and what is in it is no matter of the cluster that has the name now.
#[tokio::test(start_paused = true)]
async fn what_moves_have_in_a_former_cluster_of_a_members_name_is_counted_to_nobody() {
    const FORMER: &str = "5e0f2b7c-0d4a-4b8e-9c51-7a1d2e3f4a5b";
    let clusters = moving();
    clusters.join().await;
    clusters.pin("m0", 0);
    let now = identity(&clusters.members[0]);
    for (claim, phase, cluster) in
        [("db", "Finishing", FORMER), ("log", "Succeeded", FORMER), ("web", "Succeeded", now.as_str())]
    {
        clusters.does(&format!("volume move shop/{claim} --to=m1 --no-wait")).await;
        has_moved(&clusters, claim, phase);
        let is_of = |of: &mut Value| of["status"]["from"]["cluster"] = json!(cluster);
        clusters.host.change(MOVES, "shop", &format!("{claim}-to-m1"), is_of).unwrap();
    }
    let removed = clusters.does("member remove m0 --force").await;
    assert!(!removed.contains("shop/db-to-m1"), "{removed}");
    let told = clusters.does("member forget m0").await;
    assert!(told.contains("volume pv-web of member m0, the source of VolumeMove shop/web-to-m1"), "{told}");
    assert!(!told.contains("pv-db") && !told.contains("pv-log"), "{told}");
    assert!(told.contains("no move is under way") && !told.contains("nothing there"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn member_with_the_copy_of_a_move_is_not_removed_and_that_is_named() {
    let clusters = moving();
    clusters.join().await;
    clusters.does("volume move shop/db --to=m0 --no-wait").await;
    let side = |member: &str| json!({"member": member, "handle": format!("{member}/shop/db/0"), "namespace": "shop", "claimName": "db"});
    let status = json!({"phase": "Copying", "attempt": 0, "from": side("m1"), "to": side("m0")});
    clusters.host.change(MOVES, "shop", "db-to-m0", |of| of["status"] = status.clone()).unwrap();
    clusters.refuses("member remove m0", &["it has one move of the host (shop/db-to-m0)"]).await;
    clusters.does("member remove m0 --force").await;
    clusters
        .refuses("member forget m0", &["the copy of VolumeMove shop/db-to-m0 of claim shop/db, m0/shop/db/0"])
        .await;
}
