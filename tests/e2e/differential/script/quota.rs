//! Quotas: counted by the API server itself; what is used at first is a controller's to write.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("quota"));
    let quotas = core("resourcequotas", "quota");
    let claims = core("persistentvolumeclaims", "quota");
    let hard = json!({"persistentvolumeclaims": "3", "requests.storage": "5Gi", "fast.storageclass.storage.k8s.io/requests.storage": "2Gi"});
    script.post(
        &quotas,
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limit"}, "spec": {"hard": hard}}),
    );
    script.patch(MERGE, &format!("{quotas}/limit/status"), json!({"status": {"hard": hard, "used": {
        "persistentvolumeclaims": "0", "requests.storage": "0", "fast.storageclass.storage.k8s.io/requests.storage": "0"}}}));
    script.post(&claims, claim("one", "fast", "1Gi"));
    script.get(&format!("{quotas}/limit"));
    script.post(&claims, claim("two", "fast", "2Gi"));
    script.post(&claims, claim("two", "slow", "5Gi"));
    script.post(&format!("{claims}?dryRun=All"), claim("two", "slow", "1Gi"));
    script.post(&claims, claim("two", "slow", "1Gi"));
    script.post(&claims, claim("three", "slow", "1536Mi"));
    script.post(&claims, claim("four", "slow", "1Mi"));
    script.get(&format!("{quotas}/limit"));
    script.post(&claims, claim("one", "fast", "1Gi"));
    script.post(&quotas, json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bad"}, "spec": {"hard": {"pods": "many"}}}));
    script.post(&quotas, json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "nonsense"}, "spec": {"hard": {"nonsense": "1"}}}));
    script.delete(&format!("{quotas}/limit"));
}
