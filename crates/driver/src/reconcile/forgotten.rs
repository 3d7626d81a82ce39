//! Leaves that the host was never told of, when whoever asked for them has forgotten: a provisioner knows only in its memory that
//! it is at work, and CreateVolume, which would withdraw them, is never called again. Or a write arrived late, and the volume
//! is in another member. Nobody's data can be in them: a volume is given out only once it carries our labels. So with snapshots, and
//! with attachments that no record names.

mod attachments;
mod groups;
mod left_behind;
mod snapshots;
mod superseded;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;
use tracing::Instrument;

use super::Reconciler;
use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId},
};
use host::claim::HostClaim;
use leaf::{MemberClient, forgotten::NeverGivenOut, row::ClaimRow};
use member::traces;

/// A provisioner calls again after five minutes at most.
const FORGOTTEN: Duration = Duration::from_mins(15);
/// Between two looks at who waits.
const LOOK: Duration = Duration::from_mins(1);
/// At each look.
const AT_ONCE: usize = 20;

/// Who waits in a member, since when that is known. Losing it costs time and nothing else.
pub(super) struct Waiting {
    leaves: Ages,
    /// Claims that nothing of ours is to hold any more.
    leaving: Ages,
    superseded: Ages,
    left_behind: Ages,
    snapshots: Ages,
    attachments: Ages,
    groups: Ages,
    /// Claims that carry the label of a group.
    chosen: Ages,
    look: Instant,
    list: Instant,
}

impl Waiting {
    pub(super) fn new() -> Self {
        let (now, ages) = (Instant::now(), Ages::default);
        Self {
            leaves: ages(),
            leaving: ages(),
            superseded: ages(),
            left_behind: ages(),
            snapshots: ages(),
            attachments: ages(),
            groups: ages(),
            chosen: ages(),
            look: now + LOOK,
            list: now,
        }
    }
}

/// Whether it is time; then the next time is so much later.
fn is_due(next: &mut Instant, pause: Duration) -> bool {
    let now = Instant::now();
    let due = now >= *next;
    if due {
        *next = now + pause;
    }
    due
}

/// Since when each has been seen, by its UID.
#[derive(Default)]
struct Ages(HashMap<Box<str>, Instant>);

impl Ages {
    /// Those that have waited for so long that nobody may ask for them any more, first of those that have waited longest. Who is wanted still is
    /// looked at again as late, and takes no turn from others.
    fn old<T>(&mut self, seen: Vec<T>, uid: impl Fn(&T) -> &str) -> Vec<T> {
        let now = Instant::now();
        let there: HashSet<&str> = seen.iter().map(&uid).collect();
        self.0.retain(|uid, _| there.contains(&**uid));
        let since = |one: T| (*self.0.entry(uid(&one).into()).or_insert(now), one);
        let mut old: Vec<(Instant, T)> = seen.into_iter().map(since).collect();
        old.retain(|(since, _)| now.duration_since(*since) >= FORGOTTEN);
        old.sort_by_key(|(since, _)| *since);
        old.truncate(AT_ONCE);
        for (_, one) in &old {
            self.0.insert(uid(one).into(), now);
        }
        old.into_iter().map(|(_, one)| one).collect()
    }
}

/// All that wait, or are bound to a volume that nobody has labelled, also those that somebody in the member has deleted: our
/// finalizer holds them.
fn unknown_to_the_host(leaf: &MemberClient) -> BTreeMap<VolumeHash, ClaimRow> {
    let pending = leaf.rows.pending().into_iter().map(|(hash, row, _)| (hash, row));
    let leaving = leaf.rows.needs_repair().into_iter().filter_map(|hash| {
        let row = leaf.rows.row(hash).filter(|row| row.volume.is_none())?;
        Some((hash, row.claim?))
    });
    let all = pending.chain(leaving).chain(leaf.rows.untold());
    all.filter(|(_, row)| row.was_never_given_out()).collect()
}

/// Those on their way out that nothing of ours holds, but perhaps a consumer pod that came late.
fn let_go(leaf: &MemberClient) -> Vec<(VolumeHash, ClaimRow)> {
    let needs_repair =
        leaf.rows.needs_repair().into_iter().filter_map(|hash| Some((hash, leaf.rows.row(hash)?.claim?)));
    needs_repair.filter(|(_, row)| row.observed().terminating && row.finalizer.is_none()).collect()
}

