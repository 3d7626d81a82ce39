//! DeleteVolumeGroupSnapshot: the leaf group goes with its snapshots, and the answer comes when a read has found nothing behind
//! them any more.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Deadline, Provisioner, find,
    found_group::{find, marked},
    snapshot::Snapshot,
    wait_for,
};
use domain::{
    error::{Error, Result},
    volume::{
        LeafName, LeafPlace, VolumeHash, VolumeId,
        snapshot::{group_hash, leaf_group_name},
    },
};
use leaf::{
    MemberClient, ownership,
    snapshot::{
        Content,
        group::{Groups, LeafGroup, content_of, unmarked},
        kinds::VolumeSnapshot,
    },
};

/// What may be done with a part besides, where the group is to go.
const OR_DELETE: &str = "; or delete it there, because it is to go with the group";
/// Between two looks at what the member removes one after another.
const PAUSE: Duration = Duration::from_millis(200);

/// An id that is none of ours names a group that does not exist, and that is what was asked for.
pub async fn delete(provisioner: &Provisioner, text: &str, snapshots: &[String], deadline: &Deadline) -> Result<()> {
    let Some((id, member)) = find::member_of(provisioner, text).await? else { return Ok(()) };
    let leaf = member.leaf()?;
    leaf.snapshots.want();
    let Some(groups) = leaf::snapshot::served::groups(leaf).await? else {
        return delete_without_kind(leaf, &id, snapshots, deadline).await;
    };
    loop {
        match (find(leaf, &groups, &id).await?, group_hash(&id)) {
            (Some((hash, group)), _) => {
                let parts = leaf::snapshot::group::parts(leaf, &group).await?;
                let known = marked(leaf, &id, &parts, hash);
                // One that we made, and in which nothing carries our labels, was never given out: it came late. What was restored
                // from a backup under our name is not that.
                let came_late = known.is_empty() && group.chooses;
                let removed = removed_parts(leaf, &id, &known, parts.len() > known.len(), snapshots).await?;
                if !came_late {
                    are_marked(leaf, hash, &parts, &known, snapshots, OR_DELETE)?;
                    check(&known, &removed, snapshots)?;
                }
                let may_outlive = remove_group(leaf, &groups, &group, &parts, hash, deadline).await?;
                if !came_late && removed.is_empty() && !may_outlive {
                    return Ok(());
                }
                // It hid what had outlived the one before it, or a part of it that had been removed.
            }
            // One may come while that is removed.
            (None, Some(hash)) if remove_outlived(leaf, Some(&groups), &id, hash, snapshots, deadline).await? => {}
            _ => return Ok(()),
        }
        // Of what comes when nobody waits any more, a host that was restored from a backup may have asked for it.
        if !deadline.caller_waits() {
            return Err(Error::InProgress(format!("member {}: what is left of group {id} is looked for", leaf.member)));
        }
    }
}

/// The member has no groups any more. What was in one may be there still, as that is of other kinds.
async fn delete_without_kind(leaf: &MemberClient, id: &VolumeId, named: &[String], deadline: &Deadline) -> Result<()> {
    let Some(hash) = group_hash(id) else { return Ok(()) };
    let parts = leaf::snapshot::group::left(leaf, hash).await?;
    let is_beside = |part: &&LeafPlace| id.place().is_none_or(|group| group.namespace == part.namespace);
    if let Some(part) = parts.iter().find(is_beside) {
        return Err(Error::Refused(format!(
            "member {}: snapshot {part} is part of group {id}, and the member has no group snapshots any more: install the CRDs of \
             groupsnapshot.storage.k8s.io there again, or delete the snapshot there",
            leaf.member
        )));
    }
    remove_outlived(leaf, None, id, hash, named, deadline).await.map(drop)
}

/// The named snapshots that somebody in the member has removed: a read shows that they are not there.
async fn removed_parts(
    leaf: &MemberClient,
    group: &VolumeId,
    known: &[Snapshot],
    has_unmarked: bool,
    named: &[String],
) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for name in named {
        if known.iter().any(|part| part.id.to_string() == *name) {
            continue;
        }
        let part = VolumeId::parse(name).filter(|part| part.member == group.member);
        let beside = |place: &LeafPlace| group.place().is_none_or(|group| group.namespace == place.namespace);
        let gone = match part.as_ref().map(|part| (part.place(), &part.leaf)) {
            Some((Some(place), _)) if beside(&place) => leaf::snapshot::read(leaf, &place).await?.is_none(),
            // It is found by its label alone, which somebody may have taken off one that is there.
            Some((None, LeafName::Hashed(hash))) if !has_unmarked => {
                leaf::snapshot::list(leaf, *hash).await?;
                leaf.snapshots.row(*hash).is_none()
            }
            _ => false,
        };
        if gone {
            removed.push(name.clone());
        }
    }
    Ok(removed)
}

