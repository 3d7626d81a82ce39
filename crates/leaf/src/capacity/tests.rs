use k8s_openapi::serde_json::{Value, from_value, json};

use super::*;

const GIB: u64 = 1 << 30;

fn object(class: &str, topology: &Value, capacity: &str, largest: Option<&str>) -> CSIStorageCapacity {
    from_value(json!({"metadata": {}, "storageClassName": class, "nodeTopology": topology, "capacity": capacity,
        "maximumVolumeSize": largest}))
    .unwrap()
}

fn on(node: &str) -> Value {
    json!({"matchLabels": {"topology.example.org/node": node}})
}

fn cache(objects: Vec<CSIStorageCapacity>) -> CapacityCache {
    let cache = CapacityCache::default();
    cache.hear(by_class(objects));
    cache
}

fn room(free: u64, largest: u64) -> Room {
    Room { free: free * GIB, largest: Some(largest * GIB) }
}

#[tokio::test]
async fn member_that_says_nothing_of_a_class_has_no_limit() {
    let silent = Room { free: UNLIMITED, largest: None };
    assert_eq!(CapacityCache::default().room("fast", None), silent);
    assert_eq!(cache(vec![object("slow", &on("n1"), "1Gi", None)]).room("fast", Some("n1")), silent);
}

#[tokio::test]
async fn room_on_nodes_adds_up_and_the_largest_piece_is_told() {
    let two = vec![object("fast", &on("n1"), "10Gi", None), object("fast", &on("n2"), "6Gi", Some("4Gi"))];
    let cache = cache(two);
    assert_eq!(cache.room("fast", None), room(16, 10));
    assert_eq!(cache.room("fast", Some("n2")), room(6, 4));
    assert_eq!(cache.room("fast", Some("n3")), room(0, 0));
}

#[tokio::test]
async fn room_of_a_zone_counts_for_every_node() {
    let zone = json!({"matchLabels": {"topology.kubernetes.io/zone": "z"}});
    let cache = cache(vec![object("net", &zone, "8Gi", None)]);
    assert_eq!(cache.room("net", Some("n1")), room(8, 8));
    assert_eq!(cache.nodes("net", GIB), None);
}

#[tokio::test]
async fn what_no_node_can_use_and_what_is_not_known_is_left_out() {
    let unreachable = object("fast", &Value::Null, "10Gi", None);
    let unknown: CSIStorageCapacity =
        from_value(json!({"metadata": {}, "storageClassName": "fast", "nodeTopology": {}})).unwrap();
    assert_eq!(cache(vec![unreachable, unknown]).room("fast", None).free, UNLIMITED);
}

#[tokio::test]
async fn while_a_refusal_is_remembered_less_than_its_size_is_told() {
    let cache = cache(vec![object("fast", &on("n1"), "10Gi", None)]);
    cache.refuse("fast", None, 5 * GIB);
    assert_eq!(cache.room("fast", None), Room { free: 5 * GIB - 1, largest: Some(5 * GIB - 1) });
    assert_eq!(cache.room("other", None).free, UNLIMITED);
    cache.refuse("other", None, 5 * GIB);
    assert_eq!(cache.room("other", None).fits(), 5 * GIB - 1, "also where the member says nothing");
    cache.forget_refusals();
    assert_eq!(cache.room("fast", None), room(10, 10));
}

#[tokio::test]
async fn nodes_with_room_are_named_the_roomiest_first() {
    let all = ["n1", "n2", "n3", "n4"].iter().zip(["3Gi", "9Gi", "6Gi", "1Gi"]);
    let cache = cache(all.map(|(node, free)| object("fast", &on(node), free, None)).collect());
    assert_eq!(cache.nodes("fast", 2 * GIB).unwrap(), ["n2", "n3", "n1"]);
    cache.refuse("fast", Some("n2"), 2 * GIB);
    assert_eq!(cache.nodes("fast", 2 * GIB).unwrap(), ["n3", "n1"]);
    assert_eq!(cache.nodes("fast", GIB).unwrap(), ["n2", "n3", "n1", "n4"], "a smaller one was not refused");
    assert_eq!(cache.nodes("fast", 20 * GIB).unwrap(), Vec::<String>::new());
}

#[test]
fn node_is_read_from_the_label_that_is_called_as_one() {
    for (topology, node) in [
        (json!({"matchLabels": {"kubernetes.io/hostname": "a"}}), Some("a")),
        (json!({"matchLabels": {"openebs.io/nodename": "a"}}), Some("a")),
        (json!({"matchLabels": {"topology.kubernetes.io/zone": "z"}}), None),
        (
            json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}),
            Some("a"),
        ),
        (
            json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}]}),
            None,
        ),
        (json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a"]}]}), None),
        (json!({}), None),
    ] {
        assert_eq!(node_of(&from_value(topology.clone()).unwrap()).as_deref(), node, "{topology}");
    }
}

#[test]
fn volume_that_is_bound_to_one_node_names_it() {
    let volume = |terms: Value| -> PersistentVolume {
        from_value(json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})).unwrap()
    };
    let term =
        |key: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
    for (terms, node) in [
        (json!([term("kubernetes.io/hostname", json!(["a"]))]), Some("a")),
        (json!([term("storage.example.org/node", json!(["a"]))]), Some("a")),
        (json!([term("kubernetes.io/hostname", json!(["a", "b"]))]), None),
        (json!([term("kubernetes.io/hostname", json!(["a"])), term("kubernetes.io/hostname", json!(["b"]))]), None),
        (json!([term("topology.kubernetes.io/zone", json!(["a"]))]), None),
        (json!([term("kubernetes.io/hostname", json!(["a".repeat(64)]))]), None),
    ] {
        assert_eq!(node_of_volume(&volume(terms.clone())), node, "{terms}");
    }
    assert_eq!(node_of_volume(&PersistentVolume::default()), None);
}

#[test]
fn quotas_leave_the_least_of_what_bears_on_the_claim() {
    let quota = |scopes: Value, hard: Value, used: Value| -> ResourceQuota {
        from_value(json!({"spec": {"scopes": scopes}, "status": {"hard": hard, "used": used}})).unwrap()
    };
    let of_class = "fast.storageclass.storage.k8s.io/requests.storage";
    for (hard, used, expected) in [
        (json!({"requests.storage": "10Gi"}), json!({"requests.storage": "4Gi"}), Some(6 * GIB)),
        (json!({"requests.storage": "10Gi", of_class: "3Gi"}), json!({of_class: "1Gi"}), Some(2 * GIB)),
        (json!({"persistentvolumeclaims": "2"}), json!({"persistentvolumeclaims": "1"}), None),
        (json!({"persistentvolumeclaims": "2"}), json!({"persistentvolumeclaims": "2"}), Some(0)),
        (json!({"slow.storageclass.storage.k8s.io/requests.storage": "1Gi"}), json!({}), None),
        (json!({"pods": "0"}), json!({}), None),
    ] {
        let found = for_claims(&left(&quota(Value::Null, hard.clone(), used.clone())), "fast");
        assert_eq!(found, expected, "{hard} {used}");
    }
    let scoped = quota(json!(["Terminating"]), json!({"requests.storage": "1"}), json!({}));
    assert_eq!(for_claims(&left(&scoped), "fast"), None);
}
