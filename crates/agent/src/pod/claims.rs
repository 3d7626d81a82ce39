//! What stands behind the claims of a pod: leaf claims in the member, by the volumes that mount them, once all are bound
//! and attached. No kubelet waits for that on a virtual node, so the agent does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{ListParams, ObjectMeta},
};
use serde_json::Value;

use super::{
    super::{
        HOST,
        host_pod::claims_of,
        object::{self, Place, is_leaving, items, mark, read, text},
    },
    Pods,
    rejection::PodRejection,
};
use domain::{
    some_of::some_of,
    volume::{
        DRIVER, HostId, LeafName, LeafPlace, VolumeHash, VolumeId,
        moving::{MoveMark, Part},
    },
};
use host::{
    replacement::REPLACES,
    volume::{LEAF_UID, LEAF_VOLUME},
};
use leaf::{
    identity::{Identity, Meant, judge},
    ownership::{HANDLE, MOVE, VOLUME, is_or_was, was_had_by},
    row::ClaimRow,
    trimmed::Trimmed,
};

/// Why a pod that waits for a volume can never run where it is.
pub(super) const MOVED: &str = "VolumeMoved";
/// As many copies of a leaf are named.
const NAMED: usize = 5;

/// What stands behind the volumes of a pod.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// Leaf claims by the volumes that mount them.
    pub(super) by_volume: BTreeMap<String, String>,
    /// The handles of what is attached to the pod's node, by leaf claims.
    pub(super) handles: BTreeMap<String, String>,
}

pub(super) fn claim_of(pod: &Value, volume: &str) -> Option<String> {
    claims_of(pod).into_iter().find(|(name, ..)| name == volume).map(|(_, claim, _)| claim)
}

/// The host volume of a bound claim, by name.
fn bound<'a>(pod: &Value, name: &str, claim: Option<&'a Value>, for_pod: bool) -> Result<&'a str, PodRejection> {
    let waits = |what: &str| PodRejection::new("WaitsForClaim", format!("claim {name} {what}"));
    let claim = claim.ok_or_else(|| waits("does not exist yet"))?;
    let owned = || items(claim, "/metadata/ownerReferences").any(|owner| owner["uid"] == pod["metadata"]["uid"]);
    if for_pod && !owned() {
        return Err(waits("was not created for this pod: delete it, and Kubernetes creates the pod's own"));
    }
    if text(claim, "/status/phase") != "Bound" {
        return Err(waits("is not bound yet"));
    }
    if is_leaving(claim) {
        return Err(waits("is being deleted"));
    }
    Ok(text(claim, "/spec/volumeName"))
}

/// The handle of a host volume that is this claim's and this driver's.
fn handle_of<'a>(name: &str, claim_uid: &str, volume: Option<&'a Value>) -> Result<&'a str, PodRejection> {
    let volume = volume.filter(|volume| text(volume, "/spec/claimRef/uid") == claim_uid);
    let volume = volume
        .ok_or_else(|| PodRejection::new("WaitsForClaim", format!("claim {name} has no volume of its own yet")))?;
    if text(volume, "/spec/csi/driver") != DRIVER {
        let message = format!(
            "claim {name} is bound to volume {}, which is not one of {DRIVER}: pods on virtual nodes can use no others",
            text(volume, "/metadata/name")
        );
        return Err(PodRejection::new("VolumeNotCopied", message));
    }
    Ok(text(volume, "/spec/csi/volumeHandle"))
}

/// The volume that a handle names, where it is one of this member, by whichever of its names.
fn volume_in(claim: &str, handle: &str, member: &str, aliases: &[String]) -> Result<VolumeId, PodRejection> {
    let refused = |why: String| PodRejection::new("VolumeNotCopied", format!("claim {claim}: {why}"));
    let id = VolumeId::parse(handle)
        .ok_or_else(|| refused(format!("its volume has a handle that {DRIVER} does not write ({handle})")))?;
    if id.member != member && !aliases.contains(&id.member) {
        let why = format!(
            "its volume is in member {}, but this node runs pods in member {member}: let the scheduler choose the node",
            id.member
        );
        return Err(refused(why));
    }
    Ok(id)
}

