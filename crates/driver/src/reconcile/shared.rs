//! Several volumes of the host with one handle, as people make them. Whose the leaf is nobody can tell, and what one of them gives up
//! another may want: so its data is kept, nothing else is done, and each of them says so.

use super::{Reconciler, repair::Repair};
use domain::{
    error::Result,
    volume::{
        VolumeId,
        healing::{Healing, Wish, decide},
    },
};
use host::{events::News, volume::HostVolume};
use leaf::{
    MemberClient,
    row::{Row, VolumeRow},
    saved::Saved,
};

/// So many of them are named.
const NAMED: usize = 3;

pub(super) fn is_shared(reconciler: &Reconciler, handle: &str) -> bool {
    reconciler.volumes.with(handle).len() > 1
}

/// By what is in memory alone: one of them wants it, and DeleteVolume for another would be believed.
pub(super) fn is_due(volumes: &[HostVolume], row: &Row) -> bool {
    let is_kept = |volume: &VolumeRow| volume.is_retained() && !volume.removal && (volume.follows || volume.healing);
    volumes.iter().any(|volume| volume.wish() != Wish::Nothing)
        && row.claim.is_some()
        && row.volume.as_ref().is_some_and(|volume| !is_kept(volume))
}

/// Has the leaf volume outlive its claim, and say so: no removal is carried out then before the host was asked who wants it.
pub(super) async fn keep(repair: &Repair<'_>) -> Result<()> {
    let (leaf, hash, row) = (repair.leaf(), repair.hash(), repair.row());
    let (Some(claim), true) = (&row.claim, repair.is_the_leaf(&row)) else { return Ok(()) };
    let volume = row.volume.as_ref().map(|volume| &*volume.name);
    let pair = leaf::healing::examine(leaf, hash, &claim.place, volume).await?;
    let wish = Wish::Use { retain: true };
    let step = decide(wish, pair.claim_seen(leaf, hash).as_ref(), pair.volume_seen().as_ref());
    match (step, &pair.volume, pair.ours(leaf, hash)) {
        (Healing::CallOff, Some(volume), _) => leaf::retention::call_off_removal(leaf, volume, hash).await,
        (Healing::Follow, Some(volume), _) => leaf::retention::follow_host(leaf, volume).await,
        (Healing::Keep, Some(volume), Some(claim)) => {
            leaf::healing::keep_volume(leaf, volume, &Saved::of_claim(claim, volume)).await
        }
        _ => Ok(()),
    }
}

/// False where there is nothing to be told: imported claims are nobody's to make anew.
pub(super) async fn tell(reconciler: &Reconciler, leaf: &MemberClient, id: &VolumeId, volumes: &[HostVolume]) -> bool {
    if volumes.len() < 2 || leaf.rows.find(id).is_none() {
        return false;
    }
    let news = News { reason: "LeafShared", message: message(&leaf.member, volumes), warning: true };
    for volume in volumes {
        reconciler.tell_of_leaf(&leaf.member, volume, &news).await;
    }
    true
}

fn message(member: &str, volumes: &[HostVolume]) -> String {
    let names: Vec<&str> = volumes.iter().take(NAMED).map(|volume| &*volume.name).collect();
    let more = volumes.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!(
        "member {member}: PersistentVolumes {}{more} have one handle, and nobody can tell whose the leaf is: its data is kept, and its leaf \
         claim is neither made anew nor let go until one of them is left. Give those that are to go the policy Retain, and delete them",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> HostVolume {
        HostVolume {
            name: name.into(),
            uid: name.into(),
            handle: "m/n/c/0123456789abcdef".into(),
            claim_uid: "c".into(),
            claim: None,
            leaf: None,
            deletes: true,
            retains: false,
            released: false,
            terminating: false,
        }
    }

    #[test]
    fn some_are_named_and_all_are_counted() {
        let volumes = ["a", "b", "c", "d", "e"].map(volume);
        assert!(message("m", &volumes).contains("PersistentVolumes a, b, c and 2 more have one handle"));
        assert!(message("m", &volumes[..2]).contains("PersistentVolumes a, b have one handle"));
    }
}
