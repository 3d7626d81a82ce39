//! Plays the part of external-provisioner that tells the scheduler how much room there is: asks the driver for each class
//! and place, and keeps one CSIStorageCapacity for each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::Node,
    storage::v1::{CSINode, StorageClass},
};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    all, ignore_conflict,
    provisioner::topology::{Nodes, Place},
};
use crate::objects::DRIVER_NAMESPACE;
use csi::{
    client::{CallError, Client},
    v1::{GetCapacityRequest, GetCapacityResponse, Topology},
};
use domain::volume::{DRIVER, quantity};
use simulate::{Cluster, text};

pub(crate) const CAPACITIES: &str = "csistoragecapacities.storage.k8s.io";
pub(crate) const CLASSES: &str = "storageclasses.storage.k8s.io";
const CSI_NODES: &str = "csinodes.storage.k8s.io";
/// Besides what is made and given back, as these show.
const FOLLOWED: [&str; 5] = ["persistentvolumeclaims", "persistentvolumes", "nodes", CSI_NODES, CLASSES];
/// Time alone changes it as well: a member that did not answer just then had no room, and pods wait until it is asked again.
const PERIOD: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(1);
/// Several changes at once need one look.
const PAUSE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(host: Cluster, driver: Client) {
    let mut changes = simulate::follow::follow(&host, &FOLLOWED);
    loop {
        while changes.try_next().is_some() {}
        let whole = publish(&host, &driver).await;
        drop(timeout(if whole { PERIOD } else { SOON }, changes.next()).await);
        sleep(PAUSE).await;
    }
}

/// Whether the driver has told all.
async fn publish(host: &Cluster, driver: &Client) -> bool {
    let (nodes, csi_nodes): (Vec<Node>, Vec<CSINode>) = (all(host, "nodes"), all(host, CSI_NODES));
    let places: BTreeSet<Place> = Nodes { nodes: &nodes, csi_nodes: &csi_nodes }.registered();
    let waits = |class: &StorageClass| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let classes: Vec<StorageClass> = all(host, CLASSES);
    let (mut wanted, mut whole) = (BTreeSet::new(), true);
    for class in classes.iter().filter(|class| class.provisioner == DRIVER && waits(class)) {
        for place in &places {
            wanted.insert(name(class, place));
            match ask(driver, class, place).await {
                Ok(capacity) => tell(host, class, place, &capacity),
                // What was told before stays.
                Err(refusal) => {
                    tracing::debug!(%refusal, "the driver does not tell its capacity");
                    whole = false;
                }
            }
        }
    }
    for object in host.list(CAPACITIES) {
        let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        if namespace == DRIVER_NAMESPACE && !wanted.contains(name) {
            ignore_conflict("the end of a capacity", host.delete(CAPACITIES, namespace, name));
        }
    }
    whole
}

async fn ask(driver: &Client, class: &StorageClass, place: &Place) -> Result<GetCapacityResponse, CallError> {
    let request = GetCapacityRequest {
        parameters: class.parameters.clone().unwrap_or_default().into_iter().collect(),
        accessible_topology: Some(Topology { segments: place.clone().into_iter().collect() }),
        ..GetCapacityRequest::default()
    };
    driver.get_capacity(request, PATIENCE).await
}

fn tell(host: &Cluster, class: &StorageClass, place: &Place, capacity: &GetCapacityResponse) {
    let (name, object) = (name(class, place), object(class, place, capacity));
    if host.get(CAPACITIES, DRIVER_NAMESPACE, &name).is_none() {
        ignore_conflict("a capacity", host.create(CAPACITIES, object));
        return;
    }
    let edit = |live: &mut Value| {
        for field in ["capacity", "maximumVolumeSize"] {
            match object.get(field) {
                Some(value) => live[field] = value.clone(),
                None => drop(live.as_object_mut().and_then(|live| live.remove(field))),
            }
        }
    };
    ignore_conflict("a capacity", host.change(CAPACITIES, DRIVER_NAMESPACE, &name, edit));
}

fn name(class: &StorageClass, place: &Place) -> String {
    let values: Vec<&str> = place.values().map(String::as_str).collect();
    format!("csisc-{}-{}", class.name_any(), values.join("-")).to_lowercase()
}

fn object(class: &StorageClass, place: &Place, capacity: &GetCapacityResponse) -> Value {
    let size = |bytes: i64| quantity::print(bytes.max(0).cast_unsigned());
    let labels: BTreeMap<&str, &str> =
        [("csi.storage.k8s.io/drivername", DRIVER), ("csi.storage.k8s.io/managed-by", "external-provisioner")].into();
    let mut object = json!({
        "metadata": {"namespace": DRIVER_NAMESPACE, "name": name(class, place), "labels": labels},
        "storageClassName": class.name_any(),
        "nodeTopology": {"matchLabels": place},
        "capacity": size(capacity.available_capacity),
    });
    if let Some(largest) = capacity.maximum_volume_size {
        object["maximumVolumeSize"] = json!(size(largest));
    }
    object
}
