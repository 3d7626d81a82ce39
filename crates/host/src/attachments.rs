//! VolumeAttachments of the host.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};

use super::{Host, passed, unread};
use domain::{error::Result, volume::DRIVER};

/// Written by external-attacher.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// One of this driver's, of a volume.
#[derive(Clone, Debug)]
pub struct Attached {
    pub name: String,
    pub uid: String,
    pub node: String,
    /// As the driver knows the node; empty while nobody has asked to attach it.
    pub node_id: String,
    pub volume: String,
    pub attached: bool,
}

/// All of this driver's that nobody deletes.
pub async fn list(host: &Host) -> Result<Vec<Attached>> {
    let listed = Api::<VolumeAttachment>::all(host.client.clone()).list(&ListParams::default()).await;
    let listed = listed.map_err(|error| unread("list volume attachments", &error))?;
    let is_ours = |one: &VolumeAttachment| one.spec.attacher == DRIVER && one.metadata.deletion_timestamp.is_none();
    let ours = listed.items.into_iter().filter(is_ours);
    Ok(ours.filter_map(Attached::new).collect())
}

impl Attached {
    fn new(one: VolumeAttachment) -> Option<Self> {
        Some(Self {
            name: one.name_any(),
            uid: one.uid()?,
            node_id: one.annotations().get(NODE_ID).cloned().unwrap_or_default(),
            attached: one.status.is_some_and(|status| status.attached),
            node: one.spec.node_name,
            volume: one.spec.source.persistent_volume_name?,
        })
    }
}

pub async fn delete(host: &Host, attachment: &Attached) -> Result<()> {
    let pinned = Preconditions { uid: Some(attachment.uid.clone()), resource_version: None };
    let how = DeleteParams { preconditions: Some(pinned), ..DeleteParams::default() };
    let deleted = Api::<VolumeAttachment>::all(host.client.clone()).delete(&attachment.name, &how).await;
    passed(&format!("delete volume attachment {}", attachment.name), deleted.map(drop))
}
