//! Why a leaf claim waits is told on the claim of the host, in the member's own words, soon, and not too often.

use std::{sync::Arc, time::Duration};

use domain::volume::{HostId, VolumeHash};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    storage::{Settings, Work},
    text,
};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Ending, Script},
    fixture, virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(2);

async fn bench(settings: &Settings) -> Arc<Bench> {
    Bench::serving(1, settings).await
}

/// Storage that fails each time.
fn broken() -> Settings {
    let provisioning = Work { takes: STEP..=STEP, fails_per_mille: 1000 };
    Settings { provisioning, ..fixture::steady(STEP) }
}

fn provision(bench: &Arc<Bench>, script: Script) -> Caller {
    let caller = Caller::new(bench, script);
    let mut asking = caller.clone();
    tokio::spawn(async move { asking.provision().await });
    caller
}

/// What is told of a claim of the host: the messages, in the order of their names.
fn told(bench: &Bench, claim: &str) -> Vec<String> {
    let about = |event: &Arc<Value>| {
        text(event, "/source/component") == "kosmos.csi.io"
            && text(event, "/involvedObject/kind") == "PersistentVolumeClaim"
            && text(event, "/involvedObject/name") == claim
    };
    let events = bench.host.list("events");
    events.iter().filter(|event| about(event)).map(|event| text(event, "/message").to_owned()).collect()
}

fn all_told(bench: &Bench) -> usize {
    let ours = |event: &Arc<Value>| text(event, "/source/component") == "kosmos.csi.io";
    bench.host.list("events").iter().filter(|event| ours(event)).count()
}

async fn until(bench: &Bench, within: Duration, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < within, "not within {within:?}: {}", bench.guard.trace().join("\n"));
        sleep(STEP).await;
    }
}

#[test]
fn what_is_still_so_is_counted_in_the_one_event_that_says_it() {
    virtual_time::run(1, async {
        let bench = bench(&broken()).await;
        provision(&bench, Script::new("data"));
        let counts = || {
            let events = bench.host.list("events");
            let ours = events.iter().filter(|event| text(event, "/reason") == "LeafPending");
            ours.map(|event| event["count"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        until(&bench, SOON, || counts() == [1]).await;
        for count in [2, 3] {
            until(&bench, Duration::from_mins(10), || counts() == [count]).await;
        }
        assert_eq!(told(&bench, "data").len(), 1);
    });
}

#[test]
fn warning_of_a_member_is_told_within_two_seconds() {
    virtual_time::run(1, async {
        let bench = bench(&broken()).await;
        provision(&bench, Script::new("data"));
        let failed = || {
            let events = bench.members[0].list("events");
            events.iter().any(|event| text(event, "/reason") == "ProvisioningFailed")
        };
        until(&bench, SOON, failed).await;
        until(&bench, SOON, || !told(&bench, "data").is_empty()).await;
        let told = told(&bench, "data").join("\n");
        for word in ["member m0", "shop/data", "ProvisioningFailed", "the storage failed"] {
            assert!(told.contains(word), "{told}");
        }
    });
}

/// Whoever makes claims in a member writes on them what he likes.
/// Kubernetes takes times of the year 9999, and hardly anybody else does. Whoever may write events in one namespace would silence all.
#[test]
fn event_with_a_time_that_cannot_be_read_silences_no_other() {
    virtual_time::run(1, async {
        let bench = bench(&broken()).await;
        let about =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "attic", "name": "x", "uid": "u"});
        let event = json!({"metadata": {"name": "x.1", "namespace": "attic"}, "involvedObject": about, "reason": "Theirs", "message": "m",
            "type": "Warning", "firstTimestamp": "9999-12-31T23:59:59Z", "lastTimestamp": "9999-12-31T23:59:59Z",
            "eventTime": "9999-12-31T23:59:59.999999Z"});
        bench.members[0].create("namespaces", json!({"metadata": {"name": "attic"}})).unwrap();
        bench.members[0].create("events", event).unwrap();
        provision(&bench, Script::new("data"));
        until(&bench, SOON * 2, || told(&bench, "data").join("\n").contains("the storage failed")).await;
    });
}

/// Whoever may write events in one namespace closes no member by that.
#[test]
fn events_of_great_length_about_a_leaf_claim_close_no_member() {
    virtual_time::run(1, async {
        let bench = bench(&broken()).await;
        let caller = Caller::new(&bench, Script::new("data"));
        let waits = caller.create().await.unwrap_err();
        assert_eq!(waits.code(), Code::Aborted, "{waits}");
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        let about = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP, "name": "data",
            "uid": text(&leaf, "/metadata/uid")});
        for number in 0..40 {
            let message = "<".repeat(2 << 20);
            let event = json!({"metadata": {"name": format!("data.{number}"), "namespace": SHOP}, "involvedObject": about,
                "reason": "Theirs", "message": message, "type": "Warning"});
            bench.members[0].create("events", event).unwrap();
        }
        for _ in 0..3 {
            let waits = caller.create().await.unwrap_err();
            assert_eq!(waits.code(), Code::Aborted, "{waits}");
        }
    });
}

