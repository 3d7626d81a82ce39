//! Somebody in the member writes our labels on objects of his own, to be given what the host has under their names.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep};

use super::{
    NAMESPACE, NODE, SHOP, STEP, World, give_secrets, lock, run_with_secret, standing, story, until, with_pod,
};

const OTHER: &str = "kube-system";
/// What marks of namespaces with Secrets begin with. One of an earlier version is called that.
const MARK: &str = "kosmos-csi.secrets";

/// Who asked the host for which object of these kinds.
fn asked_for(world: &World) -> Arc<Mutex<Vec<String>>> {
    let (life, asked_for) = (Arc::clone(&world.life), Arc::<Mutex<Vec<String>>>::default());
    let kept = Arc::clone(&asked_for);
    world.host.faults().set(move |asked| {
        if ["configmaps", "secrets", "serviceaccounts"].contains(&&*asked.resource) && !asked.name.is_empty() {
            lock(&kept).push(asked.to_string());
        }
        if lock(&life).dead { Action::Hang } else { Action::Pass }
    });
    asked_for
}

fn marked(world: &World, namespace: &str, name: &str, annotations: &Value) -> Value {
    let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": world.host_id()});
    json!({"namespace": namespace, "name": name, "labels": labels, "annotations": annotations})
}

/// A ConfigMap, a Secret, and one for a token, all empty; and a pod that names them and cannot be removed.
fn plant(world: &World, namespace: &str, pod_uid: &str) {
    let token = token_secret(pod_uid);
    for (kind, name, annotations) in [
        ("configmaps", "payroll", json!({"kosmos.csi.io/version": "x"})),
        ("secrets", "keys", json!({"kosmos.csi.io/version": "x"})),
        ("secrets", token.as_str(), json!({"kosmos.csi.io/renew-at": "0", "kosmos.csi.io/account": "default"})),
    ] {
        world.member.create(kind, json!({"metadata": marked(world, namespace, name, &annotations)})).unwrap();
    }
    let mut metadata = marked(world, namespace, "bait", &json!({"kosmos.csi.io/pod-uid": pod_uid}));
    metadata["finalizers"] = json!(["example.com/stays"]);
    let named = ["keys", &token].map(|name| json!({"name": name, "secret": {"secretName": name}}));
    let volumes: Vec<Value> =
        named.into_iter().chain([json!({"name": "a", "configMap": {"name": "payroll"}})]).collect();
    let spec = json!({"containers": [{"name": "c", "image": "i:1"}], "volumes": volumes});
    world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
}

/// Whoever knows a pod's UID knows what its tokens are called in a member.
fn token_secret(pod_uid: &str) -> String {
    let digest = Sha256::digest(pod_uid);
    format!("kosmos-csi-token-{:016x}", digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn has_data(world: &World, kind: &str, namespace: &str, name: &str) -> bool {
    world.member.get(kind, namespace, name).is_some_and(|object| object.get("data").is_some())
}

#[test]
fn object_with_our_labels_is_given_nothing_that_no_pod_of_the_host_names() {
    story(1, async {
        let world = standing(1).await;
        for namespace in [SHOP, OTHER] {
            for (kind, name) in [("configmaps", "payroll"), ("secrets", "keys")] {
                let object = json!({"metadata": {"namespace": namespace, "name": name}, "data": {"a": "YQ=="}});
                world.host.create(kind, object).unwrap();
            }
            let open = |namespace: &mut Value| namespace["metadata"]["labels"]["kosmos.csi.io/secrets"] = json!("true");
            world.host.change("namespaces", "", namespace, open).unwrap();
        }
        // Its namespace is in the member.
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        // On the node, as pods of DaemonSets are, and never run there.
        let uid = {
            let volumes = json!([{"name": "a", "configMap": {"name": "payroll"}}, {"name": "t", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}}]}}]);
            let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": volumes});
            let pod = json!({"metadata": {"namespace": OTHER, "name": "bait"}, "spec": spec});
            text(&world.host.create("pods", pod).unwrap(), "/metadata/uid").to_owned()
        };
        let asked_for = asked_for(&world);
        plant(&world, SHOP, "x");
        plant(&world, OTHER, &uid);
        for _ in 0..20 {
            sleep(Duration::from_secs(10)).await;
            for namespace in [SHOP, OTHER] {
                assert!(!has_data(&world, "configmaps", namespace, "payroll"), "{namespace}");
                let secrets = ["keys".to_owned(), token_secret("x"), token_secret(&uid)];
                let given = secrets.iter().find(|name| has_data(&world, "secrets", namespace, name));
                assert_eq!(given, None, "{namespace}");
            }
        }
        assert_eq!(*lock(&asked_for), Vec::<String>::new());
    });
}

