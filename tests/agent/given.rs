//! What pods name, kept in a member in which something is in the way of that, or which another host uses as well.

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

use super::{NODE, SHOP, World, give_secrets, lock, run_with_secret, standing, story, until};

/// Looked at before any other.
const FIRST: &str = "first";

/// The pod `web`, which needs the ConfigMap `settings`.
fn run_with_settings(world: &World, namespace: &str) {
    let map = json!({"metadata": {"namespace": namespace, "name": "settings"}, "data": {"a": "1"}});
    world.host.create("configmaps", map).unwrap();
    let env = json!([{"configMapRef": {"name": "settings"}}]);
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}],
        "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": namespace, "name": "web"}, "spec": spec})).unwrap();
}

pub(super) fn settings(world: &World, namespace: &str) -> Value {
    world.member.get("configmaps", namespace, "settings").map(|map| map["data"]["a"].clone()).unwrap_or_default()
}

#[test]
fn namespace_in_which_the_member_fails_or_is_silent_keeps_no_other_one_from_being_kept_up_to_date() {
    let answers = |code, reason| Action::Answer { code, reason };
    for (verb, action) in [
        (Verb::Patch, answers(500, "InternalError")),
        (Verb::Create, answers(404, "NotFound")),
        (Verb::Patch, Action::Hang),
        (Verb::Create, Action::Hang),
    ] {
        story(1, async {
            let world = standing(1).await;
            world.host.create("namespaces", json!({"metadata": {"name": FIRST}})).unwrap();
            for namespace in [FIRST, SHOP] {
                run_with_settings(&world, namespace);
                let runs = || text(&world.host.get("pods", namespace, "web").unwrap(), "/status/phase") == "Running";
                until("it runs", runs).await;
            }
            world.member.faults().set(move |asked| {
                let fails = asked.verb == verb && asked.resource == "configmaps" && asked.namespace == FIRST;
                if fails { action.clone() } else { Action::Pass }
            });
            for namespace in [FIRST, SHOP] {
                if verb == Verb::Create {
                    world.member.delete("configmaps", namespace, "settings").unwrap();
                }
                let change = |map: &mut Value| map["data"] = json!({"a": "2"});
                world.host.change("configmaps", namespace, "settings", change).unwrap();
            }
            until("the other one follows", || settings(&world, SHOP) == "2").await;
            assert_ne!(settings(&world, FIRST), "2");
            world.member.faults().clear();
            until("this one as well once the member takes it", || settings(&world, FIRST) == "2").await;
        });
    }
}

/// As where a webhook of that namespace does not answer.
#[test]
fn namespace_in_which_nothing_is_taken_in_time_keeps_no_other_one_waiting_however_much_it_has() {
    story(1, async {
        let world = standing(1).await;
        world.host.create("namespaces", json!({"metadata": {"name": FIRST}})).unwrap();
        run_with_settings(&world, SHOP);
        let names: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
        let map = |name: &String| json!({"metadata": {"namespace": FIRST, "name": name}, "data": {"a": "1"}});
        for name in &names {
            world.host.create("configmaps", map(name)).unwrap();
        }
        let env: Vec<Value> = names.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}]});
        world.host.create("pods", json!({"metadata": {"namespace": FIRST, "name": "web"}, "spec": spec})).unwrap();
        for namespace in [FIRST, SHOP] {
            let runs = || text(&world.host.get("pods", namespace, "web").unwrap(), "/status/phase") == "Running";
            until("it runs", runs).await;
        }
        world.member.faults().set(|asked| {
            let is_silent = asked.verb == Verb::Patch && asked.resource == "configmaps" && asked.namespace == FIRST;
            if is_silent { Action::Hang } else { Action::Pass }
        });
        let change = |map: &mut Value| map["data"] = json!({"a": "2"});
        for name in &names {
            world.host.change("configmaps", FIRST, name, change).unwrap();
        }
        world.host.change("configmaps", SHOP, "settings", change).unwrap();
        until("the other one follows", || settings(&world, SHOP) == "2").await;
    });
}

/// A ConfigMap that another host keeps in the shop's namespace of the member.
pub(super) fn of_another_host(world: &World, name: &str) -> Arc<Value> {
    let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": "another"});
    let metadata =
        json!({"namespace": SHOP, "name": name, "labels": labels, "annotations": {"kosmos.csi.io/version": "1"}});
    world.member.create("configmaps", json!({"metadata": metadata, "data": {"a": "theirs"}})).unwrap()
}

