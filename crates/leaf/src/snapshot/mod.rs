//! Leaf snapshots: the few requests that make, read and remove one and what stands behind it.

pub mod chosen;
pub mod group;
pub mod kinds;
mod missing;
pub mod row;
pub mod rows;
pub mod served;
pub mod watch;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use serde_json::json;

use self::{
    kinds::{SnapshotSource, Source, VolumeSnapshot, VolumeSnapshotContent},
    missing::{has_none, no_kinds, told},
    row::SnapshotRow,
};
use super::{MemberClient, claim::Made, marks::label_path, ownership};
use cluster::{json_patch, unmanaged::Unmanaged};
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash, VolumeId, snapshot::leaf_name},
};
pub use rows::Snapshots;

/// What a leaf snapshot says.
#[derive(Clone, Debug)]
pub struct WantedSnapshot<'a> {
    pub name: &'a str,
    pub hash: VolumeHash,
    pub place: &'a LeafPlace,
    /// The leaf claim it is of, its volume's hash and handle, and the driver that holds that.
    pub claim: &'a str,
    pub volume: VolumeHash,
    pub source: &'a str,
    pub driver: &'a str,
    pub class: Option<&'a str>,
    /// The host's VolumeSnapshotContent that asks for it.
    pub content: Option<&'a str>,
}

/// What stands behind a leaf snapshot.
#[derive(Clone, Debug)]
pub struct Content {
    pub name: String,
    pub uid: String,
    /// The snapshot it is bound to.
    pub snapshot_uid: String,
    pub of: LeafPlace,
    /// It outlives its snapshot, and so does the data.
    pub retained: bool,
    pub terminating: bool,
    /// It was marked before anybody was told of its snapshot.
    pub marked: bool,
    labels: Option<BTreeMap<String, String>>,
}

impl Content {
    fn new(content: &VolumeSnapshotContent) -> Self {
        Self {
            name: content.name_any(),
            uid: content.uid().unwrap_or_default(),
            snapshot_uid: content.spec.volume_snapshot_ref.uid.clone(),
            of: LeafPlace {
                namespace: content.spec.volume_snapshot_ref.namespace.clone(),
                claim: content.spec.volume_snapshot_ref.name.clone(),
            },
            retained: content.spec.deletion_policy != "Delete",
            terminating: content.metadata.deletion_timestamp.is_some(),
            marked: content.labels().contains_key(ownership::SNAPSHOT),
            labels: content.metadata.labels.clone(),
        }
    }

    /// The snapshot that it was marked for.
    pub fn snapshot(&self) -> Option<VolumeHash> {
        VolumeHash::parse(self.labels.as_ref()?.get(ownership::SNAPSHOT)?)
    }

    /// What stands behind a snapshot, also while that does not say so yet.
    pub fn name_of(known: Option<&str>, snapshot_uid: &str) -> String {
        known.map_or_else(|| format!("snapcontent-{snapshot_uid}"), str::to_owned)
    }
}

/// The labels of a leaf snapshot, and of its content.
fn labels(cluster: &MemberClient, hash: VolumeHash, volume: Option<VolumeHash>) -> BTreeMap<String, String> {
    let mut labels = ownership::host_labels(&cluster.host);
    labels.insert(ownership::SNAPSHOT.to_owned(), hash.to_string());
    labels.extend(volume.map(|volume| (ownership::VOLUME.to_owned(), volume.to_string())));
    labels
}

fn snapshots_in(client: &MemberClient, namespace: &str) -> Api<VolumeSnapshot> {
    Api::namespaced(client.client.clone(), namespace)
}

fn contents(client: &MemberClient) -> Api<VolumeSnapshotContent> {
    Api::all(client.client.clone())
}

