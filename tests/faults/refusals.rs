//! Members without room: the leaf is gone before the refusal is told, the capacity says less from then on, and the volume
//! is made elsewhere. And the pods whose claims shall meet on one node of a member.

use std::{sync::Arc, time::Duration};

use csi::v1::{GetCapacityRequest, GetCapacityResponse, Topology, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Action, Verb},
    storage::Settings,
    text,
};
use tokio::time::{sleep, timeout};
use tonic::{Code, Request};

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, MEMBER_KEY, NODE_KEY, Script},
    fixture,
    reclaim::{phase, until},
    shared::{TWIN, has_alias, make_twin_called},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const GIB: i64 = 1 << 30;
/// What a member says that knows no limit.
const UNLIMITED: i64 = 1 << 62;
const CLAIMS: &str = "persistentvolumeclaims";

async fn bench(settings: &Settings) -> Arc<Bench> {
    Bench::serving(2, settings).await
}

/// Room for a class in a member, or in all.
async fn room(bench: &Bench, class: &str, member: Option<usize>) -> GetCapacityResponse {
    let place = member.map(|at| vec![(MEMBER_KEY, bench.members[at].name().to_owned())]).unwrap_or_default();
    room_at(bench, &[("leafStorageClass", class)], place).await
}

async fn room_at(bench: &Bench, parameters: &[(&str, &str)], place: Vec<(&str, String)>) -> GetCapacityResponse {
    let own = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let request = GetCapacityRequest {
        parameters: own.chain([("csi.storage.k8s.io/fstype".to_owned(), "ext4".to_owned())]).collect(),
        accessible_topology: Some(Topology {
            segments: place.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        }),
        ..GetCapacityRequest::default()
    };
    bench.call(|driver| async move { driver.get_capacity(Request::new(request)).await }).await.unwrap()
}

/// The largest volume that the host's scheduler believes in.
fn largest(room: &GetCapacityResponse) -> i64 {
    room.maximum_volume_size.unwrap_or(room.available_capacity)
}

fn leaf(member: &Cluster, claim: &str) -> Option<Arc<Value>> {
    member.get(CLAIMS, SHOP, claim)
}

async fn provisioned_in(bench: &Bench, caller: &mut Caller, member: &str) {
    assert_eq!(caller.provision().await, Ending::Provisioned);
    let trace = || bench.guard.trace().join("\n");
    assert!(caller.handle().unwrap().starts_with(member), "{:?}\n{}", caller.handle(), trace());
    assert!(bench.guard.wrong().is_empty(), "{:?}\n{}", bench.guard.wrong(), trace());
    let elsewhere = bench.members.iter().filter(|other| other.name() != member);
    elsewhere.for_each(|other| assert!(leaf(other, caller.claim()).is_none(), "{} has a leaf", other.name()));
}

#[test]
fn refusal_is_told_when_the_leaf_is_gone_and_the_capacity_says_less() {
    virtual_time::run(1, async {
        for (class, on_node) in [(fixture::NOW, false), (fixture::LATER, false), (fixture::LATER, true)] {
            let bench = bench(&fixture::tight(STEP)).await;
            fixture::fill(&bench, 0);
            sleep(STEP * 2).await;
            // The member's own word is half a minute old by now, and it had room then.
            let places = vec![0, 1];
            let script = Script { leaf_class: class, places, node_selected: true, on_node, ..Script::new("data") };
            let mut caller = Caller::new(&bench, script);
            let refusal = caller.create().await.unwrap_err();
            assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
            assert!(refusal.message().contains("m0"), "{refusal}");
            assert!(leaf(&bench.members[0], "data").is_none() && bench.members[0].list("pods").is_empty());
            let mut place = vec![(MEMBER_KEY, "m0".to_owned())];
            place.extend(on_node.then(|| (NODE_KEY, "m0-n1".to_owned())));
            let told = room_at(&bench, &[("leafStorageClass", class)], place).await;
            assert!(largest(&told) < GIB, "{told:?}");
            provisioned_in(&bench, &mut caller, "m1").await;
        }
    });
}

