//! Several volumes of the host with one handle, as people make them. Whose the leaf is nobody can tell, and what one of them gives up
//! another may want: so its data is kept, nothing else is done, and each of them says so.

use super::{
    Reconciler,
    obstacle::{is_refusal, refused, seen_at_once},
    repair::Repair,
};
use domain::{
    error::Result,
    some_of::some_of,
    volume::{
        LeafPlace, VolumeId,
        healing::{Healing, Wish, decide},
    },
};
use host::{events::News, volume::HostVolume};
use leaf::{
    MemberClient,
    row::{ClaimRow, Row, VolumeRow},
    saved::Saved,
};
use member::registry::may_mean;

/// So many of them are named.
const NAMED: usize = 3;

pub(super) fn is_shared(reconciler: &Reconciler, handle: &str) -> bool {
    reconciler.volumes.count_with(handle) > 1
}

/// By what is in memory alone: whether another handle leads to the leaf, by a second name of its member or by the hash alone, as people write
/// it. Whoever has that may use it.
pub(super) fn is_led_to_otherwise(reconciler: &Reconciler, repair: &Repair<'_>) -> bool {
    let Ok(members) = reconciler.members.all() else { return false };
    let (row, own) = (repair.row(), repair.id.place());
    let of_claim = row.claim.as_ref().map(|claim| &claim.place);
    let is_there = |place: LeafPlace| [own.as_ref(), of_claim].contains(&Some(&place));
    let leads_there = |handle: &str| {
        let id = VolumeId::parse(handle).filter(|id| id.names(repair.hash()) && handle != repair.handle());
        id.is_some_and(|id| id.place().is_none_or(is_there))
    };
    let names = reconciler.volumes.members();
    let mut names = names.iter().filter(|name| may_mean(&members, name, &repair.leaf().member));
    names.any(|name| reconciler.volumes.handles_for(name, repair.hash()).iter().any(|handle| leads_there(handle)))
}

/// By what the host says now: whether any handle leads to the leaf.
pub(super) async fn is_led_to(reconciler: &Reconciler, repair: &Repair<'_>) -> Result<bool> {
    let (members, row, own) = (reconciler.members.all()?, repair.row(), repair.id.place());
    let of_claim = row.claim.as_ref().map(|claim| &claim.place);
    let is_there = |place: LeafPlace| [own.as_ref(), of_claim].contains(&Some(&place));
    let is_its_member = |id: &VolumeId| may_mean(&members, &id.member, &repair.leaf().member);
    let leads_there = |id: &VolumeId| {
        *id == repair.id || is_its_member(id) && id.names(repair.hash()) && id.place().is_none_or(is_there)
    };
    reconciler.handles.have_now(&reconciler.host, repair.hash(), leads_there).await
}

/// What a volume of the host wants. Its leaf is not let go from under another one.
pub(super) fn wish(reconciler: &Reconciler, repair: &Repair<'_>, volume: &HostVolume) -> Wish {
    match volume.wish() {
        Wish::Keep if is_led_to_otherwise(reconciler, repair) => Wish::Nothing,
        wish => wish,
    }
}

fn is_wanted(volumes: &[HostVolume]) -> bool {
    volumes.iter().any(|volume| volume.wish() != Wish::Nothing)
}

/// It outlives its claim, and no removal of it is believed.
fn is_kept(volume: &VolumeRow) -> bool {
    stays(volume) && (volume.follows || volume.healing)
}

fn stays(volume: &VolumeRow) -> bool {
    volume.is_retained() && !volume.is_terminating() && !volume.removal
}

/// By what is in memory alone. Whoever takes our finalizer off the only claim there is has its data kept no less.
fn is_the_leaf(repair: &Repair<'_>, row: &Row) -> bool {
    let leaf = repair.leaf();
    repair.is_the_leaf(row) || leaf.rows.ids(&leaf.member, repair.hash()).len() == 1
}

