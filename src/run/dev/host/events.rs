//! Events on the user's objects: why he waits, and what was done for him. The same thing said again is counted.

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use super::overtaken;
use crate::simulate::Cluster;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Warning,
}

/// Who speaks, as the events name him.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speaker(pub(super) &'static str);

impl Speaker {
    pub(super) fn tell(self, cluster: &Cluster, about: &ObjectReference, kind: Kind, reason: &str, message: &str) {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let name = name(about, self.0, reason, message);
        let now = cluster.stamp();
        let again = |event: &mut Value| {
            event["count"] = json!(event["count"].as_u64().unwrap_or(1) + 1);
            event["lastTimestamp"] = json!(now);
        };
        if cluster.change("events", namespace, &name, again).is_ok() {
            return;
        }
        let event = json!({
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": about,
            "type": if kind == Kind::Warning { "Warning" } else { "Normal" },
            "reason": reason,
            "message": message,
            "source": {"component": self.0},
            "reportingComponent": self.0,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        overtaken("an event", cluster.create("events", event));
    }
}

/// The same for the same thing said by the same speaker.
fn name(about: &ObjectReference, speaker: &str, reason: &str, message: &str) -> String {
    let uid = about.uid.as_deref().unwrap_or_default();
    let number = super::workloads::fingerprint(&[uid, speaker, reason, message].join("\n"));
    format!("{}.{number:016x}", about.name.as_deref().unwrap_or_default())
}
