//! The page on which people see members and volumes, asked over HTTP as a browser does, while the driver behind it works between
//! simulated clusters.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

#[path = "../authority.rs"]
mod authority;
#[path = "../bench/leaves.rs"]
mod leaves;
mod moves;
mod world;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use cluster::metrics::waiting::Refusal;
use domain::volume::{VolumeHash, VolumeId};
use serde_json::{Value, json};
use world::{TOKEN, World, clusters, fill, host_id, host_volume, rewrite};

const PAGES: [&str; 7] = ["/", "/volumes", "/waiting", "/moves", "/capacity", "/members", "/events"];
const CLAIMS: &str = "persistentvolumeclaims";
/// What leads out of a page, hides what follows, and steers terminals.
const HOSTILE: &str = "\"'><script>document.title='x'</script>\u{202e}\u{1b}[2K";
/// At each page, more than the driver asks of all clusters meanwhile.
const LOOKS: u64 = 200;

fn items(page: &Value) -> &Vec<Value> {
    page["items"].as_array().unwrap()
}

fn handle(world: &World, number: u32) -> String {
    let (id, namespace) = (host_id(&world.host), leaves::namespace(number));
    let claim = leaves::claim(&id, number);
    let name = claim["metadata"]["name"].as_str().unwrap();
    VolumeId::new("m0", &namespace, name, VolumeHash::new(&id, &number.to_string())).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_ten_thousand_volumes_is_quick_and_small_and_asks_no_cluster() {
    let (host, mut members) = clusters(3);
    for (at, member) in members.iter_mut().enumerate() {
        let first = u32::try_from(at).unwrap() * 3334;
        fill(&host, member, first..first + 3334);
    }
    let world = World::start(host, members).await;
    let overview = world.get("/api/overview").await.json();
    assert_eq!(overview["volumes"]["bound"], 10_002);
    let one = format!("/volumes/{}", handle(&world, 7));
    for path in PAGES.iter().map(ToString::to_string).chain([one, "/members/m1".to_owned()]) {
        let (mut quickest, asked) = (Duration::MAX, world.requests());
        for _ in 0..LOOKS {
            let begun = Instant::now();
            let answer = world.get(&path).await;
            quickest = quickest.min(begun.elapsed());
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.body.len() <= 300 << 10, "{path}: {} bytes", answer.body.len());
        }
        // The driver works on meanwhile, and asks for itself.
        let more = world.requests() - asked;
        assert!(more < LOOKS, "{path}: {more} requests to clusters while it was looked at {LOOKS} times");
        println!("{path}: {} ms, {more} requests", quickest.as_millis());
        assert!(quickest <= Duration::from_millis(100), "{path}: {quickest:?}");
    }
    // In none of them is a volume of this name, so that all are looked at; this is a build without optimization.
    let begun = Instant::now();
    assert!(world.get("/volumes?q=nowhere-to-be-found").await.body.contains("There are no such volumes."));
    println!("all volumes: {} ms", begun.elapsed().as_millis());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn pages_of_volumes_name_each_of_them_once() {
    let (host, mut members) = clusters(2);
    fill(&host, &mut members[0], 0..130);
    fill(&host, &mut members[1], 130..251);
    // Of the host alone: nobody follows what was imported.
    for number in 251..360 {
        let handle = format!("m1/shop/old-{number}/0123456789abcdef");
        host.create("persistentvolumes", host_volume(number, &handle, "shop", &format!("old-{number}"))).unwrap();
    }
    // And of a member that has left.
    host.create("persistentvolumes", host_volume(360, "m9/shop/left/0123456789abcdef", "shop", "left")).unwrap();
    let world = World::start(host, members).await;
    world.until("/api/volumes?state=NotFollowed&q=old-359", |page| items(page).len() == 1).await;
    for (filter, count) in [
        ("", 361_usize),
        ("member=m9", 1),
        ("member=m0", 130),
        ("member=m1", 230),
        ("namespace=team-7", 1),
        ("state=NotFollowed", 110),
        ("state=Bound&member=m1", 121),
        ("q=pvc-13", 11),
        ("q=no%20such", 0),
    ] {
        let (mut seen, mut after, mut pages) = (BTreeSet::new(), String::new(), 0);
        loop {
            let page = world.get(&format!("/api/volumes?{filter}&after={after}")).await.json();
            assert!(items(&page).len() <= 100);
            for item in items(&page) {
                assert!(seen.insert(item["handle"].as_str().unwrap().to_owned()), "{filter}: twice: {item}");
            }
            pages += 1;
            after = page["next"].as_str().unwrap().replace('/', "%2F").replace('=', "%3D");
            if after.is_empty() {
                break;
            }
        }
        assert_eq!((seen.len(), pages), (count, count.div_ceil(100).max(1)), "{filter}");
    }
}

#[tokio::test]
async fn chain_of_a_volume_says_which_link_is_not_well() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..3);
    let id = host_id(&host);
    let (lost, alone) = (leaves::claim(&id, 1), leaves::claim(&id, 2));
    let name = |claim: &Value| claim["metadata"]["name"].as_str().unwrap().to_owned();
    let put = |claim: &mut Value| claim["status"]["phase"] = json!("Lost");
    members[0].change(CLAIMS, &leaves::namespace(1), &name(&lost), put).unwrap();
    host.change("persistentvolumes", "", "pvc-2", |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
    host.delete("persistentvolumes", "", "pvc-2").unwrap();
    let world = World::start(host, members).await;
    let states = |page: &Value| -> Vec<String> {
        let links = page["chain"].as_array().unwrap().iter();
        links.map(|link| format!("{}: {}", link["what"].as_str().unwrap(), link["state"].as_str().unwrap())).collect()
    };
    let at = |number| format!("/api/volumes/{}", handle(&world, number));
    let well = world.get(&at(0)).await.json();
    assert_eq!(
        states(&well),
        [
            "Nodes with its pods: no node of the host has it",
            "PersistentVolumeClaim of the host: has this volume",
            "PersistentVolume of the host: Bound",
            "Member: answers",
            "Leaf claim: Bound",
            "Leaf volume: is there",
        ]
    );
    assert_eq!(well["commands"][0], "kosmos-csi trace pv/pvc-0");
    let lost = world.get(&at(1)).await.json();
    assert_eq!(states(&lost)[4], "Leaf claim: Lost: its volume is gone");
    assert!(lost["ailments"][0].as_str().unwrap().contains("has lost its volume"), "{lost:#}");
    let alone_seen = world.get(&at(2)).await.json();
    assert_eq!(states(&alone_seen)[1], "PersistentVolume of the host: the host has none with this handle");
    assert_eq!(alone_seen["chain"][3]["name"], format!("{}/{}", leaves::namespace(2), name(&alone)));
    let overview = world.get("/api/overview").await.json();
    assert_eq!((&overview["level"], &overview["volumes"]["lost"]), (&json!("wrong"), &json!(1)));
    for strange in ["m0/shop/none/0123456789abcdef", "m9/shop/none/0123456789abcdef", "m0/a", "m0/..%2f..%2fetc"] {
        assert_eq!(world.get(&format!("/volumes/{strange}")).await.status, 404, "{strange}");
    }
}