/// By what is in memory alone: one of them wants it, and DeleteVolume for another would be believed, or it is going.
pub(super) fn is_due(repair: &Repair<'_>, volumes: &[HostVolume], row: &Row) -> bool {
    let is_ill = |claim: &ClaimRow| row.volume.as_ref().map_or_else(|| claim.is_lost(), |volume| !is_kept(volume));
    is_wanted(volumes) && row.claim.as_ref().is_some_and(is_ill) && is_the_leaf(repair, row)
}

/// Has the leaf volume outlive its claim, and say so: no removal is carried out then before the host was asked who wants it. What is in
/// the way of that is told on each volume.
pub(super) async fn keep(reconciler: &Reconciler, repair: &Repair<'_>, looks: u32) -> Result<()> {
    let (leaf, hash, row) = (repair.leaf(), repair.hash(), repair.row());
    let (Some(claim), true) = (&row.claim, is_the_leaf(repair, &row)) else { return Ok(()) };
    let volume = row.volume.as_ref().map(|volume| &*volume.name);
    let pair = leaf::healing::examine(leaf, hash, &claim.place, volume).await?;
    let wish = Wish::Use { retain: true };
    let step = decide(wish, pair.claim_seen(leaf, hash).as_ref(), pair.volume_seen().as_ref());
    let kept = match (&step, &pair.volume, pair.ours(leaf, hash)) {
        (Healing::CallOff, Some(volume), _) => leaf::retention::call_off_removal(leaf, volume, hash).await,
        (Healing::Follow, Some(volume), _) => leaf::retention::follow_host(leaf, volume, hash).await,
        (Healing::Keep, Some(volume), Some(claim)) => {
            leaf::healing::keep_volume(leaf, volume, &Saved::of_claim(claim, volume)).await
        }
        _ => Ok(()),
    };
    let news = match &kept {
        Err(error) => is_refusal(&step, error, looks).then(|| refused(repair, &pair.place, error)),
        Ok(()) if matches!(step, Healing::Lost | Healing::Stuck(_) | Healing::Endangered) => {
            seen_at_once(repair, &step, &pair, looks)
        }
        Ok(()) => None,
    };
    if let Some(news) = news {
        tell_all(reconciler, leaf, &reconciler.volumes.with(repair.handle()), &news).await;
    }
    kept
}

/// By what is in memory, of a leaf of which something is seen. False where it is to be looked at again soon. What all of them give up is
/// removed as it is of one.
pub(super) async fn tell(reconciler: &Reconciler, leaf: &MemberClient, row: &Row, volumes: &[HostVolume]) -> bool {
    if !is_wanted(volumes) {
        return true;
    }
    let outlasts = |volume: &VolumeRow| if row.claim.is_some() { is_kept(volume) } else { stays(volume) };
    let is_kept = row.volume.as_ref().is_some_and(outlasts);
    let news = News { reason: "LeafShared", message: message(&leaf.member, volumes, is_kept), warning: true };
    tell_all(reconciler, leaf, volumes, &news).await;
    is_kept
}

async fn tell_all(reconciler: &Reconciler, leaf: &MemberClient, volumes: &[HostVolume], news: &News) {
    for volume in volumes {
        reconciler.tell_of_leaf(&leaf.member, volume, news).await;
    }
}

fn message(member: &str, volumes: &[HostVolume], is_kept: bool) -> String {
    let names = some_of(volumes.iter().map(|volume| &volume.name), NAMED);
    let data = if is_kept {
        "its data is kept"
    } else {
        "its data is not kept in the member yet, and is lost if somebody removes its leaf claim there"
    };
    format!(
        "member {member}: PersistentVolumes {names} have one handle, and nobody can tell whose the leaf is: {data}. \
         The driver neither recreates nor deletes its leaf claim until only one of them is left. Give the policy \
         Retain to those that are to go, and delete them"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> HostVolume {
        HostVolume { name: name.into(), ..HostVolume::default() }
    }

    #[test]
    fn some_are_named_and_all_are_counted() {
        let volumes = ["a", "b", "c", "d", "e"].map(volume);
        assert!(message("m", &volumes, true).contains("PersistentVolumes a, b, c and 2 more have one handle"));
        assert!(message("m", &volumes[..2], true).contains("PersistentVolumes a, b have one handle"));
    }
}