#[test]
fn member_has_nothing_told_on_a_claim_that_waits_in_another() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &broken()).await;
        provision(&bench, Script { places: vec![0], ..Script::new("data") });
        let leaf = || bench.members[0].get("persistentvolumeclaims", SHOP, "data");
        until(&bench, SOON, || leaf().is_some()).await;
        let mut forged = json!({"metadata": {"name": "forged", "namespace": SHOP}, "spec": leaf().unwrap()["spec"]});
        for part in ["labels", "annotations"] {
            forged["metadata"][part] = leaf().unwrap()["metadata"][part].clone();
        }
        forged["spec"].as_object_mut().unwrap().remove("volumeName");
        let made = bench.members[1].create("persistentvolumeclaims", forged).unwrap();
        lock(&bench.guard.history).plant(&made);
        until(&bench, SOON * 2, || !told(&bench, "data").is_empty()).await;
        sleep(Duration::from_mins(1)).await;
        let told = told(&bench, "data");
        assert!(told.iter().all(|message| message.starts_with("member m0: ")), "{told:?}");
    });
}

#[test]
fn user_is_told_of_a_provisioner_that_says_nothing() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let class = json!({"metadata": {"name": "abandoned"}, "provisioner": "nobody.example.com", "volumeBindingMode": "Immediate"});
        bench.members[0].create("storageclasses.storage.k8s.io", class).unwrap();
        provision(&bench, Script { leaf_class: "abandoned", ..Script::new("data") });
        until(&bench, SOON, || !bench.members[0].list("persistentvolumeclaims").is_empty()).await;
        until(&bench, SOON, || !told(&bench, "data").is_empty()).await;
        let first = told(&bench, "data").join("\n");
        assert!(first.contains("nobody.example.com") && first.contains("StorageClass abandoned"), "{first}");
        assert!(first.contains("nothing of it yet"), "it may be slow: {first}");
        until(&bench, Duration::from_secs(12), || told(&bench, "data").len() == 2).await;
        assert!(told(&bench, "data").join("\n").contains("is it running there?"));
    });
}