#[test]
fn claim_without_a_node_goes_on_to_the_next_member_in_the_same_call() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(STEP)).await;
        fixture::fill(&bench, 0);
        sleep(STEP * 2).await;
        for (name, told) in [("data", true), ("untold", false)] {
            let mut caller = Caller::new(&bench, Script { places: vec![0, 1], told, ..Script::new(name) });
            let volume = caller.create().await.unwrap();
            assert!(volume.volume_id.starts_with("m1/"), "{}", volume.volume_id);
            provisioned_in(&bench, &mut caller, "m1").await;
        }
    });
}

/// A refusal that nobody waited for is told to the next call.
#[test]
fn refusal_that_comes_after_the_answer_is_told_to_the_next_call() {
    virtual_time::run(1, async {
        let slow = Settings { capacity: fixture::tight(STEP).capacity, ..fixture::steady(Duration::from_secs(12)) };
        let bench = bench(&slow).await;
        fixture::fill(&bench, 0);
        sleep(Duration::from_secs(14)).await;
        let script = Script { places: vec![0, 1], node_selected: true, ..Script::new("data") };
        let mut caller = Caller::new(&bench, script);
        let late = caller.create().await.unwrap_err();
        assert_eq!(late.code(), Code::Aborted, "{late}");
        sleep(Duration::from_secs(30)).await;
        assert!(leaf(&bench.members[0], "data").is_none(), "{}", bench.guard.trace().join("\n"));
        let refusal = caller.create().await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
        provisioned_in(&bench, &mut caller, "m1").await;
    });
}

#[test]
fn refusal_is_forgotten_when_a_volume_there_goes() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(STEP)).await;
        let mut first = Caller::new(&bench, Script { places: vec![0], ..Script::new("first") });
        provisioned_in(&bench, &mut first, "m0").await;
        fixture::fill_beside(&bench, 0, GIB.cast_unsigned());
        sleep(Duration::from_secs(31)).await;
        let second = Caller::new(&bench, Script { places: vec![0], ..Script::new("second") });
        assert_eq!(second.create().await.unwrap_err().code(), Code::ResourceExhausted);
        fixture::empty(&bench, 0);
        sleep(STEP * 3).await;
        assert!(largest(&room(&bench, fixture::NOW, Some(0)).await) < GIB, "nothing was heard yet");
        first.delete_claim();
        first.reclaim().await;
        sleep(Duration::from_secs(31)).await;
        assert!(largest(&room(&bench, fixture::NOW, Some(0)).await) > GIB);
    });
}

#[test]
fn quota_of_one_namespace_closes_no_member_for_long() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let hard = json!({"requests.storage": "512Mi"});
        let quota = json!({"metadata": {"name": "tight", "namespace": SHOP}, "spec": {"hard": hard}});
        bench.members[0].create("resourcequotas", quota).unwrap();
        sleep(STEP).await;
        let script = Script { places: vec![0, 1], node_selected: true, ..Script::new("data") };
        let mut caller = Caller::new(&bench, script);
        let refusal = caller.create().await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
        assert_eq!(largest(&room(&bench, fixture::NOW, Some(0)).await), GIB - 1);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(room(&bench, fixture::NOW, Some(0)).await.available_capacity, UNLIMITED);
        // Where all leaves are in one namespace, its quota is everybody's.
        let fixed = [("leafStorageClass", fixture::NOW), ("leafNamespace", SHOP)];
        let told = room_at(&bench, &fixed, vec![(MEMBER_KEY, "m0".to_owned())]).await;
        assert_eq!(largest(&told), GIB / 2);
        provisioned_in(&bench, &mut caller, "m1").await;
    });
}

