//! Sources that moves have kept, and whose user has said with the move for how long. Nothing of it is in a hurry: what is not seen to be
//! safe is kept, which the move tells, and looked at again later.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, timeout};

use super::{LATE, LONG, Movers, ROUND, RunningMove, look::Looked, tell, within};
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, VolumeId, moving::Phase},
};
use host::moves::{self, PinnedLeaf, VolumeMove};
use leaf::{
    moving::kept,
    row::{ClaimRow, VolumeRow},
};

/// Between two looks at one that cannot be deleted yet: it grows to this.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Works until it is dropped.
pub(super) async fn delete(movers: &Movers) {
    let mut pauses: BTreeMap<String, (Instant, Duration)> = BTreeMap::new();
    let mut told = movers.known.told();
    loop {
        told.mark_unchanged();
        let is_news = |of: &VolumeMove| is_known_again(movers, of) || is_back(movers, of);
        let due = movers.known.all().into_iter().filter(|(_, of)| is_due(of) || is_news(of));
        let due: BTreeMap<String, VolumeMove> = due.collect();
        pauses.retain(|uid, _| due.contains_key(uid));
        for (uid, of) in due {
            let (next, pause) = pauses.get(&uid).copied().unwrap_or_else(|| (Instant::now(), LATE));
            if next > Instant::now() {
                continue;
            }
            pauses.insert(uid, (Instant::now() + pause, (pause * 2).min(LONGEST_PAUSE)));
            if let Err(error) = Box::pin(settle(movers, &of)).await {
                tracing::debug!(of = moves::name(&of), %error, "what becomes of the source of a move is not told");
            }
        }
        let soonest = pauses.values().map(|(next, _)| next.saturating_duration_since(Instant::now())).min();
        let _ = timeout(soonest.unwrap_or(ROUND).clamp(LATE, ROUND), told.changed()).await;
    }
}

fn is_due(of: &VolumeMove) -> bool {
    moves::is_over(of) && moves::source_is_due(of)
}

/// It was said to stay where nobody looks for it.
fn is_left_there(of: &VolumeMove) -> bool {
    moves::is_over(of) && moves::source_is_forgotten(of)
}

/// Its member is there after all.
fn is_known_again(movers: &Movers, of: &VolumeMove) -> bool {
    let from = of.status.as_ref().and_then(|status| status.from.as_ref());
    let members = movers.members.all().ok();
    let member = from.zip(members.as_ref()).and_then(|(from, members)| members.get(&from.member));
    is_left_there(of) && member.is_some_and(|member| member.leaf().is_ok())
}

/// It was said to be a leaf again, or its member shows it as one where it was before the move. By what is in memory.
fn is_back(movers: &Movers, of: &VolumeMove) -> bool {
    let Some(status) = of.status.as_ref().filter(|status| status.phase == Some(Phase::Succeeded)) else { return false };
    let (Some(pinned), Some(source), Some(from)) = (&status.volume, &status.source, &status.from) else { return false };
    let (members, hash) = (movers.members.all().ok(), VolumeHash::new(&movers.host.id, &pinned.name));
    let leaf = members.as_ref().and_then(|members| members.get(&from.member)?.leaf().ok());
    let row = leaf.map(|leaf| leaf.rows.row_at(hash, &from.home())).unwrap_or_default();
    let is_leaf = row.claim.is_some() && row.volume.is_some_and(|volume| volume.uid() == source.uid);
    moves::is_over(of) && (is_leaf || moves::source_is_back(of))
}

