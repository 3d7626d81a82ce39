use serde_json::{Value, from_value, json};

use super::*;
use domain::volume::{DRIVER, MEMBER_KEY};

fn node(name: &str, member: &str) -> Node {
    from_value(json!({"metadata": {"name": name, "labels": {MEMBER_KEY: member}}})).unwrap()
}

fn pod(name: &str, node: Option<&str>, claims: &[&str]) -> Pod {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<_> = claims.iter().map(volume).collect();
    let spec = json!({"containers": [], "nodeName": node, "volumes": volumes});
    from_value(json!({"metadata": {"namespace": "x", "name": name}, "spec": spec})).unwrap()
}

/// Two nodes, one busier than the other, a class for both, and claims with these annotations, volumes and phases.
fn seen(claims: &[(&str, Value)]) -> Seen {
    let terms = json!([{"matchLabelExpressions": [{"key": MEMBER_KEY, "values": ["a", "b"]}]}]);
    let class = json!({"metadata": {"name": "c"}, "provisioner": DRIVER, "allowedTopologies": terms,
        "volumeBindingMode": "WaitForFirstConsumer"});
    let at_b = json!([{"matchExpressions": [{"key": MEMBER_KEY, "operator": "In", "values": ["b"]}]}]);
    let volume =
        json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": at_b}}}});
    let claims = claims.iter().map(|(name, claim)| {
        let mut claim = claim.clone();
        claim["metadata"]["name"] = json!(name);
        (("x".to_owned(), (*name).to_owned()), from_value(claim).unwrap())
    });
    Seen {
        nodes: vec![node("n-a", "a"), node("n-b", "b"), node("n-z", "z")],
        pods: vec![pod("old", Some("n-a"), &[])],
        claims: claims.collect(),
        volumes: HashMap::from([("pv".to_owned(), from_value(volume).unwrap())]),
        classes: HashMap::from([("c".to_owned(), from_value(class).unwrap())]),
        capacities: Vec::new(),
        limited: Vec::new(),
    }
}

fn waiting(node: Option<&str>) -> Value {
    json!({"metadata": {"annotations": node.map(|node| json!({SELECTED_NODE: node}))},
        "spec": {"storageClassName": "c"}})
}

fn bound() -> Value {
    json!({"spec": {"storageClassName": "c", "volumeName": "pv"}, "status": {"phase": "Bound"}})
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn pod_without_claims_goes_to_the_node_with_fewest_pods() {
    assert_eq!(decide(&pod("new", None, &[]), &seen(&[])), Decision::Bind { node: "n-b".to_owned() });
}

#[test]
fn volumes_are_asked_for_then_awaited_then_the_pod_is_bound() {
    let new = pod("new", None, &["one", "two"]);
    let (one, two) = (("one", waiting(None)), ("two", waiting(None)));
    let node = "n-b".to_owned();
    let both = names(&["one", "two"]);
    assert_eq!(decide(&new, &seen(&[one, two.clone()])), Decision::Select { node, claims: both.clone() });
    // Chosen before, and kept although another node has fewer pods by now.
    let (one, node) = (("one", waiting(Some("n-a"))), "n-a".to_owned());
    assert_eq!(
        decide(&new, &seen(&[one.clone(), two])),
        Decision::Select { node: node.clone(), claims: names(&["two"]) }
    );
    let two = ("two", waiting(Some("n-a")));
    assert_eq!(decide(&new, &seen(&[one, two])), Decision::Prepare { node, claims: both });
    let all = seen(&[("one", bound()), ("two", bound())]);
    assert_eq!(decide(&new, &all), Decision::Bind { node: "n-b".to_owned() });
}

#[test]
fn pod_waits_where_no_node_will_do_and_is_told_why() {
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
    let immediate = json!({"spec": {"storageClassName": "none"}});
    let lost = json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}});
    let early = json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Pending"}});
    for (claims, words) in [
        (vec![], "claim data does not exist"),
        (vec![("data", gone)], "claim data is being deleted"),
        (vec![("data", immediate)], "claim data has no class that exists"),
        (vec![("data", lost)], "claim data has lost its volume"),
        (vec![("data", early)], "claim data is not bound yet"),
        (vec![("data", waiting(Some("n-gone")))], "none of 3 nodes will do: 3 other than n-gone"),
        (vec![("data", waiting(Some("n-z")))], "2 other than n-z"),
    ] {
        let decision = decide(&pod("new", None, &["data"]), &seen(&claims));
        let Decision::Wait { reason } = &decision else { panic!("{words}: {decision:?}") };
        assert!(reason.contains(words), "{words}: {reason}");
    }
}

#[test]
fn node_without_room_is_left_out_until_it_is_selected() {
    let sized = |node| {
        let mut claim = waiting(node);
        claim["spec"]["resources"] = json!({"requests": {"storage": "2Gi"}});
        claim
    };
    let capacity = |member: &str, free: &str, largest: Option<&str>| -> CSIStorageCapacity {
        from_value(json!({"metadata": {}, "storageClassName": "c", "capacity": free, "maximumVolumeSize": largest,
            "nodeTopology": {"matchLabels": {MEMBER_KEY: member}}}))
        .unwrap()
    };
    let new = pod("new", None, &["data"]);
    let mut seen = seen(&[("data", sized(None))]);
    seen.limited = vec![DRIVER.to_owned()];
    let node_of = |decision| match decision {
        Decision::Select { node, .. } | Decision::Prepare { node, .. } => Ok(node),
        other => Err(format!("{other:?}")),
    };
    assert!(node_of(decide(&new, &seen)).unwrap_err().contains("enough free storage"), "nothing is told");
    seen.capacities = vec![capacity("a", "2Gi", None), capacity("b", "9Gi", Some("1Gi"))];
    assert_eq!(node_of(decide(&new, &seen)).unwrap(), "n-a");
    seen.claims.insert(("x".to_owned(), "data".to_owned()), from_value(sized(Some("n-b"))).unwrap());
    assert_eq!(node_of(decide(&new, &seen)).unwrap(), "n-b");
}

#[test]
fn node_whose_place_the_class_does_not_allow_is_left_out() {
    let mut seen = seen(&[("data", waiting(None))]);
    seen.nodes.retain(|node| node.name_any() == "n-z");
    let decision = decide(&pod("new", None, &["data"]), &seen);
    let expected = "none of 1 nodes will do: 1 that class c does not allow".to_owned();
    assert_eq!(decision, Decision::Wait { reason: expected });
}
