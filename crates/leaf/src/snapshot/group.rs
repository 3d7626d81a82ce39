//! Leaf groups of snapshots. A group selects its claims by a label, so the claims carry one of ours for as long as the
//! member needs to make it; the member then makes the snapshots in it, which are marked as ours one by one.

mod content;

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams, Preconditions},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{kinds::VolumeSnapshot, missing, row::SnapshotRow};
use crate::{MemberClient, claim::Made, marks::MEMBER_OF, ownership};
use cluster::{json_patch, unmanaged::Unmanaged};
pub use content::GroupContent;
use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash,
        snapshot::{ObservedSnapshot, leaf_group_name},
    },
};

pub(super) const GROUP: &str = "groupsnapshot.storage.k8s.io";
const KIND: &str = "VolumeGroupSnapshot";
const CONTENT: &str = "VolumeGroupSnapshotContent";
/// Between the handles in the annotation of a group's volumes.
pub const SEPARATOR: &str = " ";
/// After a watch that was refused or broke.
const REFUSED: Duration = Duration::from_millis(500);

/// What a leaf group says.
#[derive(Clone, Debug)]
pub struct WantedGroup<'a> {
    pub name: &'a str,
    pub hash: VolumeHash,
    pub namespace: &'a str,
    pub sources: &'a [String],
    pub class: Option<&'a str>,
    /// The host's VolumeGroupSnapshotContent that asks for it.
    pub content: Option<&'a str>,
}

/// A leaf group of ours.
#[derive(Clone, Debug)]
pub struct LeafGroup {
    pub place: LeafPlace,
    pub uid: String,
    pub sources: Vec<String>,
    /// The host's VolumeGroupSnapshotContent that asked for it, where anybody told.
    pub asked_by: Option<String>,
    pub content: Option<String>,
    pub cut: Option<i64>,
    pub ready: bool,
    pub terminating: bool,
    pub trouble: Option<String>,
    /// It is cut of claims that it chooses. One that was restored from a backup names a content that was there before it.
    pub chooses: bool,
}

/// What marks one snapshot of a group as ours.
#[derive(Clone, Debug)]
pub struct PartMark<'a> {
    pub hash: VolumeHash,
    pub group: VolumeHash,
    pub volume: VolumeHash,
    pub source: &'a str,
    pub driver: &'a str,
    /// The host's VolumeGroupSnapshotContent that asks for the group.
    pub content: Option<&'a str>,
}

/// The groups of one member, in the version that it serves.
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    cluster: &'a MemberClient,
    version: String,
}

impl LeafGroup {
    fn new(group: &DynamicObject) -> Self {
        let at = |pointer: &str| group.data.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let sources = group.annotations().get(ownership::SOURCE).map(String::as_str).unwrap_or_default();
        let cut = at("/status/creationTime").and_then(|time| time.parse::<k8s_openapi::jiff::Timestamp>().ok());
        Self {
            place: LeafPlace { namespace: group.namespace().unwrap_or_default(), claim: group.name_any() },
            uid: group.uid().unwrap_or_default(),
            sources: sources.split(SEPARATOR).map(str::to_owned).collect(),
            asked_by: group.annotations().get(ownership::CONTENT).cloned(),
            content: at("/status/boundVolumeGroupSnapshotContentName").map(str::to_owned),
            cut: cut.map(k8s_openapi::jiff::Timestamp::as_second),
            ready: group.data.pointer("/status/readyToUse") == Some(&Value::Bool(true)),
            terminating: group.metadata.deletion_timestamp.is_some(),
            trouble: at("/status/error/message").map(str::to_owned),
            chooses: group.data.pointer("/spec/source/selector").is_some(),
        }
    }

    /// What stands behind it, also while it does not say so yet.
    pub fn content_name(&self) -> Option<String> {
        let own = || self.chooses.then(|| format!("groupsnapcontent-{}", self.uid));
        self.content.clone().or_else(own)
    }

