//! The leaf volume: marked as ours once it is bound, read to be handed on, and proved gone at the end.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::{MemberClient, claim, identity, marks::label_path, ownership, row::VolumeRow, trimmed::Trimmed};
use cluster::json_patch::{self, add, test};
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, VolumeId, plan::ObservedVolume},
};

/// What became of a volume that was to carry our labels.
#[derive(Debug)]
pub enum Labelled {
    Ours(VolumeRow),
    /// It belongs to another by its labels, as it was: made free in the member, it was bound to whatever claim waited there.
    Others {
        volume: VolumeRow,
        /// In words.
        owner: String,
    },
}

impl Labelled {
    /// What whoever waits for the leaf has to know, where it is not.
    pub fn ours(self, member: &str) -> Result<VolumeRow> {
        match self {
            Self::Ours(volume) => Ok(volume),
            Self::Others { volume, owner } => Err(Error::Refused(format!(
                "member {member}: the leaf claim was bound to volume {}, which belongs to {owner} and stood free \
                 there. The driver leaves that volume untouched. Delete the claim and make it again. Or, only if no \
                 host has that volume any more, take the labels {} and {} off it there",
                volume.name,
                ownership::HOST,
                ownership::VOLUME
            ))),
        }
    }
}

fn volumes(client: &MemberClient) -> Api<Trimmed<PersistentVolume>> {
    Api::all(client.client.clone())
}

/// Puts our labels on the volume that is bound to this claim, and on no other, and reads it in the same request.
/// One that carries them already is known from the watch.
pub async fn label(client: &MemberClient, name: &str, hash: VolumeHash, claim_uid: &str) -> Result<Labelled> {
    let known = client.rows.volume(hash);
    if let Some(volume) = known.filter(|volume| *volume.name == *name && *volume.claim_uid == *claim_uid) {
        return Ok(Labelled::Ours(volume));
    }
    let labels = ownership::labels(&client.host, hash);
    let (bound, unlabelled) = (test("/spec/claimRef/uid", claim_uid), test("/metadata/labels", None::<&str>));
    match patch(client, name, &(bound, unlabelled, add("/metadata/labels", &labels)), "label").await {
        Ok(volume) => Ok(Labelled::Ours(VolumeRow::new(&volume))),
        Err(Error::Refused(_)) => Box::pin(label_beside_others(client, name, hash, claim_uid)).await,
        Err(error) => Err(error),
    }
}

/// Puts them beside the labels that are there, and leaves those of another leaf as they are.
async fn label_beside_others(client: &MemberClient, name: &str, hash: VolumeHash, claim_uid: &str) -> Result<Labelled> {
    let missing = || Error::NotFound(format!("member {}: volume {name} is gone", client.member));
    let read = read_trimmed(client, name).await?.ok_or_else(missing)?;
    let volume = VolumeRow::new(&read);
    let owner = identity::other_owner(&read.metadata, &client.host, hash);
    if let Some(owner) = owner.filter(|_| *volume.claim_uid == *claim_uid) {
        return Ok(Labelled::Others { volume, owner });
    }
    let labels = ownership::labels(&client.host, hash);
    let bound = json!({"op": "test", "path": "/spec/claimRef/uid", "value": claim_uid});
    let as_read =
        labels.keys().map(|key| json!({"op": "test", "path": label_path(key), "value": read.labels().get(key)}));
    let each = labels.iter().map(|(key, value)| json!({"op": "add", "path": label_path(key), "value": value}));
    let operations: Vec<Value> = std::iter::once(bound).chain(as_read).chain(each).collect();
    patch(client, name, &operations, "label").await.map(|volume| Labelled::Ours(VolumeRow::new(&volume)))
}

/// Its removal begins. It carries our labels, so there is a place for one more.
pub async fn announce_removal(client: &MemberClient, volume: &ObservedVolume, hash: VolumeHash) -> Result<()> {
    let says_so = json!({"op": "add", "path": label_path(ownership::REMOVAL), "value": "begun"});
    let is_so = |now: &VolumeRow| now.removal;
    change_observed(client, volume, hash, vec![says_so], ("announce the removal of", is_so)).await.map(drop)
}

/// The host deletes, so the leaf volume must not outlive its claim. A write that arrives when somebody has made it stay
/// since does nothing: it tests the version.
pub async fn make_deletable(client: &MemberClient, volume: &ObservedVolume, hash: VolumeHash) -> Result<()> {
    let policy = json!({"op": "replace", "path": "/spec/persistentVolumeReclaimPolicy", "value": "Delete"});
    let is_so = |now: &VolumeRow| !now.is_retained();
    change_observed(client, volume, hash, vec![policy], ("make deletable", is_so)).await.map(drop)
}

/// A volume that people made, without our labels. False: somebody has changed it meanwhile.
pub async fn hand_back(client: &MemberClient, volume: &ObservedVolume, hash: VolumeHash) -> Result<bool> {
    let labels = ownership::labels(&client.host, hash);
    let ours = labels.keys().map(String::as_str).chain([ownership::REMOVAL]);
    let changes = ours.map(|key| json!({"op": "remove", "path": label_path(key)})).collect();
    let is_done = change_observed(client, volume, hash, changes, ("hand back", |_: &VolumeRow| true)).await?;
    if is_done {
        client.rows.drop_volume(hash, &volume.uid);
    }
    Ok(is_done)
}

