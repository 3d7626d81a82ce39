//! Which objects of a cluster are of interest: those of this driver, and those of its volumes.

use serde_json::Value;

use super::{Ours, fields::kept};
use crate::{objects::word, status::CHART};
use domain::volume::{DRIVER, PARAMETERS};

/// A kind of Kubernetes' API, and what is kept of its objects.
#[derive(Debug)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// What a cluster calls it in its paths, and we the file with its objects.
    pub plural: &'static str,
    /// Of the labels, where they alone say it.
    pub selector: &'static str,
    fields: &'static [&'static str],
    is_ours: fn(&Ours, &Value) -> bool,
}

impl Kind {
    pub(super) fn takes(&self, ours: &Ours, object: &Value) -> bool {
        (self.is_ours)(ours, object)
    }

    pub(super) fn kept(&self, object: &Value) -> Value {
        let mut kept = kept(object, self.fields);
        if let Some(parameters) = object["parameters"].as_object() {
            let is_ours = |key: &str| PARAMETERS.contains(&key) || OF_OTHER_CLASSES.contains(&key);
            let known = parameters.iter().filter(|(key, _)| is_ours(key.split('.').next().unwrap_or_default()));
            kept["parameters"] = Value::Object(known.map(|(key, value)| (key.clone(), value.clone())).collect());
        }
        kept["apiVersion"] = Value::from(if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        });
        kept["kind"] = Value::from(self.kind);
        kept
    }
}

/// Of this driver's classes of snapshots, of groups of them, and of attributes.
const OF_OTHER_CLASSES: [&str; 3] = ["leafSnapshotClass", "leafGroupSnapshotClass", "leafVolumeAttributesClass"];
const STORAGE: &str = "storage.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const GROUPS: &str = "groupsnapshot.storage.k8s.io";

const CLASSES: &str = "storageclasses";
const VOLUMES: &str = "persistentvolumes";
const SNAPSHOT_CLASSES: &str = "volumesnapshotclasses";
const GROUP_CLASSES: &str = "volumegroupsnapshotclasses";

const CLAIM: &[&str] = &[
    "spec.accessModes",
    "spec.resources",
    "spec.storageClassName",
    "spec.volumeMode",
    "spec.volumeName",
    "spec.volumeAttributesClassName",
    "spec.dataSource",
    "spec.dataSourceRef",
    "spec.selector",
    "status",
];
const VOLUME: &[&str] = &[
    "spec.accessModes",
    "spec.capacity",
    "spec.claimRef",
    "spec.csi.driver",
    "spec.csi.volumeHandle",
    "spec.csi.fsType",
    "spec.csi.readOnly",
    "spec.nodeAffinity",
    "spec.persistentVolumeReclaimPolicy",
    "spec.storageClassName",
    "spec.volumeAttributesClassName",
    "spec.volumeMode",
    "status",
];
/// What a member's attacher hands to nodes is not among it.
const ATTACHMENT: &[&str] = &[
    "spec.attacher",
    "spec.nodeName",
    "spec.source.persistentVolumeName",
    "status.attached",
    "status.attachError",
    "status.detachError",
];
const CLASS: &[&str] =
    &["provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion", "allowedTopologies"];
const WORKLOAD: &[&str] = &[
    "spec.replicas",
    "spec.strategy",
    "spec.updateStrategy",
    "spec.template.spec.containers.name",
    "spec.template.spec.containers.image",
    "spec.template.spec.containers.args",
    "spec.template.spec.containers.env.name",
    "spec.template.spec.containers.resources",
    "spec.template.spec.nodeSelector",
    "spec.template.spec.tolerations",
    "spec.template.spec.affinity",
    "spec.template.spec.priorityClassName",
    "status",
];
const POD: &[&str] = &[
    "spec.nodeName",
    "spec.serviceAccountName",
    "spec.containers.name",
    "spec.containers.image",
    "spec.containers.args",
    "spec.containers.env.name",
    "spec.containers.ports",
    "spec.containers.resources",
    "spec.initContainers.name",
    "spec.initContainers.image",
    "status",
];
const EVENT: &[&str] = &[
    "type",
    "reason",
    "message",
    "action",
    "count",
    "series",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
    "reportingComponent",
    "reportingInstance",
    "source",
    "involvedObject",
    "related",
];

fn every(_: &Ours, _: &Value) -> bool {
    true
}

fn of_our_class(ours: &Ours, object: &Value, class: &str) -> bool {
    ours.has(CLASSES, word(object, class))
}

const PLAIN: Kind =
    Kind { group: "", version: "v1", kind: "", plural: "", selector: "", fields: &["spec", "status"], is_ours: every };