/// In a namespace that the host has not.
fn plant_secrets(world: &World, namespace: &str, finalizers: &Value) {
    world.member.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
    for (kind, name) in [("configmaps", MARK), ("secrets", "a"), ("secrets", "b")] {
        let mut metadata = marked(world, namespace, name, &json!({"kosmos.csi.io/version": "x"}));
        if kind == "secrets" {
            metadata["finalizers"] = finalizers.clone();
        }
        world.member.create(kind, json!({"metadata": metadata})).unwrap();
    }
}

#[test]
fn secret_that_is_called_like_a_mark_is_removed_like_any_other() {
    story(1, async {
        let world = standing(1).await;
        let (own, namespace) = (format!("{MARK}.{}", world.host_id()), "planted");
        world.member.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        for (kind, name) in [("configmaps", own.as_str()), ("secrets", MARK), ("secrets", &own)] {
            let metadata = marked(&world, namespace, name, &json!({"kosmos.csi.io/version": "x"}));
            world.member.create(kind, json!({"metadata": metadata})).unwrap();
        }
        for kind in ["secrets", "configmaps"] {
            let is_there = |name: &str| world.member.get(kind, namespace, name).is_some();
            until(kind, || !is_there(MARK) && !is_there(&own)).await;
        }
    });
}

#[test]
fn secrets_with_our_labels_that_somebodys_finalizer_keeps_do_not_keep_others_from_being_removed() {
    story(1, async {
        let world = standing(1).await;
        for number in 0..120 {
            plant_secrets(&world, &format!("held-{number:03}"), &json!(["example.com/stays"]));
        }
        plant_secrets(&world, "planted", &json!([]));
        sleep(Duration::from_mins(2)).await;
        assert!(world.member.get("secrets", "held-000", "a").is_some(), "it is kept");
        assert!(world.member.get("secrets", "planted", "a").is_none());
    });
}

#[test]
fn host_is_asked_about_some_namespaces_at_a_time_whatever_secrets_with_our_labels_are_in_a_member() {
    story(1, async {
        let world = standing(1).await;
        for number in 0..150 {
            plant_secrets(&world, &format!("planted-{number}"), &json!([]));
        }
        world.host.faults().record(true);
        let asked = || {
            let log = world.host.faults().log();
            let asked = log.iter().filter(|asked| asked.verb == Verb::Get && asked.resource == "namespaces");
            asked.filter(|asked| asked.name.starts_with("planted-")).count()
        };
        for _ in 0..120 {
            let before = asked();
            sleep(Duration::from_secs(1)).await;
            assert!(asked() <= before + 100, "{} at one look", asked() - before);
        }
        assert_eq!(asked(), 150, "each once");
        let left = world.member.list("secrets");
        assert!(left.iter().all(|secret| !text(secret, "/metadata/namespace").starts_with("planted-")), "{left:?}");
    });
}

/// Whoever may read pods in the host knows their UIDs.
#[test]
fn member_says_nothing_of_a_pod_that_runs_elsewhere() {
    story(1, async {
        let world = standing(1).await;
        let spec = json!({"nodeName": "worker-1", "containers": [{"name": "c", "image": "i:1"}]});
        let pod =
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        let runs = |pod: &mut Value| pod["status"] = json!({"phase": "Running", "podIP": "10.1.0.7"});
        let before = world.host.change("pods", SHOP, "web", runs).unwrap()["status"].clone();
        let _ = world.member.create("namespaces", json!({"metadata": {"name": SHOP}}));
        let copy_of = json!({"kosmos.csi.io/pod-uid": pod["metadata"]["uid"]});
        let mut metadata = marked(&world, SHOP, "web", &copy_of);
        // It is removed, and speaks on.
        metadata["finalizers"] = json!(["example.com/stays"]);
        let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
        world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        for phase in ["Running", "Failed"] {
            let says = |pod: &mut Value| pod["status"] = json!({"phase": phase, "podIP": "10.9.9.9"});
            world.member.change("pods", SHOP, "web", says).unwrap();
            sleep(Duration::from_mins(1)).await;
            assert_eq!(world.host.get("pods", SHOP, "web").unwrap()["status"], before, "{phase}");
        }
        assert!(world.copy("web").unwrap()["metadata"]["deletionTimestamp"].is_string(), "it is of no pod here");
    });
}

