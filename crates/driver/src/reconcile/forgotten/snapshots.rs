//! Leaf snapshots that came when nobody asked for them any more: the host's own record of a snapshot is there before it is asked
//! for, and stays until it has gone, so one without a record was written late.

use super::{Reconciler, Waiting};
use domain::{error::Result, volume::VolumeId};
use host::snapshot::ContentKind;
use leaf::{
    MemberClient,
    snapshot::{Content, row::SnapshotRow},
};

/// One that came late may be the only one, and nobody may ever ask for another.
pub(super) async fn watch_if_there_are_any(leaf: &MemberClient) {
    if leaf.snapshots.synced() {
        return;
    }
    match leaf::snapshot::has_any(leaf).await {
        Ok(true) => leaf.snapshots.want(),
        Ok(false) => {}
        Err(error) => tracing::debug!(member = leaf.member, %error, "it is not known whether the member has snapshots"),
    }
}

pub(super) async fn withdraw(reconciler: &Reconciler, leaf: &MemberClient, waiting: &mut Waiting) {
    let mut unmarked = leaf.snapshots.all(|row| row.asked_by.is_some() && row.group.is_none() && !row.is_marked());
    unmarked.retain(|row| is_beside_its_claim(leaf, row));
    for row in waiting.snapshots.old(unmarked, |row| &row.uid) {
        if let Err(error) = withdraw_snapshot(reconciler, leaf, &row).await {
            tracing::debug!(member = leaf.member, snapshot = %row.place, %error, "a forgotten snapshot is not withdrawn yet");
        }
    }
}

/// Where the handle of its volume says no namespace, a copy that somebody has made in another one is told from it by the leaf claim alone.
fn is_beside_its_claim(leaf: &MemberClient, row: &SnapshotRow) -> bool {
    let Some(volume) = VolumeId::parse(&row.source).filter(|volume| volume.place().is_none()) else { return true };
    let claim = leaf.rows.find(&volume).and_then(|(_, row)| row.claim);
    claim.is_none_or(|claim| claim.place.namespace == row.place.namespace)
}

/// The member and the host are asked themselves. What was restored from a backup under our name is bound to a content that
/// was there before it, and stays.
async fn withdraw_snapshot(reconciler: &Reconciler, leaf: &MemberClient, seen: &SnapshotRow) -> Result<()> {
    let Some((snapshot, Some(now))) = leaf::snapshot::read(leaf, &seen.place).await? else { return Ok(()) };
    let own = Content::name_of(None, &now.uid);
    let is_cut = snapshot.spec.source.persistent_volume_claim_name.is_some();
    if now.uid != seen.uid || !is_cut || now.content.as_deref().is_some_and(|content| content != own) {
        return Ok(());
    }
    let content = leaf::snapshot::read_content(leaf, &own).await?.filter(|content| content.snapshot_uid == *now.uid);
    if content.as_ref().is_some_and(|content| content.marked) {
        leaf.snapshots.mark(now.hash, &now.uid);
        return Ok(());
    }
    let Some(asked_by) = now.asked_by.as_deref() else { return Ok(()) };
    let record = host::snapshot::read_content(&reconciler.host, ContentKind::Snapshot, asked_by).await?;
    if record.is_some_and(|record| !record.terminating || record.given_out) {
        return Ok(());
    }
    tracing::info!(
        member = leaf.member, snapshot = %now.place, host_content = asked_by,
        "the driver deletes a leaf snapshot that the host was never told of: nobody asks for it any more"
    );
    if let Some(content) = content.filter(|content| content.retained) {
        leaf::snapshot::make_content_deletable(leaf, &content).await?;
    }
    if now.terminating { Ok(()) } else { leaf::snapshot::delete(leaf, &now).await }
}
