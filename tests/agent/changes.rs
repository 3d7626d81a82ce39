//! What somebody changes of a pod in the host is changed of its copy, and of that alone; or the pod says why not.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep};

use super::{NODE, SHOP, World, condition, lock, standing, story, until, with_pod};

fn change(world: &World, change: impl FnOnce(&mut Value)) {
    world.host.change("pods", SHOP, "web", change).unwrap();
}

fn image(world: &World) -> String {
    text(&world.copy("web").unwrap(), "/spec/containers/0/image").to_owned()
}

fn events(world: &World, reason: &str) -> usize {
    world.host.list("events").iter().filter(|one| one["reason"] == reason).count()
}

#[test]
fn image_labels_and_annotations_of_a_pod_are_changed_of_its_copy() {
    story(1, async {
        let world = with_pod().await;
        let before = world.copy("web").unwrap();
        change(&world, |pod| {
            pod["spec"]["containers"][0]["image"] = json!("i:2");
            pod["metadata"]["labels"] = json!({"role": "primary"});
            pod["metadata"]["annotations"]["shop.example/seen"] = json!("1");
        });
        until("its image is", || image(&world) == "i:2").await;
        let copy = world.copy("web").unwrap();
        assert_eq!(copy["metadata"]["uid"], before["metadata"]["uid"], "the same copy");
        assert_eq!(
            (&copy["metadata"]["labels"]["role"], &copy["metadata"]["annotations"]["shop.example/seen"]),
            (&json!("primary"), &json!("1"))
        );
        change(&world, |pod| pod["metadata"]["labels"] = json!({"tier": "1"}));
        until("a label has gone", || world.copy("web").unwrap()["metadata"]["labels"]["role"].is_null()).await;
        let labels = &world.copy("web").unwrap()["metadata"]["labels"];
        assert_eq!((&labels["tier"], &labels["kosmos.csi.io/host"]), (&json!("1"), &json!(world.host_id())));
        assert_eq!(events(&world, "FieldsDropped"), 0, "the member knows all that the host does");
    });
}

/// It is there already where the request was sent twice. Nor is the copy read for some seconds, until a watch has told of it.
#[test]
fn field_that_the_member_leaves_out_of_a_copy_is_named_though_the_answer_is_lost() {
    for is_there in [true, false] {
        story(1, async {
            let world = standing(1).await;
            let (member, asked_at) = (world.member.clone(), Mutex::new(None::<Instant>));
            world.member.faults().set(move |asked| {
                let is_read = asked.verb == Verb::Get && asked.resource == "pods";
                if is_read && lock(&asked_at).is_some_and(|since| since.elapsed() < Duration::from_secs(5)) {
                    return Action::Refuse;
                }
                let is_one = asked.verb == Verb::Create && asked.resource == "pods" && asked.subresource.is_empty();
                if !is_one || asked.body["spec"]["hostUsers"].is_null() {
                    return Action::Pass;
                }
                lock(&asked_at).get_or_insert_with(Instant::now);
                let mut made = Value::clone(&asked.body);
                made["metadata"]["namespace"] = json!(SHOP);
                made["spec"].as_object_mut().unwrap().remove("hostUsers");
                let _ = member.create("pods", made);
                if is_there { Action::Answer { code: 409, reason: "AlreadyExists" } } else { Action::Refuse }
            });
            let spec = json!({
                "nodeName": NODE, "hostUsers": false, "tolerations": [{"key": "kosmos.io/node", "operator": "Exists"}],
                "containers": [{"name": "c", "image": "i:1"}],
            });
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
            until("it is told", || events(&world, "FieldsDropped") == 1).await;
            until("it runs", || world.phase("web") == "Running").await;
            assert_eq!(events(&world, "FieldsDropped"), 1, "once");
            assert!(world.copy("web").unwrap()["spec"]["hostUsers"].is_null());
            let all = world.host.list("events");
            let told = all.iter().find(|one| one["reason"] == "FieldsDropped").unwrap();
            assert!(text(told, "/message").contains("without spec.hostUsers, which"), "{told}");
        });
    }
}

/// Webhooks there rewrite images for a mirror of theirs, and put labels of their own on pods.
#[test]
fn what_a_member_makes_of_a_copy_is_never_undone() {
    story(1, async {
        let world = with_pod().await;
        let theirs = |copy: &mut Value| {
            copy["spec"]["containers"][0]["image"] = json!("mirror/i:1");
            copy["metadata"]["labels"]["mesh"] = json!("on");
        };
        world.member.change("pods", SHOP, "web", theirs).unwrap();
        change(&world, |pod| pod["metadata"]["labels"] = json!({"role": "primary"}));
        until("the label is there", || world.copy("web").unwrap()["metadata"]["labels"]["role"] == "primary").await;
        let version = || world.copy("web").unwrap()["metadata"]["resourceVersion"].clone();
        let before = version();
        sleep(Duration::from_mins(10)).await;
        assert_eq!(version(), before, "nothing is written again");
        assert_eq!(world.copy("web").unwrap()["metadata"]["labels"]["mesh"], "on");
        assert_eq!(image(&world), "mirror/i:1", "a container would be restarted, without an image");
    });
}

