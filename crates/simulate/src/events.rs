//! What controllers tell about an object, kept as Events. The same words again only count, and once a second at most.

use serde_json::{Value, json};

use super::{
    Cluster,
    chance::Chance,
    object::{name, namespace, set, text, uid},
};

const EVENTS: &str = "events";

/// The object that an event is about.
#[derive(Clone, Debug)]
pub struct About {
    pub kind: String,
    pub api_version: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub version: String,
}

impl About {
    fn new(kind: &str, api_version: &str, object: &Value) -> Self {
        let version = text(object, "/metadata/resourceVersion");
        let [kind, api_version, namespace, name, uid, version] =
            [kind, api_version, namespace(object), name(object), uid(object), version].map(str::to_owned);
        Self { kind, api_version, namespace, name, uid, version }
    }

    /// Of any kind, as long as the object says which.
    pub fn any(object: &Value) -> Self {
        Self::new(text(object, "/kind"), text(object, "/apiVersion"), object)
    }

    pub(super) fn claim(object: &Value) -> Self {
        Self::new("PersistentVolumeClaim", "v1", object)
    }

    pub(super) fn volume(object: &Value) -> Self {
        Self::new("PersistentVolume", "v1", object)
    }

    pub fn pod(object: &Value) -> Self {
        Self::new("Pod", "v1", object)
    }

    pub(super) fn snapshot(object: &Value) -> Self {
        Self::new("VolumeSnapshot", "snapshot.storage.k8s.io/v1", object)
    }

    /// Events about what has no namespace are kept in the default one.
    fn place(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }
}

pub fn tell(cluster: &Cluster, about: &About, source: &str, level: &str, reason: &str, message: &str) {
    let words = Chance::about(0, &format!("{}{reason}{message}", about.uid)).draw();
    let event = format!("{}.{words:016x}", about.name);
    let now = cluster.stamp();
    if let Some(before) = cluster.get(EVENTS, about.place(), &event) {
        if text(&before, "/lastTimestamp") != now {
            let count = before.get("count").and_then(Value::as_u64).unwrap_or(1);
            let again = |event: &mut Value| {
                set(event, &["count"], json!(count + 1));
                set(event, &["lastTimestamp"], json!(now));
            };
            drop(cluster.change(EVENTS, about.place(), &event, again));
        }
        return;
    }
    let told = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": about.place(), "name": event},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.version,
        },
        "type": level,
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "reportingComponent": source,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    // Nothing depends on it: a namespace that ends takes no more events.
    drop(cluster.create(EVENTS, told));
}
