//! What a member's people change without the host: leaves that have another size than the host's volume says, and leaves that
//! no volume of the host has. Both are told of, and nothing is done about them.

use std::{
    collections::BTreeSet,
    ops::Bound::{self, Excluded, Unbounded},
    time::Duration,
};

use tokio::{task::yield_now, time::Instant};

use super::{
    Reconciler,
    repair::{Repair, repairs},
};
use domain::{
    error::Result,
    volume::{VolumeHash, quantity},
};
use leaf::MemberClient;
use member::Member;

/// Between two counts. What has no volume in both of them is a stray; a volume that is being made has one by then.
const ROUND: Duration = Duration::from_mins(10);
/// How many rows are looked at while others wait for them.
const AT_ONCE: usize = 500;
/// How many are named in the log.
const NAMED: usize = 10;

/// What is remembered of leaves without a host volume. Who stops counting them says nothing of them any more.
pub(super) struct Strays<'a> {
    member: &'a Member,
    due: Option<Instant>,
    /// Those of the last count.
    seen: BTreeSet<VolumeHash>,
    named: usize,
}

impl<'a> Strays<'a> {
    pub(super) fn new(member: &'a Member) -> Self {
        Self { member, due: None, seen: BTreeSet::new(), named: 0 }
    }
}

impl Drop for Strays<'_> {
    fn drop(&mut self) {
        self.member.set_strays(0);
    }
}

/// `resized`: those of which that is not told yet, as they or their member had many events, or the host did not answer. One that has to wait
/// keeps no other waiting.
pub(super) async fn tell_of_sizes(reconciler: &Reconciler, leaf: &MemberClient, resized: &mut BTreeSet<VolumeHash>) {
    resized.extend(leaf.rows.take_resized());
    let mut after: Bound<VolumeHash> = Unbounded;
    while reconciler.may_tell_of_leaf(&leaf.member) {
        let Some(hash) = resized.range((after, Unbounded)).next().copied() else { return };
        let mut is_told = true;
        for repair in repairs(reconciler, leaf, hash) {
            match tell_of_size(reconciler, &repair).await {
                Ok(told) => is_told &= told,
                Err(error) => {
                    tracing::debug!(member = leaf.member, %error, "the size of a leaf is not compared yet");
                    return;
                }
            }
        }
        if is_told {
            resized.remove(&hash);
        }
        after = Excluded(hash);
    }
}

/// The host learns a size that it asked for by its own call: only what it did not ask for is told. False where it could not be.
async fn tell_of_size(reconciler: &Reconciler, repair: &Repair<'_>) -> Result<bool> {
    let Some(claim) = repair.row().claim else { return Ok(true) };
    let mut is_told = true;
    for known in reconciler.volumes.with(repair.handle()) {
        if !reconciler.may_tell_of(&known) {
            is_told = false;
            continue;
        }
        let Some(live) = host::volume::read(&reconciler.host, &known.name).await? else { continue };
        let Some(of) = live.claim.as_ref().filter(|_| live.capacity != claim.capacity()) else { continue };
        let asked = host::claim::read(&reconciler.host, of, &known.name).await?.and_then(|claim| claim.size);
        let asked = asked.and_then(|size| quantity::parse(&size)).unwrap_or_default();
        if asked <= live.capacity {
            let (there, here) = (quantity::print(claim.capacity()), quantity::print(live.capacity));
            let remedy = remedy(claim.capacity(), live.capacity);
            let what = format!("has {there} in the member, but this volume says {here}: {remedy}");
            let news = repair.told("LeafResized", &claim.place, &what, true);
            is_told &= reconciler.tell_of_leaf(&repair.leaf().member, &live.volume, &news).await;
        }
    }
    Ok(is_told)
}

/// Counts the leaves that no volume of the host has.
pub(super) async fn count(reconciler: &Reconciler, leaf: &MemberClient, strays: &mut Strays<'_>) {
    let now = Instant::now();
    if strays.due.is_some_and(|due| now < due) {
        return;
    }
    strays.due = Some(now + ROUND);
    let (mut found, mut after) = (BTreeSet::new(), None);
    loop {
        let some = leaf.rows.lasting_after(after, AT_ONCE);
        after = some.last().copied();
        let used = |hash: &VolumeHash| repairs(reconciler, leaf, *hash).iter().any(|one| is_used(reconciler, one));
        found.extend(some.into_iter().filter(|hash| !used(hash)));
        if after.is_none() {
            break;
        }
        yield_now().await;
    }
    let again: Vec<VolumeHash> = found.intersection(&strays.seen).copied().collect();
    for hash in again.iter().take(NAMED.saturating_sub(strays.named)) {
        let ids: Vec<String> = leaf.rows.ids(&leaf.member, *hash).iter().map(ToString::to_string).collect();
        tracing::warn!(
            member = leaf.member,
            volume = ids.join(", "),
            "a leaf has no volume in the host; `kosmos-csi doctor` tells more"
        );
        strays.named += 1;
    }
    strays.member.set_strays(again.len());
    strays.seen = found;
}

/// A move has a leaf in two members, and the host's volume leads to one of them.
fn is_used(reconciler: &Reconciler, repair: &Repair<'_>) -> bool {
    let volumes = &reconciler.volumes;
    let is_moved = || repair.row().is_moving() && volumes.count_like(&repair.id) > 0;
    volumes.count_with(repair.handle()) > 0 || is_moved()
}

fn remedy(there: u64, here: u64) -> String {
    if there > here {
        return format!("let the claim ask for {} to have that here too", quantity::print(there));
    }
    "the data may not fit any more, and only somebody in the member can make the leaf claim larger".to_owned()
}