    pub fn observed(&self) -> ObservedSnapshot {
        ObservedSnapshot {
            sources: self.sources.clone(),
            terminating: self.terminating,
            cut: self.cut.is_some() && self.content.is_some(),
            trouble: self.trouble.clone(),
        }
    }
}

/// What stands behind a snapshot.
pub fn content_of(part: &VolumeSnapshot) -> Option<&str> {
    part.status.as_ref()?.bound_volume_snapshot_content_name.as_deref()
}

/// The snapshots that the member has made for a group.
pub async fn parts(client: &MemberClient, group: &LeafGroup) -> Result<Vec<VolumeSnapshot>> {
    let removals = client.snapshots.removals();
    let all = Api::<Unmanaged<VolumeSnapshot>>::namespaced(client.client.clone(), &group.place.namespace);
    let all = all.list(&ListParams::default()).await;
    let all = all.map_err(|error| client.outcome("list snapshots of a group", &error))?;
    let owned = |part: &VolumeSnapshot| part.owner_references().iter().any(|owner| owner.uid == group.uid);
    let parts: Vec<VolumeSnapshot> = all.items.into_iter().map(Unmanaged::into_object).filter(owned).collect();
    for part in &parts {
        drop(client.snapshots.put_read(part, removals));
    }
    Ok(parts)
}

/// Where the snapshots are that say to be part of a group, whether or not that is there.
pub async fn left(client: &MemberClient, group: VolumeHash) -> Result<Vec<LeafPlace>> {
    let selector = format!("{},{}={group}", ownership::selector(&client.host), ownership::GROUP);
    let found = super::listed(client, &ListParams::default().labels(&selector)).await?;
    let place =
        |part: &VolumeSnapshot| LeafPlace { namespace: part.namespace().unwrap_or_default(), claim: part.name_any() };
    Ok(found.iter().map(place).collect())
}

/// Whether a part was marked as one of a group of ours.
pub fn is_marked_part(client: &MemberClient, part: &VolumeSnapshot, group: VolumeHash) -> bool {
    ownership::hash_of(&part.metadata, &client.host, ownership::GROUP) == Some(group)
}

/// What lacks of the marks of a part that was given out, in words, where somebody in the member has taken some off; and where it is.
pub fn unmarked(client: &MemberClient, part: &VolumeSnapshot, group: VolumeHash) -> Option<(LeafPlace, Vec<String>)> {
    let mut expected = ownership::host_labels(&client.host);
    expected.insert(ownership::GROUP.to_owned(), group.to_string());
    let is_there = |(key, value): &(String, String)| part.labels().get(key) == Some(value);
    let lacking =
        expected.into_iter().filter(|label| !is_there(label)).map(|(key, value)| format!("label {key}={value}"));
    let has_hash = part.labels().get(ownership::SNAPSHOT).is_some_and(|text| VolumeHash::parse(text).is_some());
    let hash =
        format!("label {} (its 32 digits; its handle ends with them, or with the first half)", ownership::SNAPSHOT);
    let has_source = part.annotations().contains_key(ownership::SOURCE);
    let source = format!("annotation {} (the handle of its volume)", ownership::SOURCE);
    let others = [(has_hash, hash), (has_source, source)].into_iter().filter(|(is_there, _)| !is_there);
    let lacking: Vec<String> = lacking.chain(others.map(|(_, what)| what)).collect();
    let place = LeafPlace { namespace: part.namespace().unwrap_or_default(), claim: part.name_any() };
    (!lacking.is_empty()).then_some((place, lacking))
}