/// From the claim to the words, at any moment, also when the driver has just begun, and when nobody has waited before; what is
/// left of two seconds is for requests.
#[test]
fn first_claim_that_waits_is_told_of_within_two_seconds_whenever_it_comes() {
    const PROMPT: Duration = Duration::from_millis(1500);
    let moments = (0..10).flat_map(|at| ["abandoned", fixture::NOW, fixture::LATER].map(|leaf_class| (at, leaf_class)));
    let late = virtual_time::each(virtual_time::THREADS, moments.collect(), |(at, leaf_class)| {
        virtual_time::run(at, async {
            let bench = Bench::new(1, 1, &broken()).await;
            // It leads before it knows of any member.
            bench.guard.set_fate(|_, at, asked| {
                let members = at == 0 && asked.verb == Verb::List && asked.resource == "secrets";
                if members { Action::Delay(STEP * 5) } else { Action::Pass }
            });
            bench.start();
            bench.serves().await;
            let member = &bench.members[0];
            let class = json!({"metadata": {"name": "abandoned"}, "provisioner": "nobody.example.com", "volumeBindingMode": "Immediate"});
            member.create("storageclasses.storage.k8s.io", class).unwrap();
            close_nodes(&bench);
            sleep(Duration::from_millis(170 * at)).await;
            provision(&bench, Script { leaf_class, ..Script::new("data") });
            let began = Instant::now();
            while told(&bench, "data").is_empty() && began.elapsed() < SOON * 3 {
                sleep(STEP / 10).await;
            }
            (began.elapsed() > PROMPT).then(|| format!("{leaf_class} at {at}: after {:?}", began.elapsed()))
        })
    });
    assert!(late.is_empty(), "{}", late.join("\n"));
}

#[test]
fn user_is_told_of_a_consumer_that_finds_no_node() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        finds_no_node_and_is_told(&bench).await;
    });
}

async fn finds_no_node_and_is_told(bench: &Arc<Bench>) {
    close_nodes(bench);
    provision(bench, Script { leaf_class: fixture::LATER, ..Script::new("data") });
    until(bench, Duration::from_secs(4), || !told(bench, "data").is_empty()).await;
    let told = told(bench, "data").join("\n");
    assert!(told.contains("FailedScheduling") && told.contains("unschedulable"), "{told}");
}

/// No pod finds a node in the first member.
fn close_nodes(bench: &Bench) {
    for node in bench.members[0].list("nodes") {
        let close = |node: &mut Value| node["spec"]["unschedulable"] = json!(true);
        bench.members[0].change("nodes", "", text(&node, "/metadata/name"), close).unwrap();
    }
}

/// Two replicas: the provisioner calls one, and the other leads.
async fn led_by_another() -> Arc<Bench> {
    let bench = Bench::new(1, 1, &fixture::steady(STEP)).await;
    bench.guard.set_fate(|_, _, asked| {
        let leads = asked.client == "driver-1" && asked.resource == "leases.coordination.k8s.io";
        if leads { Action::Hang } else { Action::Pass }
    });
    bench.start();
    bench.serves().await;
    bench.start_second("second");
    sleep(Duration::from_secs(20)).await;
    bench
}

#[test]
fn user_is_told_of_a_consumer_that_another_replica_has_made() {
    virtual_time::run(1, async {
        let bench = led_by_another().await;
        finds_no_node_and_is_told(&bench).await;
        sleep(Duration::from_mins(1)).await;
        let reads = bench.guard.trace().iter().filter(|line| line.contains("second Get pods shop/")).count();
        assert!((1..=2).contains(&reads), "{reads}: {}", bench.guard.trace().join("\n"));
    });
}

#[test]
fn pod_of_somebody_elses_under_the_name_of_a_consumer_has_nothing_told() {
    virtual_time::run(1, async {
        let bench = led_by_another().await;
        close_nodes(&bench);
        let caller = Caller::new(&bench, Script { leaf_class: fixture::LATER, ..Script::new("data") });
        let hash = VolumeHash::new(&HostId(bench.host_id()), caller.volume());
        let name = format!("kosmos-csi-consumer-{}", hash.prefix());
        let pod = json!({"metadata": {"name": name, "namespace": SHOP}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
        bench.members[0].create("pods", pod).unwrap();
        let mut asking = caller.clone();
        tokio::spawn(async move { asking.provision().await });
        sleep(Duration::from_mins(1)).await;
        let says = |event: &Arc<Value>| text(event, "/reason") == "FailedScheduling";
        assert!(bench.members[0].list("events").iter().any(says));
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_some());
        let told = told(&bench, "data");
        assert!(told.iter().all(|message| !message.contains("FailedScheduling")), "{told:?}");
    });
}

#[test]
fn volume_that_is_made_in_time_is_not_spoken_of() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(Duration::from_secs(8))).await;
        for (claim, leaf_class) in [("data", fixture::NOW), ("later", fixture::LATER)] {
            let mut caller = Caller::new(&bench, Script { leaf_class, ..Script::new(claim) });
            caller.provision().await;
        }
        sleep(Duration::from_mins(1)).await;
        assert_eq!(all_told(&bench), 0);
    });
}

