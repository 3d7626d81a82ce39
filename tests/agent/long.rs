//! Pods that run, and become longer than their namespace has room for.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{NODE, SHOP, World, given::settings, standing, story, until};

/// A pod that names `settings`, and whether it can do without.
async fn run_with_settings(world: &World, pod: &str, is_optional: bool) {
    let volume = json!({"name": "v", "configMap": {"name": "settings", "optional": is_optional}});
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": [volume],
        "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": pod}, "spec": spec})).unwrap();
    until("it runs", || world.phase(pod) == "Running").await;
}

/// A world with `settings`, and a pod that needs them and runs, and of which the agent keeps hardly more than which pod it is.
async fn with_cut_pod() -> World {
    let world = standing(1).await;
    let settings = json!({"metadata": {"namespace": SHOP, "name": "settings"}, "data": {"a": "1"}});
    world.host.create("configmaps", settings).unwrap();
    run_with_settings(&world, "web", false).await;
    // None of these is copied, which would take long.
    let name = |number: u32| format!("long-{number}");
    for number in 0..11 {
        let container = json!({"name": "c", "image": "i:1", "args": ["a".repeat(1_518_000)]});
        let spec = json!({"nodeName": NODE, "containers": [container], "hostNetwork": true});
        let metadata = json!({"namespace": SHOP, "name": name(number)});
        world.host.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
    }
    let is_known = |number| world.says(&name(number), "AboveBaseline", "spec.hostNetwork");
    until("all are known", || (0..11).all(is_known)).await;
    let note = json!("a".repeat(100_000));
    world.host.change("pods", SHOP, "web", |pod| pod["metadata"]["annotations"]["note"] = note).unwrap();
    let has_note = || world.copy("web").is_some_and(|copy| copy["metadata"]["annotations"]["note"].is_string());
    until("its copy has it too", has_note).await;
    world
}

/// No watch tells anything of it then.
#[test]
fn pod_that_runs_is_given_what_has_changed_once_its_namespace_has_room_for_it_again() {
    story(1, async {
        let world = with_cut_pod().await;
        world.host.change("configmaps", SHOP, "settings", |settings| settings["data"]["a"] = json!("2")).unwrap();
        sleep(Duration::from_mins(2)).await;
        assert_eq!(settings(&world, SHOP), "1", "it has room");
        world.host.delete("pods", SHOP, "long-0").unwrap();
        until("it is brought up to date", || settings(&world, SHOP) == "2").await;
    });
}

/// The other one's word alone is not what decides: a kubelet leaves it in volumes.
#[test]
fn what_a_long_pod_was_given_is_not_emptied_for_another_one_that_can_do_without() {
    story(1, async {
        let world = with_cut_pod().await;
        run_with_settings(&world, "other", true).await;
        world.host.delete("configmaps", SHOP, "settings").unwrap();
        sleep(Duration::from_mins(3)).await;
        assert_eq!(settings(&world, SHOP), "1");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("nobody needs it", || settings(&world, SHOP).is_null()).await;
        assert!(world.member.get("configmaps", SHOP, "settings").is_some(), "the other one names it");
    });
}

/// Neither of the two says any more what it names.
#[test]
fn what_a_long_pod_was_given_stays_where_somebody_takes_the_labels_off_its_copy() {
    story(1, async {
        let world = with_cut_pod().await;
        world.member.change("pods", SHOP, "web", |copy| copy["metadata"]["labels"] = json!({})).unwrap();
        until("it says so", || world.says("web", "LabelsChanged", "")).await;
        sleep(Duration::from_mins(5)).await;
        assert!(world.phase("web") == "Running" && world.copy("web").is_some());
        assert_eq!(settings(&world, SHOP), "1");
    });
}
