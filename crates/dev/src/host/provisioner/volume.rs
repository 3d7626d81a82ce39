//! What external-provisioner asks the driver for, and the volume it writes from the answer.

use std::collections::HashMap;

use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::topology::Places;
use csi::v1::{
    self, CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement, VolumeCapability, VolumeContentSource,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use domain::volume::{DRIVER, quantity};

/// Keeps the volume until the driver has deleted what is behind it.
pub(super) const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Meant for the provisioner itself, in a class's parameters.
const RESERVED: &str = "csi.storage.k8s.io/";

/// The name of a claim's volume.
pub(super) fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

/// What is asked of the driver, or why a claim cannot be served here.
pub(super) fn request(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    places: &Places,
    source: Option<VolumeContentSource>,
) -> Result<CreateVolumeRequest, String> {
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.selector.is_some() {
        return Err("a claim with a selector gets no new volume".to_owned());
    }
    let size = spec.resources.and_then(|resources| resources.requests?.remove("storage")).map(|size| size.0);
    let bytes = size.as_deref().and_then(quantity::parse).and_then(|bytes| i64::try_from(bytes).ok());
    let required_bytes = bytes.ok_or_else(|| format!("{} is no size", size.unwrap_or_default()))?;
    let block = spec.volume_mode.as_deref() == Some("Block");
    let modes = spec.access_modes.unwrap_or_default();
    let capabilities: Option<Vec<_>> = modes.iter().map(|mode| Some(capability(access(mode)?, block))).collect();
    Ok(CreateVolumeRequest {
        name: name(claim),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
        volume_capabilities: capabilities.ok_or_else(|| format!("an access mode of {modes:?} is unknown"))?,
        parameters: parameters(claim, class),
        volume_content_source: source,
        accessibility_requirements: Some(requirement(places)),
        ..CreateVolumeRequest::default()
    })
}

fn access(mode: &str) -> Option<Mode> {
    match mode {
        "ReadWriteOnce" => Some(Mode::SingleNodeMultiWriter),
        "ReadWriteOncePod" => Some(Mode::SingleNodeSingleWriter),
        "ReadOnlyMany" => Some(Mode::MultiNodeReaderOnly),
        "ReadWriteMany" => Some(Mode::MultiNodeMultiWriter),
        _ => None,
    }
}

/// The ways in which a volume of the host may be used.
pub(in crate::host) fn capabilities(volume: &Value) -> Vec<VolumeCapability> {
    let block = volume["spec"]["volumeMode"] == "Block";
    let modes = volume["spec"]["accessModes"].as_array().into_iter().flatten();
    modes.filter_map(|mode| Some(capability(access(mode.as_str()?)?, block))).collect()
}

fn capability(mode: Mode, block: bool) -> VolumeCapability {
    let access_type = if block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(MountVolume::default()) };
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access_type) }
}

/// Those of the class, and whose volume it will be.
fn parameters(claim: &PersistentVolumeClaim, class: &StorageClass) -> HashMap<String, String> {
    let own = class.parameters.iter().flatten().filter(|(key, _)| !key.starts_with(RESERVED));
    let metadata = [
        ("pvc/name", claim.name_any()),
        ("pvc/namespace", claim.namespace().unwrap_or_default()),
        ("pv/name", name(claim)),
    ];
    let metadata = metadata.map(|(key, value)| (format!("{RESERVED}{key}"), value));
    own.map(|(key, value)| (key.clone(), value.clone())).chain(metadata).collect()
}

fn requirement(places: &Places) -> TopologyRequirement {
    let topology = |place: &super::topology::Place| Topology { segments: place.clone().into_iter().collect() };
    let preferred: Vec<_> = places.iter().map(topology).collect();
    TopologyRequirement { requisite: preferred.clone(), preferred }
}

