//! Changes of a leaf claim that lives: its size, its VolumeAttributesClass and the nodes it is published on. Each is one
//! PATCH that tests whose claim it is.

use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use super::{
    MemberClient, claim,
    marks::{label_path, path_of},
    ownership, progress,
    row::{ClaimRow, version},
};
use cluster::json_patch;
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, published::Published, quantity},
};

/// The member's words where a class does not let its claims grow.
const NOT_RESIZABLE: &str = "must support resize";

/// Asks for another size; a smaller one is refused by the member unless the claim has not come to have more. False: the claim
/// was not as it was seen any more, and has been read.
pub async fn ask_for_size(client: &MemberClient, row: &ClaimRow, hash: VolumeHash, size: u64) -> Result<bool> {
    let path = "/spec/resources/requests/storage";
    let change = json!({"op": "replace", "path": path, "value": quantity::print(size)});
    match change_as_seen(client, row, hash, "resize", change).await {
        Err(Error::Denied(said)) if said.contains(NOT_RESIZABLE) => Err(Error::Invalid(said)),
        changed => changed,
    }
}

/// False: as with a size.
pub async fn ask_for_attributes(client: &MemberClient, row: &ClaimRow, hash: VolumeHash, class: &str) -> Result<bool> {
    let change = json!({"op": "add", "path": "/spec/volumeAttributesClassName", "value": class});
    change_as_seen(client, row, hash, "modify", change).await
}

/// The claim is as it is to be, and nothing that was asked for before makes it otherwise later. False: as with a size.
pub async fn settle(client: &MemberClient, row: &ClaimRow, hash: VolumeHash) -> Result<bool> {
    change_as_seen(client, row, hash, "settle", newer(row, ownership::UNPUBLISHED)).await
}

/// Writes down where a volume is published, over the very version on which that was decided.
pub async fn record_published(
    client: &MemberClient,
    row: &ClaimRow,
    hash: VolumeHash,
    published: &Published,
) -> Result<()> {
    change_claim(client, row, hash, "publish", record_of(row, published)).await
}

/// The same, and that a volume of the host has it, as is known by the handle: that is told also when no node is on record any more.
pub async fn record_used(client: &MemberClient, row: &ClaimRow, hash: VolumeHash, published: &Published) -> Result<()> {
    let handle = row.id(&client.member, hash).to_string();
    let mut changes = record_of(row, published);
    changes.push(json!({"op": "add", "path": path_of(ownership::HAD_VOLUME), "value": handle}));
    change_claim(client, row, hash, "publish", changes).await
}

fn record_of(row: &ClaimRow, published: &Published) -> Vec<Value> {
    let path = path_of(ownership::PUBLISHED);
    let change = match progress::record(published) {
        Some(text) => json!({"op": "add", "path": path, "value": text}),
        None => json!({"op": "remove", "path": path}),
    };
    vec![as_seen(row), change]
}

/// Nothing that was decided on the version that was read, and is still on its way, is carried out any more: the claim has
/// another one.
pub async fn outdate(client: &MemberClient, row: &ClaimRow, hash: VolumeHash) -> Result<()> {
    change_claim(client, row, hash, "unpublish", vec![as_seen(row), newer(row, ownership::UNPUBLISHED)]).await
}

/// A claim that names its volume is bound when the member's controller looks at it: when the claim changes, and else with all that
/// there is, after 15 s.
pub async fn wake(client: &MemberClient, row: &ClaimRow, hash: VolumeHash) -> Result<()> {
    change_claim(client, row, hash, "wake", vec![as_seen(row), newer(row, ownership::WOKEN)]).await
}

/// None: the member has no such class. One for another driver than the volume's is as good as none.
pub async fn attributes_class_driver(client: &MemberClient, name: &str) -> Result<Option<String>> {
    let kind = ApiResource {
        group: "storage.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "storage.k8s.io/v1".to_owned(),
        kind: "VolumeAttributesClass".to_owned(),
        plural: "volumeattributesclasses".to_owned(),
    };
    let classes = Api::<DynamicObject>::all_with(client.client.clone(), &kind);
    let answer = match classes.get(name).await {
        // Not an answer about this name: the member does not know the kind.
        Err(kube::Error::Api(status)) if status.code == 404 && !cluster::says_what_is_missing(&status) => {
            return Err(Error::Refused(format!(
                "member {} does not serve VolumeAttributesClass (storage.k8s.io/v1): it comes with Kubernetes 1.34",
                client.member
            )));
        }
        answer => answer,
    };
    let doing = format!("get volumeattributesclass {name}");
    let found = cluster::read(answer, name).map_err(|error| client.outcome(&doing, &error))?;
    Ok(found.map(|class| class.data["driverName"].as_str().unwrap_or_default().to_owned()))
}

/// The claim says nothing else by this annotation, and gets another version.
fn newer(row: &ClaimRow, annotation: &str) -> Value {
    json!({"op": "add", "path": path_of(annotation), "value": row.version_text()})
}

/// Nobody has written on it since.
fn as_seen(row: &ClaimRow) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": row.version_text()})
}

/// Makes a change over the very version on which it was decided: one that arrives late writes over nothing. False: it is another
/// version by now, which has been read.
async fn change_as_seen(
    client: &MemberClient,
    row: &ClaimRow,
    hash: VolumeHash,
    doing: &str,
    change: Value,
) -> Result<bool> {
    match change_claim(client, row, hash, doing, vec![as_seen(row), change]).await {
        // The member does not say which it refuses, the test or the change.
        Err(Error::Refused(reason)) => {
            let now = claim::read(client, &row.place).await?;
            if now.is_some_and(|now| version(&now) == row.version) { Err(Error::Refused(reason)) } else { Ok(false) }
        }
        changed => changed.map(|()| true),
    }
}

/// Changes the claim with this UID while it carries the labels of this volume, and no other.
async fn change_claim(
    client: &MemberClient,
    row: &ClaimRow,
    hash: VolumeHash,
    doing: &str,
    changes: Vec<Value>,
) -> Result<()> {
    let labels = ownership::labels(&client.host, hash);
    let labelled = labels.iter().map(|(key, value)| json!({"op": "test", "path": label_path(key), "value": value}));
    let same = json!({"op": "test", "path": "/metadata/uid", "value": row.uid});
    let operations: Vec<Value> = std::iter::once(same).chain(labelled).chain(changes).collect();
    let claims = claim::claims(client, &row.place.namespace);
    let patched = json_patch::send(claims, &row.place.claim, &operations).await;
    match patched.map_err(|error| client.outcome(&format!("{doing} claim {}", row.place), &error)) {
        Ok(claim) => {
            client.rows.put_claim(&claim);
            Ok(())
        }
        Err(Error::NotFound(reason)) => {
            client.rows.drop_claim(hash, &row.uid, u64::MAX);
            Err(Error::InProgress(reason))
        }
        Err(error) => Err(error),
    }
}