#[tokio::test]
async fn volume_whose_leaf_claim_is_gone_is_wrong_and_one_that_is_not_followed_is_not_told_to_be_empty() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..2);
    let gone = leaves::claim(&host_id(&host), 1)["metadata"]["uid"].clone();
    rewrite(&mut members[0], Vec::new(), |_, object| {
        if object["metadata"]["uid"] == gone {
            *object = Value::Null;
        }
    });
    let imported = "m0/shop/old/0123456789abcdef";
    host.create("persistentvolumes", host_volume(7, imported, "shop", "old")).unwrap();
    let world = World::start(host, members).await;
    let listed = world.until("/api/volumes?state=LeafClaimGone", |page| items(page).len() == 1).await;
    assert_eq!((&items(&listed)[0]["level"], &items(&listed)[0]["volume"]), (&json!("wrong"), &json!("pvc-1")));
    assert!(items(&listed)[0]["why"].as_str().unwrap().contains("is gone"), "{listed:#}");
    let overview = world.until("/api/overview", |page| page["leafClaimsGone"] == 1).await;
    assert_eq!(overview["level"], "wrong");
    assert!(overview["summary"].as_str().unwrap().contains("1 volume is in use without a leaf claim."), "{overview:#}");
    let listed = world.until("/api/volumes?q=old", |page| items(page).len() == 1).await;
    assert_eq!((&items(&listed)[0]["size"], &items(&listed)[0]["age"]), (&Value::Null, &Value::Null));
    let page = world.get(&format!("/api/volumes/{imported}")).await.json();
    assert_eq!(page["chain"][0]["state"], "this page does not know them");
}

