//! Copies of pods that the host has no more, as of a former cluster of this host or of one that was deleted by force, or that have ended
//! in it: until they have ended as well they may write on their volumes, and no other pod gets those that are for one node.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::{
        cache::Cached,
        host_pod::HostPod,
        member_pod::MemberPod,
        object::{self, Place, items, read, text},
    },
    Pods,
    rejection::PodRejection,
};

const OF_SEVERAL: [&str; 2] = ["ReadWriteMany", "ReadOnlyMany"];

/// What a pod waits for that is to have these leaf claims, by its volumes.
pub(super) async fn has_still(
    pods: &Pods<'_>,
    pod: &Value,
    leaves: &BTreeMap<String, String>,
) -> kube::Result<Option<PodRejection>> {
    let namespace = text(pod, "/metadata/namespace");
    let copies = pods.there.kept_of(&pods.host.id.0).into_iter();
    let formers = copies.filter(|(place, there)| place.namespace == namespace && is_former(pods, place, there));
    let formers: Vec<_> = formers.map(|(place, there)| MemberPod::read(&there, &place)).collect();
    for (volume, leaf) in leaves {
        let mounts = |there: &Value| {
            items(there, "/spec/volumes").any(|one| text(one, "/persistentVolumeClaim/claimName") == leaf)
        };
        let Some(former) = formers.iter().find(|former| mounts(former)) else { continue };
        if !is_for_several(pods, pod, volume).await? {
            let (place, what) = (Place::of(former), format!("volume {volume}"));
            return Ok(Some(PodRejection::of_former("WaitsForVolume", &place, &pods.member.name, &what)));
        }
    }
    Ok(None)
}

fn is_former(pods: &Pods<'_>, place: &Place, there: &MemberPod) -> bool {
    let is_its = |pod: &HostPod| there.copy_of() == Some(pod.uid()) && !pod.is_over();
    let is_known = || pods.view.pods.kept(place).is_some_and(|pod| is_its(&pod));
    !there.is_over() && !is_known()
}

async fn is_for_several(pods: &Pods<'_>, pod: &Value, volume: &str) -> kube::Result<bool> {
    let Some(claim) = super::claims::claim_of(pod, volume) else { return Ok(false) };
    let claims = object::claims(&pods.host.client, text(pod, "/metadata/namespace"));
    let claim = read(&claims, &claim).await?.unwrap_or_default();
    Ok(items(&claim, "/spec/accessModes").any(|mode| OF_SEVERAL.iter().any(|several| mode == several)))
}
