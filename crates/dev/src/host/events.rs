//! Events on the user's objects: why he waits, and what was done for him.

use k8s_openapi::api::core::v1::ObjectReference;

use simulate::{
    Cluster,
    events::{self, About},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Warning,
}

/// Who speaks, as the events name him.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speaker(pub(super) &'static str);

impl Speaker {
    pub(super) fn tell(self, cluster: &Cluster, about: ObjectReference, kind: Kind, reason: &str, message: &str) {
        let about = About {
            kind: about.kind.unwrap_or_default(),
            api_version: about.api_version.unwrap_or_default(),
            namespace: about.namespace.unwrap_or_default(),
            name: about.name.unwrap_or_default(),
            uid: about.uid.unwrap_or_default(),
            version: about.resource_version.unwrap_or_default(),
        };
        let level = if kind == Kind::Warning { "Warning" } else { "Normal" };
        events::tell(cluster, &about, self.0, level, reason, message);
    }
}
