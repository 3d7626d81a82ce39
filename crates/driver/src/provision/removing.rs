//! The steps of a removal: how fast they are taken, and what is said of one that takes long.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Deadline;
use domain::volume::plan::Removal;

/// So many steps that change something a removal takes without a pause, more than it needs where nobody undoes them.
const USUAL: u32 = 10;
/// After each further one.
const APART: Duration = Duration::from_secs(2);

/// How many were taken.
#[derive(Debug, Default)]
pub(super) struct Pace(u32);

impl Pace {
    /// A webhook or a controller of the member may undo what is done as fast as it is done.
    pub(super) async fn keep_after(&mut self, step: &Removal, deadline: &Deadline) {
        if matches!(step, Removal::AwaitClaim | Removal::AwaitVolume | Removal::Gone) {
            return;
        }
        self.0 += 1;
        if self.0 > USUAL {
            sleep_until((Instant::now() + APART).min(deadline.next())).await;
        }
    }
}

/// What is so of the leaf claim as long as the next step is this one.
pub(super) fn state(step: &Removal) -> &'static str {
    match step {
        Removal::AwaitVolume | Removal::Gone => "is gone and its leaf volume is still being deleted",
        Removal::Label { .. } | Removal::Announce(_) | Removal::MakeDeletable(_) => {
            "is being deleted, and its leaf volume has to be changed for that: if this stays so, something in the member undoes it"
        }
        _ => "is being deleted",
    }
}