/// Marks a part as ours, over the labels and annotations it was seen with.
pub async fn mark_part(
    client: &MemberClient,
    part: &VolumeSnapshot,
    mark: &PartMark<'_>,
) -> Result<Option<SnapshotRow>> {
    let (old_labels, old_annotations) = (&part.metadata.labels, &part.metadata.annotations);
    let mut labels = old_labels.clone().unwrap_or_default();
    labels.extend(super::labels(client, mark.hash, Some(mark.volume)));
    labels.insert(ownership::GROUP.to_owned(), mark.group.to_string());
    let mut annotations = old_annotations.clone().unwrap_or_default();
    annotations.insert(ownership::SOURCE.to_owned(), mark.source.to_owned());
    annotations.insert(ownership::HOLDER.to_owned(), mark.driver.to_owned());
    annotations.extend(mark.content.map(|content| (ownership::CONTENT.to_owned(), content.to_owned())));
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": part.uid()},
        {"op": "test", "path": "/metadata/labels", "value": old_labels},
        {"op": "test", "path": "/metadata/annotations", "value": old_annotations},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ]);
    let parts = Api::<VolumeSnapshot>::namespaced(client.client.clone(), &part.namespace().unwrap_or_default());
    let patched = json_patch::send(parts, &part.name_any(), &patch).await;
    let patched = patched.map_err(|error| client.outcome(&format!("mark snapshot {}", part.name_any()), &error))?;
    Ok(client.snapshots.put(&patched))
}

impl<'a> Groups<'a> {
    pub(super) fn new(cluster: &'a MemberClient, version: String) -> Self {
        Self { cluster, version }
    }

