//! What people are mostly at in one schedule.

use std::{ops::Range, time::Duration};

use fastrand::Rng;

use crate::{caller::Script, fixture};

/// Of a claim, where people waver.
const LONGEST_LIFE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// A little of all.
    Mixed,
    /// Everything is deleted, and somebody wants it back while that goes on.
    Wavering,
}

impl Mood {
    pub fn of(seed: u64) -> Self {
        if seed.is_multiple_of(5) { Self::Wavering } else { Self::Mixed }
    }

    /// Milliseconds between two of their acts.
    pub(super) fn pauses(self) -> Range<u64> {
        match self {
            Self::Mixed => 1000..15_000,
            Self::Wavering => 500..3000,
        }
    }

    /// Which of the acts in `trouble` comes next.
    pub(super) fn act(self, chance: &mut Rng) -> u8 {
        match self {
            Self::Mixed => chance.u8(..22),
            // Restarts, replicas, policies that change, volumes that are used again, and, mostly, removals that are called off.
            Self::Wavering => [0, 17, 8, 8, 9, 11, 11, 11, 11, 20][chance.usize(..10)],
        }
    }

    /// Who wavers does not wait for long.
    pub(super) fn haste(self, pause: Duration) -> Duration {
        match self {
            Self::Mixed => pause,
            Self::Wavering => pause / 5,
        }
    }

    /// What becomes of a claim: all go while there is trouble, and every other time the member's class retains its volumes.
    pub fn changes(self, after: Duration, script: Script) -> Script {
        if self == Self::Mixed {
            return script;
        }
        let is_plain = script.leaf_class == fixture::NOW && script.claim.starts_with("data");
        let leaf_class =
            if is_plain && after.as_millis().is_multiple_of(2) { fixture::KEPT } else { script.leaf_class };
        let deleted_after = script.deleted_after.unwrap_or(after).min(LONGEST_LIFE);
        Script { leaf_class, deleted_after: Some(deleted_after), ..script }
    }
}
