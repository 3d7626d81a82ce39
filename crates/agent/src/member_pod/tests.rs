use super::*;

fn asking(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}}})
}

fn pod(labels: &Value) -> Value {
    let requests = json!({"cpu": "250m", "memory": "256Mi"});
    let env: Vec<Value> =
        (0..20).map(|number| json!({"name": format!("NAME_{number}"), "value": "v".repeat(40)})).collect();
    let container = json!({"name": "c", "image": "registry.example.org/shop/web:1.2.3", "env": env, "resources": {"requests": requests}});
    json!({
        "metadata": {"namespace": "x", "name": "p", "uid": "c", "labels": labels, "annotations": {COPY_OF: "u", "seen": "b".repeat(500)}},
        "spec": {"nodeName": "a", "containers": [container], "volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn read(pod: &Arc<MemberPod>) -> Arc<Value> {
    MemberPod::read(pod, &Place { namespace: "x".to_owned(), name: "p".to_owned() })
}

fn asked_of(pod: &MemberPod) -> Vec<String> {
    pod.asked().map(|(resource, amount)| format!("{resource} {amount}")).collect()
}

#[test]
fn pod_asks_for_what_it_needs_at_once() {
    let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
    let containers = json!([asking("1"), asking("500m")]);
    for (init, overhead, cpu) in [
        (json!([]), Value::Null, 1500),
        (json!([asking("4")]), Value::Null, 4000),
        (json!([sidecar, asking("4")]), Value::Null, 5000),
        (json!([sidecar, asking("1")]), json!({"cpu": "10m"}), 2510),
    ] {
        let pod = json!({"spec": {"containers": containers, "initContainers": init, "overhead": overhead}});
        assert_eq!(asked(&pod)["cpu"], cpu, "{pod}");
    }
    let whole = json!({"spec": {"containers": containers, "resources": {"requests": {"cpu": "8"}}}});
    assert_eq!(asked(&whole)["cpu"], 8000);
}

#[test]
fn what_a_strangers_pod_asks_for_and_whether_it_runs_is_all_that_is_kept_of_it() {
    let mut stranger = pod(&json!({"app": "web"}));
    stranger["metadata"]["annotations"].as_object_mut().unwrap().remove(COPY_OF);
    let stranger = Arc::new(MemberPod::pack(stranger));
    assert_eq!((stranger.node(), stranger.runs(), stranger.is_over()), ("a", true, false));
    assert_eq!(asked_of(&stranger), ["cpu 250", "memory 268435456000", "pods 1000"]);
    assert!(!stranger.is_ours() && stranger.host_of_copy().is_none() && stranger.copy_of().is_none());
    assert!(!stranger.in_trouble() && stranger.mounts().next().is_none());
    assert_eq!(*read(&stranger), json!({"metadata": {"namespace": "x", "name": "p"}}));
    assert!(stranger.weight() < 300, "{} bytes", stranger.weight());
}

/// As where somebody there takes it over with Helm: it runs on, and writes on its volume.
#[test]
fn copy_whose_labels_somebody_has_taken_off_is_known_by_what_it_says_it_is_of_and_what_it_mounts() {
    for labels in [json!({}), json!({MANAGED_BY: "Helm", HOST: "h"}), json!({MANAGED_BY: DRIVER})] {
        let disowned = MemberPod::of(&pod(&labels));
        let known = (disowned.says_copy_of(), disowned.host_of_copy());
        assert_eq!(known, (Some("u"), Some(NOBODY.to_owned())), "{labels}");
        assert!(disowned.is_disowned() && disowned.mounts().eq(["x/data"]) && !disowned.is_of_host("h"), "{labels}");
        assert!(disowned.may_be_copy_of("h", "u") && !disowned.may_be_copy_of("h", "v"), "{labels}");
        assert!(!disowned.is_copy_of("h", "u"), "{labels}");
    }
    let mut long = pod(&json!({}));
    long["metadata"]["annotations"][COPY_OF] = json!("u".repeat(1000));
    assert!(!MemberPod::of(&long).is_disowned() && MemberPod::of(&long).mounts().next().is_none());
}

/// A scheduler takes no such pod; whoever makes it may have chosen its node.
#[test]
fn strangers_pod_that_names_resources_without_end_is_kept_in_little_room() {
    let mut stranger = pod(&json!({"app": "web"}));
    for number in 0..10_000 {
        let requests = &mut stranger["spec"]["containers"][0]["resources"]["requests"];
        requests[format!("example.com/{number}")] = json!("1");
    }
    let stranger = MemberPod::of(&stranger);
    assert!(stranger.weight() < 6000, "{} bytes", stranger.weight());
    let asked = asked_of(&stranger);
    assert!(["cpu 250", "memory 268435456000", "pods 1000"].iter().all(|one| asked.contains(&(*one).to_owned())));
}

#[test]
fn pod_with_our_labels_is_kept_whole_as_text() {
    let whole = pod(&json!({MANAGED_BY: DRIVER, HOST: "h"}));
    let ours = Arc::new(MemberPod::pack(whole.clone()));
    assert_eq!((ours.host_of_copy().as_deref(), ours.copy_of()), (Some("h"), Some("u")));
    assert!(ours.is_of_host("h") && !ours.is_of_host("other") && ours.mounts().eq(["x/data"]));
    assert_eq!(*read(&ours), whole);
    let (packed, tree, text) = (ours.weight(), whole.weight(), whole.to_string().len());
    assert!(packed < text + 400 && packed < tree, "{packed} bytes of {text}, {tree} as a tree");
}

#[test]
fn pod_that_is_over_asks_for_nothing_and_one_that_is_being_deleted_does_not_run() {
    let with = |pointer: &str, field: &str, value: &str| {
        let mut pod = pod(&json!({}));
        pod.pointer_mut(pointer).unwrap()[field] = json!(value);
        MemberPod::of(&pod)
    };
    for phase in ["Succeeded", "Failed"] {
        let over = with("/status", "phase", phase);
        assert!(over.is_over() && !over.runs() && asked_of(&over).is_empty(), "{phase}");
    }
    let leaving = with("/metadata", "deletionTimestamp", "2026-01-02T03:04:05Z");
    assert!(!leaving.runs() && !asked_of(&leaving).is_empty(), "what it asks for is taken still");
    assert!(!with("/status", "phase", "Pending").runs());
}

#[test]
fn all_containers_of_a_copy_count_that_were_started_again() {
    let count = |count: u64| json!([{"name": "a", "restartCount": count}, {"name": "b"}]);
    let status = json!({"initContainerStatuses": count(2), "containerStatuses": count(40)});
    assert_eq!(restarts(&json!({"status": status})), 42);
    let said = json!([{"restartCount": u64::MAX}, {"restartCount": 1}, {"restartCount": -1}]);
    assert_eq!(restarts(&json!({"status": {"containerStatuses": said}})), u64::MAX);
}

#[test]
fn copy_is_in_trouble_until_it_is_ready_or_done() {
    for (status, expected) in [
        (json!({"phase": "Pending"}), true),
        (json!({"phase": "Failed"}), false),
        (json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}), true),
        (json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), false),
        (json!({"phase": "Succeeded"}), false),
    ] {
        assert_eq!(in_trouble(&json!({"metadata": {}, "status": status})), expected, "{status}");
    }
    assert!(!in_trouble(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
}