/// It is removed, or the move says why it is not.
async fn settle(movers: &Movers, of: &VolumeMove) -> Result<()> {
    // Its user may have changed his mind.
    let is_meant = |now: &VolumeMove| is_due(now) || is_left_there(now) || is_back(movers, now);
    let Some(now) = moves::read(&movers.host, of).await?.filter(is_meant) else { return Ok(()) };
    let is_due = is_due(&now);
    let (reason, message) = match within(LONG, Box::pin(give_up(movers, &now))).await {
        Ok(told) => told,
        Err(error) if !is_due => return Err(error),
        Err(error) => (moves::KEPT, format!("the source is kept: {error}")),
    };
    let is_gone = [moves::DELETED, moves::GONE].contains(&reason);
    let Some(change) = moves::source_deleted(&now, is_gone, reason, &message) else { return Ok(()) };
    tracing::info!(
        of = moves::name(&now),
        reason,
        message,
        is_due,
        "what becomes of the source of a move is written into its status"
    );
    moves::change_status(&movers.host, &now, change).await?;
    match reason {
        moves::KEPT | moves::FORGOTTEN if is_due => tell::tell(&movers.host, &now, "SourceKept", message, true).await,
        moves::BACK => tell::tell(&movers.host, &now, "SourceBack", message, true).await,
        _ if is_gone => tell::tell(&movers.host, &now, "SourceDeleted", message, false).await,
        _ => {}
    }
    Ok(())
}

/// A move ends without its source's member, of which the host was told that it is gone for good: it says what is there.
pub(super) async fn note_forgotten(job: &mut RunningMove, looked: &Looked) -> Result<()> {
    if looked.seen.source.is_some() || !looked.seen.source_forgotten {
        return Ok(());
    }
    let message = moves::told_of_forgotten(&job.of);
    if let Some(change) = moves::source_deleted(&job.of, false, moves::FORGOTTEN, &message) {
        job.write(change).await?;
    }
    Ok(())
}

/// The reason of its condition, and what is told there.
async fn give_up(movers: &Movers, of: &VolumeMove) -> Result<(&'static str, String)> {
    let status = of.status.as_ref();
    let pinned = status.and_then(|status| Some((status.source.as_ref()?, status.from.as_ref()?)));
    let (source, from) = pinned.ok_or_else(|| Error::Refused("the status does not name the source".to_owned()))?;
    let member = match movers.members.get_same(&from.member, &from.cluster).await {
        Err(Error::NotFound(_)) => return Ok((moves::FORGOTTEN, moves::told_of_forgotten(of))),
        known => known?,
    };
    let leaf = member.leaf()?;
    let of_member = format!("member {}: volume {}", from.member, source.name);
    let Some(volume) = kept::read(leaf, &source.name).await? else {
        return Ok(match () {
            () if moves::is_deleting_source(of) => (moves::DELETED, format!("{of_member} is gone, with its data")),
            // Another cluster may have the name by now.
            () if from.cluster.is_empty() => {
                let unknown = "is not there now, and which cluster that member was then is not on record";
                (moves::KEPT, format!("{of_member} {unknown}: nobody can tell whether the source is gone"))
            }
            () => (
                moves::GONE,
                format!("{of_member} is gone: who removed it, and whether with its data, is not on record"),
            ),
        });
    };
    if VolumeRow::new(&volume).uid() != source.uid {
        let message = format!("the source is kept: {of_member} was made again by somebody, and may hold anything");
        return Ok((moves::KEPT, message));
    }
    let home = from.home();
    if kept::is_leaf_of(leaf, &volume, &home) {
        let message = format!(
            "the source is a leaf again, and the driver does not keep it: claim {home} of member {} has volume {}, for \
             example because that member was restored from a backup of before the move. It lacks what was written \
             since. If the host's volume leads elsewhere, nobody needs that claim: `kosmos-csi doctor` names it",
            from.member, source.name
        );
        return Ok((moves::BACK, message));
    }
    if !moves::source_is_due(of) && moves::source_is_back(of) {
        return Ok((moves::KEPT, format!("the source is kept again: {of_member}")));
    }
    if !moves::source_is_due(of) {
        return Ok((moves::KEPT, format!("the source is kept, in a member that the host knows again: {of_member}")));
    }
    if !kept::is_given_up(leaf, &volume) {
        is_not_needed(movers, of, source).await?;
        // All that took a while.
        let now = moves::read(&movers.host, of).await?.filter(is_due);
        let now = now.ok_or_else(|| Error::InProgress("the move was changed meanwhile".to_owned()))?;
        moves::is_due_in_host(&movers.host, &now).await?;
        kept::give_up(leaf, &volume).await?;
    }
    let said = kept::said_of(&volume).map(|said| format!(": {said}")).unwrap_or_default();
    Ok((moves::DELETING, format!("{of_member} has the policy Delete: the member removes it with its data{said}")))
}

