//! What a member answers instead, again and again, or does not in time: its pod says so, and it is asked less and less often.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::faults::{Action, Asked, Verb};
use tokio::time::{Instant, sleep};

use super::{CSI_NODES, NODE, SHOP, World, condition, lock, standing, story, until, with_pod};

/// What is asked in vain, until that is over.
struct Failing {
    asked: u32,
    is_over: bool,
}

fn fail(
    world: &World,
    action: Action,
    is_meant: impl Fn(&Asked) -> bool + Send + Sync + 'static,
) -> Arc<Mutex<Failing>> {
    let life = Arc::clone(&world.life);
    let failing = Arc::new(Mutex::new(Failing { asked: 0, is_over: false }));
    let counted = Arc::clone(&failing);
    world.member.faults().set(move |asked| {
        let mut counted = lock(&counted);
        if lock(&life).dead {
            return Action::Hang;
        }
        if counted.is_over || !is_meant(asked) {
            return Action::Pass;
        }
        counted.asked += 1;
        action.clone()
    });
    failing
}

fn makes_pod(asked: &Asked) -> bool {
    asked.verb == Verb::Create && asked.resource == "pods"
}

fn events(world: &World, reason: &str) -> usize {
    world.host.list("events").iter().filter(|event| event["reason"] == reason).count()
}

