//! What one call of CreateVolume learns on its way, and why it may have to give up.

use std::time::Duration;

/// The first look at what the member says of a claim that waits. The second comes before most callers go, and each further
/// one after twice the time.
const FIRST_LOOK: Duration = Duration::from_secs(4);
const LAST_LOOK: Duration = Duration::from_secs(15);

/// What a call has learned on its way.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) looks: u32,
    /// The member's provisioner found no room on a node; its scheduler may know another one.
    pub(super) suspected: bool,
    /// Nodes that were written on the claim in this call.
    pub(super) tried: Vec<String>,
}

/// The member lacks room for the volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoCapacity {
    /// In the member's own words.
    pub(super) reason: String,
    /// The node it is about, where it is about one.
    pub(super) node: Option<String>,
    pub(super) by: Evidence,
}

/// Who says that there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The member's scheduler, of a claim that has gone: the next volume of this size will not meet the same.
    Former,
    /// The member's scheduler.
    Scheduler,
    /// An event, in the name of the member's provisioner.
    Event,
}

impl Attempt {
    pub(super) fn next_look(&mut self) -> Duration {
        self.looks += 1;
        (FIRST_LOOK * (1 << self.looks.saturating_sub(2).min(3))).min(LAST_LOOK)
    }
}
