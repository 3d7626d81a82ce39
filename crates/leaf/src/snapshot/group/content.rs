//! What stands behind leaf groups.

use std::collections::BTreeMap;

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Preconditions},
};
use serde_json::{Value, json};

use super::{CONTENT, Groups};
use crate::ownership;
use cluster::json_patch;
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash},
};

/// What stands behind a leaf group.
#[derive(Clone, Debug)]
pub struct GroupContent {
    pub name: String,
    uid: String,
    /// The group it is of.
    pub of: LeafPlace,
    group_uid: String,
    /// It outlives its group, and so does the data.
    pub retained: bool,
    terminating: bool,
    labels: Option<BTreeMap<String, String>>,
}

impl GroupContent {
    fn new(content: &DynamicObject) -> Self {
        let at = |pointer: &str| content.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            name: content.name_any(),
            uid: content.uid().unwrap_or_default(),
            of: LeafPlace {
                namespace: at("/spec/volumeGroupSnapshotRef/namespace"),
                claim: at("/spec/volumeGroupSnapshotRef/name"),
            },
            group_uid: at("/spec/volumeGroupSnapshotRef/uid"),
            retained: at("/spec/deletionPolicy") != "Delete",
            terminating: content.metadata.deletion_timestamp.is_some(),
            labels: content.metadata.labels.clone(),
        }
    }
}

impl Groups<'_> {
    fn contents(&self) -> Api<DynamicObject> {
        Api::all_with(self.cluster.client.clone(), &self.resource(CONTENT))
    }

    /// What stands behind a group.
    pub async fn content(&self, name: &str, group_uid: &str) -> Result<Option<GroupContent>> {
        let found = cluster::read(self.contents().get(name).await, name);
        let found = self.told(CONTENT, &format!("get group content {name}"), found).await?;
        Ok(found.as_ref().map(GroupContent::new).filter(|content| content.group_uid == group_uid))
    }

    /// The contents that were marked for a group which has gone.
    pub async fn outlived(&self, hash: VolumeHash, is_it: impl Fn(&LeafPlace) -> bool) -> Result<Vec<GroupContent>> {
        let selector = format!("{},{}={hash}", ownership::selector(&self.cluster.host), ownership::GROUP);
        let found = self.contents().list(&ListParams::default().labels(&selector)).await;
        let found = self.told(CONTENT, "list group contents", found).await?;
        Ok(found.iter().map(GroupContent::new).filter(|content| is_it(&content.of)).collect())
    }

    /// Puts our labels on what would outlive its group, so that it is found also without it.
    pub async fn mark(&self, content: &GroupContent, hash: VolumeHash) -> Result<()> {
        let mut labels = ownership::host_labels(&self.cluster.host);
        labels.insert(ownership::GROUP.to_owned(), hash.to_string());
        if labels.iter().all(|(key, value)| content.labels.as_ref().is_some_and(|there| there.get(key) == Some(value)))
        {
            return Ok(());
        }
        labels.extend(
            content.labels.clone().unwrap_or_default().into_iter().filter(|(key, _)| !key.starts_with(ownership::OURS)),
        );
        self.label(content, &labels).await
    }

    async fn label(&self, content: &GroupContent, labels: &BTreeMap<String, String>) -> Result<()> {
        let operations = json!([
            {"op": "test", "path": "/spec/volumeGroupSnapshotRef/uid", "value": content.group_uid},
            {"op": "test", "path": "/metadata/labels", "value": content.labels},
            {"op": "add", "path": "/metadata/labels", "value": labels},
        ]);
        self.patch_content(&content.name, operations, "label").await
    }

    /// As of a snapshot's: a member may let the driver write only on what carries its labels.
    async fn take_over(&self, content: &GroupContent) -> Result<()> {
        if ownership::is_labelled(content.labels.as_ref(), &self.cluster.host) {
            return Ok(());
        }
        let mut labels = content.labels.clone().unwrap_or_default();
        labels.extend(ownership::host_labels(&self.cluster.host));
        match self.label(content, &labels).await {
            Err(Error::NotFound(_)) => Ok(()),
            done => done,
        }
    }

    /// Makes them go, whatever the class says.
    pub async fn end(&self, contents: &[GroupContent]) -> Result<()> {
        for content in contents {
            if content.retained {
                self.make_deletable(content).await?;
            } else if !content.terminating {
                self.take_over(content).await?;
            }
            if !content.terminating {
                self.delete_content(content).await?;
            }
        }
        Ok(())
    }

    async fn delete_content(&self, content: &GroupContent) -> Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(content.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let deleted = self.contents().delete(&content.name, &parameters).await;
        match self.told(CONTENT, &format!("delete group content {}", content.name), deleted).await {
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The host deletes, so the content must not outlive its group.
    pub(super) async fn make_deletable(&self, content: &GroupContent) -> Result<()> {
        let operations = json!([
            {"op": "test", "path": "/spec/volumeGroupSnapshotRef/uid", "value": content.group_uid},
            {"op": "replace", "path": "/spec/deletionPolicy", "value": "Delete"},
        ]);
        let changed = async {
            self.take_over(content).await?;
            self.patch_content(&content.name, operations, "make deletable").await
        };
        match changed.await {
            Err(Error::NotFound(_)) => Ok(()),
            done => done,
        }
    }

    async fn patch_content(&self, name: &str, operations: Value, what: &str) -> Result<()> {
        let patched = json_patch::send_unread(self.contents(), name, &operations).await;
        self.told(CONTENT, &format!("{what} group content {name}"), patched).await
    }
}