/// As most charts label their pods.
#[test]
fn label_of_who_manages_a_pod_in_the_host_is_never_that_of_its_copy() {
    story(1, async {
        let world = with_pod().await;
        let managed = |by: Value| change(&world, |pod| pod["metadata"]["labels"] = by);
        managed(json!({"app.kubernetes.io/managed-by": "Helm", "role": "primary"}));
        until("the other one is there", || world.copy("web").unwrap()["metadata"]["labels"]["role"] == "primary").await;
        managed(json!({}));
        until("it has gone", || world.copy("web").unwrap()["metadata"]["labels"]["role"].is_null()).await;
        assert_eq!(world.copy("web").unwrap()["metadata"]["labels"]["app.kubernetes.io/managed-by"], "kosmos.csi.io");
        assert_eq!(world.phase("web"), "Running");
    });
}

/// Something there puts back whatever is changed, again and again.
#[test]
fn member_that_undoes_changes_costs_the_host_a_request_a_minute_and_that_is_told() {
    story(1, async {
        let world = with_pod().await;
        let version = |world: &World| world.copy("web").unwrap()["metadata"]["resourceVersion"].clone();
        let given = world.copy("web").unwrap()["metadata"]["annotations"]["kosmos.csi.io/given"].clone();
        change(&world, |pod| pod["metadata"]["labels"] = json!({"role": "primary"}));
        until("it is changed", || world.copy("web").unwrap()["metadata"]["labels"]["role"] == "primary").await;
        let mut undone = 0;
        for _ in 0..1200 {
            let before = version(&world);
            let undo = |copy: &mut Value| copy["metadata"]["annotations"]["kosmos.csi.io/given"] = given.clone();
            world.member.change("pods", SHOP, "web", undo).unwrap();
            undone += u32::from(version(&world) != before);
            sleep(Duration::from_millis(50)).await;
        }
        assert!((2..=15).contains(&undone), "it was changed {undone} times in a minute");
    });
}

/// As where a webhook there fails.
#[test]
fn change_that_a_member_refuses_or_fails_to_make_is_told_and_tried_again() {
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
        is_told_and_tried_again(Action::Answer { code, reason });
    }
}

fn is_told_and_tried_again(answer: Action) {
    story(1, async {
        let world = with_pod().await;
        let (life, refuses) = (Arc::clone(&world.life), Arc::new(Mutex::new(true)));
        let still = Arc::clone(&refuses);
        world.member.faults().set(move |asked| match asked {
            _ if lock(&life).dead => Action::Hang,
            asked if asked.verb == Verb::Patch && asked.resource == "pods" && *lock(&still) => answer.clone(),
            _ => Action::Pass,
        });
        change(&world, |pod| pod["spec"]["containers"][0]["image"] = json!("i:2"));
        until("it is told", || events(&world, "RefusedByMember") == 1).await;
        sleep(Duration::from_mins(3)).await;
        assert_eq!((image(&world).as_str(), events(&world, "RefusedByMember")), ("i:1", 1));
        *lock(&refuses) = false;
        until("it is changed", || image(&world) == "i:2").await;
    });
}

/// As where something on the way to the member has kept it, and the agent has asked again meanwhile.
#[test]
fn change_that_comes_late_undoes_no_later_one() {
    story(1, async {
        let (world, sent) = (with_pod().await, Mutex::new(false));
        world.member.faults().set(move |asked| {
            let is_change = asked.verb == Verb::Patch && asked.resource == "pods";
            if is_change && !std::mem::replace(&mut *lock(&sent), true) {
                return Action::Late(Duration::from_secs(90));
            }
            Action::Pass
        });
        let begun = Instant::now();
        for new in ["i:2", "i:3"] {
            change(&world, |pod| pod["spec"]["containers"][0]["image"] = json!(new));
            until("it is changed by the next request", || image(&world) == new).await;
        }
        sleep(Duration::from_secs(10)).await;
        assert!(begun.elapsed() < Duration::from_secs(80), "the first request has not come yet");
        let version = || world.copy("web").unwrap()["metadata"]["resourceVersion"].clone();
        let before = version();
        sleep(Duration::from_mins(2)).await;
        assert_eq!((image(&world).as_str(), version()), ("i:3", before), "its container would be restarted twice");
    });
}

