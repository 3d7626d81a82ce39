//! DeleteSnapshot: the leaf snapshot goes, and the answer comes when a read has found nothing behind it any more.

use std::time::Duration;

use super::{Deadline, Provisioner, find, found_snapshot::behind, wait_for};
use domain::{
    error::{Error, Result},
    volume::{LeafName, LeafPlace, VolumeHash, VolumeId},
};
use leaf::{
    MemberClient, ownership,
    snapshot::{Content, row::SnapshotRow},
};

/// Between two looks at something of which no news comes.
const PAUSE: Duration = Duration::from_millis(200);

/// An id that is none of ours names a snapshot that does not exist, and that is what was asked for.
pub async fn delete(provisioner: &Provisioner, id: &str, deadline: &Deadline) -> Result<()> {
    let Some((id, member)) = find::member_of(provisioner, id).await? else { return Ok(()) };
    let leaf = member.leaf()?;
    leaf.snapshots.want();
    let row = find_snapshot(leaf, &id).await?;
    if row.as_ref().is_some_and(|row| row.group.is_some()) {
        return Err(Error::Invalid(format!(
            "snapshot {id} is part of a group and goes with it: delete the group instead"
        )));
    }
    match (row, id.place()) {
        (Some(row), _) => remove_snapshot(leaf, row.hash, &row.place, deadline).await,
        (None, Some(place)) => match hash_in(&place).filter(|hash| id.names(*hash)) {
            Some(hash) => remove_snapshot(leaf, hash, &place, deadline).await,
            None => Ok(()),
        },
        (None, None) => match &id.leaf {
            LeafName::Hashed(hash) => remove_unplaced(leaf, *hash, deadline).await,
            LeafName::Readable { .. } => Ok(()),
        },
    }
}

/// No snapshot carries its labels, and nothing says where it would be: somebody has taken them off, or what stands behind it has outlived it.
pub(super) async fn remove_unplaced(leaf: &MemberClient, hash: VolumeHash, deadline: &Deadline) -> Result<()> {
    match leaf::snapshot::stripped(leaf, hash).await? {
        Some((place, lacking)) => Err(stripped(leaf, &place, &lacking)),
        None => remove_contents(leaf, hash, None, deadline).await,
    }
}

/// Whoever looks for one that is there without its marks is told what to put back, and not that there is none; and nothing of what was made
/// for another host, nor of what is where the member gives no rights: whoever asks writes the handle.
pub(super) async fn is_not_stripped(leaf: &MemberClient, id: &VolumeId) -> Result<()> {
    let Some(place) = id.place().filter(|place| leaf.namespaces.has(&place.namespace)) else { return Ok(()) };
    let Some(hash) = hash_in(&place).filter(|hash| id.names(*hash)) else { return Ok(()) };
    let Some((snapshot, None)) = leaf::snapshot::read(leaf, &place).await? else { return Ok(()) };
    let name = snapshot.metadata.annotations.as_ref().and_then(|notes| notes.get(ownership::NAME));
    let is_ours = name.is_some_and(|name| VolumeHash::of_snapshot(&leaf.host, name) == hash);
    match leaf::snapshot::unmarked(leaf, &snapshot, hash).filter(|_| is_ours) {
        Some(lacking) => Err(stripped(leaf, &place, &lacking)),
        None => Ok(()),
    }
}

/// Removes the leaf snapshot until a read proves it gone, and what stands behind it. A write of ours that is carried out late may
/// have made one of this name again meanwhile: it goes as well, while somebody waits for that. A host that was restored from a backup
/// since may have asked for it, once nobody does.
pub(super) async fn remove_snapshot(
    leaf: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
    deadline: &Deadline,
) -> Result<()> {
    let there = || leaf.snapshots.row_at(hash, place);
    let mut next = there();
    if next.is_none() {
        next = unseen(leaf, hash, place).await?;
    }
    let mut given_out = next.is_some();
    while let Some(row) = next {
        given_out &= remove_one(leaf, row, deadline).await?;
        next = there();
        if next.is_some() && !deadline.caller_waits() {
            return Err(late(leaf, place));
        }
    }
    // What was marked may have outlived it, or one that came late hid what had outlived the one before it.
    if given_out { Ok(()) } else { remove_contents(leaf, hash, Some(&place.namespace), deadline).await }
}

/// No snapshot was seen; a read decides.
async fn unseen(leaf: &MemberClient, hash: VolumeHash, place: &LeafPlace) -> Result<Option<SnapshotRow>> {
    match leaf::snapshot::read(leaf, place).await? {
        None => Ok(None),
        Some((_, Some(row))) if row.hash == hash => Ok(Some(row)),
        Some((snapshot, _)) => match leaf::snapshot::unmarked(leaf, &snapshot, hash) {
            Some(lacking) => Err(stripped(leaf, place, &lacking)),
            None => Ok(None),
        },
    }
}

pub(super) fn stripped(leaf: &MemberClient, place: &LeafPlace, lacking: &str) -> Error {
    Error::Refused(format!(
        "member {}: snapshot {place} has the name of one of the driver's, but not its marks: put back {lacking}, or \
         delete it there",
        leaf.member
    ))
}