/// A part that is named and there, but for the marks by which it is ours, belongs to the group no less: who has named it has named no other
/// one. Nobody but a person puts them back; `otherwise`: what he may do instead.
pub(super) fn are_marked(
    leaf: &MemberClient,
    group: VolumeHash,
    parts: &[VolumeSnapshot],
    known: &[Snapshot],
    named: &[String],
    otherwise: &str,
) -> Result<()> {
    let is_known = |name: &&String| known.iter().any(|part| part.id.to_string() == **name);
    let unknown: Vec<VolumeId> =
        named.iter().filter(|name| !is_known(name)).filter_map(|name| VolumeId::parse(name)).collect();
    let all: Vec<_> = parts.iter().filter_map(|part| unmarked(leaf, part, group)).collect();
    let what = lacking(&all, &unknown, otherwise);
    what.map_or(Ok(()), |what| Err(Error::Refused(format!("member {}: {what}", leaf.member))))
}

/// What to do about the parts without their marks, where one of these handles may mean any. One that says no place may mean any part, and
/// no part for certain: that one may not be ours.
fn lacking(candidates: &[(LeafPlace, Vec<String>)], unknown: &[VolumeId], otherwise: &str) -> Option<String> {
    let is_named = |place: &LeafPlace| unknown.iter().any(|id| id.place().as_ref() == Some(place));
    if let Some((place, lacking)) = candidates.iter().find(|(place, _)| is_named(place)) {
        return Some(format!(
            "snapshot {place} is part of the group, and somebody has taken the driver's marks off it: put back \
             {}{otherwise}",
            lacking.join(", ")
        ));
    }
    let id = unknown.iter().find(|id| id.place().is_none()).filter(|_| !candidates.is_empty())?;
    let list = |(place, lacking): &(LeafPlace, Vec<String>)| format!("{place} ({})", lacking.join(", "));
    let listed: Vec<String> = candidates.iter().map(list).collect();
    Some(format!(
        "the driver does not find snapshot {id}, which is named. It may be one of these snapshots of the group, which \
         lack the driver's marks: {}. Put the marks back on the right one; the others may belong to somebody else",
        listed.join("; ")
    ))
}

/// Whoever names the snapshots of a group must name them all, but for those that are not there any more.
pub(super) fn check(parts: &[Snapshot], removed: &[String], named: &[String]) -> Result<()> {
    let there = parts.iter().map(|part| part.id.to_string());
    let there: BTreeSet<String> = there.chain(removed.iter().cloned()).collect();
    let named: BTreeSet<String> = named.iter().cloned().collect();
    if named.is_empty() || there == named {
        return Ok(());
    }
    let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    Err(Error::Invalid(format!("snapshot_ids are {}, and the group holds {}", list(&named), list(&there))))
}

/// Of what says to stand behind a leaf snapshot of a group: whether that snapshot is named or, where none is, beside the group. A copy
/// says so too.
fn is_part(of: &LeafPlace, hash: Option<VolumeHash>, group: &VolumeId, named: &[String]) -> bool {
    let place = group.place();
    let is_named = |part: VolumeId| match part.place() {
        Some(place) => place == *of,
        // Nor does the group's own handle say a place, where that is too long.
        None => {
            place.as_ref().is_none_or(|group| group.namespace == of.namespace)
                && hash.is_some_and(|hash| part.names(hash))
        }
    };
    if named.is_empty() {
        return place.as_ref().is_some_and(|group| group.namespace == of.namespace);
    }
    named.iter().filter_map(|name| VolumeId::parse(name)).any(is_named)
}

/// Whether it was cut for the group before that was cut again, as people of the member had deleted the first one before the host was told of
/// it: the host names the snapshots of the second one, which have the same hashes. A copy has a snapshot of its own.
async fn is_of_former(leaf: &MemberClient, content: &Content, group: &VolumeId, named: &[String]) -> Result<bool> {
    if !is_beside(&content.of, content.snapshot(), group, named) || content.snapshot_uid.is_empty() {
        return Ok(false);
    }
    let there = leaf::snapshot::read(leaf, &content.of).await?;
    Ok(there.is_none_or(|(snapshot, _)| {
        let is_its = snapshot.metadata.uid.as_deref() == Some(&*content.snapshot_uid);
        !is_its || snapshot.metadata.deletion_timestamp.is_some()
    }))
}

/// Of what says to stand behind a leaf snapshot of a group: whether that is beside the group, and has the hash of one that is named.
fn is_beside(of: &LeafPlace, hash: Option<VolumeHash>, group: &VolumeId, named: &[String]) -> bool {
    let is_there = group.place().is_some_and(|group| group.namespace == of.namespace);
    let has_hash = |part: VolumeId| hash.is_some_and(|hash| part.names(hash));
    is_there && named.iter().filter_map(|name| VolumeId::parse(name)).any(has_hash)
}

