//! The record of published nodes, read, judged and written over the version that was read. A "no" and an "it is so already"
//! are given only on what was just read: the watch may be behind.

use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash,
        plan::Phase,
        published::{Attachment, Publication, Published, Verdict},
    },
};
use host::volume::GivenOut;
use leaf::{
    MemberClient,
    healing::Unpublished,
    identity::{Identity, Meant, judge, labels_of},
    ownership,
    row::{ClaimRow, VolumeRow},
};

/// Others write on the same claim, but not for ever.
const TRIES: usize = 5;

/// `told`: the leaf that the host was given, as its volume says. Who does not wait any more may have asked for the opposite since, so nothing is
/// decided for him.
pub async fn publish(
    leaf: &MemberClient,
    hash: VolumeHash,
    seen: &ClaimRow,
    node: &str,
    wanted: &Publication,
    told: Option<&GivenOut>,
    caller_waits: impl Fn() -> bool,
) -> Result<()> {
    let (mut claim, mut read) = (seen.clone(), false);
    for _ in 0..TRIES {
        match claim.life.published.publish(node, wanted) {
            // Asked once the claim was seen: an unpublish that comes later than this is found by its version.
            Verdict::Yes(_) if !caller_waits() => return Err(nobody_waits(leaf, &seen.place)),
            Verdict::Yes(with) => match record(leaf, hash, &claim, &with, told).await {
                Err(Error::Refused(_) | Error::InProgress(_)) => {}
                recorded => return recorded,
            },
            verdict if read => return answer(verdict, leaf, &claim, node),
            _ => {}
        }
        (claim, read) = (read_ours(leaf, hash, &seen.place).await?, true);
        // It may be on its way out since it was seen, and would take the record along.
        is_usable(&leaf.member, &claim)?;
    }
    Err(keeps_changing(leaf, &seen.place))
}

/// No pod writes before this. Marked with it, the leaf says that it has been used also when no node has it any more and the host has
/// forgotten its volume. One that has only come late to the leaf's place gets no mark.
async fn record(
    leaf: &MemberClient,
    hash: VolumeHash,
    claim: &ClaimRow,
    with: &Published,
    told: Option<&GivenOut>,
) -> Result<()> {
    let is_late = || told.is_some_and(|told| claim.came_late(&told.claim_uid, &told.volume));
    if claim.had_volume() || is_late() {
        return leaf::change::record_published(leaf, claim, hash, with).await;
    }
    leaf::change::record_used(leaf, claim, hash, with).await
}

/// Whether a further node may be given a leaf.
pub fn is_usable(member: &str, claim: &ClaimRow) -> Result<()> {
    claim.stands_still(member)?;
    let about = format!("member {member}: leaf claim {}", claim.place);
    match claim.size() {
        size if size.terminating => Err(Error::InProgress(format!("{about} is being removed there"))),
        size if size.phase == Phase::Lost => Err(Error::Refused(format!("{about} has lost its volume"))),
        size if size.phase == Phase::Pending && !claim.former.is_empty() => {
            Err(Error::InProgress(format!("{about} is being recreated there, with its data")))
        }
        // One that waits for its first pod (leafBinding deferred) gets it only once it is published.
        _ => Ok(()),
    }
}

fn answer(verdict: Verdict, leaf: &MemberClient, claim: &ClaimRow, node: &str) -> Result<()> {
    let place = format!("member {}: leaf claim {}", leaf.member, claim.place);
    match verdict {
        Verdict::Yes(_) | Verdict::Already => Ok(()),
        Verdict::Differs(difference) => Err(Error::Exists(format!("{place} is published on {node} {difference}"))),
        Verdict::Elsewhere(other) => {
            let is_attached = is_attached(&claim.life.published, Some(&other));
            Err(Error::Refused(format!(
                "{place} is published on node {other}, and only one node may have it at a time: end its pod there. {}",
                of_a_node_that_is_gone(ownership::PUBLISHED, "the leaf claim", is_attached)
            )))
        }
        Verdict::Unreadable => Err(unreadable(leaf, claim)),
    }
}