    fn resource(&self, kind: &str) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, &self.version, kind))
    }

    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.client.clone(), namespace, &self.resource(KIND))
    }

    /// To list them: whoever may write one does not decide whether the others can be read.
    pub(super) fn within(&self, namespace: Option<&str>) -> Api<Unmanaged<DynamicObject>> {
        let (client, resource) = (self.cluster.client.clone(), self.resource(KIND));
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn listed(&self, wanted: &ListParams) -> Result<Vec<DynamicObject>> {
        let found = self.cluster.listed(|namespace| self.within(namespace), wanted).await;
        let found = self.told(KIND, "list groups", found).await?;
        Ok(found.into_iter().map(Unmanaged::into_object).collect())
    }

    /// What was answered about one of their kinds.
    async fn told<T>(&self, kind: &str, doing: &str, answer: kube::Result<T>) -> Result<T> {
        match answer {
            Ok(told) => Ok(told),
            Err(error) => Err(missing::outcome(self.cluster, doing, &self.resource(kind), &error).await),
        }
    }

    /// POST first; the claims carry the label already.
    pub async fn create(&self, wanted: &WantedGroup<'_>) -> Result<Made> {
        let mut selected: BTreeMap<String, String> = ownership::host_labels(&self.cluster.host);
        selected.insert(format!("{MEMBER_OF}{}", wanted.hash), "yes".to_owned());
        let mut labels = ownership::host_labels(&self.cluster.host);
        labels.insert(ownership::GROUP.to_owned(), wanted.hash.to_string());
        let name = leaf_group_name(wanted.hash);
        let mut spec = json!({"source": {"selector": {"matchLabels": selected}}});
        if let Some(class) = wanted.class {
            spec["volumeGroupSnapshotClassName"] = json!(class);
        }
        let mut group = DynamicObject::new(&name, &self.resource(KIND)).data(json!({"spec": spec}));
        group.metadata.namespace = Some(wanted.namespace.to_owned());
        group.metadata.labels = Some(labels);
        let notes = [(ownership::NAME, wanted.name.to_owned()), (ownership::SOURCE, wanted.sources.join(SEPARATOR))];
        let content = wanted.content.map(|content| (ownership::CONTENT, content.to_owned()));
        let annotations = notes.into_iter().chain(content).map(|(key, value)| (key.to_owned(), value));
        group.metadata.annotations = Some(annotations.collect());
        let made = self.api(wanted.namespace).create(&PostParams::default(), &group).await;
        match self.told(KIND, &format!("create group {}/{name}", wanted.namespace), made).await {
            Ok(_) => Ok(Made::Now),
            Err(Error::Exists(_)) => Ok(Made::Taken),
            Err(error) => Err(error),
        }
    }

    /// A quorum read: ours, or the word whose it is.
    pub async fn read(&self, place: &LeafPlace, hash: VolumeHash) -> Result<Option<Result<LeafGroup, String>>> {
        let found = cluster::read(self.api(&place.namespace).get(&place.claim).await, &place.claim);
        let found = self.told(KIND, &format!("get group {place}"), found).await?;
        Ok(found.map(|group| {
            let host = &self.cluster.host;
            if ownership::hash_of(&group.metadata, host, ownership::GROUP) == Some(hash) {
                Ok(LeafGroup::new(&group))
            } else {
                Err(ownership::whose(&group.metadata, host))
            }
        }))
    }

    /// Where a handle does not say the place.
    pub async fn find(&self, hash: VolumeHash) -> Result<Option<LeafGroup>> {
        let selector = format!("{},{}={hash}", ownership::selector(&self.cluster.host), ownership::GROUP);
        let wanted = ListParams::default().labels(&selector);
        let found = self.listed(&wanted).await?;
        Ok(found.iter().map(LeafGroup::new).find(|group| group.place.claim == leaf_group_name(hash)))
    }

    /// What has the name of one, and does not say that it is ours.
    pub async fn stripped(&self, hash: VolumeHash) -> Result<Option<LeafPlace>> {
        let named = ListParams::default().fields(&format!("metadata.name={}", leaf_group_name(hash)));
        let found = self.listed(&named).await?;
        let is_stripped = |group: &&DynamicObject| {
            ownership::hash_of(&group.metadata, &self.cluster.host, ownership::GROUP) != Some(hash)
        };
        Ok(found.iter().find(is_stripped).map(|group| LeafGroup::new(group).place))
    }

    /// All that were made for this host. What people copied is under another name.
    pub async fn ours(&self) -> Result<Vec<(VolumeHash, LeafGroup)>> {
        let ours = ListParams::default().labels(&ownership::selector(&self.cluster.host));
        let found = self.listed(&ours).await?;
        let own = found.iter().filter_map(|group| {
            let hash = ownership::hash_of(&group.metadata, &self.cluster.host, ownership::GROUP)?;
            (group.name_any() == leaf_group_name(hash)).then(|| (hash, LeafGroup::new(group)))
        });
        Ok(own.collect())
    }

    /// Waits until the group, as a watch of its own shows it, satisfies a condition.
    pub async fn until(&self, place: &LeafPlace, pause: Instant, holds: impl Fn(Option<LeafGroup>) -> bool) -> bool {
        let seen = |group: Option<&DynamicObject>| holds(group.map(LeafGroup::new));
        let waited = await_condition(self.api(&place.namespace), &place.claim, seen);
        match tokio::time::timeout_at(pause, waited).await {
            Ok(Ok(_)) => true,
            // Nobody is to look again at once: the watch may be refused each time.
            Ok(Err(_)) => {
                tokio::time::sleep_until(pause.min(Instant::now() + REFUSED)).await;
                false
            }
            Err(_) => false,
        }
    }

    /// Has the group go with its snapshots and with what stands behind them, whatever their classes say. Whether any of that may have been
    /// marked, as what outlives its group is: then that of one which was cut before may be there as well.
    pub async fn remove(&self, group: &LeafGroup, parts: &[VolumeSnapshot]) -> Result<bool> {
        let mut may_be_marked = false;
        for part in parts {
            let (Some(name), Some(uid)) = (content_of(part), part.metadata.uid.as_deref()) else { continue };
            let content = crate::snapshot::read_content(self.cluster, name).await?;
            let content = content.filter(|content| content.snapshot_uid == uid);
            may_be_marked |= content.as_ref().is_none_or(|content| content.marked);
            if let Some(content) = content.filter(|content| content.retained) {
                crate::snapshot::make_content_deletable(self.cluster, &content).await?;
            }
        }
        if let Some(name) = group.content_name()
            && let Some(content) = self.content(&name, &group.uid).await?.filter(|content| content.retained)
        {
            self.make_deletable(&content).await?;
        }
        self.delete(group).await?;
        Ok(may_be_marked)
    }

    /// Deletes the group with this UID and no other.
    async fn delete(&self, group: &LeafGroup) -> Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(group.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let deleted = self.api(&group.place.namespace).delete(&group.place.claim, &parameters).await;
        match self.told(KIND, &format!("delete group {}", group.place), deleted).await {
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
