//! What an agent asks where nothing happens.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Asked, Verb},
};
use tokio::time::{Instant, sleep};

use super::{ATTACHMENTS, NODE, SHOP, World, standing, story, until};

fn count(cluster: &Cluster, is_meant: impl Fn(&Asked) -> bool) -> usize {
    cluster.faults().log().iter().filter(|asked| is_meant(asked)).count()
}

/// Each of the member's is told by the list that finds them all.
#[test]
fn what_a_pod_names_is_read_in_the_host_alone_while_that_has_not_changed_it() {
    story(1, async {
        let world = standing(1).await;
        let map = json!({"metadata": {"namespace": SHOP, "name": "settings"}, "data": {"a": "1"}});
        world.host.create("configmaps", map).unwrap();
        let env = json!([{"configMapRef": {"name": "settings"}}]);
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}]});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        sleep(Duration::from_secs(1)).await;
        for cluster in [&world.host, &world.member] {
            cluster.faults().record(true);
        }
        sleep(Duration::from_mins(10)).await;
        let reads =
            |asked: &Asked| asked.verb == Verb::Get && asked.resource == "configmaps" && asked.name == "settings";
        let looks = count(&world.host, reads);
        assert!((19..=21).contains(&looks), "the host is asked {looks} times");
        assert_eq!(count(&world.member, reads), 0);
        world.host.change("configmaps", SHOP, "settings", |map| map["data"] = json!({"a": "2"})).unwrap();
        let there = || world.member.get("configmaps", SHOP, "settings").unwrap();
        until("it follows", || there()["data"] == json!({"a": "2"})).await;
    });
}

/// Else every member is asked about all of them all the time.
#[test]
fn namespaces_of_the_host_that_give_secrets_cost_no_requests_in_members_that_have_none_of_these() {
    story(1, async {
        let world = World::new(1).await;
        for number in 0..50 {
            let metadata = json!({"name": format!("open-{number}"), "labels": {"kosmos.csi.io/secrets": "true"}});
            world.host.create("namespaces", json!({"metadata": metadata})).unwrap();
        }
        world.start("first");
        until("the node is ready", || world.is_ready()).await;
        sleep(Duration::from_mins(1)).await;
        world.member.faults().record(true);
        sleep(Duration::from_mins(5)).await;
        let lists = |asked: &Asked| asked.verb == Verb::List && asked.resource == "secrets";
        assert_eq!(count(&world.member, lists), 0);
    });
}

#[test]
fn secret_whose_mark_somebody_in_the_member_has_removed_is_found_all_the_same() {
    story(1, async {
        let world = standing(1).await;
        let open = |namespace: &mut Value| namespace["metadata"]["labels"]["kosmos.csi.io/secrets"] = json!("true");
        world.host.change("namespaces", "", SHOP, open).unwrap();
        sleep(Duration::from_mins(1)).await;
        world.open_namespace(SHOP);
        let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": world.host_id()});
        let metadata = json!({"namespace": SHOP, "name": "left", "labels": labels,
            "annotations": {"kosmos.csi.io/version": "x"}});
        world.member.create("secrets", json!({"metadata": metadata})).unwrap();
        sleep(Duration::from_mins(15)).await;
        assert!(world.member.get("secrets", SHOP, "left").is_none(), "nothing names it");
    });
}

/// Whoever may make pods may make very many that do.
#[test]
fn pod_that_waits_for_what_does_not_come_is_looked_at_less_and_less_often_and_runs_once_it_has_come() {
    story(1, async {
        let world = standing(1).await;
        world.run_pod("web", Some("data"));
        until("it says what it waits for", || world.says("web", "WaitsForClaim", "does not exist yet")).await;
        sleep(Duration::from_mins(10)).await;
        for cluster in [&world.host, &world.member] {
            cluster.faults().record(true);
        }
        sleep(Duration::from_mins(10)).await;
        let reads = |asked: &Asked| asked.verb == Verb::Get && asked.resource == "pods" && asked.name == "web";
        for cluster in [&world.host, &world.member] {
            let looks = count(cluster, reads);
            assert!((38..=42).contains(&looks), "{looks} looks in ten minutes");
        }
        world.claim("data");
        world.attach();
        let begun = Instant::now();
        until("it runs", || world.phase("web") == "Running").await;
        assert!(begun.elapsed() < Duration::from_secs(18), "{:?}", begun.elapsed());
    });
}

/// Each look at it costs requests for all that it names.
#[test]
fn pod_that_waits_for_an_object_is_looked_at_no_more_often_where_volumes_of_others_come_and_go() {
    story(1, async {
        let world = standing(1).await;
        let env = json!([{"configMapRef": {"name": "settings"}}]);
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}]});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it says why", || world.says("web", "WaitsForObject", "ConfigMap settings does not exist in the host"))
            .await;
        let spec = json!({"attacher": "kosmos.csi.io", "nodeName": NODE, "source": {"persistentVolumeName": "pv"}});
        world.host.create(ATTACHMENTS, json!({"metadata": {"name": "csi-x"}, "spec": spec})).unwrap();
        world.host.faults().record(true);
        for second in 0..120 {
            let attached = |one: &mut Value| one["status"]["attached"] = json!(second % 2 == 0);
            world.host.change(ATTACHMENTS, "", "csi-x", attached).unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        let reads = |asked: &Asked| asked.verb == Verb::Get && asked.resource == "configmaps";
        let looks = count(&world.host, |asked| reads(asked) && asked.name == "settings");
        assert!((7..=9).contains(&looks), "{looks} looks in two minutes");
    });
}

/// Each of the others would cost a request to both clusters at each look.
#[test]
fn pod_that_waits_for_one_object_of_many_has_that_one_alone_asked_for() {
    story(1, async {
        let world = standing(1).await;
        let names: Vec<String> = (0..50).map(|number| format!("settings-{number}")).collect();
        let make = |name: &str| {
            let map = json!({"metadata": {"namespace": SHOP, "name": name}, "data": {"a": "1"}});
            world.host.create("configmaps", map).unwrap();
        };
        for name in &names {
            make(name);
        }
        let all = names.iter().map(String::as_str).chain(["the-last"]);
        let env: Vec<Value> = all.map(|name| json!({"configMapRef": {"name": name}})).collect();
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}]});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it says why", || world.says("web", "WaitsForObject", "ConfigMap the-last does not exist in the host"))
            .await;
        sleep(Duration::from_secs(5)).await;
        for cluster in [&world.host, &world.member] {
            cluster.faults().record(true);
        }
        sleep(Duration::from_mins(2)).await;
        let reads =
            |asked: &Asked| asked.verb == Verb::Get && asked.resource == "configmaps" && asked.namespace == SHOP;
        let looks = count(&world.host, |asked| reads(asked) && asked.name == "the-last");
        assert!((7..=9).contains(&looks), "{looks} looks in two minutes");
        assert_eq!((count(&world.host, reads), count(&world.member, reads)), (looks, 0), "others are asked for");
        make("the-last");
        until("it runs", || world.phase("web") == "Running").await;
        assert!(names.iter().all(|name| world.member.get("configmaps", SHOP, name).is_some()));
    });
}