/// What to do about contents that carry the mark of a group whose handle says no place, where no snapshot is named either: nothing tells
/// parts from copies, which would be left or removed unasked.
fn unnamed(group: &VolumeId, named: &[String], marked: &[&str]) -> Option<String> {
    if group.place().is_some() || !named.is_empty() || marked.is_empty() {
        return None;
    }
    Some(format!(
        "group {group} is gone there, and nothing says which VolumeSnapshotContents are left of it and which are \
         copies: its handle says no namespace, and snapshot_ids names no snapshot. They are {}. Set the group's own to \
         deletionPolicy Delete and delete them there; take label {} off those that are to stay",
        marked.join(", "),
        ownership::GROUP
    ))
}

/// Contents without their group: a hand in the member has removed that, and its class retained them. Whether there were any.
pub(super) async fn remove_outlived(
    leaf: &MemberClient,
    groups: Option<&Groups<'_>>,
    id: &VolumeId,
    hash: VolumeHash,
    named: &[String],
    deadline: &Deadline,
) -> Result<bool> {
    let is_part = |content: &Content| is_part(&content.of, content.snapshot(), id, named);
    let of = |group: &LeafPlace| group.claim == leaf_group_name(hash) && id.place().is_none_or(|place| place == *group);
    let late = || Error::InProgress(format!("member {}: the contents of group {id} are being deleted", leaf.member));
    let mut were_there = false;
    loop {
        let whole = match groups {
            Some(groups) => groups.outlived(hash, of).await?,
            None => Vec::new(),
        };
        let marked = leaf::snapshot::list_group_contents(leaf, hash).await?;
        let stays = |content: &&Content| content.retained || !content.terminating;
        let contents: Vec<&str> = marked.iter().filter(stays).map(|content| content.name.as_str()).collect();
        if let Some(what) = unnamed(id, named, &contents) {
            return Err(Error::Refused(format!("member {}: {what}", leaf.member)));
        }
        // Those that go by themselves, whosever they are.
        let waits = id.place().is_none() && named.is_empty() && !marked.is_empty();
        let (mut parts, others): (Vec<Content>, Vec<Content>) = marked.into_iter().partition(is_part);
        for other in others {
            if is_of_former(leaf, &other, id, named).await? {
                parts.push(other);
            }
        }
        if whole.is_empty() && parts.is_empty() && !waits {
            return Ok(were_there);
        }
        // What comes when nobody waits any more may be of a group that a restored host has asked for.
        if were_there && !deadline.caller_waits() {
            return Err(late());
        }
        were_there = true;
        for part in parts.iter().filter(|part| part.retained) {
            leaf::snapshot::make_content_deletable(leaf, part).await?;
        }
        if let Some(groups) = groups {
            groups.end(&whole).await?;
        }
        for part in parts.iter().filter(|part| !part.terminating) {
            leaf::snapshot::delete_content(leaf, part).await?;
        }
        deadline.pause(PAUSE, late).await?;
    }
}