#[test]
fn object_of_another_host_is_neither_given_nor_changed_nor_removed_and_the_pod_says_whose_it_is() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        let theirs = of_another_host(&world, "settings");
        run_with_settings(&world, SHOP);
        let says = || world.says("web", "NameTaken", "it belongs to another host cluster (another)");
        until("it says whose it is", says).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert_eq!(world.member.get("configmaps", SHOP, "settings"), Some(theirs));
    });
}

/// By which every pod that has a token knows its own host.
#[test]
fn hosts_that_share_a_namespace_have_each_its_own_authority_there() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        let (root, other) = ("kube-root-ca.crt", "kosmos-csi.kube-root-ca.crt");
        let theirs = [other.to_owned(), format!("{other}.another")].map(|name| (of_another_host(&world, &name), name));
        let map = json!({"metadata": {"namespace": SHOP, "name": root}, "data": {"a": "ours"}});
        world.host.create("configmaps", map).unwrap();
        let volumes = json!([{"name": "ca", "configMap": {"name": root}}]);
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": volumes,
            "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        let named = text(&world.copy("web").unwrap(), "/spec/volumes/0/configMap/name").to_owned();
        assert_eq!(named, format!("{other}.{}", world.host_id()));
        assert_eq!(world.member.get("configmaps", SHOP, &named).unwrap()["data"]["a"], "ours");
        for (before, name) in theirs {
            assert_eq!(world.member.get("configmaps", SHOP, &name), Some(before), "{name}");
        }
    });
}

/// A copy that an earlier version has made mounts it by the name that it had then.
#[test]
fn authority_that_a_copy_has_by_its_former_name_follows_the_hosts_until_that_copy_is_gone() {
    story(1, async {
        let world = standing(1).await;
        let (root, former) = ("kube-root-ca.crt", "kosmos-csi.kube-root-ca.crt");
        let map = json!({"metadata": {"namespace": SHOP, "name": root}, "data": {"a": "old"}});
        world.host.create("configmaps", map).unwrap();
        for pod in ["web", "new"] {
            let volumes = json!([{"name": "ca", "configMap": {"name": root}}]);
            let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": volumes,
                "automountServiceAccountToken": false});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": pod}, "spec": spec})).unwrap();
            until("it runs", || world.phase(pod) == "Running").await;
        }
        let own = format!("{former}.{}", world.host_id());
        let mut of_then = Value::clone(&world.member.get("configmaps", SHOP, &own).unwrap());
        of_then["metadata"] = json!({"namespace": SHOP, "name": former, "labels": of_then["metadata"]["labels"],
            "annotations": of_then["metadata"]["annotations"]});
        world.member.create("configmaps", of_then).unwrap();
        let mount = |pod: &mut Value| pod["spec"]["volumes"][0]["configMap"]["name"] = json!(former);
        world.member.change("pods", SHOP, "web", mount).unwrap();
        sleep(Duration::from_mins(5)).await;
        world.host.change("configmaps", SHOP, root, |map| map["data"] = json!({"a": "new"})).unwrap();
        let has = |name: &str| world.member.get("configmaps", SHOP, name).map(|map| map["data"]["a"].clone());
        until("both follow", || [own.as_str(), former].iter().all(|name| has(name) == Some(json!("new")))).await;
        world.member.delete("configmaps", SHOP, former).unwrap();
        until("it is there again where somebody has deleted it", || has(former) == Some(json!("new"))).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert_eq!((has(former), has(&own)), (None, Some(json!("new"))));
    });
}

