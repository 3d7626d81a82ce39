//! What the member says in events of a copy that is not well is told of the host's pod, as a kubelet would, and nothing else.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    Cluster,
    events::{About, tell},
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use super::{NODE, SHOP, World, lock, standing, story, until, with_pod};

const KUBELET: &str = "kubelet";
const BACK_OFF: &str = "Back-off pulling image";

/// What a kubelet in the member says of a pod there.
fn say(world: &World, pod: &Value, reason: &str, message: &str) {
    tell(&world.member, &About::pod(pod), KUBELET, "Warning", reason, message);
}

/// What the host is told of it.
fn told(world: &World) -> Vec<Arc<Value>> {
    let events = world.host.list("events").into_iter();
    events.filter(|event| text(event, "/source/component") == "kubelet, m").collect()
}

/// What is asked of a cluster besides goes on as before.
fn asked_for_events(world: &World, cluster: &Cluster, answer: impl Fn(&Asked) -> Action + Send + Sync + 'static) {
    let life = Arc::clone(&world.life);
    cluster.faults().set(move |asked| {
        if lock(&life).dead {
            return Action::Hang;
        }
        if asked.resource == "events" { answer(asked) } else { Action::Pass }
    });
}

/// And the copy of its pod.
async fn with_copy() -> (World, Arc<Value>) {
    let world = with_pod().await;
    let copy = world.copy("web").unwrap();
    (world, copy)
}

/// A probe of the pod fails from now on.
fn is_not_ready(world: &World, pod: &str) {
    let conditions = json!([{"type": "Ready", "status": "False"}]);
    world.member.change("pods", SHOP, pod, |pod| pod["status"]["conditions"] = conditions).unwrap();
}

/// The member stays open, and takes another pod.
async fn goes_on(world: &World) {
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_mins(2) {
        assert!(world.is_ready(), "the member is closed");
        sleep(Duration::from_secs(1)).await;
    }
    world.run_pod("other", None);
    until("it runs", || world.phase("other") == "Running").await;
}

#[test]
fn event_of_a_copy_that_is_not_ready_is_told_of_the_pod_and_counts_on() {
    story(1, async {
        let (world, copy) = with_copy().await;
        is_not_ready(&world, "web");
        say(&world, &copy, "BackOff", BACK_OFF);
        let begun = tokio::time::Instant::now();
        until("it is told", || told(&world).len() == 1).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let event = told(&world).remove(0);
        let pod = world.pod("web").unwrap();
        for (pointer, said) in [
            ("/metadata/namespace", SHOP),
            ("/involvedObject/kind", "Pod"),
            ("/involvedObject/name", "web"),
            ("/involvedObject/uid", text(&pod, "/metadata/uid")),
            ("/type", "Warning"),
            ("/reason", "BackOff"),
            ("/message", BACK_OFF),
        ] {
            assert_eq!(text(&event, pointer), said, "{event:#}");
        }
        say(&world, &copy, "BackOff", BACK_OFF);
        until("it counts", || told(&world)[0]["count"] == 2).await;
        assert_eq!(told(&world).len(), 1);
        // The host keeps it for an hour.
        world.host.delete("events", SHOP, text(&event, "/metadata/name")).unwrap();
        sleep(Duration::from_secs(5)).await;
        say(&world, &copy, "BackOff", BACK_OFF);
        until("it is told again", || told(&world).iter().any(|event| event["count"] == 3)).await;
    });
}

#[test]
fn of_a_pod_that_is_well_the_member_is_asked_nothing() {
    story(1, async {
        let world = standing(1).await;
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&asked);
        asked_for_events(&world, &world.member, move |asked| {
            lock(&kept).push(asked.to_string());
            Action::Pass
        });
        for pod in ["a", "b", "c"] {
            world.run_pod(pod, None);
        }
        until("they run", || ["a", "b", "c"].iter().all(|pod| world.phase(pod) == "Running")).await;
        sleep(Duration::from_mins(10)).await;
        assert_eq!(*lock(&asked), Vec::<String>::new());
        is_not_ready(&world, "a");
        sleep(Duration::from_mins(10)).await;
        let count = lock(&asked).len();
        assert!((10..=14).contains(&count), "{count} in ten minutes: {:?}", lock(&asked));
    });
}