/// The pod was sent to this node while its volume was in this member, and a move has taken that to another one: the pod can run here
/// no more. One that is younger was sent here by somebody, and waits for him.
fn moved_since(pod: &Value, claim: &str, volume: Option<&Value>) -> Option<PodRejection> {
    let made = |object| text(object, "/metadata/creationTimestamp");
    let volume =
        volume.filter(|volume| !mark(volume, "annotations", REPLACES).is_empty() && made(volume) >= made(pod))?;
    let id = VolumeId::parse(text(volume, "/spec/csi/volumeHandle"))?;
    let message = format!(
        "claim {claim}: its volume was moved to member {}, so this pod cannot run here any more. If a controller owns the pod, it creates \
         another one, which the scheduler sends there",
        id.member
    );
    Some(PodRejection::new(MOVED, message))
}

/// Which of these claims in a namespace of the member is the volume's leaf. Whoever writes a handle may name any claim: only
/// one that carries the volume's labels, or the consent to be used by this host, is meant. One that is elsewhere than its
/// handle says, carries the handle; somebody else's volume may be at the place that it names.
fn leaves_among(id: &VolumeId, host: &HostId, namespace: &str, found: &[ObjectMeta]) -> Vec<ObjectMeta> {
    let handle = id.to_string();
    let carried = |claim: &ObjectMeta| claim.annotations.as_ref()?.get(HANDLE).cloned();
    let is_ours = |claim: &ObjectMeta| matches!(judge(claim, host, Meant::Handle(id)), Identity::Leaf(_));
    let consents = |claim: &ObjectMeta| judge(claim, host, Meant::Handle(id)) == Identity::Consents;
    let is_there = |claim: &ObjectMeta| {
        let there = |place: LeafPlace| place.namespace == namespace && claim.name.as_ref() == Some(&place.claim);
        id.place().is_none_or(there)
    };
    let has_moved = |claim: &ObjectMeta| is_ours(claim) && carried(claim).as_ref() == Some(&handle);
    let stays = |claim: &ObjectMeta| is_there(claim) && (is_ours(claim) && carried(claim).is_none() || consents(claim));
    let those = |are: &dyn Fn(&ObjectMeta) -> bool| -> Vec<ObjectMeta> {
        found.iter().filter(|claim| are(claim)).cloned().collect()
    };
    let moved = those(&has_moved);
    if moved.is_empty() { those(&stays) } else { moved }
}

/// The one leaf. Somebody who copies a claim copies its labels, and only its owner can say which of them holds the data.
fn only_leaf(claim: &str, id: &VolumeId, namespace: &str, leaves: Vec<ObjectMeta>) -> Result<ObjectMeta, PodRejection> {
    let member = &id.member;
    let why = match <[ObjectMeta; 1]>::try_from(leaves) {
        Ok([leaf]) => return Ok(leaf),
        Err(several) if !several.is_empty() => format!(
            "claims {} in namespace {namespace} of member {member} all carry the labels of its volume, and the agent cannot tell which \
             has the data: remove the label {VOLUME} from the copies",
            some_of(several.iter().filter_map(|leaf| leaf.name.as_deref()), NAMED)
        ),
        Err(_) => without_leaf(id, namespace),
    };
    Err(PodRejection::new("VolumeNotCopied", format!("claim {claim}: {why}")))
}

fn without_leaf(id: &VolumeId, namespace: &str) -> String {
    let member = &id.member;
    match id.place() {
        Some(place) if place.namespace != namespace => format!(
            "its volume is in namespace {} of member {member}, but a pod can mount only claims of its own namespace: for pods on \
             virtual nodes, use a StorageClass without leafNamespace",
            place.namespace
        ),
        _ => format!("member {member} has no leaf claim for its volume in namespace {namespace}"),
    }
}

/// Whether an attachment says that the volume may be used on its node.
fn is_attached(attachment: &Value) -> bool {
    attachment["status"]["attached"] == true && !is_leaving(attachment)
}

