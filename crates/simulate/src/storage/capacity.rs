//! How much room there is, as the scheduler and others are told: one object for each class that has a limit.

use serde_json::{Value, json};

use super::{Member, names::HOSTNAME, node, setup::ensure};
use crate::{
    object::{set, text},
    quantity,
};

const CAPACITIES: &str = "csistoragecapacities.storage.k8s.io";
const DRIVERS: &str = "csidrivers.storage.k8s.io";
const NAMESPACE: &str = "kube-system";

pub(super) async fn run(member: &Member) {
    let driver = &member.settings.provisioner;
    let limited = member.settings.classes.iter().any(|class| member.backing.room(&class.name).is_some());
    ensure(member, DRIVERS, driver_object(driver, limited));
    let mut room = member.backing.changes();
    loop {
        for class in &member.settings.classes {
            if let Some(room) = member.backing.room(&class.name) {
                tell(member, &class.name, room);
            }
        }
        room.changed().await;
    }
}

fn tell(member: &Member, class: &str, room: u64) {
    let object = capacity_object(&member.settings.provisioner, class, &node::names(member), room);
    let (name, capacity) = (text(&object, "/metadata/name").to_owned(), object["capacity"].clone());
    if member.cluster.get(CAPACITIES, NAMESPACE, &name).is_none() {
        ensure(member, CAPACITIES, object);
    } else {
        // Removed by somebody meanwhile, it is made again with the next change.
        drop(member.cluster.change(CAPACITIES, NAMESPACE, &name, |live| set(live, &["capacity"], capacity)));
    }
}

fn capacity_object(driver: &str, class: &str, nodes: &[String], room: u64) -> Value {
    let topology = match nodes {
        [node] => json!({"matchLabels": {HOSTNAME: node}}),
        // They share the room.
        several => json!({"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": several}]}),
    };
    json!({
        "metadata": {
            "namespace": NAMESPACE,
            "name": format!("csisc-{class}"),
            "labels": {"csi.storage.k8s.io/drivername": driver, "csi.storage.k8s.io/managed-by": "external-provisioner"},
        },
        "storageClassName": class,
        "nodeTopology": topology,
        "capacity": quantity::print(room),
    })
}

fn driver_object(name: &str, limited: bool) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "attachRequired": false,
            "podInfoOnMount": false,
            "storageCapacity": limited,
            "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent"],
        },
    })
}