/// Tests that it carries our labels.
pub(super) fn is_labelled(client: &MemberClient, hash: VolumeHash) -> impl Iterator<Item = Value> {
    let labels = ownership::labels(&client.host, hash).into_iter();
    labels.map(|(key, value)| json!({"op": "test", "path": label_path(&key), "value": value}))
}

/// Changes a volume only as it was observed, or finds that it has gone or does not carry our labels any more. What the answer does not show
/// was not done. False: somebody has changed it meanwhile.
async fn change_observed(
    client: &MemberClient,
    volume: &ObservedVolume,
    hash: VolumeHash,
    changes: Vec<Value>,
    (what, is_so): (&str, impl Fn(&VolumeRow) -> bool),
) -> Result<bool> {
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": volume.uid}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": volume.version.to_string()}),
    ];
    // People who want to use it again take the UID off.
    if volume.claim_uid.is_empty() {
        operations.extend(is_labelled(client, hash));
    } else {
        operations.push(json!({"op": "test", "path": "/spec/claimRef/uid", "value": volume.claim_uid}));
    }
    operations.extend(changes);
    match patch(client, &volume.name, &operations, what).await {
        Ok(now) if is_so(&VolumeRow::new(&now)) => Ok(true),
        Ok(_) => Err(Error::Refused(format!(
            "member {}: {what} volume {}: the member accepts the write, and keeps the volume as it was. A webhook \
             there overwrites what the driver writes on volumes: have it changed",
            client.member, volume.name
        ))),
        Err(Error::NotFound(_)) => {
            client.rows.drop_volume(hash, &volume.uid);
            Ok(true)
        }
        Err(refused @ Error::Refused(_)) => match read_trimmed(client, &volume.name).await? {
            Some(now) if !identity::is_leaf_of(&now.metadata, &client.host, hash) => {
                // A write that arrived late has taken them off, and no watch tells of it.
                client.rows.drop_volume(hash, &volume.uid);
                Ok(true)
            }
            Some(now) => match VolumeRow::new(&now) {
                now if now.version == volume.version || *now.claim_uid != *volume.claim_uid => Err(refused),
                _ => Ok(false),
            },
            None => Ok(false),
        },
        Err(error) => Err(error),
    }
}

/// A quorum read, whatever labels it carries.
pub async fn read(client: &MemberClient, name: &str) -> Result<Option<VolumeRow>> {
    Ok(read_trimmed(client, name).await?.map(|volume| VolumeRow::new(&volume)))
}

async fn read_trimmed(client: &MemberClient, name: &str) -> Result<Option<Trimmed<PersistentVolume>>> {
    let answer = volumes(client).get(name).await;
    let found = cluster::read(answer, name).map_err(|error| client.outcome(&format!("get volume {name}"), &error))?;
    Ok(found.inspect(|volume| client.rows.put_volume(volume)))
}

/// Whether a volume that was just read is the one that the host was told of with this claim: it is or was bound to that, or
/// carries our labels of it.
pub fn is_of(client: &MemberClient, id: &VolumeId, claim_uid: &str, volume: &VolumeRow) -> bool {
    let is_labelled = || client.rows.volumes_of(id).iter().any(|labelled| labelled.uid == volume.uid);
    volume.is_or_was_bound_to(claim_uid) || is_labelled()
}

/// Whether people in the member have taken such a volume from its leaf claim: its claimRef names none that is there, and the
/// handle leads to nothing any more.
pub async fn is_astray(client: &MemberClient, id: &VolumeId, claim_uid: &str, volume: &VolumeRow) -> Result<bool> {
    let goes = volume.terminating && !volume.is_retained();
    let is_its_own = *volume.claim_uid == *claim_uid || goes || client.rows.find(id).is_some();
    Ok(!is_its_own && !claim::is_well(client, &volume.claim_place, identity::Meant::Any).await?)
}

/// Believed only after this read: a watch also says "deleted" when somebody strips a label.
pub async fn is_gone(client: &MemberClient, name: &str, uid: Option<&str>) -> Result<bool> {
    let answer = volumes(client).get_metadata(name).await;
    let found = cluster::read(answer, name).map_err(|error| client.outcome(&format!("get volume {name}"), &error))?;
    Ok(found.is_none_or(|volume| uid.is_some() && volume.metadata.uid.as_deref() != uid))
}

pub(super) async fn patch(
    client: &MemberClient,
    name: &str,
    operations: &impl Serialize,
    what: &str,
) -> Result<Trimmed<PersistentVolume>> {
    let patched = json_patch::send(volumes(client), name, operations).await;
    let volume = patched.map_err(|error| client.outcome(&format!("{what} volume {name}"), &error))?;
    client.rows.put_volume(&volume);
    Ok(volume)
}
