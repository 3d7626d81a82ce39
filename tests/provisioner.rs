//! What external-provisioner asks of the driver for a claim in `shop`, and what it makes of the answer.

use csi::v1::{
    CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement, Volume, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use serde_json::{Value, json};

const DRIVER: &str = "kosmos.csi.io";
const SHOP: &str = "shop";

/// A volume of that name, in the member that a scheduler has chosen.
pub(crate) fn creation(name: &str, claim: &str, member: &str) -> CreateVolumeRequest {
    let parameters = [
        ("leafStorageClass", "now"),
        ("csi.storage.k8s.io/pvc/namespace", SHOP),
        ("csi.storage.k8s.io/pvc/name", claim),
        ("csi.storage.k8s.io/pv/name", name),
    ];
    let place = Topology { segments: [("topology.kosmos.csi.io/member".to_owned(), member.to_owned())].into() };
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        }],
        parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![place.clone()],
            preferred: vec![place],
        }),
        ..CreateVolumeRequest::default()
    }
}

/// Of the host, for the claim that has this UID.
pub(crate) fn host_volume(name: &str, claim: &str, uid: &str, given: &Volume) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": given.capacity_bytes.to_string()},
            "storageClassName": "kosmos", "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP, "name": claim, "uid": uid},
            "csi": {"driver": DRIVER, "volumeHandle": given.volume_id, "volumeAttributes": given.volume_context},
        },
    })
}
