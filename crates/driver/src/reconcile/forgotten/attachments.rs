//! VolumeAttachments that came when nobody wanted them any more. The record on the leaf claim is written before one is made, and
//! names it until it has gone, so one that is in no record was written late.
//!
//! One may be wanted again at any moment. So it is marked first, and then the record is read once more; whoever publishes writes
//! the record first, and then looks at the mark. One of the two sees the other.

use super::{AT_ONCE, Reconciler, Waiting};
use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId, published::Attachment},
};
use leaf::{MemberClient, attachment::LeafAttachment};
use member::registry::may_mean;

pub(super) async fn withdraw(reconciler: &Reconciler, leaf: &MemberClient, waiting: &mut Waiting) {
    let all = match leaf::attachment::ours(leaf).await {
        Ok(all) => all,
        Err(error) => return tracing::debug!(member = leaf.member, %error, "attachments are not looked through"),
    };
    let unknown = all.into_iter().filter(|one| !one.terminating && !is_known(leaf, one));
    let (begun, others): (Vec<_>, Vec<_>) = unknown.partition(|one| one.withdrawn);
    let old = waiting.attachments.old(others, |one| &one.uid);
    for one in old.into_iter().chain(begun.into_iter().take(AT_ONCE)) {
        if let Err(error) = withdraw_attachment(reconciler, leaf, &one).await {
            tracing::debug!(member = leaf.member, attachment = one.name, %error, "a forgotten attachment is not withdrawn yet");
        }
    }
}

async fn withdraw_attachment(reconciler: &Reconciler, leaf: &MemberClient, seen: &LeafAttachment) -> Result<()> {
    let Some(hash) = own_leaf(leaf, seen) else { return Ok(()) };
    if is_wanted(reconciler, leaf, hash, seen).await? {
        return if seen.withdrawn { leaf::attachment::mark(leaf, seen, false).await.map(drop) } else { Ok(()) };
    }
    let marked = if seen.withdrawn { seen.clone() } else { leaf::attachment::mark(leaf, seen, true).await? };
    if is_wanted(reconciler, leaf, hash, &marked).await? {
        return leaf::attachment::mark(leaf, &marked, false).await.map(drop);
    }
    tracing::info!(
        member = leaf.member,
        attachment = seen.name,
        volume = seen.handle,
        node = seen.node,
        "the driver deletes a VolumeAttachment that no leaf claim has on record: nobody asks for it any more"
    );
    leaf::attachment::delete(leaf, &marked).await.map(drop)
}

/// Read just now: the volume, the claim that it is bound to, and what is described on it. Where no record is left of what
/// somebody has removed by force, the host says whether it may be in use, as it may until the claim of its volume has gone, whoever has deleted
/// that.
async fn is_wanted(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    hash: VolumeHash,
    one: &LeafAttachment,
) -> Result<bool> {
    let record = match leaf::volume::read(leaf, &one.volume).await? {
        Some(volume) => {
            let pair = leaf::healing::examine(leaf, hash, &volume.claim_place, Some(&one.volume)).await?;
            pair.records(leaf, hash, &as_recorded(one))
        }
        None => None,
    };
    if let Some(named) = record {
        return Ok(named);
    }
    let members = reconciler.members.all()?;
    // Under another name of its member, or by the hash alone, people write other handles for the same leaf.
    let is_same = |id: &VolumeId| may_mean(&members, &id.member, &leaf.member) && id.names(hash);
    let leads_there = |id: &VolumeId| id.to_string() == one.handle || is_same(id);
    let volumes = host::volume::all_leading(&reconciler.host, leads_there).await?;
    Ok(volumes.iter().any(|volume| !volume.is_to_be_reclaimed()))
}

/// In memory alone: whether the record of its volume names it.
fn is_known(leaf: &MemberClient, one: &LeafAttachment) -> bool {
    let claim = VolumeId::parse(&one.handle).and_then(|id| leaf.rows.find(&id)?.1.claim);
    !one.withdrawn && claim.is_some_and(|claim| claim.life.published.is_attached(&as_recorded(one)))
}

fn as_recorded(one: &LeafAttachment) -> Attachment {
    Attachment::MemberNode(one.member_node.clone())
}

/// The leaf it was made for. Of an imported claim there is no record that could tell.
fn own_leaf(leaf: &MemberClient, one: &LeafAttachment) -> Option<VolumeHash> {
    let (hash, id) = (one.hash?, VolumeId::parse(&one.handle)?);
    (id.names(hash) && hash != VolumeHash::imported(&leaf.host, &id)).then_some(hash)
}
