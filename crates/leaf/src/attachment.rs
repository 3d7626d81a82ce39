//! VolumeAttachments in a member: how one is made there for a node of it that is a node of the host as well, and the few
//! requests that make, read and remove it.
//!
//! Its name is not the one that the member's own attach controller would give it: that one deletes whatever has such a name
//! and is wanted by no pod, when it starts.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    MemberClient,
    marks::withdrawn_mark,
    ownership,
    single::{self, WatchOutcome},
};
use cluster::json_patch;
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, published},
};

/// What is to be attached where.
#[derive(Clone, Copy, Debug)]
pub struct WantedAttachment<'a> {
    pub hash: VolumeHash,
    pub volume: &'a str,
    pub driver: &'a str,
    pub member_node: &'a str,
    /// The node of the host, by its id, and the volume's handle there.
    pub node: &'a str,
    pub handle: &'a str,
}

/// An attachment as it was seen.
#[derive(Clone, Debug)]
pub struct LeafAttachment {
    pub name: String,
    pub volume: String,
    pub member_node: String,
    /// The node of the host that it was made for, and the volume's handle there.
    pub node: String,
    pub handle: String,
    pub attached: bool,
    /// What the leaf driver said when it had attached the volume.
    pub context: BTreeMap<String, String>,
    pub terminating: bool,
    /// Its end has begun: nobody seems to want it. Whoever wants it nevertheless waits until that is decided.
    pub withdrawn: bool,
    /// Why it is not attached, or not detached.
    pub trouble: Option<String>,
    /// The volume for which it was made by us; none where it is somebody else's.
    pub hash: Option<VolumeHash>,
    pub uid: String,
    version: String,
}