pub(super) async fn withdraw(reconciler: &Reconciler, leaf: &MemberClient, waiting: &mut Waiting) {
    if !is_due(&mut waiting.look, LOOK) {
        return;
    }
    // What no watch shows is listed, as seldom as somebody can be sure.
    if is_due(&mut waiting.list, FORGOTTEN) {
        snapshots::watch_if_there_are_any(leaf).await;
        attachments::withdraw(reconciler, leaf, waiting).await;
        groups::withdraw(reconciler, leaf, waiting).await;
    }
    snapshots::withdraw(reconciler, leaf, waiting).await;
    superseded::withdraw(leaf, waiting).await;
    let unknown: Vec<_> = unknown_to_the_host(leaf).into_iter().collect();
    for (hash, row) in waiting.leaves.old(unknown, |(_, row)| &row.uid) {
        if let Err(error) = withdraw_leaf(reconciler, leaf, hash, &row).await {
            tracing::debug!(member = leaf.member, claim = %row.place, %error, "a forgotten leaf is not withdrawn yet");
        }
    }
    for (hash, row) in waiting.leaving.old(let_go(leaf), |(_, row)| &row.uid) {
        if let Err(error) = leaf::consumer::end(leaf, &row.place.namespace, hash).await {
            tracing::debug!(member = leaf.member, claim = %row.place, %error, "it is not known yet whether a consumer pod holds a forgotten leaf");
        }
    }
    left_behind::withdraw(reconciler, leaf, waiting).await;
}

/// The host and the member are asked themselves, and each step tests what it was decided on.
async fn withdraw_leaf(reconciler: &Reconciler, leaf: &MemberClient, hash: VolumeHash, seen: &ClaimRow) -> Result<()> {
    let pair = leaf::healing::examine(leaf, hash, &seen.place, None).await?;
    let Some(forgotten) = pair.never_given_out(leaf, hash).filter(|found| found.claim.uid == seen.uid) else {
        return Ok(());
    };
    if is_anybodys(reconciler, leaf, hash, &forgotten).await? {
        return Ok(());
    }
    let (now, made_for) = (&forgotten.claim, &forgotten.made_for);
    tracing::info!(
        member = leaf.member, claim = %now.place, volume = forgotten.volume,
        host_claim = made_for.as_ref().map(|made_for| made_for.claim.to_string()),
        "the driver deletes a leaf claim that the host was never told of: nobody asks for it any more"
    );
    let span = traces::phase("withdraw a forgotten leaf", Some(&leaf.member));
    leaf::forgotten::withdraw(leaf, hash, &forgotten).instrument(span).await
}

/// Whether the host's claim waits for it still, or a volume of the host's is made of it.
async fn is_anybodys(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    hash: VolumeHash,
    forgotten: &NeverGivenOut,
) -> Result<bool> {
    let claim = &forgotten.claim;
    let id = VolumeId::new(&leaf.member, &claim.place.namespace, &claim.place.claim, hash);
    let has_handle = || reconciler.handles.have_now(&reconciler.host, hash, |other| *other == id);
    if let Some(handle) = host::volume::handle_of(&reconciler.host, &forgotten.volume).await?
        && leads_elsewhere(reconciler, leaf, &handle).await
    {
        return has_handle().await;
    }
    // Of such a one a person has to judge.
    let Some(made_for) = &forgotten.made_for else { return Ok(true) };
    let claim = host::claim::read(&reconciler.host, &made_for.claim, &made_for.volume).await?;
    // For one that has got another volume no provisioner asks.
    let has_another = |claim: &HostClaim| claim.volume.as_ref().is_some_and(|volume| *volume != made_for.volume);
    if claim.is_some_and(|claim| claim.uid == made_for.uid && !has_another(&claim)) {
        return Ok(true);
    }
    Ok(host::volume::exists(&reconciler.host, &made_for.volume).await? || has_handle().await?)
}

/// Whether a handle leads to another member, and its leaf volume is seen there.
async fn leads_elsewhere(reconciler: &Reconciler, leaf: &MemberClient, handle: &str) -> bool {
    let Some(id) = VolumeId::parse(handle) else { return false };
    let Ok(member) = reconciler.members.get(&id.member).await else { return false };
    let Some(other) = member.last_known().filter(|other| other.member != leaf.member) else { return false };
    other.rows.find(&id).is_some_and(|(_, row)| row.volume.is_some())
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_wanted_still_takes_no_turn_from_those_after_it() {
        let seen = || (0..=AT_ONCE * 2).map(|number| number.to_string()).collect::<Vec<String>>();
        let (mut ages, mut looked_at) = (Ages::default(), HashSet::new());
        assert!(ages.old(seen(), |one| one).is_empty());
        for _ in 0..3 {
            advance(FORGOTTEN).await;
            let old = ages.old(seen(), |one| one);
            assert_eq!(old.len(), AT_ONCE);
            looked_at.extend(old);
        }
        assert_eq!(looked_at.len(), seen().len());
    }
}