/// The member's other names.
fn aliases(pods: &Pods<'_>) -> Vec<String> {
    pods.known_as.borrow().get(&pods.member.name).map(|known| known.aliases.clone()).unwrap_or_default()
}

/// The leaves of the pod's claims, or what is waited for.
pub(super) async fn leaves(pods: &Pods<'_>, pod: &Value) -> kube::Result<Result<Leaves, PodRejection>> {
    let (namespace, node) = (text(pod, "/metadata/namespace"), text(pod, "/spec/nodeName"));
    let (claims, volumes) = (object::claims(&pods.host.client, namespace), object::volumes(&pods.host.client));
    let (mut leaves, aliases) = (Leaves::default(), aliases(pods));
    for (volume, name, for_pod) in claims_of(pod) {
        let claim = read(&claims, &name).await?;
        let host_volume = match bound(pod, &name, claim.as_ref(), for_pod) {
            Ok(host_volume) => host_volume,
            Err(why) => return Ok(Err(why)),
        };
        let found = read(&volumes, host_volume).await?;
        let claim_uid = claim.as_ref().map(|claim| text(claim, "/metadata/uid")).unwrap_or_default();
        let handle = handle_of(&name, claim_uid, found.as_ref());
        let is_gone = |why| moved_since(pod, &name, found.as_ref()).unwrap_or(why);
        let id = match handle.and_then(|handle| volume_in(&name, handle, &pods.member.name, &aliases).map_err(is_gone))
        {
            Ok(id) => id,
            Err(why) => return Ok(Err(why)),
        };
        let is_attached = match attached(pods, &name, host_volume, node).await? {
            Ok(is_attached) => is_attached,
            Err(why) => return Ok(Err(why)),
        };
        let leaf = match only_leaf(&name, &id, namespace, leaves_of(pods, &id, host_volume, namespace).await?) {
            Ok(leaf) => leaf,
            Err(why) => return Ok(Err(why)),
        };
        let mark = leaf.annotations.as_ref().and_then(|notes| MoveMark::parse(notes.get(MOVE)?));
        // The host's volume, read just now, leads to the copy.
        if let Some(mark) = mark.filter(|mark| mark.part != Part::Copy) {
            let message = format!(
                "claim {name}: {} moves its volume to another member; the pod starts once the move has ended",
                mark.object()
            );
            return Ok(Err(PodRejection::new("WaitsForVolume", message)));
        }
        if let Some(why) = why_not_given_out(pods, &leaf, namespace, found.as_ref()).await? {
            return Ok(Err(PodRejection::new("WaitsForVolume", format!("claim {name}: {why}"))));
        }
        let leaf = leaf.name.unwrap_or_default();
        if is_attached {
            leaves.handles.insert(leaf.clone(), id.to_string());
        }
        leaves.by_volume.insert(volume, leaf);
    }
    Ok(Ok(leaves))
}

/// By the labels that a volume of this name has; by any of ours, where the host's volume was made again by hand; and by its
/// name, where the leaf is somebody's who consents.
async fn leaves_of(
    pods: &Pods<'_>,
    id: &VolumeId,
    host_volume: &str,
    namespace: &str,
) -> kube::Result<Vec<ObjectMeta>> {
    let host = &pods.host.id;
    let hash = match id.leaf {
        LeafName::Hashed(hash) => hash,
        LeafName::Readable { .. } => VolumeHash::new(host, host_volume),
    };
    let (all, name) = (ListParams::default(), id.place().map(|place| format!("metadata.name={}", place.claim)));
    let ways = [
        Some(all.clone().labels(&format!("{HOST}={host},{VOLUME}={hash}"))),
        Some(all.clone().labels(&format!("{HOST}={host}"))),
        name.map(|name| all.fields(&name)),
    ];
    for which in ways.into_iter().flatten() {
        let found = object::listed(pods.client, &object::claims(pods.client, namespace), &which, Some).await?;
        let metadata = |mut claim: Value| serde_json::from_value::<ObjectMeta>(claim["metadata"].take());
        let found: serde_json::Result<Vec<ObjectMeta>> = found.into_iter().map(metadata).collect();
        let leaves = leaves_among(id, host, namespace, &found.map_err(kube::Error::SerdeError)?);
        if !leaves.is_empty() {
            return Ok(leaves);
        }
    }
    Ok(Vec::new())
}