/// In this order: what is ours of one kind is known by what was taken of those before it.
pub const OF_HOST: [Kind; 21] = [
    Kind {
        group: STORAGE,
        kind: "StorageClass",
        plural: CLASSES,
        fields: CLASS,
        is_ours: |_, object| word(object, "/provisioner") == DRIVER,
        ..PLAIN
    },
    Kind {
        kind: "PersistentVolume",
        plural: VOLUMES,
        fields: VOLUME,
        is_ours: |_, object| word(object, "/spec/csi/driver") == DRIVER,
        ..PLAIN
    },
    Kind {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        fields: CLAIM,
        is_ours: is_our_claim,
        ..PLAIN
    },
    Kind {
        group: STORAGE,
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        fields: ATTACHMENT,
        is_ours: |_, object| word(object, "/spec/attacher") == DRIVER,
        ..PLAIN
    },
    Kind {
        group: STORAGE,
        kind: "CSIDriver",
        plural: "csidrivers",
        is_ours: |_, object| word(object, "/metadata/name") == DRIVER,
        ..PLAIN
    },
    Kind {
        group: STORAGE,
        kind: "CSINode",
        plural: "csinodes",
        fields: &["spec.drivers.name", "spec.drivers.topologyKeys", "spec.drivers.allocatable"],
        is_ours: is_our_node_of_csi,
        ..PLAIN
    },
    Kind {
        group: STORAGE,
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        fields: &["storageClassName", "nodeTopology", "capacity", "maximumVolumeSize"],
        is_ours: |ours, object| of_our_class(ours, object, "/storageClassName"),
        ..PLAIN
    },
    Kind {
        group: STORAGE,
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        fields: &["driverName"],
        is_ours: |_, object| word(object, "/driverName") == DRIVER,
        ..PLAIN
    },
    Kind {
        group: SNAPSHOTS,
        kind: "VolumeSnapshotClass",
        plural: SNAPSHOT_CLASSES,
        fields: &["driver", "deletionPolicy"],
        is_ours: |_, object| word(object, "/driver") == DRIVER,
        ..PLAIN
    },
    Kind {
        group: SNAPSHOTS,
        kind: "VolumeSnapshotContent",
        plural: "volumesnapshotcontents",
        is_ours: |_, object| word(object, "/spec/driver") == DRIVER,
        ..PLAIN
    },
    Kind { group: SNAPSHOTS, kind: "VolumeSnapshot", plural: "volumesnapshots", is_ours: is_our_snapshot, ..PLAIN },
    Kind {
        group: GROUPS,
        kind: "VolumeGroupSnapshotClass",
        plural: GROUP_CLASSES,
        fields: &["driver", "deletionPolicy"],
        is_ours: |_, object| word(object, "/driver") == DRIVER,
        ..PLAIN
    },
    Kind {
        group: GROUPS,
        kind: "VolumeGroupSnapshotContent",
        plural: "volumegroupsnapshotcontents",
        is_ours: |_, object| word(object, "/spec/driver") == DRIVER,
        ..PLAIN
    },
    Kind { group: GROUPS, kind: "VolumeGroupSnapshot", plural: "volumegroupsnapshots", is_ours: is_our_group, ..PLAIN },
    Kind { group: "kosmos.csi.io", version: "v1alpha1", kind: "VolumeMove", plural: "volumemoves", ..PLAIN },
    Kind {
        kind: "Node",
        plural: "nodes",
        fields: &[
            "spec.taints",
            "spec.unschedulable",
            "status.conditions",
            "status.addresses",
            "status.allocatable",
            "status.nodeInfo",
        ],
        is_ours: is_our_node,
        ..PLAIN
    },
    Kind {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        selector: CHART,
        fields: WORKLOAD,
        is_ours: is_in_our_namespaces,
        ..PLAIN
    },
    Kind {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        selector: CHART,
        fields: WORKLOAD,
        is_ours: is_in_our_namespaces,
        ..PLAIN
    },
    Kind { kind: "Pod", plural: "pods", selector: CHART, fields: POD, is_ours: is_in_our_namespaces, ..PLAIN },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        fields: &["spec"],
        is_ours: is_our_lease,
        ..PLAIN
    },
    EVENTS,
];

/// Of members only what has the host's label is asked for, and of all kinds what this host's account may read.
pub const CLASSES_OF_MEMBER: Kind =
    Kind { group: STORAGE, kind: "StorageClass", plural: CLASSES, fields: CLASS, ..PLAIN };
pub const LEAF_CLAIMS: Kind =
    Kind { kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims", fields: CLAIM, ..PLAIN };
pub const LEAF_VOLUMES: Kind = Kind { kind: "PersistentVolume", plural: VOLUMES, fields: VOLUME, ..PLAIN };
pub const EVENTS: Kind = Kind {
    kind: "Event",
    plural: "events",
    fields: EVENT,
    is_ours: |ours, object| ours.is_of(word(object, "/involvedObject/uid")),
    ..PLAIN
};

/// Whoever may make pods gives them what labels he likes.
fn is_in_our_namespaces(ours: &Ours, object: &Value) -> bool {
    ours.namespaces.iter().any(|namespace| namespace == word(object, "/metadata/namespace"))
}

fn is_our_claim(ours: &Ours, claim: &Value) -> bool {
    of_our_class(ours, claim, "/spec/storageClassName") || ours.has(VOLUMES, word(claim, "/spec/volumeName"))
}

fn is_our_node_of_csi(_: &Ours, node: &Value) -> bool {
    node["spec"]["drivers"].as_array().into_iter().flatten().any(|driver| driver["name"] == DRIVER)
}

fn is_our_snapshot(ours: &Ours, snapshot: &Value) -> bool {
    ours.has("volumesnapshotcontents", word(snapshot, "/status/boundVolumeSnapshotContentName"))
        || ours.has(SNAPSHOT_CLASSES, word(snapshot, "/spec/volumeSnapshotClassName"))
}

fn is_our_group(ours: &Ours, group: &Value) -> bool {
    ours.has("volumegroupsnapshotcontents", word(group, "/status/boundVolumeGroupSnapshotContentName"))
        || ours.has(GROUP_CLASSES, word(group, "/spec/volumeGroupSnapshotClassName"))
}

fn is_our_node(_: &Ours, node: &Value) -> bool {
    node["metadata"]["labels"].get("topology.kosmos.csi.io/member").is_some()
}

/// Those of the driver, the agent and the sidecars.
fn is_our_lease(_: &Ours, lease: &Value) -> bool {
    let name = word(lease, "/metadata/name");
    name.starts_with("kosmos-csi") || name.contains("kosmos-csi-io")
}
