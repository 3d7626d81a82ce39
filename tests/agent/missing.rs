//! What pods take variables of, and the host does not have yet: as with a kubelet, the containers that need it wait for it, and no others.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::{Instant, sleep};

use super::{
    NODE, SHOP, World, give_secrets,
    given::{of_another_host, settings},
    standing, story, until,
};

const OF_CONFIG_MAP: &str = "configMapKeyRef";

/// A pod of which one container takes a variable of `settings`, which may be what another one makes.
fn run_with_variable(world: &World, pod: &str, source: &str) {
    let variable = json!({"name": "A", "valueFrom": {source: {"name": "settings", "key": "a"}}});
    let spec = json!({"nodeName": NODE, "initContainers": [{"name": "first", "image": "i:1"}],
        "containers": [{"name": "c", "image": "i:1", "env": [variable]}], "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": pod}, "spec": spec})).unwrap();
}

fn make(world: &World, kind: &str) {
    let mut object = json!({"metadata": {"namespace": SHOP, "name": "settings"}, "data": {"a": "YQ=="}});
    if kind == "secrets" {
        object["type"] = json!("example.com/settings");
    }
    world.host.create(kind, object).unwrap();
}

/// Whether an event says that it is waited for.
fn is_said(world: &World) -> bool {
    let is_so = |event: &Value| {
        event["reason"] == "WaitsForObject" && text(event, "/message").contains("settings does not exist in the host")
    };
    world.host.list("events").iter().any(|event| is_so(event))
}

#[test]
fn container_that_takes_a_variable_of_what_is_not_in_the_host_waits_for_it_in_the_member() {
    for (kind, source) in [("configmaps", OF_CONFIG_MAP), ("secrets", "secretKeyRef")] {
        story(1, async {
            let world = standing(1).await;
            give_secrets(&world, "true");
            run_with_variable(&world, "web", source);
            until("it is copied", || world.copy("web").is_some()).await;
            let copy = world.copy("web").unwrap();
            let name = format!("/spec/containers/0/env/0/valueFrom/{source}/name");
            assert_eq!(text(&copy, &name), "settings", "{copy}");
            let there = || world.member.get(kind, SHOP, "settings");
            assert_eq!(there().unwrap().get("data"), None, "a kubelet would find the key");
            until("it says what it waits for", || is_said(&world)).await;
            world.member.delete(kind, SHOP, "settings").unwrap();
            until("nobody else can have its name", || there().is_some()).await;
            make(&world, kind);
            until("it has come", || there().is_some_and(|one| one["data"]["a"] == "YQ==")).await;
            world.host.delete("pods", SHOP, "web").unwrap();
            sleep(Duration::from_mins(5)).await;
            assert!(there().is_none(), "it is left in the member");
        });
    }
}

#[test]
fn container_is_given_nothing_of_somebody_elses_that_has_the_name_of_what_it_waits_for() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        let theirs = of_another_host(&world, "settings");
        run_with_variable(&world, "web", OF_CONFIG_MAP);
        let says = || world.says("web", "NameTaken", "it belongs to another host cluster (another)");
        until("it says whose it is", says).await;
        sleep(Duration::from_mins(5)).await;
        assert!(world.copy("web").is_none(), "it would read what is another host's");
        assert_eq!(world.member.get("configmaps", SHOP, "settings"), Some(theirs));
    });
}

/// A kubelet would not find it any more; what runs was given it.
#[test]
fn what_is_left_in_the_member_of_what_the_host_has_no_more_is_given_to_no_other_pod() {
    story(1, async {
        let world = standing(1).await;
        make(&world, "configmaps");
        run_with_variable(&world, "web", OF_CONFIG_MAP);
        until("it runs", || world.phase("web") == "Running").await;
        world.host.delete("configmaps", SHOP, "settings").unwrap();
        run_with_variable(&world, "late", OF_CONFIG_MAP);
        until("it waits", || world.says("late", "WaitsForObject", "ConfigMap settings does not exist in the host"))
            .await;
        sleep(Duration::from_mins(5)).await;
        assert!(world.copy("late").is_none() && settings(&world, SHOP) == "YQ==");
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert!(world.copy("late").is_some() && settings(&world, SHOP).is_null());
    });
}

/// As where one command makes both.
#[test]
fn pod_that_comes_a_moment_before_what_it_needs_is_copied_with_that() {
    story(1, async {
        let world = standing(1).await;
        run_with_variable(&world, "web", OF_CONFIG_MAP);
        sleep(Duration::from_secs(1)).await;
        make(&world, "configmaps");
        let begun = Instant::now();
        until("it is copied", || world.copy("web").is_some()).await;
        assert_eq!(settings(&world, SHOP), "YQ==");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(!is_said(&world), "it has waited for nothing");
    });
}