#[test]
fn capacity_is_the_members_own_word_and_costs_one_list_in_half_a_minute() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(STEP)).await;
        let all = fixture::tight(STEP).capacity.unwrap().cast_signed();
        let driver = bench.driver_name().unwrap();
        let before = bench.guard.sent_by(&driver);
        for _ in 0..50 {
            assert_eq!(room(&bench, fixture::LATER, Some(0)).await.available_capacity, all);
            assert_eq!(room(&bench, fixture::LATER, Some(1)).await.available_capacity, all);
            let both = room(&bench, fixture::LATER, None).await;
            assert_eq!((both.available_capacity, both.maximum_volume_size), (2 * all, Some(all)));
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(bench.guard.sent_by(&driver) - before, 2, "one list in each member");
        sleep(Duration::from_secs(30)).await;
        room(&bench, fixture::LATER, Some(0)).await;
        assert_eq!(bench.guard.sent_by(&driver) - before, 3);
    });
}

#[test]
fn member_that_takes_no_volumes_has_no_room() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let at = |name: &str| vec![(MEMBER_KEY, name.to_owned())];
        let now = ("leafStorageClass", fixture::NOW);
        assert_eq!(room_at(&bench, &[now], at("m0")).await.available_capacity, UNLIMITED);
        assert_eq!(room_at(&bench, &[now], at("stranger")).await.available_capacity, 0);
        assert_eq!(room_at(&bench, &[now, ("member", "m1")], at("m0")).await.available_capacity, 0);
        assert_eq!(room_at(&bench, &[("leafStorageClass", "platinum")], at("m0")).await.available_capacity, 0);
        assert_eq!(room_at(&bench, &[now], vec![("zone", "z".to_owned())]).await.available_capacity, 0);

        let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new("data") });
        provisioned_in(&bench, &mut caller, "m0").await;
        let cordon = |secret: &mut Value| secret["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!("true");
        bench.host.change("secrets", crate::bench::DRIVER_NAMESPACE, "m0", cordon).unwrap();
        sleep(STEP).await;
        assert_eq!(room_at(&bench, &[now], at("m0")).await.available_capacity, 0);
        assert_eq!(room(&bench, fixture::NOW, None).await.available_capacity, UNLIMITED, "the other one");
        caller.delete_claim();
        caller.reclaim().await;
        assert!(bench.leaf_objects(caller.volume()).is_empty(), "what is there can still be removed");

        bench.guard.set_fate(|_, at, _| if at == 2 { Action::Hang } else { Action::Pass });
        let other = Caller::new(&bench, Script { places: vec![1], ..Script::new("other") });
        drop(other.create().await);
        assert_eq!(room_at(&bench, &[now], at("m1")).await.available_capacity, 0, "it does not answer");
    });
}

#[test]
fn class_that_is_missing_is_final_only_where_the_scheduler_can_choose_again() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let missing = Script { leaf_class: "platinum", places: vec![0], ..Script::new("data") };
        let at_once = Caller::new(&bench, missing.clone()).create().await.unwrap_err();
        assert_eq!(at_once.code(), Code::Aborted, "{at_once}");
        let selected = Script { node_selected: true, claim: "selected".to_owned(), ..missing };
        let refusal = Caller::new(&bench, selected).create().await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
        assert!(refusal.message().contains("platinum") && refusal.message().contains(fixture::NOW), "{refusal}");
    });
}

#[test]
fn each_leaf_binding_costs_what_it_must() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(STEP)).await;
        let post = "create persistentvolumeclaims";
        let label = "patch persistentvolumes";
        let consumer = vec![post, "create pods", label, "delete pods"];
        let node = vec![post, label];
        for (number, (binding, on_node, expected)) in [
            (None, false, consumer.clone()),
            (None, true, node.clone()),
            (Some("consumer"), false, consumer.clone()),
            (Some("consumer"), true, consumer),
            (Some("selected-node"), true, node.clone()),
            (Some("deferred"), false, vec![post]),
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("data-{number}");
            let (places, leaf_class) = (vec![0], fixture::LATER);
            let script = Script { places, leaf_class, binding, on_node, node_selected: true, ..Script::new(&name) };
            let mut caller = Caller::new(&bench, script);
            let begun = bench.guard.trace().len();
            let volume = caller.create().await.unwrap();
            assert_eq!(in_member(&bench.guard.trace()[begun..]), expected, "{binding:?} {on_node}");
            let node = volume.accessible_topology[0].segments.get(NODE_KEY).map(String::as_str);
            assert_eq!(node, on_node.then_some("m0-n1"), "{binding:?}");
            provisioned_in(&bench, &mut caller, "m0").await;
            let pending = leaf(&bench.members[0], &name).is_some_and(|leaf| text(&leaf, "/status/phase") == "Pending");
            assert_eq!(pending, binding == Some("deferred"));
            assert_eq!(volume.volume_context.contains_key("leafVolume"), !pending);
            assert_eq!(volume.capacity_bytes, GIB);
            caller.delete_claim();
            caller.reclaim().await;
            assert!(bench.leaf_objects(caller.volume()).is_empty(), "{binding:?}");
        }
    });
}