/// Else a Service of the host leads where the member, or whoever may write pods there, wants it to.
#[test]
fn member_whose_networks_are_named_says_no_address_outside_of_them() {
    story(1, async {
        let world = with_pod().await;
        let says = |address: &'static str| {
            let says = |copy: &mut Value| {
                copy["status"]["podIP"] = json!(address);
                copy["status"]["podIPs"] = json!([{"ip": address}]);
            };
            world.member.change("pods", SHOP, "web", says).unwrap();
        };
        let address = || world.pod("web").map(|pod| text(&pod, "/status/podIP").to_owned()).unwrap_or_default();
        says("10.96.0.1");
        until("it is believed where nothing is named", || address() == "10.96.0.1").await;
        let name = |networks: &'static str| {
            let name = |secret: &mut Value| {
                secret["metadata"]["annotations"] = json!({"kosmos.csi.io/pod-networks": networks});
            };
            world.host.change("secrets", NAMESPACE, "m", name).unwrap();
        };
        name("10.244.0.0/16");
        until("it is believed no more", || address().is_empty()).await;
        assert!(world.says("web", "AddressNotTold", "10.96.0.1, which is in no network"));
        assert_eq!(world.phase("web"), "Running");
        says("10.244.3.7");
        until("its own is told", || address() == "10.244.3.7").await;
        assert!(world.says("web", "Copied", ""));
        name("10.244.0.0");
        until("a slip believes nothing", || address().is_empty()).await;
        assert!(world.says("web", "AddressNotTold", "no network such as 10.244.0.0/16"));
    });
}

/// Kubernetes writes none of a Service's endpoints where one of them is such an address, and other members have pods of the Service too.
#[test]
fn address_that_leads_to_no_pod_is_told_of_none() {
    story(1, async {
        let world = with_pod().await;
        let address = || world.pod("web").map(|pod| text(&pod, "/status/podIP").to_owned()).unwrap_or_default();
        for said in ["127.0.0.1", "169.254.169.254", "10.9.9.9"] {
            let says = |copy: &mut Value| {
                copy["status"]["podIP"] = json!(said);
                copy["status"]["podIPs"] = json!([{"ip": said}]);
            };
            world.member.change("pods", SHOP, "web", says).unwrap();
            let (told, words) = if said == "10.9.9.9" { (said, "") } else { ("", said) };
            until("it is told only where it can be one", || address() == told).await;
            until("it says why", || {
                world.says("web", if told.is_empty() { "AddressNotTold" } else { "Copied" }, words)
            })
            .await;
        }
    });
}

/// What a member says counts only while the node is there, and is not forgotten.
#[test]
fn what_a_copy_said_while_its_node_was_away_is_told_once_that_is_back() {
    story(1, async {
        let world = standing(1).await;
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "job"}, "spec": spec})).unwrap();
        until("it runs", || world.phase("job") == "Running").await;
        world.host.delete("nodes", "", NODE).unwrap();
        let ends = |pod: &mut Value| pod["status"]["phase"] = json!("Succeeded");
        world.member.change("pods", SHOP, "job", ends).unwrap();
        until("the node is back", || world.is_ready()).await;
        until("its end is told", || world.phase("job") == "Succeeded").await;
    });
}

/// One process serves all members, and what one of them says is its administrator's choice.
#[test]
fn member_whose_pods_take_too_much_room_runs_none_and_says_so() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        let names: Vec<String> = (0..50).map(|number| format!("bait-{number}")).collect();
        for name in &names {
            let metadata = marked(&world, SHOP, name, &json!({"kosmos.csi.io/mounts": "x".repeat(3 << 20)}));
            let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
            world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        let says = |words: &str| {
            let node = world.node().unwrap();
            let mut conditions = node["status"]["conditions"].as_array().unwrap().iter();
            conditions.any(|one| one["type"] == "Ready" && text(one, "/message").contains(words))
        };
        until("it says so", || says("its pods take more than 128 MiB")).await;
        let state = |state: &str| format!("kosmos_csi_member_state{{member=\"m\",state=\"{state}\"}} 1");
        let is_in = |wanted: &str| lock(&world.metrics).text().unwrap().contains(&state(wanted));
        assert!(is_in("unreadable"), "{}", lock(&world.metrics).text().unwrap());
        sleep(Duration::from_secs(30)).await;
        assert!(!world.is_ready(), "it is looked at again too soon");
        for name in &names {
            world.member.delete("pods", SHOP, name).unwrap();
        }
        until("it is ready again", || world.is_ready()).await;
        assert!(is_in("ok"), "{}", lock(&world.metrics).text().unwrap());
        world.run_pod("web", None);
        until("pods are run there", || world.phase("web") == "Running").await;
    });
}

