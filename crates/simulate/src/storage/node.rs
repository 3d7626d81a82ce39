//! The nodes of a simulated member, mostly one.

use serde_json::{Value, json};

use super::{Member, names::HOSTNAME};

/// All nodes of a member, and never none.
pub(super) fn names(member: &Member) -> Vec<String> {
    (1..=member.settings.nodes.max(1)).map(|number| format!("{}-n{number}", member.cluster.name())).collect()
}

pub(super) const ADDRESS: &str = "192.0.2.1";

pub(super) fn object(name: &str, now: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "10000", "ephemeral-storage": "1Ti"});
    json!({
        "metadata": {
            "name": name,
            "labels": {HOSTNAME: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "spec": {"podCIDR": "10.244.0.0/16", "podCIDRs": ["10.244.0.0/16"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": name}],
            "allocatable": resources,
            "capacity": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": "v1.33.0"},
        },
    })
}
