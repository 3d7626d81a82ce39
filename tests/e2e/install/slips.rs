//! Slips in values that go into the objects as they are. The API server leaves out what it does not know, and says so in a warning at most.

use super::helm::{CHART, helm, rendered};

#[test]
fn slip_in_what_is_handed_on_to_kubernetes_is_refused_by_its_name() {
    for (setting, words) in [
        ("controller.resources.limit.memory=1Gi", "controller/resources"),
        ("sidecars.resizer.resources.requests.memory[0]=1Gi", "sidecars/resizer/resources/requests/memory"),
        ("node.resources.cpu=1", "node/resources"),
        ("virtualNode.tolerations[0].opperator=Exists", "virtualNode/tolerations/0"),
        ("node.tolerations[0].effect=NoRun", "node/tolerations/0/effect"),
        ("controller.affinity.podAntiafinity.a=b", "controller/affinity"),
        ("networkPolicy.metricsFrom[0].namespaceSelecter.matchLabels.a=b", "networkPolicy/metricsFrom/0"),
        ("networkPolicy.egressTo[0].cidr=10.0.0.0/8", "networkPolicy/egressTo/0"),
    ] {
        let refusal = rendered(&[setting]).err().unwrap_or_else(|| panic!("{setting} is accepted"));
        assert!(format!("{refusal:#}").contains(words), "{setting}: {refusal:#}");
    }
}

#[test]
fn whatever_kubernetes_takes_there_is_handed_on() {
    for setting in [
        "controller.resources.limits=null",
        "controller.resources.limits.memory=null,controller.resources.limits.cpu=2",
        "virtualNode.resources.requests.cpu=0.5",
        "controller.tolerations[0].operator=Exists,controller.tolerations[0].effect=NoExecute,controller.tolerations[0].tolerationSeconds=300",
        "node.tolerations[0].operator=Exists,node.tolerations[0].effect=",
        "controller.affinity=null",
        "controller.affinity.nodeAffinity=null",
        "controller.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone",
        "networkPolicy.metricsFrom[0].podSelector.matchLabels.a=b,networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.c=d",
        "networkPolicy.egressTo[0].ipBlock.cidr=10.0.0.0/8,networkPolicy.egressTo[0].ipBlock.except={10.1.0.0/16}",
    ] {
        rendered(&[setting]).unwrap();
    }
}

/// Each virtual node that tells what its pods use has a port of its own, after that of the kubelet endpoint.
#[test]
fn ports_of_virtual_nodes_end_where_ports_do() {
    let with = |port: &str| rendered(&[&format!("virtualNode.kubelet.nodePorts=1000,virtualNode.kubelet.port={port}")]);
    with("64535").unwrap();
    let refusal = with("64536").unwrap_err();
    assert!(format!("{refusal:#}").contains("virtualNode.kubelet.nodePorts is too large"), "{refusal:#}");
}

/// Roles of one name in one namespace are one role, and the driver's account would read what is kept for the agent's.
#[test]
fn no_two_parts_of_a_release_have_one_namespace() {
    let secrets = "nodeSecrets.enabled=true,nodeSecrets.namespace";
    let node = "node.enabled=true,node.members[0].name=a";
    for (setting, words) in [
        (format!("{secrets}=kosmos-csi"), "nodeSecrets.namespace is the release's"),
        (format!("{secrets}=kosmos-csi-pods"), "nodeSecrets.namespace is that of virtualNode.namespace"),
        (format!("{node},node.namespace=kosmos-csi"), "node.namespace is the release's"),
        (format!("{node},{secrets}=kosmos-csi-node"), "node.namespace is that of nodeSecrets.namespace"),
    ] {
        let refusal = rendered(&[&setting]).err().unwrap_or_else(|| panic!("{setting} is accepted"));
        assert!(format!("{refusal:#}").contains(words), "{setting}: {refusal:#}");
    }
    rendered(&[&format!("virtualNode.enabled=false,{secrets}=kosmos-csi-pods")]).unwrap();
}

/// YAML takes some words for numbers, and others for yes and no.
#[test]
fn name_that_looks_like_a_number_stays_a_name() {
    let names = "node.members[0].name=1e3,storageClasses[0].name=1e3,snapshotClasses[0].name=1e3,imagePullSecrets[0]=1e3,\
                 controller.priorityClassName=1e3,node.priorityClassName=1e3,virtualNode.kubelet.certificateSecret=1e3,\
                 virtualNode.kubelet.clientCaConfigMap=1e3";
    let text = helm(&["template", "kosmos-csi", CHART, "--set", "node.enabled=true", "--set-string", names]).unwrap();
    let bare: Vec<&str> = text.lines().filter(|line| line.ends_with(": 1e3")).collect();
    assert_eq!(bare, [""; 0]);
    assert_eq!(text.matches("kosmos.csi.io/member: \"1e3\"\n").count(), 2);
}

/// Of two plugins on one node the second does not start, and which one that is changes whenever they do.
#[test]
fn each_member_of_real_nodes_has_nodes_of_its_own() {
    let member = |at: usize, name: &str, zone: &str| {
        let of = format!("node.members[{at}]");
        let zone = if zone.is_empty() { String::new() } else { format!(",{of}.nodeSelector.zone={zone}") };
        format!("{of}.name={name}{zone}")
    };
    let with = |members: &[String]| rendered(&[&format!("node.enabled=true,{}", members.join(","))]);
    with(&[member(0, "a", "")]).unwrap();
    with(&[member(0, "a", "x"), member(1, "b", "y")]).unwrap();
    for (members, words) in [
        ([member(0, "a", "x"), member(1, "b", "")], "node.members: b needs a nodeSelector"),
        ([member(0, "a", "x"), member(1, "a", "y")], "node.members: a is there twice"),
    ] {
        let refusal = with(&members).unwrap_err();
        assert!(format!("{refusal:#}").contains(words), "{refusal:#}");
    }
}
