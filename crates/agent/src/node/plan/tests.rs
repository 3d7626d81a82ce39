use super::{super::super::virtual_node::is_of_clustertree, *};
use domain::volume::MEMBER_KEY;

fn virtual_node() -> VirtualNodeId {
    VirtualNodeId { member: "m".to_owned(), node: None }
}

/// As an API server does with a JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut target[field], value);
        }
    }
}

/// Takes every step until there is none, and tells them.
fn converge(virtual_node: &VirtualNodeId, node: &mut Option<Value>, csi_node: &mut Option<Value>) -> Vec<&'static str> {
    let mut told = Vec::new();
    loop {
        told.push(match step(virtual_node, "amd64", node.as_ref(), csi_node.as_ref()) {
            NodeStep::CreateNode(mut made) => {
                made["metadata"]["uid"] = json!("n1");
                *node = Some(made);
                "node"
            }
            NodeStep::PatchNode(patch) => {
                merge(node.as_mut().unwrap(), &patch);
                "patch"
            }
            NodeStep::CreateCsiNode(made) => {
                *csi_node = Some(made);
                "csi"
            }
            NodeStep::PatchCsiNode(patch) => {
                merge(csi_node.as_mut().unwrap(), &patch);
                "csi-patch"
            }
            NodeStep::Uncordon(patch) => {
                merge(node.as_mut().unwrap(), &patch);
                "uncordon"
            }
            NodeStep::Foreign(_) => "foreign",
            NodeStep::Wait => "wait",
            NodeStep::Done => return told,
        });
        assert!(told.len() < 10, "{told:?}");
    }
}

fn standing() -> (Option<Value>, Option<Value>) {
    let (mut node, mut csi_node) = (None, None);
    converge(&virtual_node(), &mut node, &mut csi_node);
    (node, csi_node)
}

#[test]
fn label_that_brings_pods_comes_last() {
    let (mut node, mut csi_node) = (None, None);
    assert_eq!(converge(&virtual_node(), &mut node, &mut csi_node), ["node", "csi", "patch"]);
    let (node, csi_node) = (node.unwrap(), csi_node.unwrap());
    assert_eq!(node["metadata"]["labels"][MEMBER_KEY], "m");
    assert_eq!(node["metadata"]["annotations"][ATTACHED_BY_CONTROLLER], "true");
    let entry = json!({"name": DRIVER, "nodeID": "virtual/m", "topologyKeys": [MEMBER_KEY]});
    assert_eq!(csi_node["spec"]["drivers"], json!([entry]));
    assert_eq!(csi_node["metadata"]["ownerReferences"][0]["uid"], "n1");
}