/// As where a probe fails that has a container started again, or its node is slow for a moment.
#[test]
fn event_of_a_copy_that_is_ready_again_is_told_once_it_was_not_or_a_container_was_started_again() {
    story(1, async {
        let (world, copy) = with_copy().await;
        sleep(Duration::from_secs(5)).await;
        say(&world, &copy, "Unhealthy", "the probe fails");
        sleep(Duration::from_mins(5)).await;
        assert!(told(&world).is_empty(), "it is ready, and nobody is asked");
        is_not_ready(&world, "web");
        sleep(Duration::from_secs(2)).await;
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        world.member.change("pods", SHOP, "web", |pod| pod["status"]["conditions"] = conditions).unwrap();
        until("it is told", || told(&world).len() == 1).await;
        say(&world, &copy, "Killing", "the container is started again");
        sleep(Duration::from_mins(5)).await;
        assert_eq!(told(&world).len(), 1);
        let again = |pod: &mut Value| pod["status"]["containerStatuses"][0]["restartCount"] = json!(1);
        world.member.change("pods", SHOP, "web", again).unwrap();
        until("why it was started again is told", || told(&world).len() == 2).await;
    });
}

/// As of a hook that fails, or of a container that cannot be killed.
#[test]
fn event_of_a_copy_that_is_being_ended_is_told_of_its_pod_while_that_is_there() {
    story(1, async {
        let world = World::whose_pods_stop_after(1, Duration::from_secs(40)).await;
        world.start("first");
        until("the node is ready", || world.is_ready()).await;
        let spec = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 60, "containers": [{"name": "c", "image": "i:1"}]});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        sleep(Duration::from_secs(5)).await;
        let (copy, lists) = (world.copy("web").unwrap(), Arc::<Mutex<u32>>::default());
        let count = Arc::clone(&lists);
        asked_for_events(&world, &world.member, move |_| {
            *lock(&count) += 1;
            Action::Pass
        });
        world.host.delete("pods", SHOP, "web").unwrap();
        say(&world, &copy, "FailedPreStopHook", "the hook fails");
        until("it is told", || told(&world).len() == 1).await;
        assert!(world.pod("web").is_some());
        until("it is gone", || world.pod("web").is_none()).await;
        assert!((1..=3).contains(&*lock(&lists)), "{} lists", lock(&lists));
    });
}

#[test]
fn agent_that_begins_again_tells_nothing_twice_and_counts_on() {
    story(1, async {
        let (world, copy) = with_copy().await;
        is_not_ready(&world, "web");
        say(&world, &copy, "BackOff", BACK_OFF);
        until("it is told", || told(&world).len() == 1).await;
        world.kill();
        say(&world, &copy, "Unhealthy", "the probe fails");
        sleep(Duration::from_secs(5)).await;
        say(&world, &copy, "BackOff", BACK_OFF);
        world.start("second");
        until("what was said meanwhile is told", || told(&world).len() == 2).await;
        until("and counts", || told(&world).iter().any(|event| event["count"] == 2)).await;
        sleep(Duration::from_mins(5)).await;
        assert_eq!(told(&world).len(), 2);
    });
}

#[test]
fn event_that_the_host_did_not_take_is_told_later() {
    story(1, async {
        let (world, copy) = with_copy().await;
        let failures = Arc::new(Mutex::new(2));
        let left = Arc::clone(&failures);
        asked_for_events(&world, &world.host, move |asked| {
            if asked.verb != Verb::Create || *lock(&left) == 0 {
                return Action::Pass;
            }
            *lock(&left) -= 1;
            Action::Answer { code: 500, reason: "InternalError" }
        });
        is_not_ready(&world, "web");
        say(&world, &copy, "BackOff", BACK_OFF);
        until("it is told", || told(&world).len() == 1).await;
        assert_eq!(*lock(&failures), 0);
    });
}

/// Nobody but who sees the member is to know what goes on there.
#[test]
fn nothing_is_told_of_what_is_no_copy_of_a_pod_on_the_members_node() {
    story(1, async {
        let (world, copy) = with_copy().await;
        let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
        let in_host = |name: &str, node: &str| {
            let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i:1"}]});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec})).unwrap()
        };
        let in_member = |name: &str, host: &str, uid: &str| {
            let labels = match host {
                "" => json!({}),
                host => json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host}),
            };
            let metadata = json!({"namespace": SHOP, "name": name, "labels": labels, "annotations": {"kosmos.csi.io/pod-uid": uid}});
            world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        // Before the pod of that name in the host, which then waits beside it.
        let plain = in_member("plain", "", "");
        let of_another_host = in_member("of-another-host", "another", "");
        for name in ["plain", "of-another-host"] {
            world.run_pod(name, None);
        }
        // On a node for another member, with a forged copy here.
        let labels = json!({"kosmos.io/node": "true"});
        world.host.create("nodes", json!({"metadata": {"name": "kosmos-other", "labels": labels}})).unwrap();
        let elsewhere = in_host("elsewhere", "kosmos-other");
        let forged = in_member("elsewhere", &world.host_id(), text(&elsewhere, "/metadata/uid"));
        let mut former = Value::clone(&copy);
        former["metadata"]["uid"] = json!("a-former-copy");
        for name in ["plain", "of-another-host", "elsewhere"] {
            let runs = || world.copy(name).is_some_and(|pod| text(&pod, "/status/phase") == "Running");
            until("it runs there", runs).await;
            is_not_ready(&world, name);
        }
        is_not_ready(&world, "web");
        for there in [&*plain, &*of_another_host, &*forged, &former] {
            say(&world, there, "Secret", "of the member alone");
        }
        // By it the driver tells users that their volume is where no pod can go.
        say(&world, &copy, "FailedScheduling", "1 node(s) had volume node affinity conflict");
        say(&world, &copy, "BackOff", BACK_OFF);
        until("what is ours is told", || told(&world).len() == 1).await;
        sleep(Duration::from_mins(5)).await;
        let said = world.host.list("events");
        let is_secret = |event: &Value| ["Secret", "FailedScheduling"].contains(&text(event, "/reason"));
        assert!(!said.iter().any(|event| is_secret(event)), "{said:#?}");
    });
}