/// Removes a group and its snapshots, and proves both gone. Whether something may have outlived one that was cut before it.
pub(super) async fn remove_group(
    leaf: &MemberClient,
    groups: &Groups<'_>,
    group: &LeafGroup,
    parts: &[VolumeSnapshot],
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<bool> {
    let late = || Error::InProgress(format!("member {}: leaf group {} is being deleted", leaf.member, group.place));
    let may_outlive = groups.remove(group, parts).await?;
    let named = parts.iter().filter_map(|part| Some((content_of(part)?, part.metadata.uid.as_deref()?)));
    let contents: Vec<(&str, &str)> = named.collect();
    loop {
        let gone = |now: Option<LeafGroup>| now.is_none_or(|now| now.uid != group.uid);
        // A watch that ends without news may have died with the member: a read ends the call, or tells that it is gone.
        let heard = wait_for(deadline, |pause| groups.until(&group.place, pause, gone), async || late()).await?;
        if !heard && groups.read(&group.place, hash).await?.is_some_and(|now| now.is_ok_and(|now| now.uid == group.uid))
        {
            continue;
        }
        let mut left = leaf::snapshot::group::parts(leaf, group).await?.len();
        for (name, uid) in &contents {
            let content = leaf::snapshot::read_content(leaf, name).await?;
            left += usize::from(content.is_some_and(|content| content.snapshot_uid == *uid));
        }
        if let Some(name) = group.content_name()
            && let Some(content) = groups.content(&name, &group.uid).await?
        {
            left += 1;
            // It goes before its group, unless that never named it, or somebody has taken the finalizers away.
            groups.end(&[content]).await?;
        }
        if left == 0 {
            let rows = leaf.snapshots.all(|row| row.group == Some(hash));
            for row in rows {
                leaf.snapshots.drop_row(row.hash, &row.uid);
            }
            return Ok(may_outlive);
        }
        deadline.pause(PAUSE, late).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::{HostId, snapshot::group_id};

    #[test]
    fn only_a_handle_that_says_the_place_has_somebody_told_to_delete_a_snapshot_without_marks() {
        let place = |claim: &str| LeafPlace { namespace: "shop".to_owned(), claim: claim.to_owned() };
        let lacks = |claim: &str| (place(claim), vec![format!("label of {claim}")]);
        let hash = VolumeHash::of_snapshot(&HostId("h".to_owned()), "a");
        let (named, hashed) =
            (VolumeId::new("m", "shop", "b", hash), VolumeId { member: "m".to_owned(), leaf: LeafName::Hashed(hash) });
        let parts = [lacks("a"), lacks("b")];
        let certain = lacking(&parts, &[hashed.clone(), named.clone()], OR_DELETE).unwrap();
        assert!(certain.contains("snapshot shop/b is part") && certain.contains("delete it there"), "{certain}");
        let candidates = lacking(&parts, std::slice::from_ref(&hashed), OR_DELETE).unwrap();
        for said in ["shop/a (label of a)", "shop/b (label of b)", "may be one of these snapshots of the group"] {
            assert!(candidates.contains(said), "{said}: {candidates}");
        }
        assert!(!candidates.contains("delete"), "{candidates}");
        assert_eq!(lacking(&parts[..1], &[named], OR_DELETE), None);
        assert_eq!(lacking(&[], &[hashed], OR_DELETE), None);
    }

    #[test]
    fn what_outlived_its_group_is_named_where_nothing_tells_it_from_copies() {
        let hash = VolumeHash::of_group(&HostId("h".to_owned()), "g");
        let hashed = VolumeId { member: "m".to_owned(), leaf: LeafName::Hashed(hash) };
        let said = unnamed(&hashed, &[], &["snapcontent-a", "snapcontent-b"]).unwrap();
        assert!(said.contains("They are snapcontent-a, snapcontent-b. "), "{said}");
        assert_eq!(unnamed(&hashed, &[], &[]), None);
        assert_eq!(unnamed(&hashed, &["m///0".to_owned()], &["snapcontent-a"]), None);
        assert_eq!(unnamed(&group_id("m", "shop", hash), &[], &["snapcontent-a"]), None);
    }

    #[test]
    fn what_outlived_its_group_is_told_from_copies_by_the_snapshots_that_are_named() {
        let host = HostId("h".to_owned());
        let hash = |name: &str| VolumeHash::of_snapshot(&host, name);
        let place = |namespace: &str| LeafPlace { namespace: namespace.to_owned(), claim: "snapshot-1".to_owned() };
        let readable = |namespace: &str| VolumeId::new("m", namespace, "snapshot-1", hash("a")).to_string();
        let hashed = |name: &str| VolumeId { member: "m".to_owned(), leaf: LeafName::Hashed(hash(name)) };
        let short = group_id("m", "shop", hash("g"));
        for (group, named, is_it) in [
            (&short, vec![readable("shop")], true),
            (&short, vec![readable("backup")], false),
            (&short, vec![hashed("a").to_string()], true),
            (&short, vec![hashed("b").to_string()], false),
            (&short, vec![], true),
            (&short, vec!["nonsense".to_owned()], false),
            (&hashed("g"), vec![readable("shop")], true),
            (&hashed("g"), vec![hashed("b").to_string(), hashed("a").to_string()], true),
            (&hashed("g"), vec![hashed("b").to_string()], false),
            (&hashed("g"), vec![], false),
        ] {
            assert_eq!(is_part(&place("shop"), Some(hash("a")), group, &named), is_it, "{group} {named:?}");
        }
        assert!(!is_part(&place("backup"), Some(hash("a")), &short, &[hashed("a").to_string()]), "a copy");
        let cut_before = LeafPlace { claim: "snapshot-0".to_owned(), ..place("shop") };
        assert!(!is_part(&cut_before, Some(hash("a")), &short, &[readable("shop")]), "it is not named itself");
        for (of, hash, is_it) in [
            (&cut_before, Some(hash("a")), true),
            (&cut_before, Some(hash("b")), false),
            (&cut_before, None, false),
            (&place("backup"), Some(hash("a")), false),
        ] {
            assert_eq!(is_beside(of, hash, &short, &[readable("shop")]), is_it, "{of} {hash:?}");
        }
        assert!(!is_part(&place("shop"), None, &hashed("g"), &[hashed("a").to_string()]), "it says no hash");
    }
}