/// Else a pod of one host takes from another host's what that cannot do without.
#[test]
fn object_that_is_called_like_what_agents_make_for_themselves_is_put_into_no_member() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        give_secrets(&world, "true");
        for (pod, kind, name) in [
            ("a", "configmaps", "kosmos-csi.secrets.another"),
            ("b", "configmaps", "kosmos-csi.kube-root-ca.crt.another"),
            ("c", "secrets", "kosmos-csi-token-0123456789abcdef"),
        ] {
            world.host.create(kind, json!({"metadata": {"namespace": SHOP, "name": name}})).unwrap();
            let source = if kind == "secrets" { "secretRef" } else { "configMapRef" };
            let containers = json!([{"name": "c", "image": "i:1", "envFrom": [{source: {"name": name}}]}]);
            let spec = json!({"nodeName": NODE, "containers": containers, "automountServiceAccountToken": false});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": pod}, "spec": spec})).unwrap();
            until("it says why", || world.says(pod, "ObjectNotGiven", "give it another name")).await;
            assert!(world.copy(pod).is_none() && world.member.get(kind, SHOP, name).is_none(), "{name}");
        }
    });
}

/// API servers take any text there, and as a part of a path it would lead elsewhere.
#[test]
fn pod_that_names_what_can_be_no_name_has_nobody_asked_for_it_and_says_so() {
    story(1, async {
        let world = standing(1).await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        world.host.faults().set(move |one| {
            let is_meant = ["configmaps", "persistentvolumeclaims"].contains(&one.resource.as_str());
            if is_meant && one.namespace == SHOP && !one.name.is_empty() {
                lock(&noted).push(one.name.clone());
            }
            Action::Pass
        });
        for (pod, name) in [("a", "settings?watch=1"), ("b", "../secrets/keys"), ("c", "Settings")] {
            let volumes = json!([{"name": "v", "configMap": {"name": name}}]);
            let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": volumes,
                "automountServiceAccountToken": false});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": pod}, "spec": spec})).unwrap();
            until("it says why", || world.says(pod, "ObjectNotGiven", "correct its name")).await;
            let other = format!("{pod}-with-claim");
            world.run_pod(&other, Some(name));
            until("it waits", || world.says(&other, "WaitsForClaim", "does not exist yet")).await;
            assert!(world.copy(pod).is_none() && world.copy(&other).is_none(), "{name}");
        }
        assert_eq!(*lock(&asked), Vec::<String>::new());
    });
}

/// As a kubelet runs one whose optional object is not there.
#[test]
fn pod_runs_without_what_is_optional_and_called_like_what_agents_make_for_themselves() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        give_secrets(&world, "true");
        run_with_secret(&world);
        let (mark, theirs, token) = (
            format!("kosmos-csi.secrets.{}", world.host_id()),
            "kosmos-csi.kube-root-ca.crt.another",
            "kosmos-csi-token-0123456789abcdef",
        );
        for (kind, name) in [("configmaps", mark.as_str()), ("configmaps", theirs), ("secrets", token)] {
            let object = json!({"metadata": {"namespace": SHOP, "name": name}, "data": {"a": "YQ=="}});
            world.host.create(kind, object).unwrap();
        }
        let key = json!({"name": theirs, "key": "a", "optional": true});
        let containers = json!([{"name": "c", "image": "i:1", "env": [{"name": "A", "valueFrom": {"configMapKeyRef": key}}],
            "envFrom": [{"configMapRef": {"name": mark, "optional": true}}]}]);
        let sources = json!([{"configMap": {"name": theirs, "optional": true}}]);
        let secret = json!({"secretName": token, "optional": true});
        let volumes = json!([{"name": "a", "secret": secret}, {"name": "b", "projected": {"sources": sources}}]);
        let spec = json!({"nodeName": NODE, "containers": containers, "volumes": volumes, "imagePullSecrets": [{"name": token}],
            "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "maybe"}, "spec": spec})).unwrap();
        until("both run", || ["web", "maybe"].iter().all(|pod| world.phase(pod) == "Running")).await;
        let copy = world.copy("maybe").unwrap()["spec"].to_string();
        assert!(!copy.contains("kosmos-csi"), "it names what is not its own there: {copy}");
        sleep(Duration::from_mins(2)).await;
        for (kind, name) in [("configmaps", theirs), ("secrets", token)] {
            assert!(world.member.get(kind, SHOP, name).is_none(), "{name} is put into the member");
        }
        assert!(
            world.member.get("configmaps", SHOP, &mark).unwrap().get("data").is_none(),
            "the mark is the agent's own"
        );
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert!(world.copy("maybe").is_some());
        assert!(world.member.get("configmaps", SHOP, &mark).is_none(), "it stays for who was not given it");
    });
}

