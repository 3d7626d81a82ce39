//! What a claim is to be filled with, in the driver's own handles, as external-provisioner finds them.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::Value;

use csi::v1::{
    VolumeContentSource,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use simulate::{Cluster, text};

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";

/// None where a claim wants an empty volume.
pub(super) fn of(host: &Cluster, claim: &PersistentVolumeClaim) -> Result<Option<VolumeContentSource>, String> {
    let Some(source) = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref()) else {
        return Ok(None);
    };
    let (namespace, name) = (claim.namespace().unwrap_or_default(), source.name.as_str());
    let kind = match (source.api_group.as_deref().unwrap_or_default(), source.kind.as_str()) {
        ("snapshot.storage.k8s.io", "VolumeSnapshot") => {
            let snapshot_id = snapshot(host, &namespace, name)?;
            Type::Snapshot(SnapshotSource { snapshot_id })
        }
        ("", "PersistentVolumeClaim") => {
            let volume_id = volume(host, &namespace, name)?;
            Type::Volume(VolumeSource { volume_id })
        }
        (group, kind) => return Err(format!("nothing can be made of a {kind} of \"{group}\"")),
    };
    Ok(Some(VolumeContentSource { r#type: Some(kind) }))
}

fn snapshot(host: &Cluster, namespace: &str, name: &str) -> Result<String, String> {
    let snapshot = host.get(SNAPSHOTS, namespace, name).ok_or_else(|| format!("snapshot {name} is not there"))?;
    if snapshot.pointer("/status/readyToUse") != Some(&Value::Bool(true)) {
        return Err(format!("snapshot {name} is not ready"));
    }
    let content = host.get(CONTENTS, "", text(&snapshot, "/status/boundVolumeSnapshotContentName"));
    let content = content.ok_or_else(|| format!("the content of snapshot {name} is gone"))?;
    Ok(text(&content, "/status/snapshotHandle").to_owned())
}

fn volume(host: &Cluster, namespace: &str, name: &str) -> Result<String, String> {
    let claim = host.get("persistentvolumeclaims", namespace, name);
    let claim = claim.filter(|claim| text(claim, "/status/phase") == "Bound");
    let claim = claim.ok_or_else(|| format!("claim {name} is not there, or not bound"))?;
    let volume = host.get("persistentvolumes", "", text(&claim, "/spec/volumeName"));
    let volume = volume.ok_or_else(|| format!("the volume of claim {name} is gone"))?;
    Ok(text(&volume, "/spec/csi/volumeHandle").to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[tokio::test]
    async fn handle_of_a_bound_claim_is_the_source_and_others_are_told() {
        let host = Cluster::new("host", 1);
        let other = json!({"metadata": {"namespace": "default", "name": "one"}, "spec": {"volumeName": "pv",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        host.create("persistentvolumeclaims", other).unwrap();
        let claim = |kind: &str| -> PersistentVolumeClaim {
            let source = json!({"kind": kind, "name": "one"});
            from_value(json!({"metadata": {"namespace": "default", "name": "two"}, "spec": {"dataSource": source}}))
                .unwrap()
        };
        assert!(of(&host, &claim("PersistentVolumeClaim")).unwrap_err().contains("not bound"));
        host.change("persistentvolumeclaims", "default", "one", |claim| claim["status"]["phase"] = json!("Bound"))
            .unwrap();
        let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "d", "volumeHandle": "h"},
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
        host.create("persistentvolumes", volume).unwrap();
        let expected = Type::Volume(VolumeSource { volume_id: "h".to_owned() });
        assert_eq!(of(&host, &claim("PersistentVolumeClaim")).unwrap().unwrap().r#type, Some(expected));
        assert!(of(&host, &claim("Populator")).unwrap_err().contains("Populator"));
    }
}
