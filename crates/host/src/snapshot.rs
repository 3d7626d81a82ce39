//! The host's own record of a snapshot or a group: whether anybody still waits for it, and whether it was given out.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::{Host, unread};
use domain::{error::Result, volume::id::is_subdomain};

/// A content object of the host, as far as it bears on its leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostContent {
    pub terminating: bool,
    /// It carries a handle: the sidecar will ask for the removal of what it leads to.
    pub given_out: bool,
}

/// Which of the host's kinds a content is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    Snapshot,
    Group,
}

/// The content as it is now; none when it is gone.
pub async fn read_content(host: &Host, kind: ContentKind, name: &str) -> Result<Option<HostContent>> {
    // It may come from a member, where anybody may have written it, and becomes part of a path.
    if !is_subdomain(name) {
        return Ok(None);
    }
    let (group, kind, handle) = match kind {
        ContentKind::Snapshot => ("snapshot.storage.k8s.io", "VolumeSnapshotContent", "/status/snapshotHandle"),
        ContentKind::Group => {
            ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent", "/status/volumeGroupSnapshotHandle")
        }
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let answer = Api::<DynamicObject>::all_with(host.client.clone(), &resource).get(name).await;
    let found = cluster::read(answer, name).map_err(|error| unread(&format!("get {kind} {name}"), &error))?;
    Ok(found.map(|content| HostContent {
        terminating: content.metadata.deletion_timestamp.is_some(),
        given_out: content.data.pointer(handle).and_then(|handle| handle.as_str()).is_some_and(|text| !text.is_empty()),
    }))
}
