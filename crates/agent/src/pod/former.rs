//! Copies of pods that the host has no more, as of a former cluster of this host or of one that was deleted by force, or that have ended
//! in it: until they have ended as well they may write on their volumes, and no other pod gets those that are for one node. Nor while one of them
//! may be made yet: what was asked for may still be on its way. One whose labels somebody has taken off runs on as well.

use std::sync::Arc;

use serde_json::Value;

use super::{
    super::{
        cache::Cached,
        member_pod::{MemberPod, NOBODY},
        object::{self, Place, items, read, text},
    },
    Pods,
    claims::{Leaves, claim_of},
    in_use::name_of,
    rejection::PodRejection,
};

const OF_SEVERAL: [&str; 2] = ["ReadWriteMany", "ReadOnlyMany"];

/// What a pod waits for that is to have these leaves.
pub(super) async fn has_still(pods: &Pods<'_>, pod: &Value, leaves: &Leaves) -> kube::Result<Option<PodRejection>> {
    let namespace = text(pod, "/metadata/namespace");
    let (ours, disowned) = (pods.there.kept_of(&pods.host.id.0), pods.there.kept_of(NOBODY));
    let copies = ours.into_iter().chain(disowned);
    let formers = copies.filter(|(place, there)| place.namespace == namespace && is_former(pods, place, there));
    let formers: Vec<_> = formers.collect();
    for (volume, leaf) in &leaves.by_volume {
        let handle = leaves.handles.get(leaf).map(String::as_str);
        let why = if let Some((place, former)) = formers.iter().find(|(at, there)| mounts(at, there, leaf, handle)) {
            let (member, what) = (&pods.member.name, format!("volume {volume}"));
            if former.is_disowned() {
                PodRejection::of_disowned(place, member, &what)
            } else {
                PodRejection::of_former("WaitsForVolume", place, member, &what)
            }
        } else if let Some(late) = leaves.handles.get(leaf).and_then(|handle| asked_for(pods, handle)) {
            pods.holds.look();
            PodRejection::of_late(&late, &pods.member.name, volume)
        } else {
            continue;
        };
        if !is_for_several(pods, pod, volume).await? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// By its text and, as of one that is disowned no text is kept, by what stands beside that.
fn mounts(place: &Place, there: &Arc<MemberPod>, leaf: &str, handle: Option<&str>) -> bool {
    let at = format!("{}/{leaf}", place.namespace);
    let is_claim = |one: &Value| text(one, "/persistentVolumeClaim/claimName") == leaf;
    there.mounts().any(|one| Some(one) == handle || one == at)
        || items(&MemberPod::read(there, place), "/spec/volumes").any(is_claim)
}

/// A copy that was asked for with this volume, of which nobody has heard.
fn asked_for(pods: &Pods<'_>, handle: &str) -> Option<Place> {
    pods.holds.of_gone(&name_of(handle), |place, uid| is_there(pods, place, uid))
}

fn is_former(pods: &Pods<'_>, place: &Place, there: &MemberPod) -> bool {
    !there.is_over() && !there.says_copy_of().is_some_and(|uid| is_there(pods, place, uid))
}

/// Whether the host has this pod, and it has not ended.
fn is_there(pods: &Pods<'_>, place: &Place, uid: &str) -> bool {
    pods.view.pods.kept(place).is_some_and(|pod| pod.uid() == uid && !pod.is_over())
}

async fn is_for_several(pods: &Pods<'_>, pod: &Value, volume: &str) -> kube::Result<bool> {
    let Some(claim) = claim_of(pod, volume) else { return Ok(false) };
    let claims = object::claims(&pods.host.client, text(pod, "/metadata/namespace"));
    let claim = read(&claims, &claim).await?.unwrap_or_default();
    Ok(items(&claim, "/spec/accessModes").any(|mode| OF_SEVERAL.iter().any(|several| mode == several)))
}
