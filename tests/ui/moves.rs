//! Moves on the page, as whoever drives them has told them. Nobody drives these, so that each stays as it is.

use std::{sync::Arc, time::Duration};

use host::{
    Host,
    moves::{self, Moves},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use ui::Sources;

use super::{
    CLAIMS, HOSTILE, handle, items, leaves,
    world::{World, clusters, fill, host_id, rewrite},
};

const MOVES: &str = "volumemoves.kosmos.csi.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const DEFINITION: &str = include_str!("../../deploy/chart/kosmos-csi/files/volumemoves.yaml");
const SHOP: &str = "shop";
const PATIENCE: Duration = Duration::from_mins(1);

/// How a move stands, and what is shown of it: its phase, how well that is, and what it waits for.
const SHOWN: [(&str, &str, &str); 14] = [
    ("", "waits", ""),
    ("Preparing", "waits", "the receiver is not ready yet"),
    ("Closing", "waits", "the limit of moves that copy at the same time is reached (--moves-at-once)"),
    ("Waiting", "waits", "pods use the volume: pod shop/db-0 of member m0"),
    ("Isolating", "waits", "the leaf claim of the source has to go first"),
    ("Copying", "waits", "the copy is not done yet"),
    ("Placing", "waits", "the copy's leaf claim is being made where pods look for it"),
    ("Ready", "waits", "the switch is not approved yet (spec.approved)"),
    ("Switching", "waits", "the host's claim is being bound to its new volume"),
    ("Finishing", "wrong", "member m0: no answer within 4 s"),
    ("Cancelling", "waits", "the movers' pods are ending"),
    ("Succeeded", "well", ""),
    ("Cancelled", "well", ""),
    ("Refused", "wrong", "claim shop/data is a block volume"),
];

/// The page of a replica that knows these moves and no others.
async fn knows(world: &World, all: &[(String, Value)], work: &mut JoinSet<()>) -> Sources {
    let host = &world.host;
    host.create(DEFINITIONS, serde_saphyr::from_str(DEFINITION).unwrap()).unwrap();
    host.create("namespaces", json!({"metadata": {"name": SHOP}})).unwrap();
    for (name, of) in all {
        let mut made = of.clone();
        made["metadata"] = json!({"name": name, "namespace": SHOP});
        host.create(MOVES, made).unwrap();
        host.change(MOVES, SHOP, name, |there| there["status"] = of["status"].clone()).unwrap();
    }
    let client = kube::Client::new(host.service("page"), "default");
    let host = Host::connect(client, "kosmos-csi".to_owned()).await.unwrap();
    let known = Arc::new(Moves::default());
    let kept = Arc::clone(&known);
    work.spawn(async move { moves::keep(&host, &kept).await });
    let begun = Instant::now();
    while known.all().len() < all.len() {
        assert!(begun.elapsed() < PATIENCE, "{} of {} are known", known.all().len(), all.len());
        sleep(Duration::from_millis(20)).await;
    }
    Sources { moves: Some(known), ..world.sources.clone() }
}

fn condition(status: &str, message: &str) -> Value {
    json!([{"type": "Stalled", "status": status, "reason": "X", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

/// As the driver writes it.
fn one((phase, _, why): (&str, &str, &str)) -> (String, Value) {
    let side = |member: &str| json!({"member": member, "handle": "", "namespace": SHOP, "claimName": "data"});
    let mut status = json!({"phase": phase, "attempt": 0, "from": side("m0"), "to": side("m1")});
    match phase {
        "" => status = json!({}),
        "Finishing" | "Refused" => status["conditions"] = condition("True", why),
        "Succeeded" | "Cancelled" => status["conditions"] = condition("False", "it has ended"),
        _ => status["conditions"] = condition("False", why),
    }
    if phase == "Copying" {
        status["progress"] = json!({"bytes": 3_u64 << 30, "bytesPerSecond": 1 << 20});
    }
    let spec = json!({"claimName": "data", "to": {"member": "m1"}});
    (format!("a{}", phase.to_lowercase()), json!({"spec": spec, "status": status}))
}

#[tokio::test]
async fn page_without_moves_says_whether_it_would_know_of_any() {
    let (host, members) = clusters(1);
    let world = World::start(host, members).await;
    assert!(world.get("/moves").await.body.contains("This replica knows of none"));
    let mut work = JoinSet::new();
    let sources = knows(&world, &[], &mut work).await;
    let page = world.page_of(&sources, "/moves").await.body;
    assert!(page.contains("No volume moves, or has moved lately.") && !page.contains("<table>"), "{page}");
    let told = world.page_of(&sources, "/api/moves").await.json();
    assert_eq!((items(&told).len(), &told["areKnown"]), (0, &json!(true)), "{told:#}");
    let overview = world.page_of(&sources, "/api/overview").await.json();
    assert!(!overview["summary"].as_str().unwrap().contains("under way"), "{overview:#}");
}

#[tokio::test]
async fn move_in_each_phase_is_told_with_what_it_waits_for_and_those_under_way_come_first() {
    let (host, members) = clusters(1);
    let world = World::start(host, members).await;
    let (all, mut work) = (SHOWN.map(one), JoinSet::new());
    let sources = knows(&world, &all, &mut work).await;
    let told = world.page_of(&sources, "/api/moves").await.json();
    let html = world.page_of(&sources, "/moves").await.body;
    assert_eq!(items(&told).len(), SHOWN.len(), "{told:#}");
    for ((phase, level, why), (name, _)) in SHOWN.into_iter().zip(&all) {
        let name = format!("{SHOP}/{name}");
        let item = items(&told).iter().find(|item| item["name"] == *name).unwrap_or_else(|| panic!("{name}: {told:#}"));
        let phase = if phase.is_empty() { "New" } else { phase };
        let is_over = ["Succeeded", "Cancelled", "Refused"].contains(&phase);
        let shown = ["phase", "level", "why", "isOver"].map(|key| &item[key]);
        assert_eq!(shown, [&json!(phase), &json!(level), &json!(why), &json!(is_over)], "{item:#}");
        let from = if phase == "New" { "" } else { "m0" };
        assert_eq!([&item["from"], &item["to"]], [&json!(from), &json!("m1")], "{item:#}");
        assert_eq!(item["copied"].is_null(), phase != "Copying", "{item:#}");
        assert!(html.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}: {html}");
        assert!(html.contains(&format!("<span class=\"state {level}\">{phase}</span>")), "{phase}: {html}");
    }
    assert!(html.contains("3Gi, 1Mi/s"), "{html}");
    // What stands in somebody's way is seen first, and what has ended last.
    assert_eq!(items(&told)[0]["phase"], "Finishing", "{told:#}");
    let ended: Vec<bool> = items(&told).iter().map(|item| item["isOver"] == true).collect();
    assert!(ended.is_sorted() && ended.iter().filter(|is_over| **is_over).count() == 3, "{told:#}");
    let overview = world.page_of(&sources, "/api/overview").await.json();
    assert_eq!(overview["level"], "wrong");
    let words = "11 moves are under way, 1 of them stalled.";
    assert!(overview["summary"].as_str().unwrap().contains(words), "{overview:#}");
}

/// Whoever may make moves names a claim and a member as he likes; and what members answer stands in the conditions.
#[tokio::test]
async fn what_users_and_members_write_of_a_move_is_shown_as_text() {
    let (host, members) = clusters(1);
    let world = World::start(host, members).await;
    let side = json!({"member": HOSTILE, "handle": HOSTILE, "namespace": HOSTILE, "claimName": HOSTILE});
    let written = |status: &str| {
        json!({"spec": {"claimName": HOSTILE, "to": {"member": HOSTILE}},
            "status": {"phase": "Copying", "from": side, "to": side, "conditions": condition(status, HOSTILE)}})
    };
    let all = [("waits".to_owned(), written("False")), ("stalls".to_owned(), written("True"))];
    let mut work = JoinSet::new();
    let sources = knows(&world, &all, &mut work).await;
    for path in ["/moves", "/", "/events"] {
        let page = world.page_of(&sources, path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(!page.body.contains("<script>"), "{path}: {}", page.body);
        assert!(!page.body.contains(['\u{202e}', '\u{1b}']), "{path}: {}", page.body);
    }
    // Of each its claim, both members, and what is waited for.
    let page = world.page_of(&sources, "/moves").await.body;
    assert_eq!(page.matches("document.title").count(), 8, "{page}");
    let told = world.page_of(&sources, "/api/moves").await.json();
    assert!(!told.to_string().contains(['\u{202e}', '\u{1b}']), "{told:#}");
}

/// It has two leaves then, and users look for one volume.
#[tokio::test]
async fn volume_that_moves_is_told_once_and_its_copy_is_no_claim_that_waits() {
    let (host, mut members) = clusters(2);
    fill(&host, &mut members[0], 0..1);
    let mark = |part: &str| json!(format!("shop/db-to-m1/01234567-89ab-cdef-0123-456789abcdef/{part}"));
    rewrite(&mut members[0], Vec::new(), |resource, object| {
        if resource == CLAIMS {
            object["metadata"]["annotations"]["kosmos.csi.io/move"] = mark("source");
        }
    });
    let mut copy = leaves::claim(&host_id(&host), 0);
    copy["metadata"]["uid"] = json!("fedcba98-23c1-407e-a8e7-000000000000");
    copy["metadata"]["annotations"]["kosmos.csi.io/move"] = mark("copy");
    copy["spec"].as_object_mut().unwrap().remove("volumeName");
    copy["status"] = json!({"phase": "Pending"});
    rewrite(&mut members[1], vec![(CLAIMS, copy)], |_, _| ());
    let world = World::start(host, members).await;
    let listed = world.get("/api/volumes").await.json();
    let [listed] = items(&listed).as_slice() else { panic!("{listed:#}") };
    assert_eq!((&listed["level"], &listed["member"]), (&json!("waits"), &json!("m0")), "{listed:#}");
    assert_eq!(items(&world.get("/api/waiting").await.json()).len(), 0);
    let page = world.get(&format!("/api/volumes/{}", handle(&world, 0))).await.json();
    let links = page["chain"].as_array().unwrap();
    let leaf = links.iter().find(|link| link["what"] == "Leaf claim").unwrap();
    assert_eq!(leaf["state"], "is being moved to another member", "{page:#}");
}
