//! The phases of a move, in their order.

use serde::{Deserialize, Serialize};

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// The copy's claim and its receiver are made: class, quota, room, image and mount are proven before anybody has to stop.
    Preparing,
    /// No further node gets the source, once there is a slot. Until then its pods come and go as before.
    Closing,
    /// The source is closed, and those that have it are waited for.
    Waiting,
    /// The source goes out of reach.
    Isolating,
    Copying,
    /// The copy goes where the host's pods will look for it.
    Placing,
    /// Waits for the word to switch, where it was asked to.
    Ready,
    /// The host's volume is replaced.
    Switching,
    /// The copy becomes an ordinary leaf, and the source one that is kept.
    Finishing,
    Succeeded,
    /// All is undone.
    Cancelling,
    Cancelled,
    /// It was never begun.
    Refused,
}

impl Phase {
    /// Nothing is done for it any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Cancelled | Self::Refused)
    }

    /// Whether what is next goes by the source; the other need not be looked at.
    pub fn goes_by_source(self) -> bool {
        !matches!(self, Self::Preparing | Self::Switching)
    }

    /// The same of the copy.
    pub fn goes_by_copy(self) -> bool {
        !matches!(self, Self::Waiting | Self::Isolating | Self::Switching)
    }
}
