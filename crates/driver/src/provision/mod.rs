//! What is done with a volume from beginning to end: each file one use-case, which looks, lets the pure plan decide, and
//! acts. Any step may be entered again at any time, by this process or another.

mod abandon;
mod attempt;
mod binder;
pub mod capacity;
mod content_source;
pub mod create;
mod deadline;
pub mod delete;
pub mod delete_group;
pub mod delete_snapshot;
pub mod expand;
mod find;
mod found_group;
mod found_snapshot;
pub mod group;
mod group_volumes;
pub mod health;
mod imported;
mod kept;
mod last_seen;
pub mod list;
pub mod modify;
mod order;
mod place;
pub mod publish;
mod refusal;
mod removing;
mod seen;
mod sibling_claims;
pub mod snapshot;
pub mod snapshots;
pub(crate) mod taken;
pub mod validate;
mod volume_creation;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

pub use capacity::{Capacity, CapacityQuestion, Where};
pub use expand::Grown;
pub use health::{Ailment, Health, Severity};
pub use list::{Listed, Page};
pub use publish::Publishing;

pub use deadline::Deadline;
use domain::{
    error::{Error, Result},
    volume::{Source, VolumeHash, VolumeId},
};
use host::{Host, shared_handles::SharedHandles};
use leaf::{MemberClient, Rows, row::ClaimRow};
use member::Registry;

/// Everything a use-case needs.
#[derive(Clone, Debug)]
pub struct Provisioner {
    pub host: Host,
    pub members: Registry,
    /// Namespace in the members for volumes without a host claim.
    pub leaf_namespace: String,
    pub shared_handles: Arc<SharedHandles>,
}

/// A volume that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub capacity: u64,
    pub context: BTreeMap<String, String>,
    pub member: String,
    /// The member's node that it is bound to, where the requirement was about nodes.
    pub node: Option<String>,
    pub source: Option<Source>,
}

/// A wait without news this long ends in a read, and one of half the time that is left: a watch can die without a word.
const SILENCE: Duration = Duration::from_secs(15);
/// But not sooner than after this.
const SHORTEST: Duration = Duration::from_secs(3);

/// Before it is answered that a leaf claim is as it is to be, as it was seen: what was asked for by an earlier call may be on its way
/// still.
///
/// That the member refuses this write proves nothing of that one: it tests the same version, may come when the member lets writes through
/// again, and nobody knows whether another replica, or one that has died, has sent any. So nothing is answered before then, though the
/// leaf has what is asked for, and its user is told both.
async fn settle(leaf: &MemberClient, hash: VolumeHash, claim: &ClaimRow) -> Result<()> {
    let about = format!("member {}: leaf claim {}", leaf.member, claim.place);
    let unsure = |reason: String| {
        format!(
            "{about} is as it is to be, but the member refuses the write by which the driver keeps an earlier request \
             from taking effect: {reason}"
        )
    };
    match leaf::change::settle(leaf, claim, hash).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::InProgress(format!("{about} was changed just now"))),
        Err(Error::Refused(reason)) => Err(Error::InProgress(unsure(reason))),
        Err(Error::Denied(reason)) => Err(Error::Denied(unsure(reason))),
        Err(error) => Err(error),
    }
}

/// Waits for what is known of a volume to change as wanted. True: it did. False: nothing came for a while, look for
/// yourself. At the deadline, `late` says what to tell the caller.
async fn wait<F>(
    leaf: &MemberClient,
    hash: VolumeHash,
    deadline: &Deadline,
    changed: F,
    late: impl AsyncFnOnce() -> Error,
) -> Result<bool>
where
    F: FnMut(&Rows) -> bool,
{
    wait_for(deadline, |pause| leaf.rows.until(hash, pause, changed), late).await
}

/// The same for whatever tells within a given time whether it has come.
async fn wait_for<W: Future<Output = bool>>(
    deadline: &Deadline,
    come: impl FnOnce(Instant) -> W,
    late: impl AsyncFnOnce() -> Error,
) -> Result<bool> {
    let now = Instant::now();
    let end = deadline.next();
    let half = end.saturating_duration_since(now) / 2;
    if come(end.min(now + half.clamp(SHORTEST, SILENCE))).await {
        return Ok(true);
    }
    if deadline.passed() {
        deadline.tell(late().await)?;
    }
    Ok(false)
}
