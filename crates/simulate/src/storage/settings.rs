//! What a member's storage is like.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use crate::chance::Chance;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The provisioner's name, which classes and volumes carry.
    pub provisioner: String,
    pub classes: Vec<Class>,
    /// Where volumes are directories; without it they are only counted.
    pub folder: Option<PathBuf>,
    /// What all volumes together may hold, in bytes.
    pub capacity: Option<u64>,
    pub provisioning: Work,
    pub deleting: Work,
    pub resizing: Work,
    pub snapshotting: Work,
    /// From when a snapshot is cut until it can be used; none: it can at once.
    pub uploading: Option<Work>,
    /// How many nodes there are, at least one.
    pub nodes: usize,
    pub pods: Pods,
}

/// A storage class.
#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    pub binding: Binding,
    pub reclaim: Reclaim,
    pub growth: Growth,
    pub snapshots: bool,
    pub is_default: bool,
    /// What the volumes of this class together may hold, in bytes.
    pub capacity: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Immediate,
    WaitForFirstConsumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    Delete,
    Retain,
}

/// Who makes a volume larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    Never,
    ByController,
    /// The controller first, and then the node, once a pod uses the volume there.
    OnNode,
}

/// How long a step takes, and how often it fails.
#[derive(Clone, Debug)]
pub struct Work {
    pub takes: RangeInclusive<Duration>,
    pub fails_per_mille: u64,
}

/// What a node does with pods.
#[derive(Clone, Debug)]
pub struct Pods {
    pub starts: RangeInclusive<Duration>,
    /// How long a container takes to end once it is told to.
    pub stops: RangeInclusive<Duration>,
    /// For how long the scheduler takes a bound claim to be there that is gone: a pod that names another one of its name gets a
    /// node before that has a volume, and nobody makes one then.
    pub goes_by_former_claims: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            provisioner: "storage.simulated".to_owned(),
            classes: vec![
                Class::new("openebs-hostpath", Binding::WaitForFirstConsumer),
                Class::new("now", Binding::Immediate),
            ],
            folder: None,
            capacity: None,
            provisioning: Work::default(),
            deleting: Work::default(),
            resizing: Work::default(),
            snapshotting: Work::default(),
            uploading: None,
            nodes: 1,
            pods: Pods::default(),
        }
    }
}

impl Default for Pods {
    fn default() -> Self {
        let at_once = Duration::ZERO..=Duration::ZERO;
        Self { starts: at_once.clone(), stops: at_once, goes_by_former_claims: Duration::ZERO }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self { takes: Duration::ZERO..=Duration::ZERO, fails_per_mille: 0 }
    }
}

impl Work {
    pub fn takes(takes: RangeInclusive<Duration>) -> Self {
        Self { takes, fails_per_mille: 0 }
    }
}

impl Class {
    /// Volumes of it go with their claims, grow, and can be copied.
    pub fn new(name: &str, binding: Binding) -> Self {
        let (reclaim, growth) = (Reclaim::Delete, Growth::ByController);
        Self { name: name.to_owned(), binding, reclaim, growth, snapshots: true, is_default: false, capacity: None }
    }
}

/// A time out of a range.
pub(super) fn within(range: &RangeInclusive<Duration>, chance: &Chance) -> Duration {
    let span = range.end().saturating_sub(*range.start());
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    *range.start() + Duration::from_millis(chance.below(millis.saturating_add(1)))
}

/// What befalls the nth attempt at a thing: the same seed, thing and attempt meet the same.
pub(super) fn attempt(work: &Work, seed: u64, thing: &str, attempt: u32) -> (Duration, bool) {
    let chance = Chance::about(seed, &format!("{thing} {attempt}"));
    (within(&work.takes, &chance), chance.happens(work.fails_per_mille))
}

/// How long to wait before the next attempt.
pub(super) fn pause(attempt: u32) -> Duration {
    const LONGEST: Duration = Duration::from_mins(5);
    Duration::from_secs(1 << attempt.min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_drawn_from_the_seed_and_within_their_range() {
        let takes = Duration::from_millis(10)..=Duration::from_millis(20);
        let work = Work { takes: takes.clone(), fails_per_mille: 500 };
        let draws: Vec<_> = (0..50).map(|number| attempt(&work, 7, "volume", number)).collect();
        assert!(draws.iter().all(|(time, _)| takes.contains(time)));
        assert!(draws.iter().any(|(_, fails)| *fails) && draws.iter().any(|(_, fails)| !fails));
        assert_eq!(draws[3], attempt(&work, 7, "volume", 3));
        assert_ne!(draws, (0..50).map(|number| attempt(&work, 8, "volume", number)).collect::<Vec<_>>());
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        assert_eq!([0, 1, 3, 40].map(|number| pause(number).as_secs()), [1, 2, 8, 300]);
    }
}