#[test]
fn what_is_damaged_is_put_right_and_what_was_added_stays() {
    for (path, damage) in [
        ("/metadata/labels/kosmos.io~1node", json!("no")),
        ("/metadata/labels/topology.kosmos.csi.io~1member", json!("other")),
        ("/metadata/labels/kubernetes.io~1hostname", json!("x")),
        ("/metadata/labels/node.kubernetes.io~1exclude-from-external-load-balancers", json!("")),
        ("/metadata/annotations", json!({ID: "virtual/m"})),
        ("/spec/taints", json!([])),
    ] {
        let (mut node, mut csi_node) = standing();
        let sound = node.clone();
        *node.as_mut().unwrap().pointer_mut(path).unwrap() = damage;
        converge(&virtual_node(), &mut node, &mut csi_node);
        assert_eq!(node, sound, "{path}");
    }
    let (mut node, mut csi_node) = standing();
    node.as_mut().unwrap()["metadata"]["labels"]["mine"] = json!("1");
    node.as_mut().unwrap()["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]);
    assert_eq!(converge(&virtual_node(), &mut node, &mut csi_node), ["patch"]);
    assert_eq!(node.as_ref().unwrap()["metadata"]["labels"]["mine"], "1");
    assert_eq!(node.unwrap()["spec"]["taints"].as_array().unwrap().len(), 2);
}

#[test]
fn csi_node_is_put_right_as_well() {
    let other = json!({"name": "other.csi.io", "nodeID": "x", "topologyKeys": null});
    for drivers in [json!([other]), json!([{"name": DRIVER, "nodeID": "virtual/x", "topologyKeys": []}, other])] {
        let (mut node, mut csi_node) = standing();
        csi_node.as_mut().unwrap()["spec"]["drivers"] = drivers;
        csi_node.as_mut().unwrap()["metadata"]["ownerReferences"][0]["uid"] = json!("a node before");
        converge(&virtual_node(), &mut node, &mut csi_node);
        let csi_node = csi_node.unwrap();
        assert_eq!(csi_node["spec"]["drivers"].as_array().unwrap().len(), 2);
        assert!(items(&csi_node, "/spec/drivers").any(|driver| driver["nodeID"] == "virtual/m"));
        assert_eq!(csi_node["metadata"]["ownerReferences"][0]["uid"], "n1");
    }
}

#[test]
fn member_that_says_it_has_nodes_without_number_has_a_thousand_in_the_host() {
    let virtual_nodes = |count: usize| -> Vec<VirtualNodeId> {
        (0..count).map(|number| VirtualNodeId { member: "m".to_owned(), node: Some(format!("n{number:05}")) }).collect()
    };
    let (mut enough, mut many) = (virtual_nodes(1000), virtual_nodes(50_000));
    assert_eq!(limit("m", &mut enough), None);
    assert!(limit("m", &mut many).unwrap().contains("member m reports more than 1000 nodes"));
    assert!(many == enough, "the first by name");
}

#[test]
fn name_that_nodes_of_two_members_could_have_is_that_of_the_member_with_the_longer_name() {
    let of = |member: &str, node: &str| VirtualNodeId { member: member.to_owned(), node: Some(node.to_owned()) };
    assert_eq!(of("a", "b-n1").name(), of("a-b", "n1").name());
    let all = || vec![of("a", "b"), of("a", "b-n1"), of("a", "bn1"), of("a", "n1")];
    let mut left = all();
    let (none, all_there) = (|_: &VirtualNodeId| false, |_: &VirtualNodeId| true);
    let told = ambiguous(&["a-b".to_owned()], &mut left, none).unwrap();
    assert_eq!(left, [of("a", "bn1"), of("a", "n1")]);
    assert!(
        told.contains(
            "node b of member a gets no virtual node, as its name here would be kosmos-a-b, which a node of member a-b"
        ),
        "{told}"
    );
    let (mut others, mut longer, mut whole) =
        (all(), vec![of("a-b", "n1")], vec![VirtualNodeId { member: "a".to_owned(), node: None }]);
    assert_eq!(ambiguous(&["a-c".to_owned()], &mut others, none), None);
    assert_eq!(ambiguous(&[], &mut longer, none), None);
    assert_eq!(ambiguous(&["a-b".to_owned()], &mut whole, none), None, "a member's own name is nobody else's");
    assert_eq!((others, longer.len(), whole.len()), (all(), 1, 1));
    let mut there = all();
    assert_eq!(ambiguous(&["a-b".to_owned()], &mut there, all_there), None, "who has the Node keeps it");
    assert_eq!(there, all());
}

#[test]
fn node_of_another_member_is_not_said_to_be_anybodys_to_delete() {
    let of = |member: &str, node: &str| VirtualNodeId { member: member.to_owned(), node: Some(node.to_owned()) };
    let NodeStep::CreateNode(theirs) = step(&of("a", "b-n1"), "amd64", None, None) else { panic!("it is not made") };
    let NodeStep::Foreign(said) = step(&of("a-b", "n1"), "amd64", Some(&theirs), None) else { panic!("it is touched") };
    assert!(said.contains("stands for a node of member a,") && !said.contains("Delete"), "{said}");
}

#[test]
fn node_that_goes_says_why() {
    let whole = virtual_node();
    let one = VirtualNodeId { node: Some("n1".to_owned()), ..virtual_node() };
    for (virtual_node, ours, is_there, why) in [
        (&one, true, false, "member m has no node n1 any more"),
        (&one, true, true, "other virtual nodes stand for member m now"),
        (&whole, true, true, "other virtual nodes stand for member m now"),
        (&one, false, true, "Kosmos clustertree keeps the nodes of member m"),
    ] {
        assert_eq!(departed(virtual_node, ours, is_there), why);
    }
}

#[test]
fn node_that_is_not_ours_is_left_alone() {
    let foreign = json!({"metadata": {"name": "kosmos-m", "labels": {LABEL: "true"}}});
    let NodeStep::Foreign(said) = step(&virtual_node(), "amd64", Some(&foreign), None) else { panic!("it is touched") };
    assert!(said.contains("Node kosmos-m") && said.len() < 900);
}

#[test]
fn node_of_clustertree_gets_only_what_it_lacks() {
    let metadata = json!({"name": "kosmos-m", "uid": "n", "labels": {LABEL: "true"}, "annotations": {"kosmos-io/owned-by-cluster": "m"}});
    let mut node = json!({"metadata": metadata});
    assert!(is_of_clustertree(&node, "m") && !is_of_clustertree(&node, "other"));
    let mut csi_node = None;
    let mut told = Vec::new();
    while told.len() < 5 {
        match clustertree_step(&virtual_node(), &node, csi_node.as_ref()) {
            NodeStep::PatchNode(patch) => {
                told.push(patch["metadata"].as_object().unwrap().keys().next().unwrap().clone());
                merge(&mut node, &patch);
            }
            NodeStep::CreateCsiNode(made) => csi_node = Some(made),
            NodeStep::Done => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, ["annotations", "labels"]);
    assert_eq!(node["metadata"]["labels"], json!({LABEL: "true", MEMBER_KEY: "m"}));
    assert_eq!(node.get("spec"), None);
}

#[test]
fn node_that_leaves_is_closed_first_and_opened_when_its_member_returns() {
    let (mut node, mut csi_node) = standing();
    let Leave::Cordon(patch) = leave(node.as_ref().unwrap()) else { panic!("it is not closed first") };
    merge(node.as_mut().unwrap(), &patch);
    assert_eq!(leave(node.as_ref().unwrap()), Leave::Remove);
    assert_eq!(converge(&virtual_node(), &mut node, &mut csi_node), ["uncordon"]);
    assert!(node.as_ref().unwrap()["spec"].get("unschedulable").is_none());
    node.as_mut().unwrap()["spec"]["unschedulable"] = json!(true);
    assert!(converge(&virtual_node(), &mut node, &mut csi_node).is_empty(), "a person's cordon stays");
}

#[test]
fn name_is_a_label_and_no_two_are_the_same() {
    let of = |node: &str| VirtualNodeId { member: "m".to_owned(), node: Some(node.to_owned()) }.name();
    assert_eq!(of("n1"), "kosmos-m-n1");
    let (first, second) = (of(&format!("{}1", "n".repeat(80))), of(&format!("{}2", "n".repeat(80))));
    assert!(first.len() <= 63 && first != second, "{first}");
}
