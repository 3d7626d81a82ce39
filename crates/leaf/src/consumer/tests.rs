use k8s_openapi::serde_json::{Value, from_value, json, to_value};

use super::*;
use domain::volume::HostId;

fn constraints(spec: Value, nodes: &[&str]) -> Constraints {
    Constraints::of(Some(&from_value(spec).unwrap()), nodes)
}

fn required(terms: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
}

fn preferred(keys: &[&str]) -> Value {
    let term = |key: &&str| json!({"weight": 100, "preference": {"matchExpressions": [expression(key)]}});
    json!({"preferredDuringSchedulingIgnoredDuringExecution": keys.iter().map(term).collect::<Vec<_>>()})
}

fn expression(key: &str) -> Value {
    json!({"key": key, "operator": "In", "values": ["x"]})
}

/// A port of the node would be held against the pod's copy, and the level baseline has none.
#[test]
fn pod_asks_for_what_the_pods_copy_asks_for_and_for_no_port_of_the_node() {
    let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let port = json!({"containerPort": 80, "hostPort": 80});
    let found = constraints(
        json!({
            "containers": [{"name": "a", "ports": [port], "resources": asks("1")}],
            "initContainers": [{"name": "b", "resources": asks("2")}],
            "resources": {"requests": {"cpu": "3"}, "claims": [{"name": "gpu"}]},
            "overhead": {"cpu": "1"},
            "runtimeClassName": "kata",
        }),
        &[],
    );
    let spec = manifest("shop", BTreeMap::new(), String::new(), &[], &found).spec.unwrap();
    let container = &spec.containers[0];
    assert_eq!(to_value(&container.resources).unwrap(), asks("2"));
    assert_eq!(to_value(&spec.resources).unwrap(), asks("3"));
    assert_eq!((&container.ports, &spec.init_containers), (&None, &None));
    assert_eq!(spec.runtime_class_name.as_deref(), Some("kata"));
    assert_eq!(spec.overhead, None, "the member adds its own, and refuses another");
}

/// The copy drops them: a label may be one of the host's nodes alone.
#[test]
fn labels_of_nodes_are_preferred_and_not_required_as_the_pods_copy_does_not_require_them() {
    let found = constraints(
        json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
            "nodeSelector": {"kubernetes.io/hostname": "kosmos-cluster38", "disk": "x"},
            "tolerations": [
                {"key": "kosmos.io/node", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
                {"key": "dedicated", "operator": "Exists"},
            ],
            "affinity": {"nodeAffinity": required(&json!([
                {"matchExpressions": [expression("kubernetes.io/hostname"), expression("pool")]},
            ]))},
        }),
        &[],
    );
    assert_eq!(found.tolerations.len(), 1);
    assert_eq!(found.resources.len(), 1);
    assert_eq!(to_value(&found.affinity).unwrap(), json!({"nodeAffinity": preferred(&["disk", "pool"])}));
    let pod = manifest("shop", BTreeMap::new(), String::new(), &[], &found);
    assert_eq!(pod.spec.unwrap().node_selector, None);
}

/// No node of a member has that label.
#[test]
fn affinity_to_pods_is_that_of_the_pods_copy_without_what_is_decided_among_members() {
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
    let (node, member) = (term("kubernetes.io/hostname"), term("topology.kosmos.csi.io/member"));
    let apart = |terms: &[&Value]| json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    let both = json!({"podAffinity": apart(&[&member]), "podAntiAffinity": apart(&[&node, &member])});
    let found = constraints(json!({"containers": [], "affinity": both}), &[]);
    let expected = json!({"podAffinity": apart(&[]), "podAntiAffinity": apart(&[&node])});
    assert_eq!(to_value(&found.affinity).unwrap(), expected);
}

#[test]
fn affinity_that_only_names_the_virtual_node_asks_for_nothing_in_the_member() {
    let found = constraints(
        json!({
            "containers": [],
            "affinity": {"nodeAffinity": required(&json!([
                {"matchExpressions": [expression("kubernetes.io/hostname")]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["kosmos-cluster38"]}]},
            ]))},
        }),
        &[],
    );
    assert_eq!(found, Constraints::of(None, &[]));
    assert_eq!(found, Constraints::default());
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
fn pod_for_one_node_requires_it_and_no_label() {
    let field = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
    let on_node = |spec: Value| to_value(constraints(spec, &["n1"]).affinity).unwrap()["nodeAffinity"].clone();
    let named = required(&json!([{"matchFields": field}]));
    assert_eq!(on_node(json!({"containers": []})), named);
    assert_eq!(to_value(Constraints::of(None, &["n1"]).affinity).unwrap(), json!({"nodeAffinity": named}));
    let terms = json!([{"matchExpressions": [expression("disk")]}, {"matchExpressions": [expression("gpu")]}]);
    let spec = json!({"containers": [], "affinity": {"nodeAffinity": required(&terms)}});
    let mut expected = preferred(&["disk", "gpu"]);
    expected["requiredDuringSchedulingIgnoredDuringExecution"] =
        named["requiredDuringSchedulingIgnoredDuringExecution"].clone();
    assert_eq!(on_node(spec), expected);
}

/// Kubernetes takes one value for each rule of a field.
#[test]
fn pod_for_some_nodes_requires_one_of_them() {
    let named = |node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let affinity = to_value(Constraints::of(None, &["n1", "n2"]).affinity).unwrap();
    assert_eq!(affinity, json!({"nodeAffinity": required(&json!([named("n1"), named("n2")]))}));
}
