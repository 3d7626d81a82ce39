//! Pods that a ReplicaSet makes in the place of those that have failed, which it does at once and without end.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep};

use super::{NODE, SHOP, STEP, World, standing, story, until};

/// Of a ReplicaSet that is there.
fn owner(world: &World) -> Value {
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let set = json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec});
    let set = world.host.create("replicasets.apps", set).unwrap();
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": set["metadata"]["uid"], "controller": true})
}

fn run_owned(world: &World, name: &str, owner: &Value) {
    let spec =
        json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "automountServiceAccountToken": false});
    let metadata = json!({"namespace": SHOP, "name": name, "ownerReferences": [owner]});
    world.host.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
}

/// As somebody there who deletes each pod.
fn delete(world: &World, name: &str) {
    let _ = world.member.delete_now("pods", SHOP, name);
}

/// As a kubelet there that takes none.
fn reject(world: &World, name: &str) {
    let status = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"});
    let _ = world.member.change("pods", SHOP, name, |copy| copy["status"] = status.clone());
}

#[test]
fn member_in_which_each_copy_ends_at_once_has_few_pods_made_which_say_why_they_wait_until_it_is_over() {
    for end in [delete, reject] {
        story(1, async {
            let world = standing(1).await;
            let (owner, begun, mut made) = (owner(&world), Instant::now(), 0);
            let name = |number: u32| format!("web-{number}");
            while begun.elapsed() < Duration::from_mins(30) {
                if made == 0 || world.phase(&name(made)) == "Failed" {
                    made += 1;
                    run_owned(&world, &name(made), &owner);
                }
                end(&world, &name(made));
                sleep(STEP).await;
            }
            assert!((8..=18).contains(&made), "{made} in half an hour");
            let says = || world.says(&name(made), "BackOff", "copies of pods of ReplicaSet web have ended in member m");
            assert!(says(), "{:?}", world.pod(&name(made)));
            sleep(Duration::from_mins(5)).await;
            until("it runs", || world.phase(&name(made)) == "Running").await;
        });
    }
}

/// The end of each is told again and again, as the host does not take it.
#[test]
fn copies_that_end_at_once_count_once_each_however_often_their_end_is_told() {
    for end in [delete, reject] {
        story(1, async {
            let world = standing(1).await;
            let (owner, former) = (owner(&world), ["web-0", "web-1"]);
            for name in former {
                run_owned(&world, name, &owner);
                until("it runs", || world.phase(name) == "Running").await;
            }
            world.host.faults().set(|asked| {
                let is_told = asked.verb == Verb::Patch && asked.resource == "pods";
                if is_told { Action::Answer { code: 503, reason: "ServiceUnavailable" } } else { Action::Pass }
            });
            for name in former {
                end(&world, name);
            }
            sleep(Duration::from_secs(50)).await;
            world.host.faults().set(|_| Action::Pass);
            for name in former {
                until("it has failed", || world.phase(name) == "Failed").await;
            }
            let begun = Instant::now();
            run_owned(&world, "web-2", &owner);
            until("it runs", || world.phase("web-2") == "Running").await;
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", world.pod("web-2"));
        });
    }
}

/// As in a drain there.
#[test]
fn pod_whose_former_ones_have_run_for_long_is_copied_at_once() {
    story(1, async {
        let world = standing(1).await;
        let owner = owner(&world);
        for number in 0..15 {
            let name = format!("web-{number}");
            run_owned(&world, &name, &owner);
            until("it runs", || world.phase(&name) == "Running").await;
            let long_ago = |pod: &mut Value| {
                let conditions = pod["status"]["conditions"].as_array_mut().unwrap().iter_mut();
                for copied in conditions.filter(|one| text(one, "/type") == "kosmos.csi.io/Copied") {
                    copied["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
                }
            };
            world.host.change("pods", SHOP, &name, long_ago).unwrap();
            world.member.delete("pods", SHOP, &name).unwrap();
            until("it has failed", || world.phase(&name) == "Failed").await;
        }
    });
}