/// They are as long as an API server tells any, as a tenant of the host may make his.
#[test]
fn member_whose_pods_are_too_long_for_one_answer_is_asked_for_fewer_at_a_time() {
    story(1, async {
        let world = World::new(1).await;
        world.open_namespace(SHOP);
        for number in 0..10 {
            let annotations = json!({"a": "x".repeat(8 << 20)});
            let metadata = json!({"namespace": SHOP, "name": format!("long-{number}"), "annotations": annotations});
            let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
            world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        }
        world.start("first");
        let begun = Instant::now();
        while !world.is_ready() {
            assert!(begun.elapsed() < Duration::from_mins(5), "its pods are not listed");
            sleep(STEP).await;
        }
        world.run_pod("web", None);
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// Each telling is a write of the whole pod in the host's store.
#[test]
fn copy_that_says_something_else_all_the_time_at_any_length_is_told_of_every_few_seconds_and_briefly() {
    story(1, async {
        let world = with_pod().await;
        let (life, told) = (Arc::clone(&world.life), Arc::<Mutex<Vec<usize>>>::default());
        let kept = Arc::clone(&told);
        world.host.faults().set(move |asked| {
            if asked.resource == "pods" && asked.subresource == "status" {
                lock(&kept).push(asked.body.to_string().len());
            }
            if lock(&life).dead { Action::Hang } else { Action::Pass }
        });
        let says = |number: u32| {
            let conditions = (0..100).map(|one| json!({"type": format!("T{number}-{one}"), "status": "True"}));
            let conditions: Vec<Value> = conditions.chain([json!({"type": "Ready", "status": "True"})]).collect();
            let injected = (0..100).map(|one| json!({"name": format!("injected-{one}"), "image": "i"}));
            let own = json!({"name": "c", "state": {"running": {}}, "restartCount": number});
            let says = |copy: &mut Value| {
                copy["status"]["message"] = json!(format!("{number}: \u{1b}[2J{}", "x".repeat(16 << 10)));
                copy["status"]["conditions"] = json!(conditions);
                copy["status"]["containerStatuses"] = injected.chain([own]).collect();
            };
            world.member.change("pods", SHOP, "web", says).unwrap();
        };
        for number in 0..600 {
            says(number);
            sleep(Duration::from_millis(100)).await;
        }
        let writes = lock(&told).clone();
        assert!((5..=30).contains(&writes.len()), "{} in a minute", writes.len());
        assert!(writes.iter().all(|size| *size < 16 << 10), "{writes:?}");
        until("the last word is told", || text(&world.pod("web").unwrap(), "/status/message").starts_with("599: "))
            .await;
        let status = world.pod("web").unwrap()["status"].clone();
        assert!(!status.to_string().contains("\\u001b"), "it steers a terminal");
        assert!(status["conditions"].as_array().unwrap().len() <= 32, "{}", status["conditions"]);
        assert_eq!(status["containerStatuses"].as_array().unwrap().len(), 1, "{}", status["containerStatuses"]);
    });
}

/// By a quota of the shop's namespace in the member.
pub(super) fn allow_secrets(world: &World, number: &str) {
    let (name, spec) = ("few", json!({"hard": {"secrets": number}}));
    let quota = json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec});
    if world.member.create("resourcequotas", quota).is_err() {
        world.member.change("resourcequotas", SHOP, name, |quota| quota["spec"] = spec).unwrap();
    }
}

#[test]
fn secret_that_a_quota_of_the_member_refuses_is_told_as_that_and_comes_once_there_is_room() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        allow_secrets(&world, "0");
        give_secrets(&world, "true");
        run_with_secret(&world);
        let says = |words: &str| world.says("web", "QuotaExceeded", words);
        until("it says why it waits", || says("a Secret in namespace shop, as a quota there is used up")).await;
        assert!(says("`kubectl -n shop describe resourcequota`"), "what to do");
        allow_secrets(&world, "9");
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// As where somebody there has removed it, and its quota of ConfigMaps is full since.
#[test]
fn namespace_that_takes_no_mark_keeps_no_secret_from_being_kept_up_to_date_and_a_new_one_says_why_it_waits() {
    story(1, async {
        let (world, full) = (standing(1).await, Arc::new(Mutex::new(true)));
        let is_full = Arc::clone(&full);
        world.member.faults().set(move |asked| {
            let is_mark = asked.verb == Verb::Create && text(&asked.body, "/metadata/name").starts_with(MARK);
            if is_mark && *lock(&is_full) { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        give_secrets(&world, "true");
        run_with_secret(&world);
        until("it says why it waits", || world.says("web", "NoRight", "a Secret of namespace shop")).await;
        *lock(&full) = false;
        until("it runs", || world.phase("web") == "Running").await;
        *lock(&full) = true;
        world.member.delete("configmaps", SHOP, &format!("{MARK}.{}", world.host_id())).unwrap();
        world.host.change("secrets", SHOP, "keys", |secret| secret["data"] = json!({"a": "Yg=="})).unwrap();
        let follows = || world.member.get("secrets", SHOP, "keys").is_some_and(|secret| secret["data"]["a"] == "Yg==");
        until("it follows", follows).await;
        give_secrets(&world, "false");
        until("nothing is left of it", || world.member.get("secrets", SHOP, "keys").is_none()).await;
    });
}