/// Verb and resource of the requests to members in a part of a trace.
fn in_member(trace: &[String]) -> Vec<&'static str> {
    let known = [
        "create persistentvolumeclaims",
        "patch persistentvolumeclaims",
        "get persistentvolumeclaims",
        "patch persistentvolumes",
        "create pods",
        "get pods",
        "delete pods",
        "list csistoragecapacities",
        "list events",
    ];
    let lines = trace.iter().filter(|line| line.contains(" in m")).map(|line| line.to_lowercase());
    lines.filter_map(|line| known.into_iter().find(|known| line.contains(known))).collect()
}

/// No node is named: the member names one itself, where it tells its capacity.
#[test]
fn node_is_chosen_by_what_the_member_says_of_its_capacity() {
    virtual_time::run(1, async {
        let wish = |name: &str| Script {
            places: vec![0],
            leaf_class: fixture::LATER,
            binding: Some("selected-node"),
            node_selected: true,
            ..Script::new(name)
        };
        let tells = bench(&fixture::tight(STEP)).await;
        let mut caller = Caller::new(&tells, wish("data"));
        provisioned_in(&tells, &mut caller, "m0").await;
        let silent = bench(&fixture::steady(STEP)).await;
        let refusal = Caller::new(&silent, wish("data")).create().await.unwrap_err();
        assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal}");
        assert!(refusal.message().contains("leafBinding.m0"), "{refusal}");
    });
}

/// Somebody takes the last room after the node was selected; the member's provisioner takes the node back.
#[test]
fn node_that_is_taken_back_for_want_of_room_is_a_refusal() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(Duration::from_secs(1))).await;
        let script = Script {
            places: vec![0, 1],
            leaf_class: fixture::LATER,
            on_node: true,
            node_selected: true,
            ..Script::new("data")
        };
        let mut caller = Caller::new(&bench, script);
        fixture::fill(&bench, 0);
        let refusal = caller.create().await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
        provisioned_in(&bench, &mut caller, "m1").await;
    });
}

/// A host pod, as its scheduler has it: it has chosen a node and told the claims.
fn pod(bench: &Bench, claims: &[&str]) {
    pod_called(bench, "web", claims);
}

fn pod_called(bench: &Bench, name: &str, claims: &[&str]) {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let pod = json!({"metadata": {"name": name, "namespace": SHOP},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}});
    bench.host.create("pods", pod).unwrap();
}

/// Of a pod that runs in a member the host says what that says, also times of the last day of the year 9999, which hardly anybody but
/// Kubernetes takes.
#[test]
fn pod_of_which_is_said_what_nobody_reads_keeps_no_volume_of_its_namespace_from_being_made() {
    virtual_time::run(1, async {
        let (bench, mut callers) = two_nodes(&["data"]).await;
        let theirs = json!({"metadata": {"name": "theirs", "namespace": SHOP}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        bench.host.create("pods", theirs).unwrap();
        let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "9999-12-31T23:59:59Z"}]);
        let said = json!({"phase": "Running", "startTime": "9999-12-31T23:59:59Z", "conditions": conditions});
        bench.host.change("pods", SHOP, "theirs", |pod| pod["status"] = said.clone()).unwrap();
        let made = timeout(Duration::from_mins(2), callers[0].provision()).await;
        assert_eq!(made.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
    });
}