/// As a kubelet fills the volumes of a pod that runs, and empties them.
#[test]
fn what_is_optional_comes_to_a_pod_that_runs_when_the_host_has_it_and_goes_with_it() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        let map = json!({"name": "maybe", "optional": true});
        let volumes =
            json!([{"name": "a", "configMap": map}, {"name": "b", "projected": {"sources": [{"secret": map}]}}]);
        let containers = json!([{"name": "c", "image": "i:1", "envFrom": [{"configMapRef": map}]}]);
        let spec = json!({"nodeName": NODE, "containers": containers, "volumes": volumes,
            "imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        let copy = world.copy("web").unwrap();
        let places =
            ["volumes/0/configMap", "volumes/1/projected/sources/0/secret", "containers/0/envFrom/0/configMapRef"];
        for place in places {
            assert_eq!(text(&copy, &format!("/spec/{place}/name")), "maybe", "{copy}");
        }
        assert!(world.member.get("secrets", SHOP, "registry").is_none(), "nothing is read of it");
        let there = |kind: &str| world.member.get(kind, SHOP, "maybe");
        for kind in ["configmaps", "secrets"] {
            assert_eq!(there(kind).unwrap().get("data"), None, "{kind}");
            let object = json!({"metadata": {"namespace": SHOP, "name": "maybe"}, "data": {"a": "YQ=="}});
            world.host.create(kind, object).unwrap();
            until("it has come", || there(kind).is_some_and(|one| one["data"]["a"] == "YQ==")).await;
            world.host.delete(kind, SHOP, "maybe").unwrap();
            until("it has gone", || there(kind).is_some_and(|one| one.get("data").is_none())).await;
        }
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert!(["configmaps", "secrets"].into_iter().all(|kind| there(kind).is_none()), "it is left in the member");
    });
}

/// A pod that mounts the ConfigMap `settings` where that is there.
fn run_with_optional(world: &World, pod: &str) {
    let volumes = json!([{"name": "v", "configMap": {"name": "settings", "optional": true}}]);
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": volumes,
        "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": pod}, "spec": spec})).unwrap();
}

#[test]
fn pods_that_come_at_once_and_can_do_without_the_same_object_are_all_given_it_when_it_comes() {
    story(1, async {
        let world = standing(1).await;
        let pods = ["a", "b", "c", "d"];
        for pod in pods {
            run_with_optional(&world, pod);
        }
        until("all run", || pods.iter().all(|pod| world.phase(pod) == "Running")).await;
        for pod in pods {
            let copy = world.copy(pod).unwrap();
            assert_eq!(text(&copy, "/spec/volumes/0/configMap/name"), "settings", "{copy}");
        }
    });
}

#[test]
fn what_is_optional_and_not_in_the_host_is_nothing_of_somebody_elses_of_that_name_in_the_member() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        let theirs = of_another_host(&world, "settings");
        run_with_optional(&world, "maybe");
        until("it runs", || world.phase("maybe") == "Running").await;
        let spec = world.copy("maybe").unwrap()["spec"].to_string();
        assert!(!spec.contains("settings"), "{spec}");
        sleep(Duration::from_mins(5)).await;
        assert_eq!(world.member.get("configmaps", SHOP, "settings"), Some(theirs));
    });
}

/// As by a webhook there: on a node of the host nobody would have to take anything.
#[test]
fn pod_runs_without_what_is_optional_and_not_in_the_host_also_where_the_member_does_not_take_an_empty_one() {
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
        story(1, async {
            let world = standing(1).await;
            world.member.faults().set(move |asked| {
                let makes = asked.verb == Verb::Create && asked.resource == "configmaps";
                if makes { Action::Answer { code, reason } } else { Action::Pass }
            });
            run_with_optional(&world, "maybe");
            until("it runs", || world.phase("maybe") == "Running").await;
            let spec = world.copy("maybe").unwrap()["spec"].to_string();
            assert!(!spec.contains("settings"), "{spec}");
        });
    }
}

/// A kubelet leaves a pod what it was given.
#[test]
fn what_a_pod_that_runs_needs_stays_when_the_host_has_it_no_more_also_where_another_one_can_do_without() {
    story(1, async {
        let world = standing(1).await;
        run_with_settings(&world, SHOP);
        run_with_optional(&world, "maybe");
        until("both run", || ["web", "maybe"].iter().all(|pod| world.phase(pod) == "Running")).await;
        world.host.delete("configmaps", SHOP, "settings").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert_eq!(settings(&world, SHOP), "1");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("nobody needs it", || settings(&world, SHOP).is_null()).await;
        assert!(world.member.get("configmaps", SHOP, "settings").is_some());
    });
}

