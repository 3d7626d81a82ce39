//! What moves have kept in the member that they moved from: the leaf of nobody, until somebody says that its data is not needed any more.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::over;
use crate::{
    MemberClient,
    ownership::{HOST, MANAGED_BY, MOVED, PROVISIONED_BY, VOLUME},
    saved::{bound_to, policy_of},
};
use domain::{
    error::{Error, Result},
    volume::{DRIVER, HostId, LeafPlace},
};

fn volumes(client: &MemberClient) -> Api<PersistentVolume> {
    Api::all(client.client.clone())
}

/// All that is kept for this host.
pub async fn list(client: &MemberClient) -> Result<Vec<PersistentVolume>> {
    let kept = ListParams::default().labels(&format!("{MOVED},{HOST}={}", client.host));
    let listed = volumes(client).list(&kept).await;
    Ok(listed.map_err(|error| client.outcome("list what moves have kept", &error))?.items)
}

pub async fn read(client: &MemberClient, name: &str) -> Result<Option<PersistentVolume>> {
    let answer = cluster::read(volumes(client).get(name).await, name);
    answer.map_err(|error| client.outcome(&format!("get volume {name}"), &error))
}

/// The member's provisioner was told to remove it with its data.
pub fn is_given_up(client: &MemberClient, volume: &PersistentVolume) -> bool {
    is_kept(client, volume) && (policy_of(volume) == "Delete" || volume.metadata.deletion_timestamp.is_some())
}

fn is_kept(client: &MemberClient, volume: &PersistentVolume) -> bool {
    let label = |key: &str| volume.labels().get(key).map(String::as_str);
    label(MOVED).is_some() && label(HOST) == Some(&*client.host.0) && label(VOLUME).is_none()
}

/// It is what a move has kept, and not that claim's which has this UID. Where its claimRef has none, somebody in the member gives it to
/// a claim, which may be this one.
pub fn is_kept_from(client: &MemberClient, volume: &PersistentVolume, claim_uid: &str) -> bool {
    is_kept(client, volume) && bound_to(volume).is_some_and(|uid| uid != claim_uid)
}

/// It is the leaf volume of the claim there, while what a move keeps is nobody's.
pub fn is_leaf_of(client: &MemberClient, volume: &PersistentVolume, place: &LeafPlace) -> bool {
    let label = |key: &str| volume.labels().get(key).map(String::as_str);
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let is_there = claim.is_some_and(|claim| {
        claim.namespace.as_ref() == Some(&place.namespace) && claim.name.as_ref() == Some(&place.claim)
    });
    is_there && label(VOLUME).is_some() && label(HOST) == Some(&*client.host.0)
}

/// What the member says of it, as why it cannot be removed.
pub fn said_of(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.message.as_deref().filter(|said| !said.is_empty())
}

/// The member's provisioner is told to remove it with its data. All that must hold is looked at before that.
pub async fn give_up(client: &MemberClient, volume: &PersistentVolume) -> Result<()> {
    if let Some(why) = refusal(client, volume).await? {
        return Err(Error::Refused(format!("member {}: volume {}: {why}", client.member, volume.name_any())));
    }
    // The driver's account may label it, and change no more of it than that while it is not labelled.
    let labelled = change(client, volume, json!({"metadata": {"labels": {MANAGED_BY: DRIVER}}})).await?;
    change(client, &labelled, json!({"metadata": {}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}})).await?;
    Ok(())
}

/// Over the version that was read.
async fn change(client: &MemberClient, volume: &PersistentVolume, change: Value) -> Result<PersistentVolume> {
    let (name, change) = (volume.name_any(), over(&volume.metadata, change));
    let changed = volumes(client).patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    changed.map_err(|error| client.outcome(&format!("change volume {name}"), &error))
}

/// Why it cannot be given up.
async fn refusal(client: &MemberClient, volume: &PersistentVolume) -> Result<Option<String>> {
    if let Some(why) = refused_at_sight(&client.host, volume) {
        return Ok(Some(why));
    }
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
    let (namespace, name) = (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.client.clone(), &namespace);
    let there = cluster::read(claims.get(&name).await, &name);
    let there = there.map_err(|error| client.outcome(&format!("get claim {namespace}/{name}"), &error))?;
    if there.is_some_and(|there| there.uid() == claim.uid) {
        return Ok(Some(format!("claim {namespace}/{name} in the member still has it")));
    }
    Ok(None)
}

/// By what it says itself.
fn refused_at_sight(host: &HostId, volume: &PersistentVolume) -> Option<String> {
    let label = |key: &str| volume.labels().get(key).map(String::as_str);
    let bound_to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref());
    if label(MOVED).is_none() {
        return Some(format!("no move has kept it (label {MOVED})"));
    }
    if label(HOST) != Some(&*host.0) {
        return Some("it was kept for another host".to_owned());
    }
    if label(VOLUME).is_some() {
        return Some(format!("it is the leaf of a volume (label {VOLUME})"));
    }
    if !volume.annotations().contains_key(PROVISIONED_BY) {
        return Some("people made it in the member, so no provisioner would remove it: remove it there".to_owned());
    }
    if volume.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Released") {
        return Some("it is not Released: somebody in the member uses it, or waits for it".to_owned());
    }
    // The member's controller may not have come to say so yet.
    if bound_to.is_none_or(str::is_empty) {
        return Some("its claimRef has no UID: somebody in the member gives it to a claim".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    /// As a move has left it, with one thing changed.
    fn kept(path: &str, value: Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": "pv", "labels": {HOST: "h", MOVED: "of"}, "annotations": {PROVISIONED_BY: "storage"}},
            "spec": {"claimRef": {"namespace": "yard", "name": "of", "uid": "u"}, "persistentVolumeReclaimPolicy": "Retain"},
            "status": {"phase": "Released"},
        });
        let (parent, key) = path.rsplit_once(' ').unwrap();
        volume.pointer_mut(parent).unwrap()[key] = value;
        from_value(volume).unwrap()
    }

    #[test]
    fn what_a_move_has_kept_is_given_up_only_while_nobody_else_has_it_or_is_to_have_it() {
        let host = HostId("h".to_owned());
        for (path, value, why) in [
            ("/spec persistentVolumeReclaimPolicy", json!("Retain"), None),
            ("/metadata labels", json!({HOST: "h"}), Some("no move has kept it")),
            ("/metadata/labels kosmos.csi.io/host", json!("x"), Some("another host")),
            ("/metadata/labels kosmos.csi.io/volume", json!("of"), Some("the leaf of a volume")),
            ("/metadata annotations", json!({}), Some("people made it")),
            ("/status phase", json!("Bound"), Some("not Released")),
            ("/spec/claimRef uid", Value::Null, Some("its claimRef has no UID")),
            ("/spec/claimRef uid", json!(""), Some("its claimRef has no UID")),
            ("/spec claimRef", Value::Null, Some("its claimRef has no UID")),
        ] {
            let refusal = refused_at_sight(&host, &kept(path, value));
            assert_eq!(refusal.is_some(), why.is_some(), "{path}: {refusal:?}");
            assert!(why.is_none_or(|why| refusal.unwrap().contains(why)), "{path}");
        }
    }
}