/// Kubernetes takes any text for the name of a pod's claim.
#[test]
fn pod_with_a_claim_of_an_impossible_name_keeps_none_of_its_others_from_being_made() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let script = Script { places: vec![0], leaf_class: fixture::LATER, ..Script::new("data") };
        let mut caller = Caller::new(&bench, script);
        let of_claim =
            |volume: &str, claim: &str| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
        let volumes = [of_claim("d", "data"), of_claim("e", "no/name")];
        let pod = json!({"metadata": {"name": "web", "namespace": SHOP},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}});
        bench.host.create("pods", pod).unwrap();
        let made = timeout(Duration::from_mins(2), caller.provision()).await;
        assert_eq!(made.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
    });
}

pub fn node_of_leaf(member: &Cluster, claim: &str) -> String {
    let leaf = leaf(member, claim).unwrap();
    let volume = member.get("persistentvolumes", "", text(&leaf, "/spec/volumeName")).unwrap();
    let node = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0";
    text(&volume, node).to_owned()
}

/// Members with two nodes, where the scheduler takes the one with fewer pods.
async fn two_nodes(claims: &[&str]) -> (Arc<Bench>, Vec<Caller>) {
    let bench = bench(&Settings { nodes: 2, ..fixture::steady(STEP) }).await;
    let script =
        |name: &&str| Script { places: vec![0], leaf_class: fixture::LATER, node_selected: true, ..Script::new(name) };
    let callers = claims.iter().map(|name| Caller::new(&bench, script(name))).collect();
    pod(&bench, claims);
    (bench, callers)
}

#[test]
fn claims_of_one_pod_land_on_one_node_of_the_member() {
    virtual_time::run(1, async {
        for late in [Duration::ZERO, STEP, Duration::from_secs(3)] {
            let (bench, mut callers) = two_nodes(&["data", "log", "cache"]).await;
            let begun = tokio::time::Instant::now();
            let lives = callers.iter_mut().enumerate().map(async |(at, caller)| {
                sleep(late * u32::try_from(at).unwrap()).await;
                caller.provision().await
            });
            let endings = futures::future::join_all(lives).await;
            assert!(endings.iter().all(|ending| *ending == Ending::Provisioned));
            let nodes = ["data", "log", "cache"].map(|claim| node_of_leaf(&bench.members[0], claim));
            assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?} {}", bench.guard.trace().join("\n"));
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
            assert!(bench.members[0].list("pods").is_empty());
        }
    });
}

#[test]
fn claim_that_is_bound_already_pulls_the_other_ones_to_its_node() {
    virtual_time::run(1, async {
        let (bench, mut callers) = two_nodes(&["data", "log", "cache"]).await;
        // The next one comes when nobody waits for it any more.
        for caller in &mut callers {
            assert_eq!(caller.provision().await, Ending::Provisioned);
            sleep(Duration::from_secs(30)).await;
        }
        let nodes = ["data", "log", "cache"].map(|claim| node_of_leaf(&bench.members[0], claim));
        assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    });
}