/// The member would put a token of an account there into it.
#[test]
fn pod_runs_without_an_optional_secret_for_a_token_and_an_event_says_so() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        let metadata = json!({"namespace": SHOP, "name": "robot", "annotations": {"kubernetes.io/service-account.name": "default"}});
        let secret =
            json!({"metadata": metadata, "type": "kubernetes.io/service-account-token", "data": {"a": "YQ=="}});
        world.host.create("secrets", secret).unwrap();
        let env = json!([{"secretRef": {"name": "robot", "optional": true}}]);
        let volumes = json!([{"name": "v", "secret": {"secretName": "robot", "optional": true}}]);
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}], "volumes": volumes,
            "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        let copy = world.copy("web").unwrap()["spec"].to_string();
        assert!(!copy.contains("robot") && world.member.get("secrets", SHOP, "robot").is_none(), "{copy}");
        let words = "Secret robot is of type kubernetes.io/service-account-token";
        let events = world.host.list("events");
        let mut said = events.iter().filter(|event| event["reason"] == "ObjectNotGiven");
        assert!(said.any(|event| text(event, "/message").contains(words)), "{events:?}");
    });
}

#[test]
fn secret_goes_also_where_the_mark_of_its_namespace_is_another_hosts() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        world.open_namespace(SHOP);
        let mark = of_another_host(&world, "kosmos-csi.secrets");
        run_with_secret(&world);
        until("it runs", || world.phase("web") == "Running").await;
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert!(world.member.get("secrets", SHOP, "keys").is_none(), "the Secret is left in the member");
        assert_eq!(world.member.get("configmaps", SHOP, "kosmos-csi.secrets"), Some(mark), "it is the other host's");
    });
}

/// As where a webhook there takes half a minute; nobody waits for the answer any more.
#[test]
fn secret_that_comes_late_to_a_member_goes_though_its_pod_has_gone_and_its_namespace_gives_none() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        let has_come = || world.member.get("secrets", SHOP, "keys").is_some();
        let is_asked = Arc::new(Mutex::new(false));
        let seen = Arc::clone(&is_asked);
        world.member.faults().set(move |asked| {
            if asked.verb != Verb::Create || asked.resource != "secrets" {
                return Action::Pass;
            }
            *lock(&seen) = true;
            Action::Late(Duration::from_secs(40))
        });
        run_with_secret(&world);
        until("it is asked for", || *lock(&is_asked)).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        give_secrets(&world, "false");
        until("the pod is gone", || world.pod("web").is_none()).await;
        assert!(!has_come(), "it comes later");
        until("it has come", has_come).await;
        until("it is gone again", || !has_come()).await;
        let mark = format!("kosmos-csi.secrets.{}", world.host_id());
        until("the mark too", || world.member.get("configmaps", SHOP, &mark).is_none()).await;
    });
}

/// The host's namespace gives nothing any more, the copy is gone, and no process remembers anything.
#[test]
fn new_agent_finds_secrets_in_a_namespace_that_another_host_has_marked_as_well() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        world.open_namespace(SHOP);
        let marks = ["kosmos-csi.secrets", "kosmos-csi.secrets.another"];
        let theirs = marks.map(|name| of_another_host(&world, name));
        run_with_secret(&world);
        until("it runs", || world.phase("web") == "Running").await;
        world.kill();
        for cluster in [&world.host, &world.member] {
            cluster.delete_now("pods", SHOP, "web").unwrap();
        }
        give_secrets(&world, "false");
        world.start("second");
        until("the Secret is gone", || world.member.get("secrets", SHOP, "keys").is_none()).await;
        let own = format!("kosmos-csi.secrets.{}", world.host_id());
        until("its own mark too", || world.member.get("configmaps", SHOP, &own).is_none()).await;
        assert_eq!(marks.map(|name| world.member.get("configmaps", SHOP, name)), theirs.map(Some));
    });
}