#[tokio::test]
async fn replica_that_does_not_lead_says_what_it_does_not_know_and_shows_what_the_host_has() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..1);
    let world = World::start(host, members).await;
    let page = world.at_standby("/volumes").await.body;
    assert!(page.contains("which stands by") && page.contains("team-0/data-postgres-0"), "{page}");
    let one = world.at_standby(&format!("/api/volumes/{}", handle(&world, 0))).await.json();
    assert_eq!((&one["leads"], &one["chain"][1]["state"]), (&json!(false), &json!("has this volume")), "{one:#}");
}

#[tokio::test]
async fn member_that_says_much_of_its_volumes_is_read_in_part() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..100);
    let said = "x".repeat(20_000);
    rewrite(&mut members[0], Vec::new(), |resource, object| {
        if resource == CLAIMS {
            let condition = json!({"type": "VolumeConditionAbnormal", "status": "True", "message": said});
            object["status"]["conditions"] = json!([condition]);
        }
    });
    let world = World::start(host, members).await;
    let page = world.get("/volumes").await.body;
    assert!(page.contains("xxx…") && page.len() < 300 << 10, "{} bytes", page.len());
}

#[tokio::test]
async fn members_are_listed_with_their_classes() {
    let (host, mut members) = clusters(2);
    let class =
        json!({"metadata": {"name": "ceph-block", "uid": "c", "resourceVersion": "3000000"}, "provisioner": "rbd"});
    rewrite(&mut members[0], vec![("storageclasses.storage.k8s.io", class)], |_, _| ());
    let world = World::start(host, members).await;
    let listed = world.get("/api/members").await.json();
    let [with, without] = items(&listed).as_slice() else { panic!("{listed:#}") };
    assert_eq!((&with["classes"][0]["name"], &without["classes"]), (&json!("ceph-block"), &Value::Null), "{listed:#}");
}

/// Where names are long, a handle has none of them.
#[tokio::test]
async fn volume_whose_handle_names_no_place_has_its_page() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..1);
    let long = "a".repeat(200);
    rewrite(&mut members[0], Vec::new(), |resource, object| match resource {
        CLAIMS => object["metadata"]["name"] = json!(long),
        "persistentvolumes" => object["spec"]["claimRef"]["name"] = json!(long),
        _ => {}
    });
    let world = World::start(host, members).await;
    let listed = world.get("/api/volumes?q=aaaa").await.json();
    let handle = items(&listed)[0]["handle"].as_str().unwrap().to_owned();
    assert!(handle.starts_with("m0///"), "{handle}");
    let page = world.get(&format!("/api/volumes/{handle}")).await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.json()["chain"][3]["name"], format!("team-0/{long}"));
}

#[tokio::test]
async fn claim_that_waits_is_told_with_the_newest_reason() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..2);
    let id = host_id(&host);
    let name = leaves::claim(&id, 1)["metadata"]["name"].as_str().unwrap().to_owned();
    let waits = |claim: &mut Value| {
        claim["status"] = json!({"phase": "Pending"});
        claim["spec"].as_object_mut().unwrap().remove("volumeName");
    };
    members[0].change(CLAIMS, &leaves::namespace(1), &name, waits).unwrap();
    let world = World::start(host, members).await;
    let asked = world.sources.waiting.asks("pvc-new", Some("shop/new".to_owned()));
    let message = "no member has room for 5Gi".to_owned();
    asked.answered(Some(Refusal { code: "ResourceExhausted".to_owned(), message }));
    let page = world.get("/api/waiting").await.json();
    let [leaf, new] = items(&page).as_slice() else { panic!("{page:#}") };
    assert_eq!((&leaf["claim"], &leaf["member"]), (&json!("team-1/data-postgres-0"), &json!("m0")));
    assert!(leaf["why"].as_str().unwrap().contains("StorageClass ceph-block is not in the member"), "{leaf}");
    assert_eq!((&new["claim"], &new["member"]), (&json!("shop/new"), &json!("")));
    assert_eq!(new["why"], "ResourceExhausted: no member has room for 5Gi");
    let overview = world.get("/api/overview").await.json();
    assert!(overview["summary"].as_str().unwrap().contains("2 claims wait, the oldest for"), "{overview:#}");
    world.sources.waiting.asks("pvc-new", None).answered(None);
    assert_eq!(items(&world.get("/api/waiting").await.json()).len(), 1);
}

