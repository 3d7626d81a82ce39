//! What `kubectl debug` adds to a pod that runs is added to its copy, or the pod says why not.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::sleep;

use super::{SHOP, World, lock, standing, story, until, with_pod};

fn debugger(name: &str) -> Value {
    json!({"name": name, "image": "debug:1", "stdin": true, "tty": true})
}

/// As the host's API server has it once somebody has typed `kubectl debug`.
fn add(world: &World, container: Value) {
    let add = |pod: &mut Value| match pod["spec"]["ephemeralContainers"].as_array_mut() {
        Some(containers) => containers.push(container),
        None => pod["spec"]["ephemeralContainers"] = json!([container]),
    };
    world.host.change("pods", SHOP, "web", add).unwrap();
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    containers.map(|one| text(one, "/name").to_owned()).collect()
}

fn in_copy(world: &World) -> Vec<String> {
    names(&world.copy("web").unwrap(), "/spec/ephemeralContainers")
}

/// The state that the host's pod tells of one.
fn state(world: &World, container: &str) -> Value {
    let pod = world.pod("web").unwrap();
    let mut all = pod["status"]["ephemeralContainerStatuses"].as_array().into_iter().flatten();
    all.find(|one| one["name"] == container).map(|one| one["state"].clone()).unwrap_or_default()
}

/// The kubelet of the member has started it.
fn runs(world: &World, container: &str) {
    let status = json!([{"name": container, "state": {"running": {}}}]);
    let run = |pod: &mut Value| pod["status"]["ephemeralContainerStatuses"] = status;
    world.member.change("pods", SHOP, "web", run).unwrap();
}

#[test]
fn ephemeral_container_is_added_to_the_copy_and_what_becomes_of_it_is_told() {
    story(1, async {
        let world = with_pod().await;
        let before = world.copy("web").unwrap();
        add(&world, debugger("first"));
        until("it is there", || in_copy(&world) == ["first"]).await;
        runs(&world, "first");
        until("it is told", || state(&world, "first")["running"].is_object()).await;
        add(&world, debugger("second"));
        until("both are there", || in_copy(&world) == ["first", "second"]).await;
        let copy = world.copy("web").unwrap();
        assert_eq!(copy["metadata"]["uid"], before["metadata"]["uid"], "the same copy");
        assert_eq!(copy["spec"]["containers"], before["spec"]["containers"]);
    });
}