/// Why a claim is not used that is not the one that the host was given, nor has its volume. Mostly its metadata tells.
async fn why_not_given_out(
    pods: &Pods<'_>,
    leaf: &ObjectMeta,
    namespace: &str,
    volume: Option<&Value>,
) -> kube::Result<Option<String>> {
    let Some(volume) = volume.filter(|volume| !told_of(volume, LEAF_UID).is_empty()) else { return Ok(None) };
    if is_or_was(leaf, told_of(volume, LEAF_UID)) {
        return Ok(None);
    }
    let named = ListParams::default().fields(&format!("metadata.name={}", leaf.name.as_deref().unwrap_or_default()));
    let claims = Api::<Trimmed<PersistentVolumeClaim>>::namespaced(pods.client.clone(), namespace).list(&named).await?;
    Ok(claims.items.iter().find_map(|claim| why_not_this(claim, volume, &pods.member.name)))
}

/// What a volume of the host says of the leaf that was given out with it.
fn told_of<'a>(volume: &'a Value, key: &str) -> &'a str {
    volume["spec"]["csi"]["volumeAttributes"][key].as_str().unwrap_or_default()
}

fn why_not_this(claim: &PersistentVolumeClaim, volume: &Value, member: &str) -> Option<String> {
    let (row, uid, leaf_volume) = (ClaimRow::new(claim), told_of(volume, LEAF_UID), told_of(volume, LEAF_VOLUME));
    if row.came_late(uid, leaf_volume) {
        return Some(format!(
            "leaf claim {} of member {member} does not have the volume's data, as somebody created it after the volume's own leaf claim: \
             the pod waits until the driver has put that one back",
            row.place
        ));
    }
    let (has_moved, volume_uid) = (!mark(volume, "annotations", REPLACES).is_empty(), text(volume, "/metadata/uid"));
    let may_be_older = has_moved && row.is_another(uid, leaf_volume) && !was_had_by(&claim.metadata, volume_uid);
    may_be_older.then(|| row.may_be_of_before_move(member, leaf_volume, volume_uid))
}

/// Whether it is attached, or what is waited for; false where nothing ever is. What a watch says is where to look; that it is so is read
/// from the object itself.
async fn attached(pods: &Pods<'_>, claim: &str, volume: &str, node: &str) -> kube::Result<Result<bool, PodRejection>> {
    let is_it = |attachment: &Value| text(attachment, "/spec/source/persistentVolumeName") == volume;
    let Some(known) = pods.view.attachments.of(node).into_iter().find(|attachment| is_it(attachment)) else {
        let driver = read(&object::csi_drivers(&pods.host.client), DRIVER).await?;
        // Then nothing is attached anywhere, and nobody is kept from anything.
        let needless = driver.is_some_and(|driver| driver["spec"]["attachRequired"] == false);
        let message = format!("claim {claim} is not attached to node {node} yet");
        return Ok(if needless { Ok(false) } else { Err(PodRejection::new("WaitsForVolume", message)) });
    };
    let name = Place::of(&known).name;
    let live = if is_attached(&known) { read(&object::attachments(&pods.host.client), &name).await? } else { None };
    if live.is_some_and(|live| is_attached(&live) && live["metadata"]["uid"] == known["metadata"]["uid"]) {
        return Ok(Ok(true));
    }
    let why = text(&known, "/status/attachError/message");
    let message =
        format!("claim {claim} is not attached to node {node} yet{}{why}", if why.is_empty() { "" } else { ": " });
    Ok(Err(PodRejection::new("WaitsForVolume", message)))
}

#[cfg(test)]
mod tests;