/// By a volume that somebody has made by hand, with another name of the member in its handle.
#[test]
fn claim_that_has_its_leaf_by_another_name_of_the_member_pulls_the_other_ones_to_its_node() {
    virtual_time::run(1, async {
        let (bench, mut callers) = two_nodes(&["data"]).await;
        assert_eq!(callers[0].provision().await, Ending::Provisioned);
        has_alias(&bench).await;
        make_twin_called(&bench, &callers[0], &callers[0].handle().unwrap().replacen("m0/", "alias/", 1));
        let is_bound = || phase(bench.host.get(CLAIMS, SHOP, TWIN)) == "Bound";
        until(&bench, Duration::from_mins(1), "the other volume has its claim", is_bound).await;
        let node = node_of_leaf(&bench.members[0], "data");
        let busy = json!({"metadata": {"name": "busy", "namespace": SHOP},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        bench.members[0].create("pods", busy).unwrap();
        pod_called(&bench, "second", &[TWIN, "log"]);
        let script = Script { places: vec![0], leaf_class: fixture::LATER, node_selected: true, ..Script::new("log") };
        assert_eq!(Caller::new(&bench, script).provision().await, Ending::Provisioned);
        assert_eq!(node_of_leaf(&bench.members[0], "log"), node, "{}", bench.guard.trace().join("\n"));
    });
}

#[test]
fn claim_of_another_driver_is_not_waited_for() {
    virtual_time::run(1, async {
        let (bench, mut callers) = two_nodes(&["data", "log"]).await;
        bench
            .host
            .change(CLAIMS, SHOP, "log", |claim| {
                claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] =
                    json!("other.example.org");
            })
            .unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(callers[0].provision().await, Ending::Provisioned);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

/// One claim of a pod found no room: the other one must not keep the pod in the member.
#[test]
fn claim_whose_sibling_found_no_room_goes_with_it() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(Duration::from_secs(1))).await;
        let script = |name: &str| Script {
            places: vec![0, 1],
            leaf_class: fixture::LATER,
            node_selected: true,
            ..Script::new(name)
        };
        let mut callers = ["data", "log"].map(|name| Caller::new(&bench, script(name)));
        pod(&bench, &["data", "log"]);
        fixture::fill(&bench, 0);
        sleep(Duration::from_secs(2)).await;
        let endings = futures::future::join_all(callers.iter_mut().map(Caller::provision)).await;
        assert_eq!(endings, [Ending::Provisioned, Ending::Provisioned]);
        for caller in &callers {
            assert!(caller.handle().unwrap().starts_with("m1/"), "{}", bench.guard.trace().join("\n"));
        }
    });
}

/// What was said of the member's capacity changes nothing about how it is asked.
#[test]
fn member_that_does_not_let_its_capacity_be_read_has_no_limit() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::tight(STEP)).await;
        bench.guard.set_fate(|_, _, asked| {
            let refused = asked.verb == Verb::List && asked.resource.starts_with("csistoragecapacities");
            if refused { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        assert_eq!(room(&bench, fixture::NOW, Some(0)).await.available_capacity, UNLIMITED);
        bench.guard.set_fate(|_, _, asked| {
            let fails = asked.verb == Verb::List && asked.resource.starts_with("csistoragecapacities");
            if fails { Action::Answer { code: 503, reason: "ServiceUnavailable" } } else { Action::Pass }
        });
        sleep(Duration::from_secs(31)).await;
        let request = GetCapacityRequest {
            accessible_topology: Some(Topology { segments: [(MEMBER_KEY.to_owned(), "m0".to_owned())].into() }),
            parameters: [("leafStorageClass".to_owned(), fixture::NOW.to_owned())].into(),
            ..GetCapacityRequest::default()
        };
        let answer = bench.call(|driver| async move { driver.get_capacity(Request::new(request)).await }).await;
        assert_eq!(answer.unwrap_err().code(), Code::Unavailable, "what was told before stays");
    });
}

/// What the host was told before a restart stays until the members have been listed.
#[test]
fn restart_does_not_make_the_members_look_full() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        // The members answer slowly at first.
        bench.guard.set_fate(|_, at, _| if at > 0 { Action::Delay(Duration::from_secs(1)) } else { Action::Pass });
        bench.start();
        bench.serves().await;
        let mut early = 0;
        let told = loop {
            let request = GetCapacityRequest {
                accessible_topology: Some(Topology { segments: [(MEMBER_KEY.to_owned(), "m0".to_owned())].into() }),
                parameters: [("leafStorageClass".to_owned(), fixture::NOW.to_owned())].into(),
                ..GetCapacityRequest::default()
            };
            match bench.call(|driver| async move { driver.get_capacity(Request::new(request)).await }).await {
                Ok(told) => break told,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            early += 1;
            sleep(STEP).await;
        };
        assert!(early > 0, "it was asked before they were listed");
        assert_eq!(told.available_capacity, UNLIMITED);
    });
}
