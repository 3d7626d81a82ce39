//! Handles of which no leaf is seen: it is looked for after a while, and told of where it is gone. So are several volumes with one handle.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::Instrument;

use super::{Reconciler, obstacle::LOST, shared};
use domain::{
    error::Result,
    volume::{VolumeId, healing::Wish},
};
use host::{
    events::News,
    volume::{GivenOut, HostVolume, LiveVolume},
};
use leaf::{MemberClient, identity::Meant, row::ClaimRow};
use member::{Member, traces};

/// A leaf that is not seen for so long is looked for; and again, after so long.
pub(super) const MISSED: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_mins(10);

/// Who has waited longest comes first: what cannot be told now is looked at once it can.
pub(super) async fn tell(reconciler: &Reconciler, member: &Member, missed: &mut BTreeMap<Arc<str>, Instant>) {
    let now = Instant::now();
    let due = missed.iter().filter(|(_, due)| **due <= now);
    let mut due: Vec<_> = due.map(|(handle, due)| (*due, handle.clone())).collect();
    due.sort_unstable();
    let span = traces::round("look for leaves", &member.name, due.len());
    let looking = async {
        for (_, handle) in due {
            if !reconciler.may_tell_of_leaf(&member.name) {
                return;
            }
            match look_for(reconciler, member, &handle).await.unwrap_or(Some(AGAIN)) {
                None => drop(missed.remove(&handle)),
                Some(pause) => drop(missed.insert(handle, Instant::now() + pause)),
            }
        }
    };
    looking.instrument(span).await;
}

/// When a handle is to be looked at again. What is told of a leaf of which nothing is seen was read just now in both clusters; that
/// several volumes have one is told by what is in memory.
async fn look_for(reconciler: &Reconciler, member: &Member, handle: &str) -> Result<Option<Duration>> {
    let leaf = member.leaf()?;
    let volumes = reconciler.volumes.with(handle);
    let Some(id) = VolumeId::parse(handle).filter(|_| !volumes.is_empty()) else { return Ok(None) };
    let (is_shared, found) = (volumes.len() > 1, leaf.rows.find(&id));
    if let Some((_, row)) = found.filter(|_| is_shared) {
        let is_kept = shared::tell(reconciler, leaf, &row, &volumes).await;
        return Ok(Some(if is_kept { AGAIN } else { MISSED }));
    }
    if volumes.iter().any(|volume| !reconciler.may_tell_of(volume)) {
        return Ok(Some(MISSED));
    }
    let mut again = None;
    for volume in &volumes {
        let live = host::volume::read(&reconciler.host, &volume.name).await?;
        let Some(live) = live.filter(|live| *live.volume.handle == *handle) else { continue };
        again = Some(AGAIN);
        if !matches!(live.volume.wish(), Wish::Use { .. }) {
            continue;
        }
        // What is there is so for all of them.
        if is_there(reconciler, leaf, &id).await? {
            break;
        }
        tell_of_loss(reconciler, leaf, &id, &live).await?;
    }
    Ok(again)
}

async fn tell_of_loss(reconciler: &Reconciler, leaf: &MemberClient, id: &VolumeId, live: &LiveVolume) -> Result<()> {
    let Some((reason, what)) = missing(leaf, id, live.given_out.as_ref()).await? else { return Ok(()) };
    let named = id.place().map_or_else(|| format!("of volume {id}"), |place| place.to_string());
    let message = format!("member {}: leaf claim {named} {what}", leaf.member);
    reconciler.tell_of_leaf(&leaf.member, &live.volume, &News { reason, message, warning: true }).await;
    Ok(())
}

/// Read just now: at the place that the handle names, or by the labels where it names none.
async fn is_there(reconciler: &Reconciler, leaf: &MemberClient, id: &VolumeId) -> Result<bool> {
    if let Some(place) = id.place() {
        return leaf::claim::is_well(leaf, &place, Meant::Handle(id)).await;
    }
    leaf::claim::list_leaf(leaf, *id.hashes().start()).await?;
    let found = leaf.rows.find(id);
    Ok(found.is_some_and(|(_, row)| row.claim.is_none_or(|claim| !is_copy(reconciler, id, &claim))))
}

/// What is to be said of a leaf whose claim is not there. Its volume may be well elsewhere, and then it is nothing.
async fn missing(
    leaf: &MemberClient,
    id: &VolumeId,
    given_out: Option<&GivenOut>,
) -> Result<Option<(&'static str, String)>> {
    let lost = Some(("LeafLost", LOST.to_owned()));
    let Some(given_out) = given_out.filter(|given_out| !given_out.volume.is_empty()) else { return Ok(lost) };
    let Some(volume) = leaf::volume::read(leaf, &given_out.volume).await? else { return Ok(lost) };
    let uid = &given_out.claim_uid;
    if !leaf::volume::is_of(leaf, id, uid, &volume) || !leaf::volume::is_astray(leaf, id, uid, &volume).await? {
        return Ok(None);
    }
    let what = format!(
        "cannot be recreated in the member: its leaf volume {} names {} in its claimRef. Make that claimRef name the leaf claim again (UID {uid})",
        volume.name,
        volume.named_claim()
    );
    Ok(Some(("LeafStuck", what)))
}

/// By what is in memory: a handle that names no place leads to whatever carries the labels. People restore a leaf under the names of the
/// host's claim.
pub(super) fn is_copy(reconciler: &Reconciler, id: &VolumeId, claim: &ClaimRow) -> bool {
    let is_named = |volume: &HostVolume| volume.claim.as_deref() == Some(&*claim.place.to_string());
    id.place().is_none() && claim.finalizer.is_none() && !reconciler.volumes.with(&id.to_string()).iter().any(is_named)
}
