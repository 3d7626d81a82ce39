//! VolumeAttachments of the host.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions},
};

use super::{Host, passed, unread};
use domain::{
    error::Result,
    volume::{
        DRIVER, NodeId, VolumeHash,
        published::{attachment_name, host_attachment_name},
    },
};

/// Written by external-attacher.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// What external-attacher puts on one that it attaches, and takes off once it has detached it.
const FINALIZER: &str = "external-attacher/kosmos-csi-io";

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

/// Whether the attach controller wants a volume on a node of this name: what it wants detached it deletes. A quorum read. An account that may
/// not get it, as by a ClusterRole of before an upgrade, lists it, as external-attacher beside it does. Where it may not do that either, nothing
/// is known to be wanted: no pod could leave a real node otherwise.
pub async fn is_wanted(host: &Host, handle: &str, node: &str) -> Result<bool> {
    let (name, attachments) = (host_attachment_name(handle, node), Api::<VolumeAttachment>::all(host.client.clone()));
    let found = match cluster::read(attachments.get(&name).await, &name) {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            let listed = attachments.list(&named).await;
            listed.map(|listed| listed.items.into_iter().find(|one| one.name_any() == name))
        }
        found => found,
    };
    match found {
        Ok(found) => Ok(found.is_some_and(|one| one.metadata.deletion_timestamp.is_none())),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::warn!(
                volume = handle,
                node,
                reason = status.message,
                "the driver may not ask the host whether a pod wants the volume on the node again, and takes it that none does: \
                 apply the ClusterRole kosmos-csi-controller of this version"
            );
            Ok(false)
        }
        Err(error) => Err(unread(&format!("read volume attachment {name}"), &error)),
    }
}

/// Which volumes are, or are to be, on which nodes of this host, by the ids of these.
#[derive(Debug)]
pub struct WantedAttachments {
    all: BTreeSet<(String, String)>,
    /// Of nodes, by their names.
    ids: BTreeMap<String, String>,
}

impl WantedAttachments {
    pub fn has(&self, volume: &str, node: &NodeId) -> bool {
        self.all.contains(&(volume.to_owned(), node.to_string()))
    }

    /// Whether the node of this name has that id.
    pub fn is_node(&self, name: &str, node: &NodeId) -> bool {
        self.ids.get(name).is_some_and(|id| *id == node.to_string())
    }
}

pub async fn wanted(host: &Host) -> Result<WantedAttachments> {
    let nodes = Api::<CSINode>::all(host.client.clone()).list(&ListParams::default()).await;
    let nodes = nodes.map_err(|error| unread("list CSINodes", &error))?;
    let id_of = |node: CSINode| {
        let name = node.name_any();
        let ours = node.spec.drivers.into_iter().find(|driver| driver.name == DRIVER);
        ours.map(|driver| (name, driver.node_id))
    };
    let ids: BTreeMap<String, String> = nodes.items.into_iter().filter_map(id_of).collect();
    // Nobody has asked to attach it yet where it does not say the node's id.
    let id = |one: &Attached| Some(&one.node_id).filter(|id| !id.is_empty()).or_else(|| ids.get(&one.node)).cloned();
    // One that was made to be deleted, and was not because somebody was killed just then, wants nothing.
    let is_of_former = |one: &Attached| {
        NodeId::parse(&one.node_id).is_some_and(|node| one.name == name_of_former(host, &one.volume, &node))
    };
    let all = list(host).await?.into_iter().filter(|one| !is_of_former(one));
    let all = all.filter_map(|one| Some((one.volume.clone(), id(&one)?))).collect();
    Ok(WantedAttachments { all, ids })
}

impl Attached {
    /// Where no kubelet mounts it. Who has not been asked to attach it yet does not say it.
    pub fn is_to_virtual_node(&self) -> bool {
        NodeId::parse(&self.node_id).is_some_and(|node| !node.is_real())
    }

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

/// Has external-attacher detach a volume from a node of a former cluster, as from any: by an attachment that is made to be deleted. No
/// node has the name that is written there, so the attacher goes by the id.
pub async fn detach_from_former(host: &Host, volume: &str, node: &NodeId) -> Result<()> {
    let (id, name) = (node.to_string(), name_of_former(host, volume, node));
    let wanted = VolumeAttachment {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            annotations: Some(BTreeMap::from([(NODE_ID.to_owned(), id.clone())])),
            ..ObjectMeta::default()
        },
        spec: VolumeAttachmentSpec {
            attacher: DRIVER.to_owned(),
            node_name: id.replace('/', "."),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(volume.to_owned()),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    };
    let attachments = Api::<VolumeAttachment>::all(host.client.clone());
    let made = attachments.create(&PostParams::default(), &wanted).await;
    passed(&format!("create volume attachment {name}"), made.map(drop))?;
    let deleted = attachments.delete(&name, &DeleteParams::default()).await;
    passed(&format!("delete volume attachment {name}"), deleted.map(drop))
}

/// Kubernetes' own are called otherwise.
fn name_of_former(host: &Host, volume: &str, node: &NodeId) -> String {
    attachment_name(VolumeHash::new(&host.id, volume), &node.to_string())
}

pub async fn delete(host: &Host, attachment: &Attached) -> Result<()> {
    let pinned = Preconditions { uid: Some(attachment.uid.clone()), resource_version: None };
    let how = DeleteParams { preconditions: Some(pinned), ..DeleteParams::default() };
    let deleted = Api::<VolumeAttachment>::all(host.client.clone()).delete(&attachment.name, &how).await;
    passed(&format!("delete volume attachment {}", attachment.name), deleted.map(drop))
}
