//! What a leaf volume is made of, read for a node of the host that is to use it: a few kinds that such a node can have, and
//! the names of those that it cannot.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{
        CSIPersistentVolumeSource, Node, NodeSelector, PersistentVolume, PersistentVolumeSpec, SecretReference,
    },
    storage::v1::CSIDriver,
};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{MemberClient, affinity, row::VolumeRow};
use domain::{
    error::{Error, Result},
    volume::{
        backing::{CsiLeaf, GroupPolicy},
        secrets::{SecretPlace, SecretRefs},
    },
};

/// Fields of a volume's spec that say nothing of what it is made of.
const NO_KINDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// A leaf volume, as far as whoever brings it to a node has to know it.
#[derive(Clone, Debug)]
pub struct LeafVolume {
    pub name: String,
    pub source: Source,
    pub options: Vec<String>,
    pub readonly: bool,
    /// Every access mode of it is for one node.
    pub for_one_node: bool,
    pub secrets: SecretRefs,
    affinity: Option<NodeSelector>,
}

/// What it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Nfs {
        server: String,
        path: String,
    },
    Local {
        path: String,
    },
    Csi(CsiLeaf),
    /// Of a kind that this driver's node service does not know, by the name of its field.
    Other(String),
}

/// What a member's driver says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafDriver {
    pub attach_required: bool,
    pub group_policy: GroupPolicy,
}

/// A member's own node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub system: String,
    pub machine: String,
}

impl LeafVolume {
    fn new(volume: &PersistentVolume) -> Self {
        let spec = volume.spec.clone().unwrap_or_default();
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let csi = spec.csi.as_ref();
        Self {
            name: volume.name_any(),
            source: source(&spec),
            options: spec.mount_options.clone().unwrap_or_default(),
            readonly: csi.and_then(|csi| csi.read_only).or_else(|| spec.nfs.as_ref()?.read_only) == Some(true),
            for_one_node: !modes.is_empty()
                && modes.iter().all(|mode| ["ReadWriteOnce", "ReadWriteOncePod"].contains(&mode.as_str())),
            secrets: csi.map(secrets).unwrap_or_default(),
            affinity: spec.node_affinity.and_then(|affinity| affinity.required),
        }
    }

    /// Whether it says on which nodes it is.
    pub fn is_bound_to_nodes(&self) -> bool {
        self.affinity.is_some()
    }

    pub fn is_on(&self, node: &MemberNode) -> bool {
        self.affinity.as_ref().is_some_and(|selector| affinity::names(selector, &node.name, &node.labels))
    }

    /// The filesystem that it says it has; empty where it says nothing.
    pub fn filesystem(&self) -> &str {
        if let Source::Csi(leaf) = &self.source { &leaf.filesystem } else { "" }
    }
}

fn secrets(source: &CSIPersistentVolumeSource) -> SecretRefs {
    let place = |reference: &Option<SecretReference>| {
        let reference = reference.as_ref()?;
        SecretPlace::named(reference.namespace.as_deref(), reference.name.as_deref())
    };
    SecretRefs {
        stage: place(&source.node_stage_secret_ref),
        publish: place(&source.node_publish_secret_ref),
        expand: place(&source.node_expand_secret_ref),
    }
}

fn source(spec: &PersistentVolumeSpec) -> Source {
    if let Some(nfs) = &spec.nfs {
        return Source::Nfs { server: nfs.server.clone(), path: nfs.path.clone() };
    }
    if let Some(local) = &spec.local {
        return Source::Local { path: local.path.clone() };
    }
    if let Some(folder) = &spec.host_path {
        return Source::Local { path: folder.path.clone() };
    }
    if let Some(csi) = &spec.csi {
        return Source::Csi(CsiLeaf {
            driver: csi.driver.clone(),
            handle: csi.volume_handle.clone(),
            filesystem: csi.fs_type.clone().unwrap_or_default(),
            attributes: csi.volume_attributes.clone().unwrap_or_default(),
            ..CsiLeaf::default()
        });
    }
    let fields = json!(spec);
    let kind = fields.as_object().and_then(|fields| fields.keys().find(|field| !NO_KINDS.contains(&field.as_str())));
    Source::Other(kind.map_or_else(|| "unknown".to_owned(), Clone::clone))
}

impl Default for LeafDriver {
    /// As Kubernetes takes a driver that says nothing of itself.
    fn default() -> Self {
        Self { attach_required: true, group_policy: GroupPolicy::WithFilesystem }
    }
}

impl LeafDriver {
    fn new(driver: &CSIDriver) -> Self {
        let group_policy = match driver.spec.fs_group_policy.as_deref() {
            Some("File") => GroupPolicy::Always,
            Some("None") => GroupPolicy::Never,
            _ => GroupPolicy::WithFilesystem,
        };
        Self { attach_required: driver.spec.attach_required != Some(false), group_policy }
    }
}