/// As of one in which an earlier version of this host was at work.
#[test]
fn mark_of_before_stands_for_secrets_until_the_namespace_has_one_of_the_hosts_own() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        run_with_secret(&world);
        until("it runs", || world.phase("web") == "Running").await;
        let own = format!("kosmos-csi.secrets.{}", world.host_id());
        let mut former = Value::clone(&world.member.get("configmaps", SHOP, &own).unwrap());
        former["metadata"] = json!({"namespace": SHOP, "name": "kosmos-csi.secrets", "labels": former["metadata"]["labels"],
            "annotations": former["metadata"]["annotations"]});
        world.member.create("configmaps", former).unwrap();
        world.member.delete("configmaps", SHOP, &own).unwrap();
        let has = |name: &str| world.member.get("configmaps", SHOP, name).is_some();
        until("it has its own", || has(&own)).await;
        until("that of before goes", || !has("kosmos-csi.secrets")).await;
        assert!(has(&own) && world.member.get("secrets", SHOP, "keys").is_some());
    });
}

/// As where somebody there has removed its RoleBinding; and an earlier version had marked the namespace.
#[test]
fn secrets_in_a_namespace_to_which_there_is_no_right_just_now_are_found_once_it_is_given_back() {
    for former in [false, true] {
        story(1, async {
            let (world, has_right) = (standing(1).await, Arc::new(Mutex::new(true)));
            let may = Arc::clone(&has_right);
            world.member.faults().set(move |asked| {
                let denied = asked.resource == "secrets" && !*lock(&may);
                if denied { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
            });
            give_secrets(&world, "true");
            run_with_secret(&world);
            until("it runs", || world.phase("web") == "Running").await;
            *lock(&has_right) = false;
            let mut mark = format!("kosmos-csi.secrets.{}", world.host_id());
            if former {
                let mut of_before = Value::clone(&world.member.get("configmaps", SHOP, &mark).unwrap());
                of_before["metadata"] = json!({"namespace": SHOP, "name": "kosmos-csi.secrets",
                    "labels": of_before["metadata"]["labels"], "annotations": of_before["metadata"]["annotations"]});
                world.member.create("configmaps", of_before).unwrap();
                world.member.delete("configmaps", SHOP, &mark).unwrap();
                mark = "kosmos-csi.secrets".to_owned();
            }
            give_secrets(&world, "false");
            world.host.delete("pods", SHOP, "web").unwrap();
            until("the copy is gone", || world.copy("web").is_none()).await;
            sleep(Duration::from_mins(5)).await;
            assert!(
                world.member.get("configmaps", SHOP, &mark).is_some(),
                "nothing says any more that there are Secrets"
            );
            *lock(&has_right) = true;
            until("the Secret is gone", || world.member.get("secrets", SHOP, "keys").is_none()).await;
            let has_marks = || {
                world
                    .member
                    .list("configmaps")
                    .iter()
                    .any(|map| text(map, "/metadata/name").starts_with("kosmos-csi.secrets"))
            };
            until("and all marks", || !has_marks()).await;
        });
    }
}

/// As a user recreates one for pulling images, which was of another type. Neither that nor what is immutable can be changed.
#[test]
fn secret_that_has_another_type_now_or_was_made_immutable_in_the_member_is_given_as_it_is_in_the_host() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        run_with_secret(&world);
        until("it runs", || world.phase("web") == "Running").await;
        let is = |kind: &str, data: &str| {
            let there = world.member.get("secrets", SHOP, "keys");
            there.is_some_and(|there| there["type"] == kind && there["data"]["a"] == data)
        };
        assert!(is("Opaque", "YQ=="));
        world.host.delete("secrets", SHOP, "keys").unwrap();
        let again =
            json!({"metadata": {"namespace": SHOP, "name": "keys"}, "type": "example.com/keys", "data": {"a": "Yg=="}});
        world.host.create("secrets", again).unwrap();
        until("it has its new type", || is("example.com/keys", "Yg==")).await;
        world.member.change("secrets", SHOP, "keys", |secret| secret["immutable"] = json!(true)).unwrap();
        world.host.change("secrets", SHOP, "keys", |secret| secret["data"]["a"] = json!("Yw==")).unwrap();
        until("it follows", || is("example.com/keys", "Yw==")).await;
        assert_eq!(world.phase("web"), "Running");
    });
}
