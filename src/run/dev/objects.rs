//! What the host holds before a user comes: the driver's own object, a virtual node for each member, a class and a
//! namespace. All of it is what `deploy/host.yaml` and `deploy/examples` write.

use serde_json::{Value, json};

use super::host::conditions::{self, Condition};
use crate::{
    simulate::{Cluster, Refusal, storage::definitions, text},
    volume::{DRIVER, MEMBER_KEY},
};

/// The class of the example, in the host and in the members.
pub(super) const CLASS: &str = "openebs-hostpath";
/// Where the driver is at home.
pub(super) const DRIVER_NAMESPACE: &str = "kosmos-csi";
/// The namespace of the example.
pub(super) const NAMESPACE: &str = "test-new";

const SNAPSHOT_CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
const GROUP_CLASSES: &str = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io";
const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
const DEFAULT_GROUP_CLASS: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Every new node has it, until somebody sees that it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn virtual_node(member: &str) -> String {
    format!("kosmos-{member}")
}

/// Makes what is missing, and corrects what follows from the members there are.
pub(super) fn prepare(host: &Cluster, members: &[String]) -> Result<(), Refusal> {
    for namespace in [DRIVER_NAMESPACE, NAMESPACE] {
        ensure(host, "namespaces", json!({"metadata": {"name": namespace}}))?;
    }
    ensure(host, "csidrivers.storage.k8s.io", driver())?;
    ensure(host, "storageclasses.storage.k8s.io", class())?;
    definitions::install(host)?;
    ensure(host, SNAPSHOT_CLASSES, definitions::class(CLASS, DRIVER, "Delete", Some(DEFAULT_SNAPSHOT_CLASS)))?;
    ensure(host, GROUP_CLASSES, definitions::class(CLASS, DRIVER, "Delete", Some(DEFAULT_GROUP_CLASS)))?;
    let allow = |class: &mut Value| {
        let expression = json!({"key": MEMBER_KEY, "values": members});
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [expression]}]);
    };
    host.change("storageclasses.storage.k8s.io", "", CLASS, allow)?;
    ensure(host, "csinodes.storage.k8s.io", super::node::csi_node())?;
    for member in members {
        ensure(host, "nodes", node(member))?;
        ensure(host, "csinodes.storage.k8s.io", csi_node(host, member))?;
    }
    for node in host.list("nodes") {
        let (name, member) = (text(&node, "/metadata/name"), &node["metadata"]["labels"][MEMBER_KEY]);
        let member = member.as_str().unwrap_or_default();
        if name == virtual_node(member) {
            let present = members.iter().any(|there| there == member);
            host.change("nodes", "", name, |node| tell_presence(node, present, &host.stamp()))?;
        }
    }
    Ok(())
}

/// The kinds of snapshots in a member, and classes of its own driver for them.
pub(super) fn prepare_member(member: &Cluster, driver: &str) -> Result<(), Refusal> {
    definitions::install(member)?;
    ensure(member, SNAPSHOT_CLASSES, definitions::class(CLASS, driver, "Delete", Some(DEFAULT_SNAPSHOT_CLASS)))?;
    ensure(member, GROUP_CLASSES, definitions::class(CLASS, driver, "Delete", Some(DEFAULT_GROUP_CLASS)))
}

/// The virtual node of a member that is not started takes no pods; those it has wait for it.
fn tell_presence(node: &mut Value, present: bool, now: &str) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|taint| taint["key"] != UNREACHABLE && taint["key"] != NOT_READY);
    if !present {
        taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule"}));
    }
    node["spec"]["taints"] = json!(taints);
    let (reason, message) = if present {
        ("Simulated", "the simulated member runs its pods")
    } else {
        ("NotStarted", "the simulated member is not started")
    };
    let ready = Condition { kind: "Ready", holds: present, reason, message };
    conditions::set(&mut node["status"]["conditions"], ready, now);
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
        "storageCapacity": true,
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

fn node(member: &str) -> Value {
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
        let open = |name: &str| {
            let node = host.get("nodes", "", name).unwrap();
            (node["status"]["conditions"][0]["status"] == "True", node["spec"]["taints"].as_array().unwrap().len())
        };
        assert_eq!(["kosmos-a", "kosmos-b", "kosmos-c"].map(open), [(true, 1), (false, 2), (true, 1)]);
        assert_eq!(host.list("csinodes.storage.k8s.io").len(), 3 + 1, "and this machine");
        assert_eq!(host.get("nodes", "", "kosmos-a").unwrap()["spec"]["unschedulable"], true);
        let class = host.get("storageclasses.storage.k8s.io", "", CLASS).unwrap();
        assert_eq!(class["allowedTopologies"][0]["matchLabelExpressions"][0]["values"], json!(["a", "c"]));
        prepare(&host, &names(&["a", "b", "c"])).unwrap();
        assert_eq!(["kosmos-a", "kosmos-b"].map(open), [(true, 1), (true, 1)]);
    }
}