#[test]
fn a_hundred_claims_that_wait_make_no_storm() {
    const CLAIMS: usize = 100;
    virtual_time::run(1, async {
        let bench = bench(&broken()).await;
        for number in 0..CLAIMS {
            provision(&bench, Script::new(&format!("data-{number}")));
        }
        sleep(Duration::from_secs(10)).await;
        let silent: Vec<usize> =
            (0..CLAIMS).filter(|number| told(&bench, &format!("data-{number}")).is_empty()).collect();
        assert!(silent.is_empty(), "{silent:?} wait and are told nothing");
        sleep(Duration::from_mins(3)).await;
        assert_eq!(all_told(&bench), CLAIMS, "once each");
        let posts = bench.guard.trace().iter().filter(|line| line.contains("Create events")).count();
        assert!(posts <= 4 * CLAIMS, "{posts} events were written for {CLAIMS} claims in three minutes");
        let listening = bench.guard.trace().iter().filter(|line| line.contains("Watch events")).count();
        assert!(listening <= 20, "{listening} watches of events in three minutes");
    });
}

#[test]
fn claim_says_where_its_volume_is_when_a_pod_cannot_go_there() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [{"name": "a", "image": "a"}], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
        });
        let pod = bench.host.create("pods", pod).unwrap();
        let uid = text(&pod, "/metadata/uid");
        let says = |name: &str, message: &str| {
            let about = json!({"kind": "Pod", "namespace": "shop", "name": "web", "uid": uid});
            let event = json!({
                "metadata": {"name": name, "namespace": "shop"}, "involvedObject": about, "type": "Warning",
                "reason": "FailedScheduling", "message": message,
            });
            bench.host.create("events", event).unwrap();
        };
        says("one", "0/2 nodes are available: 2 Insufficient cpu.");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(told(&bench, "data"), Vec::<String>::new());
        says("two", "0/2 nodes are available: 1 node(s) had volume node affinity conflict.");
        until(&bench, SOON, || !told(&bench, "data").is_empty()).await;
        says("three", "0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 Insufficient cpu.");
        sleep(Duration::from_secs(5)).await;
        let told = told(&bench, "data");
        assert!(told.len() == 1 && told[0].contains("member m0") && told[0].contains("pod web"), "{told:?}");
    });
}

/// As the scheduler says it of a pod whose volume is elsewhere.
fn strand(bench: &Bench, event: &str, pod: &str, uid: &str) {
    let about = json!({"kind": "Pod", "namespace": SHOP, "name": pod, "uid": uid});
    let message = "0/2 nodes are available: 1 node(s) had volume node affinity conflict.";
    let event = json!({
        "metadata": {"name": event, "namespace": SHOP}, "involvedObject": about, "type": "Warning",
        "reason": "FailedScheduling", "message": message,
    });
    bench.host.create("events", event).unwrap();
}

/// With claims. Its UID.
fn pod_with(bench: &Bench, name: &str, claim: &str) -> String {
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]);
    let spec = json!({"containers": [{"name": "a", "image": "a"}], "volumes": volumes});
    let pod = json!({"metadata": {"name": name, "namespace": SHOP}, "spec": spec});
    text(&bench.host.create("pods", pod).unwrap(), "/metadata/uid").to_owned()
}