impl WantedAttachment<'_> {
    pub fn name(&self) -> String {
        published::attachment_name(self.hash, self.member_node)
    }

    fn manifest(&self, cluster: &MemberClient) -> VolumeAttachment {
        let notes = [(ownership::NODE, self.node), (ownership::HANDLE, self.handle)];
        VolumeAttachment {
            metadata: ObjectMeta {
                name: Some(self.name()),
                labels: Some(ownership::labels(&cluster.host, self.hash)),
                annotations: Some(notes.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            spec: VolumeAttachmentSpec {
                attacher: self.driver.to_owned(),
                node_name: self.member_node.to_owned(),
                source: VolumeAttachmentSource {
                    persistent_volume_name: Some(self.volume.to_owned()),
                    ..VolumeAttachmentSource::default()
                },
            },
            status: None,
        }
    }
}

fn trouble(attachment: &VolumeAttachment) -> Option<String> {
    let status = attachment.status.as_ref()?;
    status.detach_error.as_ref().or(status.attach_error.as_ref())?.message.clone()
}

fn attachments(client: &MemberClient) -> Api<VolumeAttachment> {
    Api::all(client.client.clone())
}

fn seen_attachment(client: &MemberClient, attachment: VolumeAttachment) -> LeafAttachment {
    let trouble = trouble(&attachment);
    let status = attachment.status.unwrap_or_default();
    let mut annotations = attachment.metadata.annotations.unwrap_or_default();
    LeafAttachment {
        hash: ownership::volume_of(
            &ObjectMeta { labels: attachment.metadata.labels, ..ObjectMeta::default() },
            &client.host,
        ),
        name: attachment.metadata.name.unwrap_or_default(),
        volume: attachment.spec.source.persistent_volume_name.unwrap_or_default(),
        member_node: attachment.spec.node_name,
        node: annotations.remove(ownership::NODE).unwrap_or_default(),
        handle: annotations.remove(ownership::HANDLE).unwrap_or_default(),
        attached: status.attached,
        context: status.attachment_metadata.unwrap_or_default(),
        terminating: attachment.metadata.deletion_timestamp.is_some(),
        withdrawn: annotations.contains_key(ownership::WITHDRAWN),
        trouble,
        uid: attachment.metadata.uid.unwrap_or_default(),
        version: attachment.metadata.resource_version.unwrap_or_default(),
    }
}

/// All there are of a volume, whoever made them: the API cannot be asked for fewer.
pub async fn of(client: &MemberClient, volume: &str) -> Result<Vec<LeafAttachment>> {
    let all = list_attachments(client, &ListParams::default()).await?;
    Ok(all.into_iter().filter(|attachment| attachment.volume == volume).collect())
}

/// Those that were made for this host.
pub async fn ours(client: &MemberClient) -> Result<Vec<LeafAttachment>> {
    list_attachments(client, &ListParams::default().labels(&ownership::selector(&client.host))).await
}

async fn list_attachments(client: &MemberClient, wanted: &ListParams) -> Result<Vec<LeafAttachment>> {
    let all = attachments(client).list(wanted).await;
    let all = all.map_err(|error| client.outcome("list volumeattachments", &error))?;
    Ok(all.items.into_iter().map(|attachment| seen_attachment(client, attachment)).collect())
}

/// None: the name was taken already.
pub async fn create(client: &MemberClient, wanted: &WantedAttachment<'_>) -> Result<Option<LeafAttachment>> {
    let made = attachments(client).create(&PostParams::default(), &wanted.manifest(client)).await;
    match made.map_err(|error| client.outcome(&format!("create volumeattachment {}", wanted.name()), &error)) {
        Ok(made) => Ok(Some(seen_attachment(client, made))),
        Err(Error::Exists(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A quorum read.
pub async fn read(client: &MemberClient, name: &str) -> Result<Option<LeafAttachment>> {
    let found = cluster::read(attachments(client).get(name).await, name);
    let found = found.map_err(|error| client.outcome(&format!("get volumeattachment {name}"), &error))?;
    Ok(found.map(|attachment| seen_attachment(client, attachment)))
}

/// Says on it that its end has begun, or that it stays. Whoever has written on it meanwhile is not overruled.
pub async fn mark(client: &MemberClient, seen: &LeafAttachment, withdrawn: bool) -> Result<LeafAttachment> {
    let [unchanged, change] = withdrawn_mark(&seen.uid, &seen.version, withdrawn);
    let same = json!({"op": "test", "path": "/metadata/uid", "value": seen.uid});
    let marked = json_patch::send(attachments(client), &seen.name, &[same, unchanged, change]).await;
    let marked = marked.map_err(|error| client.outcome(&format!("patch volumeattachment {}", seen.name), &error))?;
    Ok(seen_attachment(client, marked))
}

/// Deletes the one that was seen and no other; what is left of it.
pub async fn delete(client: &MemberClient, seen: &LeafAttachment) -> Result<Option<LeafAttachment>> {
    // What was marked may stay after all, and then somebody has written so on it.
    let version = seen.withdrawn.then(|| seen.version.clone());
    let this = Preconditions { uid: Some(seen.uid.clone()), resource_version: version };
    let parameters = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
    let deleted = attachments(client).delete(&seen.name, &parameters).await;
    match deleted.map_err(|error| client.outcome(&format!("delete volumeattachment {}", seen.name), &error)) {
        // One without finalizers is gone at once.
        Ok(answer) => {
            let left = answer.left().filter(|left| !left.finalizers().is_empty());
            Ok(left.map(|left| seen_attachment(client, left)))
        }
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Until it is another in what counts, or until a moment.
pub async fn wait(client: &MemberClient, seen: &LeafAttachment, moment: Instant) -> WatchOutcome<LeafAttachment> {
    let at = (seen.name.as_str(), seen.version.as_str());
    let news = |one: &VolumeAttachment| {
        let attached = one.status.as_ref().is_some_and(|status| status.attached);
        let terminating = one.metadata.deletion_timestamp.is_some();
        let withdrawn = one.annotations().contains_key(ownership::WITHDRAWN);
        (attached, terminating, withdrawn) != (seen.attached, seen.terminating, seen.withdrawn)
            || trouble(one) != seen.trouble
    };
    match single::until(&attachments(client), at, moment, news).await {
        WatchOutcome::There(attachment) => WatchOutcome::There(seen_attachment(client, attachment)),
        WatchOutcome::Gone => WatchOutcome::Gone,
        WatchOutcome::Nothing => WatchOutcome::Nothing,
    }
}