/// POST first: a name that is free costs one request.
pub async fn create(client: &MemberClient, wanted: &WantedSnapshot<'_>) -> Result<Made> {
    let notes =
        [(ownership::NAME, wanted.name), (ownership::SOURCE, wanted.source), (ownership::HOLDER, wanted.driver)];
    let content = wanted.content.map(|content| (ownership::CONTENT, content));
    let annotations = notes.into_iter().chain(content).map(|(key, value)| (key.to_owned(), value.to_owned()));
    let snapshot = VolumeSnapshot {
        api_version: "snapshot.storage.k8s.io/v1".to_owned(),
        kind: "VolumeSnapshot".to_owned(),
        metadata: ObjectMeta {
            name: Some(wanted.place.claim.clone()),
            namespace: Some(wanted.place.namespace.clone()),
            labels: Some(labels(client, wanted.hash, Some(wanted.volume))),
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        spec: SnapshotSource {
            source: Source {
                persistent_volume_claim_name: Some(wanted.claim.to_owned()),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: wanted.class.map(str::to_owned),
        },
        status: None,
    };
    let made = snapshots_in(client, &wanted.place.namespace).create(&PostParams::default(), &snapshot).await;
    match made {
        Ok(snapshot) => {
            client.snapshots.put(&snapshot);
            Ok(Made::Now)
        }
        Err(error) => {
            match has_none::<VolumeSnapshot>(client, &format!("create snapshot {}", wanted.place), &error).await {
                Ok(()) => Err(no_kinds(client)),
                Err(Error::Exists(_)) => Ok(Made::Taken),
                Err(error) => Err(error),
            }
        }
    }
}

/// Whether the member has an API group.
pub async fn serves(client: &MemberClient, group: &str) -> Result<bool> {
    let groups = client.client.list_api_groups().await;
    let groups = groups.map_err(|error| client.outcome("list API groups", &error))?;
    Ok(groups.groups.iter().any(|served| served.name == group))
}

/// A quorum read: the only thing that proves a snapshot absent. A foreign one is there and has no row.
pub async fn read(client: &MemberClient, place: &LeafPlace) -> Result<Option<(VolumeSnapshot, Option<SnapshotRow>)>> {
    loop {
        let removals = client.snapshots.removals();
        let answer = snapshots_in(client, &place.namespace).get(&place.claim).await;
        match cluster::read(answer, &place.claim) {
            Ok(Some(snapshot)) => {
                let row = client.snapshots.put_read(&snapshot, removals);
                if row.is_some() || SnapshotRow::new(&snapshot, &client.host).is_none() {
                    return Ok(Some((snapshot, row)));
                }
                // Its end was heard of while the answer was on its way: what is there now, the next one tells.
            }
            Ok(None) => return Ok(None),
            Err(error) => {
                let nothing = has_none::<VolumeSnapshot>(client, &format!("get snapshot {place}"), &error).await;
                return nothing.map(|()| None);
            }
        }
    }
}

/// Whether there is any leaf snapshot of ours; asked only where no watch stands.
pub async fn has_any(client: &MemberClient) -> Result<bool> {
    let one = ListParams::default().labels(&ownership::selector(&client.host)).limit(1);
    for namespace in client.namespaces.each() {
        match client.within::<Unmanaged<VolumeSnapshot>>(namespace).list(&one).await {
            Ok(list) if list.items.is_empty() => {}
            Ok(_) => return Ok(true),
            Err(error) => return has_none::<VolumeSnapshot>(client, "list snapshots", &error).await.map(|()| false),
        }
    }
    Ok(false)
}

/// Takes in whatever carries a snapshot's label, where a handle does not say its place.
pub async fn list(client: &MemberClient, hash: VolumeHash) -> Result<()> {
    let selector = format!("{},{}={hash}", ownership::selector(&client.host), ownership::SNAPSHOT);
    let removals = client.snapshots.removals();
    for snapshot in listed(client, &ListParams::default().labels(&selector)).await? {
        client.snapshots.put_read(&snapshot, removals);
    }
    Ok(())
}

/// What has the name of a leaf snapshot, and does not say that it is one of ours: where it is, and what it lacks.
pub async fn stripped(client: &MemberClient, hash: VolumeHash) -> Result<Option<(LeafPlace, String)>> {
    let named = ListParams::default().fields(&format!("metadata.name={}", leaf_name(hash)));
    let found = listed(client, &named).await?;
    Ok(found.iter().find_map(|snapshot| {
        let place = LeafPlace { namespace: snapshot.namespace().unwrap_or_default(), claim: snapshot.name_any() };
        Some((place, unmarked(client, snapshot, hash)?))
    }))
}

/// What lacks of the marks of a leaf snapshot, in words, where somebody in the member has taken some off. A copy says which volume it was of.
pub fn unmarked(client: &MemberClient, snapshot: &VolumeSnapshot, hash: VolumeHash) -> Option<String> {
    let is_there = |(key, value): &(String, String)| snapshot.labels().get(key) == Some(value);
    let lacking = labels(client, hash, None).into_iter().filter(|label| !is_there(label));
    let lacking = lacking.map(|(key, value)| format!("label {key}={value}"));
    let source = snapshot.annotations().get(ownership::SOURCE).and_then(|handle| VolumeId::parse(handle));
    let source = source.is_none().then(|| format!("annotation {} (the handle of its volume)", ownership::SOURCE));
    let lacking: Vec<String> = lacking.chain(source).collect();
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

async fn listed(client: &MemberClient, wanted: &ListParams) -> Result<Vec<VolumeSnapshot>> {
    match client.listed(|namespace| client.within::<Unmanaged<VolumeSnapshot>>(namespace), wanted).await {
        Ok(found) => Ok(found.into_iter().map(Unmanaged::into_object).collect()),
        Err(error) => has_none::<VolumeSnapshot>(client, "list snapshots", &error).await.map(|()| Vec::new()),
    }
}

/// Deletes the snapshot with this UID and no other. The answer tells whether it has gone at once.
pub async fn delete(client: &MemberClient, row: &SnapshotRow) -> Result<()> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(row.uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    let deleted = snapshots_in(client, &row.place.namespace).delete(&row.place.claim, &parameters).await;
    match told::<VolumeSnapshot, _>(client, &format!("delete snapshot {}", row.place), deleted).await {
        Ok(answer) => {
            match answer.left() {
                Some(snapshot) if snapshot.metadata.deletion_timestamp.is_some() => {
                    drop(client.snapshots.put(&snapshot));
                }
                _ => client.snapshots.drop_row(row.hash, &row.uid),
            }
            Ok(())
        }
        Err(Error::NotFound(_)) => {
            client.snapshots.drop_row(row.hash, &row.uid);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

pub async fn read_content(client: &MemberClient, name: &str) -> Result<Option<Content>> {
    let found = cluster::read(contents(client).get(name).await, name);
    let found = told::<VolumeSnapshotContent, _>(client, &format!("get snapshot content {name}"), found).await?;
    Ok(found.as_ref().map(Content::new))
}

/// The contents that were marked for a snapshot, which may outlive it. One that carries the labels and is of another
/// snapshot is a copy.
pub async fn list_contents(client: &MemberClient, hash: VolumeHash, namespace: Option<&str>) -> Result<Vec<Content>> {
    let mut found = contents_with(client, ownership::SNAPSHOT, hash).await?;
    found.retain(|Content { of, .. }| {
        of.claim == leaf_name(hash) && namespace.is_none_or(|namespace| of.namespace == namespace)
    });
    Ok(found)
}

/// The contents that were marked for the snapshots of a group.
pub async fn list_group_contents(client: &MemberClient, group: VolumeHash) -> Result<Vec<Content>> {
    contents_with(client, ownership::GROUP, group).await
}

async fn contents_with(client: &MemberClient, label: &str, hash: VolumeHash) -> Result<Vec<Content>> {
    let selector = format!("{},{label}={hash}", ownership::selector(&client.host));
    match contents(client).list(&ListParams::default().labels(&selector)).await {
        Ok(found) => Ok(found.iter().map(Content::new).collect()),
        Err(error) => {
            let nothing = has_none::<VolumeSnapshotContent>(client, "list snapshot contents", &error).await;
            nothing.map(|()| Vec::new())
        }
    }
}

/// Puts our labels on the content that is bound to this snapshot, and on no other; where it is told, of which `backing` volume it is cut.
pub async fn mark_content(
    client: &MemberClient,
    row: &SnapshotRow,
    content: &str,
    backing: Option<&str>,
) -> Result<()> {
    let mut labels = labels(client, row.hash, row.volume);
    labels.extend(row.group.map(|group| (ownership::GROUP.to_owned(), group.to_string())));
    label_content(client, content, (&*row.uid, backing), &labels).await?;
    client.snapshots.mark(row.hash, &row.uid);
    Ok(())
}

async fn label_content(
    client: &MemberClient,
    content: &str,
    (snapshot_uid, backing): (&str, Option<&str>),
    labels: &BTreeMap<String, String>,
) -> Result<()> {
    let mut tests = vec![json!({"op": "test", "path": "/spec/volumeSnapshotRef/uid", "value": snapshot_uid})];
    tests.extend(backing.map(|of| json!({"op": "test", "path": "/spec/source/volumeHandle", "value": of})));
    let unlabelled = json!({"op": "test", "path": "/metadata/labels", "value": null});
    let all = json!({"op": "add", "path": "/metadata/labels", "value": labels});
    match patch_content(client, content, [&tests[..], &[unlabelled, all]].concat().into(), "label").await {
        Err(Error::Refused(_)) => {
            let each = labels.iter().map(|(key, value)| json!({"op": "add", "path": label_path(key), "value": value}));
            let operations: Vec<_> = tests.into_iter().chain(each).collect();
            patch_content(client, content, operations.into(), "label").await
        }
        done => done,
    }
}

/// A member may let the driver write only on what carries its labels, which is put first on what was cut for a snapshot that nobody
/// was told of. Without those of the snapshot itself it is as little marked as before. What has gone meanwhile needs none.
async fn take_over(client: &MemberClient, content: &Content) -> Result<()> {
    if ownership::is_labelled(content.labels.as_ref(), &client.host) {
        return Ok(());
    }
    let labels = ownership::host_labels(&client.host);
    match label_content(client, &content.name, (content.snapshot_uid.as_str(), None), &labels).await {
        Err(Error::NotFound(_)) => Ok(()),
        done => done,
    }
}

/// The host deletes, so the content must not outlive its snapshot.
pub async fn make_content_deletable(client: &MemberClient, content: &Content) -> Result<()> {
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": content.uid},
        {"op": "test", "path": "/spec/volumeSnapshotRef/uid", "value": content.snapshot_uid},
        {"op": "replace", "path": "/spec/deletionPolicy", "value": "Delete"},
    ]);
    let changed = async {
        take_over(client, content).await?;
        patch_content(client, &content.name, operations, "make deletable").await
    };
    match changed.await {
        Ok(()) | Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a content go whose snapshot has gone before it, whatever its class says.
pub async fn end_content(client: &MemberClient, content: &Content) -> Result<()> {
    if content.retained {
        make_content_deletable(client, content).await?;
    } else if !content.terminating {
        take_over(client, content).await?;
    }
    if content.terminating { Ok(()) } else { delete_content(client, content).await }
}

/// A content whose snapshot has gone before it.
pub async fn delete_content(client: &MemberClient, content: &Content) -> Result<()> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(content.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    let deleted = contents(client).delete(&content.name, &parameters).await;
    let doing = format!("delete snapshot content {}", content.name);
    match told::<VolumeSnapshotContent, _>(client, &doing, deleted).await {
        Ok(_) | Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn patch_content(client: &MemberClient, name: &str, operations: serde_json::Value, what: &str) -> Result<()> {
    let patched = json_patch::send_unread(contents(client), name, &operations).await;
    told::<VolumeSnapshotContent, _>(client, &format!("{what} snapshot content {name}"), patched).await
}