#[test]
fn ephemeral_container_above_the_level_is_refused_once_and_keeps_no_other_one_away() {
    story(1, async {
        let world = with_pod().await;
        let mut above = debugger("above");
        above["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
        add(&world, above);
        until("it is refused", || state(&world, "above")["waiting"]["reason"] == "AboveBaseline").await;
        let told = || world.host.list("events").iter().filter(|one| one["reason"] == "AboveBaseline").count();
        until("it is told", || told() == 1).await;
        add(&world, debugger("first"));
        until("the other one is there", || in_copy(&world) == ["first"]).await;
        runs(&world, "first");
        until("it is told", || state(&world, "first")["running"].is_object()).await;
        let version = world.pod("web").unwrap()["metadata"]["resourceVersion"].clone();
        sleep(Duration::from_mins(10)).await;
        assert_eq!(state(&world, "above")["waiting"]["reason"], "AboveBaseline");
        assert_eq!((told(), in_copy(&world)), (1, vec!["first".to_owned()]));
        assert_eq!(world.pod("web").unwrap()["metadata"]["resourceVersion"], version, "nothing is written again");
    });
}

/// It can never be taken off the pod again.
#[test]
fn ephemeral_container_above_the_level_keeps_no_pod_away_that_has_no_copy_yet() {
    story(1, async {
        let world = standing(1).await;
        let theirs = json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        world.open_namespace(SHOP);
        world.member.create("pods", theirs).unwrap();
        world.run_pod("web", None);
        until("it waits", || world.says("web", "NameTaken", "web")).await;
        let mut above = debugger("above");
        above["securityContext"] = json!({"privileged": true});
        add(&world, above);
        world.member.delete("pods", SHOP, "web").unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        until("the other is refused", || state(&world, "above")["waiting"]["reason"] == "AboveBaseline").await;
        assert_eq!(in_copy(&world), Vec::<String>::new());
    });
}

#[test]
fn ephemeral_container_that_a_member_fails_to_take_is_tried_again_and_said_and_the_pod_is_told_of_all_the_while() {
    for (code, failures) in [(500, 2), (422, 2), (500, 1000), (403, 1000)] {
        story(1, async {
            let world = with_pod().await;
            let (life, left) = (Arc::clone(&world.life), Arc::new(Mutex::new(failures)));
            let counted = Arc::clone(&left);
            world.member.faults().set(move |asked| {
                if lock(&life).dead {
                    return Action::Hang;
                }
                if asked.verb != Verb::Patch || asked.resource != "pods" || *lock(&counted) == 0 {
                    return Action::Pass;
                }
                *lock(&counted) -= 1;
                Action::Answer { code, reason: "Failed" }
            });
            add(&world, debugger("first"));
            sleep(Duration::from_millis(200)).await;
            let message = |pod: &mut Value| pod["status"]["message"] = json!("said meanwhile");
            world.member.change("pods", SHOP, "web", message).unwrap();
            until("the status is told", || world.pod("web").unwrap()["status"]["message"] == "said meanwhile").await;
            if failures < 3 {
                until("it is there", || in_copy(&world) == ["first"]).await;
                return;
            }
            until("it is said", || state(&world, "first")["waiting"]["reason"] == "RefusedByMember").await;
            let asked = failures - *lock(&left);
            sleep(Duration::from_mins(5)).await;
            assert_eq!(failures - *lock(&left), asked, "nothing is asked for ever");
            assert!((3..=8).contains(&asked), "{code}: {asked}");
        });
    }
}

/// As where a webhook there is slow: it may be added all the same.
#[test]
fn ephemeral_container_that_a_member_does_not_take_in_time_is_told_by_an_event_and_tried_again() {
    story(1, async {
        let (world, is_slow) = (with_pod().await, Arc::new(Mutex::new(true)));
        let slow = Arc::clone(&is_slow);
        world.member.faults().set(move |asked| {
            if asked.subresource == "ephemeralcontainers" && *lock(&slow) { Action::Hang } else { Action::Pass }
        });
        add(&world, debugger("first"));
        let told = || {
            let events = world.host.list("events");
            let mut refused = events.iter().filter(|one| one["reason"] == "RefusedByMember");
            refused.any(|one| text(one, "/message").contains("no answer within"))
        };
        until("an event says so", told).await;
        assert_eq!(state(&world, "first"), Value::Null, "nobody knows whether it is there");
        *lock(&is_slow) = false;
        until("it is there", || in_copy(&world) == ["first"]).await;
    });
}

#[test]
fn ephemeral_container_is_there_wherever_the_agent_is_killed() {
    let mut killed = 0;
    for point in (1..=4).flat_map(|write| [(write, false), (write, true)]) {
        story(1, async {
            let world = with_pod().await;
            // Between two signs of life of the node.
            sleep(Duration::from_secs(1)).await;
            let mut above = debugger("above");
            above["securityContext"] = json!({"privileged": true});
            {
                let mut life = lock(&world.life);
                life.dies_at = Some((life.writes + point.0, point.1));
            }
            let after = async {
                add(&world, above);
                add(&world, debugger("first"));
                until("it is there", || in_copy(&world) == ["first"]).await;
                until("it is refused", || state(&world, "above")["waiting"]["reason"] == "AboveBaseline").await;
                let told = || world.host.list("events").iter().any(|one| one["reason"] == "AboveBaseline");
                until("it is told", told).await;
            };
            tokio::select! {
                () = after => {}
                () = world.revive() => {}
            }
            killed += u32::from(lock(&world.life).name == "second");
        });
    }
    assert!(killed >= 5, "{killed}");
}