#[test]
fn answer_that_a_member_gives_again_and_again_is_told_of_the_pod_once_and_asked_for_less_and_less() {
    for (code, reason) in [(404, "NotFound"), (409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError")] {
        story(1, async {
            let world = standing(1).await;
            let failing = fail(&world, Action::Answer { code, reason }, makes_pod);
            world.run_pod("web", None);
            let words = format!("HTTP {code}: ");
            until("it is told", || world.says("web", "NotCopied", &words)).await;
            until("an event says so", || events(&world, "NotCopied") == 1).await;
            let before = lock(&failing).asked;
            sleep(Duration::from_mins(5)).await;
            let asked = lock(&failing).asked - before;
            assert!((15..=25).contains(&asked), "{code}: {asked} times in five minutes");
            assert!(events(&world, "NotCopied") == 1 && world.is_ready(), "{code}");
            lock(&failing).is_over = true;
            until("it runs", || world.phase("web") == "Running").await;
            assert!(world.says("web", "Copied", "member m"));
        });
    }
}

/// As where what is before its API server puts the number of the request into its answer.
#[test]
fn member_that_answers_in_other_words_each_time_has_few_events_written_of_a_pod() {
    story(1, async {
        let (world, count) = (standing(1).await, Mutex::new(0));
        world.member.faults().set(move |asked| {
            if !makes_pod(asked) {
                return Action::Pass;
            }
            // Each third one is told.
            let mut count = lock(&count);
            *count += 1;
            Action::Answer { code: 430 + *count / 3 % 60, reason: "Odd" }
        });
        world.run_pod("web", None);
        sleep(Duration::from_mins(50)).await;
        let written = events(&world, "NotCopied");
        assert!((25..=40).contains(&written), "{written} in fifty minutes");
        let says = |code: u16| world.says("web", "NotCopied", &format!("HTTP {code}: "));
        assert!((430..490).any(says), "its condition is told");
    });
}

/// As where a webhook there takes all of its ten seconds.
#[test]
fn pod_that_its_member_does_not_take_in_time_says_so_and_others_run() {
    story(1, async {
        let world = standing(1).await;
        let failing = fail(&world, Action::Hang, |asked| makes_pod(asked) && asked.name == "web");
        world.run_pod("web", None);
        until("it is told", || world.says("web", "NotCopied", "no answer within 4 s")).await;
        world.run_pod("other", None);
        until("another one runs", || world.phase("other") == "Running").await;
        assert!(world.is_ready());
        lock(&failing).is_over = true;
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// As where a webhook of that namespace takes long.
#[test]
fn pods_of_one_namespace_that_take_long_keep_no_other_one_waiting() {
    story(1, async {
        let world = standing(1).await;
        let _slow =
            fail(&world, Action::Delay(Duration::from_secs(3)), |asked| makes_pod(asked) && asked.namespace == "many");
        world.host.create("namespaces", json!({"metadata": {"name": "many"}})).unwrap();
        sleep(Duration::from_secs(1)).await;
        for number in 0..150 {
            let (metadata, container) =
                (json!({"namespace": "many", "name": format!("p{number}")}), json!({"name": "c", "image": "i:1"}));
            let spec = json!({"nodeName": NODE, "containers": [container], "automountServiceAccountToken": false});
            world.host.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        }
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        world.run_pod("web", None);
        until("it runs", || world.phase("web") == "Running").await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

/// As a tenant of the host may make them: while there is work on one, it takes a hundred times what others take.
#[test]
fn long_pods_are_copied_one_after_the_other_and_keep_no_other_one_waiting() {
    const TAKES: Duration = Duration::from_secs(2);
    story(1, async {
        let (world, times) = (with_pod().await, Arc::new(Mutex::new(Vec::new())));
        let asked_at = Arc::clone(&times);
        world.member.faults().set(move |asked| {
            if !makes_pod(asked) || !asked.name.starts_with("long-") {
                return Action::Pass;
            }
            lock(&asked_at).push(Instant::now());
            Action::Delay(TAKES)
        });
        let names: Vec<String> = (0..4).map(|number| format!("long-{number}")).collect();
        for name in &names {
            let container = json!({"name": "c", "image": "i:1", "args": vec!["a"; 100_000]});
            let spec = json!({"nodeName": NODE, "containers": [container]});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec})).unwrap();
        }
        until("one is asked for", || !lock(&times).is_empty()).await;
        let began = Instant::now();
        world.run_pod("other", None);
        until("another one runs", || world.phase("other") == "Running").await;
        assert!(began.elapsed() < TAKES * 2, "{:?}", began.elapsed());
        until("all run", || names.iter().all(|name| world.phase(name) == "Running")).await;
        let times = lock(&times).clone();
        let are_apart = times.windows(2).all(|pair| pair[1].duration_since(pair[0]) >= TAKES);
        assert!(times.len() == 4 && are_apart, "{times:?}");
    });
}

/// As a tenant of the host may make them, also where none of them ever runs.
#[test]
fn long_pod_for_which_its_namespace_has_no_room_says_so_runs_once_it_has_and_no_short_one_waits_for_that() {
    story(1, async {
        let world = with_pod().await;
        let make = |name: &str, is_above_baseline: bool| {
            let container = json!({"name": "c", "image": "i:1", "args": ["a".repeat(1_500_000)]});
            let spec = json!({"nodeName": NODE, "containers": [container], "hostNetwork": is_above_baseline});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec})).unwrap();
        };
        // None of these is copied, which would take long.
        for number in 0..11 {
            make(&format!("long-{number}"), true);
        }
        until("all are known", || world.says("long-10", "AboveBaseline", "spec.hostNetwork")).await;
        make("longer", false);
        until("it is told", || world.says("longer", "TooLong", "of the 16 MiB")).await;
        world.run_pod("other", None);
        until("another one runs", || world.phase("other") == "Running").await;
        assert!(world.copy("longer").is_none());
        world.host.delete("pods", SHOP, "long-0").unwrap();
        until("it runs", || world.phase("longer") == "Running").await;
    });
}

#[test]
fn namespace_that_may_not_be_made_in_a_member_is_told_of_the_pod() {
    story(1, async {
        let world = standing(1).await;
        let is_meant = |asked: &Asked| asked.verb == Verb::Create && asked.resource == "namespaces";
        let failing = fail(&world, Action::Answer { code: 403, reason: "Forbidden" }, is_meant);
        world.run_pod("web", None);
        until("it is told", || world.says("web", "NotCopied", "HTTP 403: ")).await;
        lock(&failing).is_over = true;
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// As where a webhook there fails.
#[test]
fn copy_that_its_member_does_not_delete_is_told_of_the_pod_which_stays_until_it_does() {
    story(1, async {
        let world = with_pod().await;
        let is_meant = |asked: &Asked| asked.verb == Verb::Delete && asked.resource == "pods";
        let failing = fail(&world, Action::Answer { code: 500, reason: "InternalError" }, is_meant);
        world.host.delete("pods", SHOP, "web").unwrap();
        until("an event says so", || events(&world, "NotRemoved") == 1).await;
        sleep(Duration::from_mins(5)).await;
        let asked = lock(&failing).asked;
        assert!((15..=30).contains(&asked), "{asked} times in five minutes");
        assert!(world.copy("web").is_some());
        assert_eq!(condition(&world.pod("web").unwrap(), "kosmos.csi.io/Copied"), "True", "that it had a copy is lost");
        lock(&failing).is_over = true;
        until("both are gone", || world.pod("web").is_none() && world.copy("web").is_none()).await;
    });
}

/// Its node says so.
#[test]
fn pod_says_nothing_of_a_member_that_does_not_answer_at_all() {
    for action in [Action::Refuse, Action::Hang] {
        story(1, async {
            let world = standing(1).await;
            let failing = fail(&world, action.clone(), |_| true);
            world.run_pod("web", None);
            until("the node is not ready", || !world.is_ready()).await;
            sleep(Duration::from_mins(10)).await;
            assert_eq!(events(&world, "NotCopied"), 0, "{action:?}");
            assert!(!world.says("web", "NotCopied", ""), "{action:?}");
            lock(&failing).is_over = true;
            until("it runs", || world.phase("web") == "Running").await;
        });
    }
}

/// As by a cloud's controller, for which a node that is not ready and no machine of its own is one that is gone. The host deletes pods of a
/// node that is not there by force, and others would run beside their copies.
#[test]
fn node_that_is_deleted_while_its_member_is_away_is_back_within_seconds_and_not_ready_as_long_as_it_has_pods() {
    story(1, async {
        let world = with_pod().await;
        let copy = world.copy("web").unwrap();
        let failing = fail(&world, Action::Refuse, |_| true);
        until("the node is not ready", || !world.is_ready()).await;
        for _ in 0..3 {
            sleep(Duration::from_secs(5)).await;
            world.host.delete("nodes", "", NODE).unwrap();
            sleep(Duration::from_secs(2)).await;
            assert_eq!(condition(&world.node().unwrap(), "Ready"), "False");
        }
        lock(&failing).is_over = true;
        until("it is ready again", || world.is_ready() && world.host.get(CSI_NODES, "", NODE).is_some()).await;
        assert_eq!(world.copy("web").unwrap()["metadata"]["uid"], copy["metadata"]["uid"]);
        world.host.delete("pods", SHOP, "web").unwrap();
        until("both are gone", || world.pod("web").is_none() && world.copy("web").is_none()).await;
    });
}

/// No watch tells of it then.
#[test]
fn node_that_loses_its_label_while_its_member_is_away_is_asked_for_now_and_then_and_has_it_back_with_its_member() {
    story(1, async {
        let world = with_pod().await;
        let failing = fail(&world, Action::Refuse, |_| true);
        until("the node is not ready", || !world.is_ready()).await;
        sleep(Duration::from_secs(5)).await;
        let unmark = |node: &mut Value| node["metadata"]["labels"]["kosmos.io/node"] = json!("no");
        world.host.change("nodes", "", NODE, unmark).unwrap();
        world.host.faults().record(true);
        sleep(Duration::from_mins(1)).await;
        let log = world.host.faults().log();
        let asked: Vec<_> = log.iter().filter(|asked| asked.resource == "nodes" && asked.verb != Verb::Watch).collect();
        assert!(asked.iter().all(|asked| !asked.verb.writes()) && asked.len() <= 15, "{asked:?}");
        lock(&failing).is_over = true;
        until("it is ready again", || world.is_ready()).await;
        assert_eq!(world.node().unwrap()["metadata"]["labels"]["kosmos.io/node"], "true");
    });
}

/// Pods of DaemonSets that tolerate everything are bound to it as well, and have no copies.
#[test]
fn node_without_other_pods_that_is_deleted_while_its_member_is_away_is_back_with_its_member() {
    story(1, async {
        let world = standing(1).await;
        let (containers, labels) = (json!([{"name": "c", "image": "i:1"}]), json!({"app": "logs"}));
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let set = json!({"metadata": {"namespace": SHOP, "name": "logs"},
            "spec": {"selector": {"matchLabels": labels}, "template": template}});
        let set = world.host.create("daemonsets.apps", set).unwrap();
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": set["metadata"]["uid"],
            "controller": true});
        let metadata = json!({"namespace": SHOP, "name": "logs-x", "labels": labels, "ownerReferences": [owner]});
        let spec = json!({"nodeName": NODE, "containers": containers});
        world.host.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        let failing = fail(&world, Action::Refuse, |_| true);
        until("the node is not ready", || !world.is_ready()).await;
        sleep(Duration::from_secs(5)).await;
        world.host.delete("nodes", "", NODE).unwrap();
        sleep(Duration::from_mins(1)).await;
        assert!(world.node().is_none());
        lock(&failing).is_over = true;
        until("it is ready again", || world.is_ready()).await;
    });
}

/// As where the member's Kubernetes, or a webhook there, has it say what this host's takes for wrong.
#[test]
fn what_a_copy_says_and_the_host_does_not_take_is_told_by_an_event_and_tried_again() {
    story(1, async {
        let (world, is_wrong) = (standing(1).await, Arc::new(Mutex::new(true)));
        let wrong = Arc::clone(&is_wrong);
        world.host.faults().set(move |asked| {
            let is_told = asked.verb == Verb::Patch && asked.resource == "pods" && asked.subresource == "status";
            if is_told && *lock(&wrong) { Action::Answer { code: 422, reason: "Invalid" } } else { Action::Pass }
        });
        world.run_pod("web", None);
        until("an event says so", || events(&world, "NotTold") == 1).await;
        sleep(Duration::from_mins(3)).await;
        assert!(events(&world, "NotTold") == 1 && world.copy("web").is_some());
        *lock(&is_wrong) = false;
        until("it runs", || world.phase("web") == "Running").await;
    });
}