#[test]
fn member_that_says_very_much_of_a_pod_fills_no_host_also_if_it_was_away() {
    story(1, async {
        let (world, copy) = with_copy().await;
        is_not_ready(&world, "web");
        let mut most = 0;
        for round in 0..3 {
            for number in 0..40 {
                say(&world, &copy, "BackOff", &format!("{BACK_OFF} {round} {number}"));
            }
            sleep(Duration::from_mins(1)).await;
            let life = Arc::clone(&world.life);
            world.member.faults().set(|_| Action::Refuse);
            until("the member is away", || !world.is_ready()).await;
            world.member.faults().set(move |_| if lock(&life).dead { Action::Hang } else { Action::Pass });
            until("the member is back", || world.is_ready()).await;
            most = told(&world).len();
        }
        assert!((20..=27).contains(&most), "{most}");
    });
}

/// Whoever may write events in one namespace closes no member by that.
#[test]
fn events_of_great_length_are_not_read_and_all_else_goes_on() {
    story(1, async {
        let (world, copy) = with_copy().await;
        is_not_ready(&world, "web");
        for number in 0..50 {
            say(&world, &copy, "BackOff", &format!("{number} {}", "<".repeat(2 << 20)));
        }
        goes_on(&world).await;
        assert_eq!(told(&world).len(), 0);
    });
}

/// Nor by how many there are to look through.
#[test]
fn events_that_the_member_is_slow_to_list_close_no_member() {
    story(1, async {
        let (world, _) = with_copy().await;
        asked_for_events(&world, &world.member, |_| Action::Delay(Duration::from_mins(1)));
        is_not_ready(&world, "web");
        goes_on(&world).await;
    });
}

/// The host refuses them, by a quota of one namespace: that says nothing about the member.
#[test]
fn events_that_one_namespace_of_the_host_refuses_silence_no_other_one() {
    story(1, async {
        let (world, copy) = with_copy().await;
        asked_for_events(&world, &world.host, |asked| {
            if asked.namespace == SHOP { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        world.host.create("namespaces", json!({"metadata": {"name": "yard"}})).unwrap();
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}]});
        let pod = json!({"metadata": {"namespace": "yard", "name": "other"}, "spec": spec});
        world.host.create("pods", pod).unwrap();
        let other = || world.member.get("pods", "yard", "other");
        until("it runs there", || other().is_some_and(|pod| text(&pod, "/status/phase") == "Running")).await;
        let conditions = json!([{"type": "Ready", "status": "False"}]);
        world.member.change("pods", "yard", "other", |pod| pod["status"]["conditions"] = conditions).unwrap();
        is_not_ready(&world, "web");
        say(&world, &copy, "BackOff", BACK_OFF);
        sleep(Duration::from_secs(30)).await;
        say(&world, &other().unwrap(), "BackOff", BACK_OFF);
        until("the other is told of", || told(&world).iter().any(|event| text(event, "/metadata/namespace") == "yard"))
            .await;
    });
}

#[test]
fn where_the_member_gives_no_right_to_events_pods_run_and_it_is_seldom_asked() {
    story(1, async {
        let (world, _) = with_copy().await;
        let asked = Arc::<Mutex<u32>>::default();
        let count = Arc::clone(&asked);
        asked_for_events(&world, &world.member, move |_| {
            *lock(&count) += 1;
            Action::Answer { code: 403, reason: "Forbidden" }
        });
        is_not_ready(&world, "web");
        world.run_pod("other", None);
        until("it runs", || world.phase("other") == "Running").await;
        is_not_ready(&world, "other");
        sleep(Duration::from_mins(30)).await;
        assert!((3..=8).contains(&*lock(&asked)), "{}", lock(&asked));
        assert!(world.is_ready());
    });
}