#[tokio::test]
async fn what_members_write_is_shown_as_text_and_credentials_nowhere() {
    let (host, mut members) = clusters(1);
    fill(&host, &mut members[0], 0..1);
    let class =
        json!({"metadata": {"name": "ceph-block", "uid": "c", "resourceVersion": "3000000"}, "provisioner": HOSTILE});
    let node = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [HOSTILE]}]}]}});
    rewrite(&mut members[0], vec![("storageclasses.storage.k8s.io", class)], |resource, object| match resource {
        "persistentvolumes" => {
            object["spec"]["nodeAffinity"] = node.clone();
            object["spec"]["csi"]["volumeHandle"] = json!(HOSTILE);
        }
        CLAIMS => {
            object["status"]["conditions"] =
                json!([{"type": "VolumeConditionAbnormal", "status": "True", "message": HOSTILE}]);
        }
        _ => {}
    });
    let world = World::start(host, members).await;
    let asked = world.sources.waiting.asks("pvc-new", Some(HOSTILE.to_owned()));
    asked.answered(Some(Refusal { code: "Unknown".to_owned(), message: HOSTILE.to_owned() }));
    let paths = PAGES.map(str::to_owned).into_iter().chain([
        format!("/volumes/{}", handle(&world, 0)),
        "/members/m0".to_owned(),
        format!("/volumes?q={}", "%22%3E%3Cscript%3E"),
        "/members/%3Cscript%3E".to_owned(),
    ]);
    let mut shown = 0;
    for path in paths {
        let answer = world.get(&path).await;
        assert!(!answer.body.contains("<script>"), "{path}: {}", answer.body);
        assert!(!answer.body.contains(['\u{202e}', '\u{1b}']), "{path}: {}", answer.body);
        assert!(!answer.body.contains(TOKEN), "{path}: {}", answer.body);
        shown += usize::from(answer.body.contains("document.title"));
    }
    // The class, the volume, its page, the member, what waits: it was shown, as text.
    assert!(shown >= 4, "on {shown} pages");
}

#[tokio::test]
async fn page_is_for_this_machine_and_changes_nothing() {
    let (host, members) = clusters(1);
    let world = World::start(host, members).await;
    for path in PAGES.iter().chain(&["/style.css", "/refresh.js", "/icon.svg", "/nowhere"]) {
        let answer = world.get(path).await;
        assert_eq!(answer.status, if *path == "/nowhere" { 404 } else { 200 }, "{path}");
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{path}: {header}: {}", answer.head);
        }
        assert_eq!(world.ask("GET", path, "evil.example").await.status, 421, "{path}");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(world.ask(method, path, "localhost").await.status, 405, "{method} {path}");
        }
    }
    let unknown = world.get("/api/nowhere").await;
    assert_eq!((unknown.status, &unknown.json()["kind"]), (404, &json!("Error")));
}

#[tokio::test]
async fn every_page_is_the_same_as_json() {
    let (host, mut members) = clusters(2);
    fill(&host, &mut members[0], 0..3);
    let world = World::start(host, members).await;
    let (one, member) = (format!("/volumes/{}", handle(&world, 1)), "/members/m1".to_owned());
    for path in PAGES.map(str::to_owned).into_iter().chain([one, member]) {
        let html = world.get(&path).await.body;
        let link = html.split("href=\"").find(|part| part.starts_with("/api/")).and_then(|part| part.split('"').next());
        let told = world.get(link.unwrap_or_else(|| panic!("{path}: {html}"))).await;
        assert!(told.head.contains("content-type: application/json"), "{path}");
        let told = told.json();
        assert_eq!(
            (&told["apiVersion"], &told["replica"]),
            (&json!("ui.kosmos.csi.io/v1alpha1"), &json!(world.sources.replica))
        );
        assert!(!told["kind"].as_str().unwrap().is_empty(), "{path}");
    }
}
