//! What the host holds before a user comes: the driver's own object, a virtual node for each member, a class and a
//! namespace. All of it is what `deploy/host.yaml` and `deploy/examples` write.

use serde_json::{Value, json};

use crate::{
    simulate::{Cluster, Refusal},
    volume::{DRIVER, MEMBER_KEY},
};

/// The class of the example, in the host and in the members.
pub(super) const CLASS: &str = "openebs-hostpath";
/// The namespace of the example.
pub(super) const NAMESPACE: &str = "test-new";

pub(super) fn virtual_node(member: &str) -> String {
    format!("kosmos-{member}")
}

/// Makes what is missing, and corrects what follows from the members there are.
pub(super) fn prepare(host: &Cluster, members: &[String]) -> Result<(), Refusal> {
    for namespace in ["kosmos-csi", NAMESPACE] {
        ensure(host, "namespaces", json!({"metadata": {"name": namespace}}))?;
    }
    ensure(host, "csidrivers.storage.k8s.io", driver())?;
    ensure(host, "storageclasses.storage.k8s.io", class())?;
    let allow = |class: &mut Value| {
        let expression = json!({"key": MEMBER_KEY, "values": members});
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [expression]}]);
    };
    host.change("storageclasses.storage.k8s.io", "", CLASS, allow)?;
    remove_others(host, members);
    for member in members {
        ensure(host, "nodes", node(member, &host.stamp()))?;
        ensure(host, "csinodes.storage.k8s.io", csi_node(host, member))?;
    }
    Ok(())
}

/// Virtual nodes of members that are not here take no pods.
fn remove_others(host: &Cluster, members: &[String]) {
    for node in host.list("nodes") {
        let (name, member) = (&node["metadata"]["name"], &node["metadata"]["labels"][MEMBER_KEY]);
        let (Some(name), Some(member)) = (name.as_str(), member.as_str()) else { continue };
        if name == virtual_node(member) && !members.iter().any(|there| there == member) {
            // Gone already is what is wanted.
            drop(host.delete("csinodes.storage.k8s.io", "", name));
            drop(host.delete("nodes", "", name));
        }
    }
}

/// What is there stays as the user has made it.
fn ensure(host: &Cluster, resource: &str, object: Value) -> Result<(), Refusal> {
    match host.create(resource, object) {
        Err(refusal) if refusal.reason != "AlreadyExists" => Err(refusal),
        _ => Ok(()),
    }
}

fn driver() -> Value {
    let spec = json!({
        "attachRequired": true,
        "podInfoOnMount": false,
        "storageCapacity": false,
        "volumeLifecycleModes": ["Persistent"],
    });
    json!({"metadata": {"name": DRIVER}, "spec": spec})
}

fn class() -> Value {
    json!({
        "metadata": {"name": CLASS},
        "provisioner": DRIVER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
        "parameters": {"leafStorageClass": CLASS},
    })
}

fn node(member: &str, now: &str) -> Value {
    let name = virtual_node(member);
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kosmos.io/node": "true", MEMBER_KEY: member},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"taints": [{"key": "kosmos.io/node", "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "Simulated",
                "message": format!("stands for the simulated member {member}"),
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }],
            "nodeInfo": {"kubeletVersion": "simulated", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

fn csi_node(host: &Cluster, member: &str) -> Value {
    let name = virtual_node(member);
    let node = host.get("nodes", "", &name);
    let uid = node.map(|node| node["metadata"]["uid"].clone());
    let entry = json!({"name": DRIVER, "nodeID": format!("virtual/{member}"), "topologyKeys": [MEMBER_KEY]});
    json!({
        "metadata": {
            "name": name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {"drivers": [entry]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn everything_follows_the_members_and_what_a_user_changed_stays() {
        let host = Cluster::new("host", 1);
        prepare(&host, &names(&["a", "b"])).unwrap();
        let cordon = |node: &mut Value| node["spec"]["unschedulable"] = json!(true);
        host.change("nodes", "", "kosmos-a", cordon).unwrap();
        prepare(&host, &names(&["a", "c"])).unwrap();
        let nodes: Vec<_> = host.list("nodes").iter().map(|node| node["metadata"]["name"].clone()).collect();
        assert_eq!(nodes, ["kosmos-a", "kosmos-c"]);
        assert_eq!(host.list("csinodes.storage.k8s.io").len(), 2);
        assert_eq!(host.get("nodes", "", "kosmos-a").unwrap()["spec"]["unschedulable"], true);
        let class = host.get("storageclasses.storage.k8s.io", "", CLASS).unwrap();
        assert_eq!(class["allowedTopologies"][0]["matchLabelExpressions"][0]["values"], json!(["a", "c"]));
    }
}