/// Removes the snapshot of this UID step by step. Whether somebody may have been told of it.
async fn remove_one(leaf: &MemberClient, mut row: SnapshotRow, deadline: &Deadline) -> Result<bool> {
    let (hash, place, uid) = (row.hash, row.place.clone(), row.uid.clone());
    let is_it = |row: &SnapshotRow| row.place == place && row.uid == uid;
    let (mut content, mut marked) = (None, row.is_marked());
    loop {
        content = row.content.clone().or(content);
        if row.terminating {
            let gone =
                |pause| leaf.snapshots.until(pause, |rows| !rows.row_at(hash, &place).as_ref().is_some_and(is_it));
            if !wait_for(deadline, gone, async || late(leaf, &place)).await? {
                look_again(leaf, &row).await?;
            }
        } else {
            marked |= follow_host(leaf, &Content::name_of(content.as_deref(), &uid), &row, deadline).await?;
            leaf::snapshot::delete(leaf, &row).await?;
        }
        match leaf.snapshots.row_at(hash, &place).filter(is_it) {
            Some(now) => row = now,
            None => break,
        }
    }
    if content.is_none()
        && let Some((snapshot, _)) = leaf::snapshot::read(leaf, &place).await?
        && snapshot.metadata.uid.as_deref() == Some(&*uid)
    {
        return Err(late(leaf, &place));
    }
    Ok(content_is_gone(leaf, &Content::name_of(content.as_deref(), &uid), &row, deadline).await? || marked)
}

/// The leaf snapshot behind a handle, from memory where it is known.
pub(super) async fn find_snapshot(leaf: &MemberClient, id: &VolumeId) -> Result<Option<SnapshotRow>> {
    if let Some(row) = behind(leaf, id)? {
        return Ok(Some(row));
    }
    match (id.place(), &id.leaf) {
        (Some(place), _) => drop(leaf::snapshot::read(leaf, &place).await?),
        (None, LeafName::Hashed(hash)) => leaf::snapshot::list(leaf, *hash).await?,
        (None, LeafName::Readable { .. }) => {}
    }
    behind(leaf, id)
}

/// The hash in the name of a leaf snapshot.
fn hash_in(place: &LeafPlace) -> Option<VolumeHash> {
    VolumeHash::parse(place.claim.strip_prefix("s-")?)
}

/// Deleting in the host deletes the data: a content that its class would retain is made to go as well. Whether it was marked.
async fn follow_host(leaf: &MemberClient, name: &str, row: &SnapshotRow, deadline: &Deadline) -> Result<bool> {
    let content = leaf::snapshot::read_content(leaf, name).await?;
    let Some(content) = content.filter(|content| content.snapshot_uid == *row.uid) else { return Ok(false) };
    remove_former(leaf, row, &content, deadline).await?;
    if content.retained {
        leaf::snapshot::make_content_deletable(leaf, &content).await?;
    }
    Ok(content.marked)
}

/// Its snapshot has gone. It goes before that, unless somebody has taken the finalizers away. Whether it was seen marked.
async fn content_is_gone(leaf: &MemberClient, name: &str, row: &SnapshotRow, deadline: &Deadline) -> Result<bool> {
    let mut marked = false;
    loop {
        match leaf::snapshot::read_content(leaf, name).await? {
            Some(content) if content.snapshot_uid == *row.uid => {
                marked |= content.marked;
                remove_former(leaf, row, &content, deadline).await?;
                end_content(leaf, &content, deadline).await?;
            }
            _ => return Ok(marked),
        }
    }
}

/// It may have been cut before: people of the member had deleted the first one before the host was told of it, and its class has kept what stood
/// behind that. This goes before anything of the second one does: by that alone a later call knows to look for it. Once nobody waits, what is
/// found may be of one that came since.
async fn remove_former(leaf: &MemberClient, row: &SnapshotRow, content: &Content, deadline: &Deadline) -> Result<()> {
    let is_looked_for_later = !content.marked && !row.is_marked();
    if !content.retained || is_looked_for_later {
        return Ok(());
    }
    loop {
        let all = leaf::snapshot::list_contents(leaf, row.hash, Some(&row.place.namespace)).await?;
        match all.iter().find(|other| other.snapshot_uid != *row.uid) {
            Some(other) if !deadline.caller_waits() => return Err(is_still_there(leaf, other)),
            Some(former) => end_content(leaf, former, deadline).await?,
            None => return Ok(()),
        }
    }
}

/// Contents without their snapshot: a hand in the member has removed that, and the class retained them. That of one which came since may
/// be among them.
async fn remove_contents(
    leaf: &MemberClient,
    hash: VolumeHash,
    namespace: Option<&str>,
    deadline: &Deadline,
) -> Result<()> {
    while let Some(content) = leaf::snapshot::list_contents(leaf, hash, namespace).await?.first() {
        if !deadline.caller_waits() {
            return Err(is_still_there(leaf, content));
        }
        end_content(leaf, content, deadline).await?;
    }
    Ok(())
}

async fn end_content(leaf: &MemberClient, content: &Content, deadline: &Deadline) -> Result<()> {
    leaf::snapshot::end_content(leaf, content).await?;
    deadline.pause(PAUSE, || is_still_there(leaf, content)).await
}

fn is_still_there(leaf: &MemberClient, content: &Content) -> Error {
    Error::InProgress(format!("member {}: snapshot content {} is still being deleted", leaf.member, content.name))
}

/// The watch said nothing for a while: it may be dead.
async fn look_again(leaf: &MemberClient, row: &SnapshotRow) -> Result<()> {
    let there = leaf::snapshot::read(leaf, &row.place).await?;
    if there.is_none_or(|(snapshot, _)| snapshot.metadata.uid.as_deref() != Some(&row.uid)) {
        leaf.snapshots.drop_row(row.hash, &row.uid);
    }
    Ok(())
}

fn late(leaf: &MemberClient, place: &LeafPlace) -> Error {
    Error::InProgress(format!(
        "member {}: leaf snapshot {place} is being deleted: its storage is at work, or a volume is being made of it",
        leaf.member
    ))
}
