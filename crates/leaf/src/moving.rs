//! The leaves of a volume that is moved, as a move sees them and what it writes on them. Every write tests the version of the
//! object on which it was decided.

pub mod copy;
pub mod ends;
pub mod kept;
pub mod line;
mod sight;
mod source;
mod stray;
mod write;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use self::{
    copy::try_claim,
    sight::{Leaving, Sight, look},
    write::{Moved, Written},
};
use super::{
    MemberClient, consumer::has_node, limits::overlong, ownership::POLICY_BEFORE, row::Row, saved::policy_of,
    trimmed::Trimmed,
};
use cluster::{items::Items, read_list};
use domain::{
    error::{Error, Result},
    volume::{HostId, LeafPlace, VolumeHash, moving::YARD},
};

/// Where a leaf is while a move has it. By the end of the claim's name an admission policy of the member tells whose it is. All of it may be the
/// value of a label, as storage drivers make it one.
pub fn yard(host: &HostId, hash: VolumeHash) -> LeafPlace {
    LeafPlace { namespace: YARD.to_owned(), claim: format!("{}-{host}", hash.prefix()) }
}

/// And where one is that a move has had since names did not say that.
fn former_yard(hash: VolumeHash) -> LeafPlace {
    LeafPlace { namespace: YARD.to_owned(), claim: hash.to_string() }
}

/// What is known of a leaf in the yard.
pub fn row_in_yard(client: &MemberClient, hash: VolumeHash) -> Row {
    let row = client.rows.row_at(hash, &yard(&client.host, hash));
    if row.claim.is_some() { row } else { client.rows.row_at(hash, &former_yard(hash)) }
}

/// What is to become of a claim, which says which pods it is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Those that have ended write nothing.
    Stays,
    /// One that has ended and had a node keeps it until it is deleted, as the member protects the claim for it.
    WillGo,
    /// One without a node does not keep it any more.
    Goes,
}

/// The member's pods that have the claim, or keep it, as people are told of them.
pub async fn pods_with(client: &MemberClient, place: &LeafPlace, fate: Fate) -> Result<Vec<String>> {
    let tell = |pod: &Pod| told_of(client, place, pod, fate);
    let mut told = told_of_each::<Pod>(client, "pods", &place.namespace, tell).await?;
    told.sort();
    Ok(told)
}

/// What is told of those of a kind in a namespace. One by one: whoever makes them there decides how long they are, and a member that says too
/// much at one time is asked for nothing.
async fn told_of_each<K>(
    client: &MemberClient,
    kind: &str,
    namespace: &str,
    tell: impl Fn(&K) -> Option<String>,
) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()>,
    Trimmed<K>: DeserializeOwned,
{
    let unread = |error: kube::Error| client.outcome(&format!("list {kind} in {namespace}"), &error);
    let request = Request::new(K::url_path(&(), Some(namespace))).list(&ListParams::default());
    let request = request.map_err(|error| unread(kube::Error::BuildRequest(error)))?;
    let (mut told, mut count) = (Vec::new(), 0);
    let listed = read_list(&client.client, request, Items::of_list(), |items, piece| {
        let mut take = |item: &[u8]| -> serde_json::Result<()> {
            count += 1;
            let one: Trimmed<K> = serde_json::from_slice(item)?;
            told.extend(tell(&one));
            Ok(())
        };
        items.feed(piece, &mut take).map_err(kube::Error::SerdeError)?;
        overlong(count, items.unfinished()).map_or(Ok(()), |reason| Err(kube::Error::Service(reason.into())))
    });
    if listed.await.map_err(unread)?.resource_version.is_empty() {
        return Err(unread(kube::Error::Service("the answer is no list".into())));
    }
    Ok(told)
}

fn told_of(client: &MemberClient, place: &LeafPlace, pod: &Pod, fate: Fate) -> Option<String> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    let is_passed_over = match fate {
        Fate::Stays => has_ended,
        Fate::WillGo => has_ended && !has_node(pod),
        Fate::Goes => !has_node(pod),
    };
    if is_passed_over || !volumes.any(|volume| names(volume, pod, place)) {
        return None;
    }
    let state = match (&pod.metadata.deletion_timestamp, has_ended) {
        (Some(_), _) => " (it is being deleted)",
        (None, true) => " (it has ended, and keeps the claim until it is deleted)",
        (None, false) => "",
    };
    Some(format!("pod {}/{} of member {}{state}", place.namespace, pod.name_any(), client.member))
}