/// And not one into which a later move has copied.
fn is_other_than_copied(movers: &Movers, of: &VolumeMove, handle: &str, volume: &VolumeRow) -> bool {
    let Some((to, copy)) = of.status.as_ref().and_then(|status| status.to.as_ref().zip(status.copy.as_ref())) else {
        return false;
    };
    let copied = |one: &VolumeMove| one.status.as_ref()?.copy.clone();
    let is_copy = |one: &VolumeMove| copied(one).is_some_and(|copy| copy.uid == volume.uid());
    to.handle == handle && copy.uid != volume.uid() && !movers.known.all().values().any(is_copy)
}

/// The host's volume is the claim's, and leads to another leaf, which is whole: all of it read just now.
async fn is_not_needed(movers: &Movers, of: &VolumeMove, source: &PinnedLeaf) -> Result<()> {
    let pinned = of.status.as_ref().and_then(|status| status.volume.as_ref());
    let pinned = pinned.ok_or_else(|| Error::Refused("the status does not name the host's volume".to_owned()))?;
    let refuse = |why: &str| Error::Refused(format!("volume {} of the host {why}", pinned.name));
    let live = host::volume::read(&movers.host, &pinned.name).await?.ok_or_else(|| refuse("is not there any more"))?;
    if live.volume.terminating || live.volume.released || *live.volume.claim_uid != *pinned.claim_uid {
        return Err(refuse("is not the claim's any more"));
    }
    let id = VolumeId::parse(&live.volume.handle).ok_or_else(|| refuse("has a handle of another driver"))?;
    let member = movers.members.get(&id.member).await?;
    let leaf = member.leaf()?;
    let unseen = || Error::InProgress(format!("member {}: the leaf of volume {} is not whole", id.member, pinned.name));
    let (hash, row) = leaf.rows.find(&id).ok_or_else(unseen)?;
    let place = row.claim.map(|claim| claim.place).or_else(|| id.place()).ok_or_else(unseen)?;
    let sight = leaf::moving::look(leaf, hash, &place, None).await?;
    // Whoever may write claims there could label one, and have it bound to another volume.
    let (claim_uid, told) = live.given_out.map(|leaf| (leaf.claim_uid, leaf.volume)).unwrap_or_default();
    // One that a backup has says nothing of the claim by which it was given out. What was copied since may not be in it.
    let is_as_given_out = sight.claim().is_some_and(|claim| ClaimRow::new(claim).is_or_was(&claim_uid));
    match sight.volume_of_leaf().filter(|_| hash == VolumeHash::new(&movers.host.id, &pinned.name)) {
        Some(volume) if volume.uid() == source.uid => Err(refuse("leads to it")),
        Some(volume) if is_other_than_copied(movers, of, &live.volume.handle, &volume) => {
            Err(refuse("leads to a leaf volume that somebody made again, and that may hold anything"))
        }
        Some(volume) if *volume.name != *told || volume.place.is_some() => Err(unseen()),
        Some(_) if is_as_given_out => Ok(()),
        Some(_) => Err(refuse(
            "leads to a leaf claim that is neither the one that the host was given nor recreated in its place, for \
             example because its member was restored from a backup: it may hold less",
        )),
        None => Err(unseen()),
    }
}