/// As by an earlier request of which no answer came.
#[test]
fn change_that_meets_another_one_is_made_within_seconds_and_is_not_called_refused() {
    story(1, async {
        let (world, has_met) = (with_pod().await, Mutex::new(false));
        let member = world.member.clone();
        world.member.faults().set(move |asked| {
            let is_change = asked.verb == Verb::Patch && asked.resource == "pods";
            if is_change && !std::mem::replace(&mut *lock(&has_met), true) {
                let other = |copy: &mut Value| {
                    let given = &mut copy["metadata"]["annotations"]["kosmos.csi.io/given"];
                    let mut all: Value = serde_json::from_str(given.as_str().unwrap()).unwrap();
                    all["other"] = json!("1");
                    *given = json!(all.to_string());
                };
                member.change("pods", SHOP, "web", other).unwrap();
            }
            Action::Pass
        });
        let begun = Instant::now();
        change(&world, |pod| pod["spec"]["containers"][0]["image"] = json!("i:2"));
        until("it is changed", || image(&world) == "i:2").await;
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!(events(&world, "RefusedByMember"), 0, "nobody has refused it");
    });
}

/// As where its API server is replaced meanwhile.
#[test]
fn change_that_a_member_fails_to_make_once_is_made_within_seconds_also_of_a_pod_that_is_marked_again_and_again() {
    story(1, async {
        let (world, failures) = (with_pod().await, Arc::new(Mutex::new(0_u32)));
        let left = Arc::clone(&failures);
        world.member.faults().set(move |asked| {
            let mut left = lock(&left);
            if asked.verb != Verb::Patch || asked.resource != "pods" || *left == 0 {
                return Action::Pass;
            }
            *left -= 1;
            Action::Answer { code: 500, reason: "InternalError" }
        });
        let mark = |number: u32| change(&world, |pod| pod["metadata"]["labels"] = json!({"mark": number.to_string()}));
        let is_marked =
            |number: u32| world.copy("web").unwrap()["metadata"]["labels"]["mark"] == json!(number.to_string());
        mark(0);
        until("it is marked", || is_marked(0)).await;
        *lock(&failures) = 1;
        for number in 1..=20 {
            mark(number);
            sleep(Duration::from_millis(100)).await;
        }
        let begun = Instant::now();
        until("it is marked again", || is_marked(20)).await;
        assert!(*lock(&failures) == 0 && begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    });
}

/// The member says something that this host's Kubernetes takes for wrong.
#[test]
fn pod_is_changed_in_its_member_also_where_the_host_does_not_take_what_its_copy_says() {
    story(1, async {
        let world = with_pod().await;
        world.host.faults().set(|asked| {
            let is_told = asked.verb == Verb::Patch && asked.resource == "pods" && asked.subresource == "status";
            if is_told { Action::Answer { code: 422, reason: "Invalid" } } else { Action::Pass }
        });
        let says = |copy: &mut Value| copy["status"]["message"] = json!("low on memory");
        world.member.change("pods", SHOP, "web", says).unwrap();
        until("an event says so", || events(&world, "NotTold") == 1).await;
        change(&world, |pod| pod["spec"]["containers"][0]["image"] = json!("i:2"));
        until("it is changed there", || image(&world) == "i:2").await;
    });
}

#[test]
fn resources_of_a_pod_that_runs_are_not_changed_and_that_is_told_once() {
    story(1, async {
        let world = with_pod().await;
        change(&world, |pod| pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}}));
        until("it is told", || events(&world, "ResizeNotCopied") == 1).await;
        let is_pending = || condition(&world.pod("web").unwrap(), "PodResizePending");
        assert!(is_pending() == "True" && world.says("web", "Infeasible", "recreate the pod"));
        sleep(Duration::from_mins(10)).await;
        assert_eq!((events(&world, "ResizeNotCopied"), is_pending().as_str()), (1, "True"));
        let resources = world.copy("web").unwrap()["spec"]["containers"][0]["resources"].clone();
        assert!(resources["requests"]["cpu"].is_null(), "{resources}");
        change(&world, |pod| pod["spec"]["containers"][0]["resources"] = resources);
        until("it asks for what its copy has", || is_pending().is_empty()).await;
        assert_eq!(events(&world, "ResizeNotCopied"), 1);
    });
}

#[test]
fn copy_is_changed_wherever_the_agent_is_killed() {
    let mut killed = 0;
    for point in (1..=3).flat_map(|write| [(write, false), (write, true)]) {
        story(1, async {
            let world = with_pod().await;
            // Between two signs of life of the node.
            sleep(Duration::from_secs(1)).await;
            {
                let mut life = lock(&world.life);
                life.dies_at = Some((life.writes + point.0, point.1));
            }
            let after = async {
                change(&world, |pod| {
                    pod["spec"]["containers"][0]["image"] = json!("i:2");
                    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
                });
                until("it is changed", || image(&world) == "i:2").await;
                change(&world, |pod| pod["metadata"]["labels"] = json!({"role": "primary"}));
                until("again", || world.copy("web").unwrap()["metadata"]["labels"]["role"] == "primary").await;
            };
            tokio::select! {
                () = after => {}
                () = world.revive() => {}
            }
            killed += u32::from(lock(&world.life).name == "second");
        });
    }
    assert!(killed >= 3, "{killed}");
}
