//! Claims that a pod brings along: made for it, called after it, and gone with it.

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

pub(in crate::host) fn claim_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// The claims that a pod shall have.
pub(super) fn claims(pod: &Pod) -> Vec<Value> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claim = |volume: &k8s_openapi::api::core::v1::Volume| {
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let mut metadata = json!(template.metadata);
        metadata["namespace"] = json!(pod.namespace());
        metadata["name"] = json!(claim_name(&pod.name_any(), &volume.name));
        metadata["ownerReferences"] = json!([pod.controller_owner_ref(&())?]);
        Some(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template.spec}))
    };
    volumes.filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn claim_is_called_after_pod_and_volume_and_belongs_to_the_pod() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"storageClassName": "fast"}});
        let volumes = json!([
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ]);
        let metadata = json!({"namespace": "x", "name": "p", "uid": "u"});
        let pod = json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}});
        let claims = claims(&from_value(pod).unwrap());
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0]["metadata"]["name"], "p-scratch");
        assert_eq!(claims[0]["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(claims[0]["spec"]["storageClassName"], "fast");
    }
}
