//! Claims and volumes of a member, with the labels and annotations that are gone by here.

use cluster::trimmed::{self, Reads};

use super::{
    marks::{MEMBER_OF, SELECTED_NODE},
    ownership::{MANAGED_BY, PROVISIONED_BY},
};

pub type Trimmed<K> = trimmed::Trimmed<K, OfLeaves>;

/// The prefix of every label and annotation of ours.
const OURS: &str = "kosmos.csi.io/";

/// Who follows leaves.
#[derive(Clone, Debug)]
pub enum OfLeaves {}

impl Reads for OfLeaves {
    fn reads(key: &str) -> bool {
        [OURS, MEMBER_OF].iter().any(|prefix| key.starts_with(prefix))
            || [MANAGED_BY, SELECTED_NODE, PROVISIONED_BY].contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::PersistentVolumeClaim,
        serde_json::{from_str, from_value, json},
    };

    use super::*;

    #[test]
    fn only_what_is_gone_by_is_read_of_the_metadata() {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "db", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "finalizers": ["kosmos.csi.io/protect", "kubernetes.io/pvc-protection"],
                "labels": {"kosmos.csi.io/host": "h", MANAGED_BY: "x", "app": "db"},
                "annotations": {"kosmos.csi.io/name": "pvc-1", SELECTED_NODE: "n", "pv.kubernetes.io/bind-completed": "yes"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o"}],
            },
            "spec": {"volumeName": "pv-1", "storageClassName": "now"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        });
        let whole: PersistentVolumeClaim = from_value(claim.clone()).unwrap();
        let trimmed: Trimmed<PersistentVolumeClaim> = from_str(&claim.to_string()).unwrap();
        let mut expected = whole.clone();
        expected.metadata.managed_fields = None;
        expected.metadata.owner_references = None;
        expected.metadata.labels.as_mut().unwrap().remove("app");
        expected.metadata.annotations.as_mut().unwrap().remove("pv.kubernetes.io/bind-completed");
        assert_eq!(*trimmed, expected);
    }
}