/// The host's volume for what the driver has made.
pub(super) fn manifest(claim: &PersistentVolumeClaim, class: &StorageClass, made: &v1::Volume) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let asked = spec.resources.and_then(|resources| resources.requests?.remove("storage")).map(|size| size.0);
    let bytes = u64::try_from(made.capacity_bytes).unwrap_or_default();
    let capacity = if bytes == 0 { asked } else { Some(quantity::print(bytes)) };
    let mut attributes = made.volume_context.clone();
    attributes.insert("storage.kubernetes.io/csiProvisionerIdentity".to_owned(), "kosmos-csi-dev".to_owned());
    let mut volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name(claim),
            "annotations": {PROVISIONED_BY: DRIVER},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": capacity},
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "mountOptions": class.mount_options,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.name_any(),
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(),
                "name": claim.name_any(),
                "uid": claim.uid(),
                "resourceVersion": claim.resource_version(),
            },
            "csi": {"driver": DRIVER, "volumeHandle": made.volume_id, "volumeAttributes": attributes},
        },
    });
    let terms: Vec<Value> = made.accessible_topology.iter().map(term).collect();
    if !terms.is_empty() {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    volume
}

fn term(topology: &Topology) -> Value {
    let mut segments: Vec<_> = topology.segments.iter().collect();
    segments.sort();
    let expressions = segments.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
    json!({"matchExpressions": expressions.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::from_value;

    use super::*;
    use domain::volume::MEMBER_KEY;

    fn claim(spec: &Value) -> PersistentVolumeClaim {
        let metadata = json!({"namespace": "test-new", "name": "nginx-pvc", "uid": "u-1", "resourceVersion": "7"});
        from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn usual() -> Value {
        json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}}})
    }

    fn class() -> StorageClass {
        let parameters = json!({"leafStorageClass": "fast", "csi.storage.k8s.io/fstype": "ext4"});
        from_value(json!({"metadata": {"name": "c"}, "provisioner": DRIVER, "parameters": parameters})).unwrap()
    }

    fn places(members: &[&str]) -> Places {
        members.iter().map(|member| BTreeMap::from([(MEMBER_KEY.to_owned(), (*member).to_owned())])).collect()
    }

    #[test]
    fn request_names_the_claim_and_leaves_out_what_is_the_provisioners() {
        let request = request(&claim(&usual()), &class(), &places(&["b", "a"]), None).unwrap();
        assert_eq!(request.name, "pvc-u-1");
        assert_eq!(request.capacity_range.unwrap(), CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 });
        let parameters: BTreeMap<_, _> =
            request.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = [
            ("csi.storage.k8s.io/pv/name", "pvc-u-1"),
            ("csi.storage.k8s.io/pvc/name", "nginx-pvc"),
            ("csi.storage.k8s.io/pvc/namespace", "test-new"),
            ("leafStorageClass", "fast"),
        ];
        assert_eq!(parameters, BTreeMap::from(expected));
        let requirement = request.accessibility_requirements.unwrap();
        assert_eq!(requirement.preferred[0].segments[MEMBER_KEY], "b");
        assert_eq!(requirement.requisite.len(), 2);
    }

    #[test]
    fn claim_that_cannot_be_served_is_told_why() {
        for (key, value, words) in [
            ("selector", json!({"matchLabels": {"a": "b"}}), "selector"),
            ("accessModes", json!(["Sometimes"]), "Sometimes"),
            ("resources", json!({"requests": {"storage": "much"}}), "much"),
        ] {
            let mut spec = usual();
            spec[key] = value;
            let refused = request(&claim(&spec), &class(), &places(&["a"]), None).unwrap_err();
            assert!(refused.contains(words), "{words}: {refused}");
        }
    }

    #[test]
    fn volume_is_the_claims_and_says_from_where_it_can_be_reached() {
        let segments = HashMap::from([(MEMBER_KEY.to_owned(), "a".to_owned())]);
        let made = v1::Volume {
            volume_id: "a/test-new/nginx-pvc/0123456789abcdef".to_owned(),
            capacity_bytes: 2 << 30,
            volume_context: HashMap::from([("leafVolume".to_owned(), "pv-a".to_owned())]),
            accessible_topology: vec![Topology { segments }],
            ..v1::Volume::default()
        };
        let volume = manifest(&claim(&usual()), &class(), &made);
        assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi");
        assert_eq!(volume["spec"]["claimRef"]["uid"], "u-1");
        assert_eq!(volume["spec"]["csi"]["volumeAttributes"]["leafVolume"], "pv-a");
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(*terms, json!([{"matchExpressions": [{"key": MEMBER_KEY, "operator": "In", "values": ["a"]}]}]));
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    }
}
