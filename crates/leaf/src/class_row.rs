//! What is known of a StorageClass of the member. Pure.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::ownership::is_open_to;
use domain::volume::HostId;

/// A StorageClass of the member.
#[derive(Clone, Debug)]
pub struct ClassRow {
    pub waits_for_pod: bool,
    /// The driver that makes its volumes.
    pub provisioner: Box<str>,
    /// Claims of it may ask for more later.
    pub grows: bool,
    /// The member's administrator lets this host use it.
    pub open: bool,
    pub(super) default_since: Option<String>,
}

impl ClassRow {
    pub(super) fn new(class: &StorageClass, host: &HostId) -> Self {
        let is_default =
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
                .iter()
                .any(|key| class.annotations().get(*key).is_some_and(|value| value == "true"));
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
        Self {
            waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            provisioner: class.provisioner.as_str().into(),
            grows: class.allow_volume_expansion == Some(true),
            open: is_open_to(&host.0, class.annotations()),
            default_since: is_default.then_some(made),
        }
    }
}