fn names(volume: &k8s_openapi::api::core::v1::Volume, pod: &Pod, place: &LeafPlace) -> bool {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => source.claim_name == place.claim,
        (None, Some(_)) => format!("{}-{}", pod.name_any(), volume.name) == place.claim,
        (None, None) => false,
    }
}

/// The member's provisioner puts it on a claim when the first clone of that begins, and takes it off no sooner than the claim is deleted and
/// no clone is waited for.
const CLONED: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// Claims of the member that are to begin as a clone of this one, as people are told of them. No provisioner goes on with that once this one is
/// on its way out, and each of them keeps it from going.
pub async fn clones_of(client: &MemberClient, claim: &PersistentVolumeClaim) -> Result<Vec<String>> {
    if !claim.finalizers().iter().any(|name| name == CLONED) {
        return Ok(Vec::new());
    }
    let (namespace, source, member) = (claim.namespace().unwrap_or_default(), claim.name_any(), &client.member);
    let tell = |one: &PersistentVolumeClaim| {
        let name = one.name_any();
        let told = || format!("claim {namespace}/{name} of member {member} (a clone of it, which is not made yet)");
        awaits_its_content(one, &source).then(told)
    };
    told_of_each::<PersistentVolumeClaim>(client, "claims", &namespace, tell).await
}

fn awaits_its_content(claim: &PersistentVolumeClaim, source: &str) -> bool {
    let from = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
    let is_pending = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    is_pending && from.is_some_and(|from| from.kind == "PersistentVolumeClaim" && from.name == source)
}

/// An object of a leaf, as a write has left it.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    Claim(Box<PersistentVolumeClaim>),
    Volume(Box<PersistentVolume>),
}

/// Writes on a claim as it was read.
async fn change_claim(
    client: &MemberClient,
    claim: &PersistentVolumeClaim,
    change: Value,
    doing: &str,
) -> Result<Changed> {
    let claims =
        Api::<PersistentVolumeClaim>::namespaced(client.client.clone(), &claim.namespace().unwrap_or_default());
    let patch = Patch::Merge(over(&claim.metadata, change));
    let answer = claims.patch(&claim.name_any(), &PatchParams::default(), &patch).await;
    let doing = format!("{doing} claim {}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
    let changed = answer.map_err(|error| missed(client.outcome(&doing, &error)))?;
    client.rows.put_claim(&changed);
    Ok(Changed::Claim(Box::new(changed)))
}

/// The same on a volume.
async fn change_volume(
    client: &MemberClient,
    volume: &PersistentVolume,
    change: Value,
    doing: &str,
) -> Result<Changed> {
    let patch = Patch::Merge(over(&volume.metadata, change));
    let volumes = Api::<PersistentVolume>::all(client.client.clone());
    let answer = volumes.patch(&volume.name_any(), &PatchParams::default(), &patch).await;
    let doing = format!("{doing} volume {}", volume.name_any());
    let changed = answer.map_err(|error| missed(client.outcome(&doing, &error)))?;
    client.rows.put_volume(&changed);
    Ok(Changed::Volume(Box::new(changed)))
}

fn over(read: &kube::api::ObjectMeta, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(read.uid);
    change["metadata"]["resourceVersion"] = json!(read.resource_version);
    change
}

/// It has gone meanwhile: the next look tells.
fn missed(error: Error) -> Error {
    match error {
        Error::NotFound(reason) => Error::InProgress(reason),
        other => other,
    }
}

/// It is `Retain` because of the move, and says what it was.
fn kept(volume: &PersistentVolume) -> Value {
    let mut change = json!({"metadata": {"annotations": {}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    if !volume.annotations().contains_key(POLICY_BEFORE) {
        change["metadata"]["annotations"][POLICY_BEFORE] = json!(policy_of(volume));
    }
    change
}

fn place_of(place: &LeafPlace) -> Value {
    json!(format!("{}/{}", place.namespace, place.claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_claim_in_the_yard_ends_with_its_host_and_is_short_enough_for_a_label() {
        let host = HostId("3f0c1b9e-6a5d-4c27-9b1e-0d8f7a6b5c4d".to_owned());
        let claim = yard(&host, VolumeHash::new(&host, "pvc-1")).claim;
        assert!(claim.ends_with(&format!("-{host}")) && claim.len() <= 63, "{claim}");
        assert_ne!(claim, yard(&host, VolumeHash::new(&host, "pvc-2")).claim);
    }
}
