use k8s_openapi::serde_json::{Value, from_value, json, to_value};

use super::*;
use domain::volume::HostId;

fn constraints(spec: Value) -> Constraints {
    Constraints::of(&from_value(spec).unwrap())
}

fn node_affinity(terms: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
}

fn expression(key: &str) -> Value {
    json!({"key": key, "operator": "In", "values": ["x"]})
}

#[test]
fn what_names_the_virtual_node_is_left_out_and_the_rest_is_kept() {
    let found = constraints(json!({
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
        "nodeSelector": {"kubernetes.io/hostname": "kosmos-cluster38", "disk": "ssd"},
        "tolerations": [
            {"key": "kosmos.io/node", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            {"key": "dedicated", "operator": "Exists"},
        ],
        "affinity": {"nodeAffinity": node_affinity(&json!([
            {"matchExpressions": [expression("kubernetes.io/hostname"), expression("disk")]},
        ]))},
    }));
    assert_eq!(found.node_selector, BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]));
    assert_eq!(found.tolerations.len(), 1);
    assert_eq!(found.resources.len(), 1);
    let expected = json!({"nodeAffinity": node_affinity(&json!([{"matchExpressions": [expression("disk")]}]))});
    assert_eq!(to_value(&found.affinity).unwrap(), expected);
}

#[test]
fn affinity_that_only_names_the_virtual_node_demands_nothing_in_the_member() {
    let found = constraints(json!({
        "containers": [],
        "affinity": {"nodeAffinity": node_affinity(&json!([
            {"matchExpressions": [expression("kubernetes.io/hostname")]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["kosmos-cluster38"]}]},
        ]))},
    }));
    assert_eq!(to_value(&found.affinity).unwrap(), json!({"nodeAffinity": {}}));
}

#[test]
fn pod_passes_the_restricted_level_and_mounts_every_claim() {
    let host = HostId("h".to_owned());
    let hash = VolumeHash::new(&host, "pvc-1");
    let claims = [("data", false), ("raw", true)].map(|(claim, block)| Consumed {
        claim: claim.to_owned(),
        uid: format!("uid-of-{claim}"),
        block,
    });
    let labels = ownership::labels(&host, hash);
    let pod = manifest("shop", labels, pod_name(hash), &claims, &Constraints::default());
    let owner = &pod.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("PersistentVolumeClaim", "uid-of-data"));
    assert!(owner.block_owner_deletion.is_none(), "that would need a right on the claim's finalizers");
    let spec = pod.spec.unwrap();
    assert_eq!(spec.active_deadline_seconds, Some(300));
    let security = spec.security_context.unwrap();
    assert_eq!(
        (security.run_as_non_root, security.seccomp_profile.unwrap().type_.as_str()),
        (Some(true), "RuntimeDefault")
    );
    assert_eq!(spec.volumes.unwrap().len(), 2);
    let container = &spec.containers[0];
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.capabilities.as_ref().unwrap().drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert_eq!(container.volume_mounts.as_ref().unwrap()[0].name, "claim-0");
    assert_eq!(container.volume_devices.as_ref().unwrap()[0].name, "claim-1");
    assert_eq!(container.image_pull_policy.as_deref(), Some("Never"));
    assert_eq!(spec.node_name, None, "the member's scheduler chooses");
    assert!(pod.metadata.name.unwrap().len() <= 63);
}

#[test]
fn pod_for_one_node_names_it_beside_what_the_host_pod_demands() {
    let field = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
    let on_node = |spec: Value| {
        let wishes = Constraints { node: Some("n1".to_owned()), ..constraints(spec) };
        to_value(wishes.affinity().unwrap()).unwrap()["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"]
            .clone()
    };
    assert_eq!(on_node(json!({"containers": []})), json!([{"matchFields": field}]));
    let terms = json!([{"matchExpressions": [expression("disk")]}, {"matchExpressions": [expression("gpu")]}]);
    let spec = json!({"containers": [], "affinity": {"nodeAffinity": node_affinity(&terms)}});
    let expected = json!([
        {"matchExpressions": [expression("disk")], "matchFields": field},
        {"matchExpressions": [expression("gpu")], "matchFields": field},
    ]);
    assert_eq!(on_node(spec), expected);
}