/// The volume of a leaf claim, which may have been recreated since the volume was bound.
pub async fn describe_volume(client: &MemberClient, name: &str, claim: &super::row::ClaimRow) -> Result<LeafVolume> {
    let doing = format!("get volume {name}");
    let found = cluster::read(Api::<PersistentVolume>::all(client.client.clone()).get(name).await, name);
    let found = found.map_err(|error| client.outcome(&doing, &error))?;
    let bound = found.as_ref().map(VolumeRow::new).is_some_and(|row| row.is_or_was_bound_to(&claim.uid));
    match found {
        Some(volume) if bound => Ok(LeafVolume::new(&volume)),
        Some(_) => Err(Error::Refused(format!(
            "member {}: leaf volume {name} is not bound to leaf claim {}: correct the volume's claimRef there",
            client.member, claim.place
        ))),
        None => Err(Error::Refused(format!(
            "member {}: leaf volume {name} is gone, but leaf claim {} names it",
            client.member, claim.place
        ))),
    }
}

/// None where it says nothing of itself.
pub async fn leaf_driver(client: &MemberClient, name: &str) -> Result<Option<LeafDriver>> {
    let found = cluster::read(Api::<CSIDriver>::all(client.client.clone()).get(name).await, name);
    let found = found.map_err(|error| client.outcome(&format!("get csidriver {name}"), &error))?;
    Ok(found.as_ref().map(LeafDriver::new))
}

pub async fn member_node(client: &MemberClient, name: &str) -> Result<Option<MemberNode>> {
    let found = cluster::read(Api::<Node>::all(client.client.clone()).get(name).await, name);
    let found = found.map_err(|error| client.outcome(&format!("get node {name}"), &error))?;
    Ok(found.map(|node| {
        let info = node.status.and_then(|status| status.node_info).unwrap_or_default();
        MemberNode {
            name: name.to_owned(),
            labels: node.metadata.labels.unwrap_or_default(),
            system: info.system_uuid,
            machine: info.machine_id,
        }
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value};

    use super::*;

    fn leaf(spec: &Value) -> LeafVolume {
        LeafVolume::new(&from_value(json!({"metadata": {"name": "pv-1"}, "spec": spec})).unwrap())
    }

    #[test]
    fn kinds_that_a_node_can_have_are_read() {
        let nfs =
            leaf(&json!({"nfs": {"server": "10.0.0.1", "path": "/x", "readOnly": true}, "mountOptions": ["hard"]}));
        assert_eq!(nfs.source, Source::Nfs { server: "10.0.0.1".to_owned(), path: "/x".to_owned() });
        assert!(nfs.readonly && nfs.options == ["hard"] && !nfs.is_bound_to_nodes());
        for field in ["local", "hostPath"] {
            assert_eq!(
                leaf(&json!({field: {"path": "/d"}})).source,
                Source::Local { path: "/d".to_owned() },
                "{field}"
            );
        }
        let csi = leaf(&json!({
            "csi": {
                "driver": "d", "volumeHandle": "h", "fsType": "xfs", "volumeAttributes": {"a": "b"},
                "nodeStageSecretRef": {"name": "s", "namespace": "n"},
                "nodePublishSecretRef": {"name": "", "namespace": ""},
            },
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        }));
        let expected = CsiLeaf {
            driver: "d".to_owned(),
            handle: "h".to_owned(),
            filesystem: "xfs".to_owned(),
            attributes: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            ..CsiLeaf::default()
        };
        assert_eq!(csi.source, Source::Csi(expected));
        assert_eq!((csi.filesystem(), csi.for_one_node, csi.readonly), ("xfs", true, false));
        let stage = SecretPlace { namespace: "n".to_owned(), name: "s".to_owned() };
        assert_eq!(csi.secrets, SecretRefs { stage: Some(stage), ..SecretRefs::default() });
    }

    #[test]
    fn kinds_that_it_cannot_have_are_named() {
        for (field, source) in [
            ("iscsi", json!({"iqn": "i", "lun": 0, "targetPortal": "t"})),
            ("rbd", json!({"image": "i", "monitors": []})),
            ("cephfs", json!({"monitors": []})),
            ("fc", json!({})),
        ] {
            let usual =
                json!({"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "volumeMode": "Block"});
            let mut spec = usual.clone();
            spec[field] = source;
            let volume = leaf(&spec);
            assert_eq!(volume.source, Source::Other(field.to_owned()));
            assert!(!volume.for_one_node);
        }
        assert_eq!(leaf(&json!({})).source, Source::Other("unknown".to_owned()));
    }

    #[test]
    fn driver_is_taken_as_kubernetes_takes_it() {
        let driver = |spec: Value| LeafDriver::new(&from_value(json!({"metadata": {}, "spec": spec})).unwrap());
        assert_eq!(driver(json!({})), LeafDriver::default());
        for (text, group_policy) in [
            ("File", GroupPolicy::Always),
            ("None", GroupPolicy::Never),
            ("ReadWriteOnceWithFSType", GroupPolicy::WithFilesystem),
        ] {
            let told = driver(json!({"fsGroupPolicy": text, "attachRequired": false}));
            assert_eq!(told, LeafDriver { attach_required: false, group_policy });
        }
    }
}