/// What a person does about a node that nobody detaches the volume from any more. What is attached for it is in no record then.
pub fn of_a_node_that_is_gone(annotation: &str, of: &str, is_attached: bool) -> String {
    let left =
        if is_attached { ". A VolumeAttachment that is left in the member goes by itself within the hour" } else { "" };
    format!(
        "If that node is gone for good, and nothing on it can write any more, remove annotation {annotation} from \
         {of}{left}"
    )
}

/// By a VolumeAttachment in the member.
fn is_attached(published: &Published, node: Option<&str>) -> bool {
    published.attached(node).any(|attached| matches!(attached, Attachment::MemberNode(_)))
}

/// None as the node: all of them. What is attached is detached first, and only then forgotten.
pub async fn unpublish<D: Future<Output = Result<()>>>(
    leaf: &MemberClient,
    hash: VolumeHash,
    seen: &ClaimRow,
    node: Option<&str>,
    detach: impl Fn(Attachment) -> D,
) -> Result<()> {
    let (mut claim, mut read) = (seen.clone(), false);
    for _ in 0..TRIES {
        match claim.life.published.without(node) {
            _ if claim.life.published.is_corrupt() && read => return Err(unreadable(leaf, &claim)),
            // A publication may be on its way still, and nobody would take it off the record again. What is written over a version
            // needs no read of it.
            None if !claim.life.published.is_corrupt() => match leaf::change::outdate(leaf, &claim, hash).await {
                Err(Error::Refused(_) | Error::InProgress(_)) => {}
                Ok(()) => return unpublish_kept(leaf, &claim, node).await,
                failed => return failed,
            },
            Some(rest) if !claim.life.published.is_corrupt() => {
                for attached in claim.life.published.attached(node) {
                    detach(attached.clone()).await?;
                }
                match leaf::change::record_published(leaf, &claim, hash, &rest).await {
                    Err(Error::Refused(_) | Error::InProgress(_)) => {}
                    Ok(()) => return unpublish_kept(leaf, &claim, node).await,
                    failed => return failed,
                }
            }
            _ => {}
        }
        (claim, read) = match read_ours(leaf, hash, &seen.place).await {
            Err(Error::NotFound(_)) => match unpublish_gone(leaf, hash, seen.volume(), node, &seen.place).await? {
                Some(back) => (back, true),
                None => return Ok(()),
            },
            claim => (claim?, true),
        };
    }
    Err(keeps_changing(leaf, &seen.place))
}

/// A claim that goes, or comes back, is described on its volume, nodes and all.
async fn unpublish_kept(leaf: &MemberClient, claim: &ClaimRow, node: Option<&str>) -> Result<()> {
    if claim.unusable().is_none() {
        return Ok(());
    }
    let Some(volume) = claim.volume() else { return Ok(()) };
    unpublish_on_volume(leaf, volume, node, &claim.place).await.map(drop)
}

/// The claim has gone, and comes back as it is described on its volume. Some: it is back already, and its own record counts.
pub async fn unpublish_gone(
    leaf: &MemberClient,
    hash: VolumeHash,
    volume: Option<&str>,
    node: Option<&str>,
    place: &LeafPlace,
) -> Result<Option<ClaimRow>> {
    let is_kept = match volume {
        Some(volume) => unpublish_on_volume(leaf, volume, node, place).await?,
        None => false,
    };
    match read_ours(leaf, hash, place).await {
        Err(Error::NotFound(_)) => Ok(None),
        // It may have been recreated before, with the record of then; only one that has not been given its volume yet takes the
        // other record over.
        Ok(claim) if is_kept && has_left(&claim.life.published, node) => Ok(None),
        claim => claim.map(Some),
    }
}

fn has_left(published: &Published, node: Option<&str>) -> bool {
    !published.is_corrupt() && published.without(node).is_none()
}

/// False: the volume keeps nothing of the claim.
async fn unpublish_on_volume(leaf: &MemberClient, volume: &str, node: Option<&str>, place: &LeafPlace) -> Result<bool> {
    for _ in 0..TRIES {
        match leaf::healing::unpublish_saved(leaf, volume, node).await? {
            Unpublished::Yes => return Ok(true),
            Unpublished::NothingKept => return Ok(false),
            Unpublished::Changed => {}
        }
    }
    Err(keeps_changing(leaf, place))
}