/// Whoever may write claims takes any time for who has written what, and an event is about whatever name its writer likes.
#[test]
fn pod_that_cannot_be_looked_at_keeps_no_other_one_from_being_told_of() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let written = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "9999-12-31T23:59:59Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
        let odd = json!({
            "metadata": {"name": "odd", "namespace": SHOP, "managedFields": written},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}},
        });
        bench.host.create("persistentvolumeclaims", odd).unwrap();
        strand(&bench, "a", "a", &pod_with(&bench, "a", "odd"));
        sleep(SOON).await;
        let is_watch = |line: &&String| line.contains("Watch events") && line.contains("in host");
        let listening = || bench.guard.trace().iter().filter(is_watch).count();
        let before = listening();
        strand(&bench, "b", "b", &pod_with(&bench, "b", "data"));
        until(&bench, SOON * 2, || told(&bench, "data").join("").contains("pod b finds no node")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(listening() - before <= 1, "{}", bench.guard.trace().join("\n"));
    });
}

/// As where a zone with many nodes is down, and so many pods may not go where their volumes are that no more is told of at once.
#[test]
fn claim_that_begins_to_wait_while_no_more_is_told_at_once_is_told_as_soon_as_there_is_room() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let class = json!({"metadata": {"name": "abandoned"}, "provisioner": "nobody.example.com", "volumeBindingMode": "Immediate"});
        bench.members[0].create("storageclasses.storage.k8s.io", class).unwrap();
        let mut number = 0;
        let mut strand_one = || {
            number += 1;
            let name = format!("pod-{number}");
            strand(&bench, &name, &name, &pod_with(&bench, &name, "data"));
        };
        for _ in 0..650 {
            strand_one();
        }
        sleep(STEP).await;
        provision(&bench, Script { leaf_class: "abandoned", ..Script::new("more") });
        for _ in 0..150 {
            strand_one();
            sleep(STEP / 5).await;
        }
        until(&bench, SOON, || !told(&bench, "more").is_empty()).await;
        assert!(told(&bench, "more").join("").contains("nothing of it yet"));
    });
}

/// The scheduler says it of each of them again and again.
#[test]
fn host_is_not_asked_for_a_pod_of_which_no_more_is_told_now() {
    const PODS: usize = 700;
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let is_read = |line: &&String| line.contains("Get persistentvolumeclaims shop/data in host");
        let reads = || bench.guard.trace().iter().filter(is_read).count();
        let before = reads();
        for number in 0..PODS {
            let name = format!("pod-{number}");
            strand(&bench, &name, &name, &pod_with(&bench, &name, "data"));
        }
        until(&bench, Duration::from_mins(1), || told(&bench, "data").len() >= PODS - 100).await;
        sleep(SOON).await;
        let (reads, told) = (reads() - before, told(&bench, "data").len());
        assert!(told < PODS - 50 && reads <= told + 5, "{reads} reads, and {told} told");
    });
}

/// A claim for which no member has anything is in no count of leaves.
#[test]
fn claim_that_waits_without_a_leaf_is_counted_until_it_has_its_volume() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let caller = provision(&bench, Script { leaf_class: "to-come", ..Script::new("data") });
        sleep(SOON * 10).await;
        assert!(bench.members[0].list("persistentvolumeclaims").is_empty());
        let (waits, metrics) = (r#"kosmos_csi_claims_waiting{code="Aborted"} 1"#, bench.metrics());
        assert!(metrics.contains(waits), "{metrics}");
        let oldest = metrics.lines().find_map(|line| line.strip_prefix("kosmos_csi_oldest_waiting_claim_seconds "));
        assert!(
            oldest.and_then(|oldest| oldest.parse().ok()).is_some_and(|oldest: u64| (15..=20).contains(&oldest)),
            "{metrics}"
        );
        let class = json!({"metadata": {"name": "to-come"}, "provisioner": "storage.simulated", "volumeBindingMode": "Immediate"});
        bench.members[0].create("storageclasses.storage.k8s.io", class).unwrap();
        // Its provisioner asks again after five minutes at the latest.
        until(&bench, Duration::from_mins(6), || bench.host.get("persistentvolumes", "", caller.volume()).is_some())
            .await;
        let metrics = bench.metrics();
        assert!(!metrics.contains("kosmos_csi_claims_waiting{"), "{metrics}");
        assert!(metrics.contains("kosmos_csi_oldest_waiting_claim_seconds 0"), "{metrics}");
    });
}