/// A volume that some node may be writing to is not to be removed.
pub async fn is_unpublished(leaf: &MemberClient, hash: VolumeHash, seen: &ClaimRow) -> Result<()> {
    if seen.life.published.is_unpublished() {
        return Ok(());
    }
    let claim = match read_ours(leaf, hash, &seen.place).await {
        Err(Error::NotFound(_)) => return Ok(()),
        claim => claim?,
    };
    let published = &claim.life.published;
    if published.is_corrupt() {
        return Err(unreadable(leaf, &claim));
    }
    if published.is_unpublished() || leaf::healing::never_got_its_volume(leaf, &claim).await? {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "member {}: leaf claim {} is published on {}: it can be removed once it is detached from there. {}",
        leaf.member,
        claim.place,
        published.nodes().collect::<Vec<_>>().join(", "),
        of_a_node_that_is_gone(ownership::PUBLISHED, "the leaf claim", is_attached(published, None))
    )))
}

/// Nor one whose claim has gone meanwhile, or is another by now: what it keeps of that counts.
pub async fn is_unpublished_in_what_is_kept(
    leaf: &MemberClient,
    volume: &VolumeRow,
    claim: Option<&ClaimRow>,
) -> Result<()> {
    if !volume.healing {
        return Ok(());
    }
    let published = leaf::healing::kept_on(leaf, &volume.name, claim).await?;
    if published.is_unpublished() {
        return Ok(());
    }
    if published.is_corrupt() {
        return Err(Error::Refused(format!(
            "member {}: annotation {} of leaf volume {} is not what this driver wrote: remove it once no node has the volume",
            leaf.member,
            ownership::HEALING,
            volume.name
        )));
    }
    Err(Error::Refused(format!(
        "member {}: leaf volume {} is published on {}, by the record of its former leaf claim: it can be removed once \
         it is detached from there. {}",
        leaf.member,
        volume.name,
        published.nodes().collect::<Vec<_>>().join(", "),
        of_a_node_that_is_gone(ownership::HEALING, "the leaf volume", is_attached(&published, None))
    )))
}

async fn read_ours(leaf: &MemberClient, hash: VolumeHash, place: &LeafPlace) -> Result<ClaimRow> {
    let found = leaf::claim::read(leaf, place).await?;
    let gone = || Error::NotFound(format!("member {}: there is no leaf claim {place} of this volume", leaf.member));
    let claim = found.as_ref().ok_or_else(gone)?;
    let meant = Meant::Volume(hash);
    match judge(&claim.metadata, &leaf.host, meant) {
        Identity::Leaf(_) => Ok(ClaimRow::new(claim)),
        Identity::Stripped => Err(stripped(leaf, place, &labels_of(&claim.metadata, &leaf.host, meant))),
        _ => Err(gone()),
    }
}

/// Where it is published stands on it, so nothing may be concluded from its not being found among ours.
pub fn stripped(leaf: &MemberClient, place: &LeafPlace, labels: &str) -> Error {
    Error::Refused(format!(
        "member {}: claim {place} is the leaf of a volume and its labels were removed: put back {labels}",
        leaf.member
    ))
}

fn unreadable(leaf: &MemberClient, claim: &ClaimRow) -> Error {
    Error::Refused(format!(
        "member {}: annotation {} of leaf claim {} is not what this driver wrote: correct it, or remove it once no node \
         has the volume",
        leaf.member,
        ownership::PUBLISHED,
        claim.place
    ))
}

fn nobody_waits(leaf: &MemberClient, place: &LeafPlace) -> Error {
    Error::InProgress(format!(
        "member {}: nobody waits any more for leaf claim {place} to be published, so its record stays as it is",
        leaf.member
    ))
}

fn keeps_changing(leaf: &MemberClient, place: &LeafPlace) -> Error {
    Error::InProgress(format!("member {}: leaf claim {place} keeps being changed by others", leaf.member))
}
