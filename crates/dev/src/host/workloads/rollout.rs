//! How many pods each ReplicaSet of a Deployment shall have next.

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStrategy},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// A ReplicaSet in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) desired: i32,
    /// Pods that are there, whatever their state.
    pub(super) pods: i32,
    pub(super) available: i32,
}

/// How far a rollout may stray from the number of pods that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    /// All of the old before any of the new.
    Recreate,
    Rolling {
        surge: i32,
        unavailable: i32,
    },
}

impl Bounds {
    pub(super) fn of(deployment: &Deployment, wanted: i32) -> Self {
        let none = DeploymentStrategy::default();
        let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref()).unwrap_or(&none);
        if strategy.type_.as_deref() == Some("Recreate") {
            return Self::Recreate;
        }
        let rolling = strategy.rolling_update.as_ref();
        let surge = share(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted, 99);
        let unavailable = share(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), wanted, 0);
        // With neither, nothing could ever move.
        Self::Rolling { surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } }
    }

    pub(super) fn unavailable(self) -> i32 {
        match self {
            Self::Recreate => 0,
            Self::Rolling { unavailable, .. } => unavailable,
        }
    }
}

/// A number or a percentage, rounded after this many hundredths were added; a quarter where nothing is said.
fn share(value: Option<&IntOrString>, of: i32, rounding: i32) -> i32 {
    match value {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => percent(text.trim_end_matches('%').parse().unwrap_or(25), of, rounding),
        None => percent(25, of, rounding),
    }
}

fn percent(percent: i32, of: i32, rounding: i32) -> i32 {
    of.saturating_mul(percent).saturating_add(rounding) / 100
}

/// The next sizes of the new set and of the old ones, in their order.
pub(super) fn next(wanted: i32, bounds: Bounds, new: Size, old: &[Size]) -> (i32, Vec<i32>) {
    match bounds {
        Bounds::Recreate => {
            let remain = old.iter().any(|size| size.desired > 0 || size.pods > 0);
            (if remain { new.desired } else { wanted }, vec![0; old.len()])
        }
        Bounds::Rolling { surge, unavailable } => {
            let all = new.desired + old.iter().map(|size| size.desired).sum::<i32>();
            let room = (wanted + surge - all).max(0);
            let grown = if new.desired >= wanted { wanted } else { wanted.min(new.desired + room) };
            (grown, shrink(wanted - unavailable, all, new, old))
        }
    }
}

/// Old sets give up first what does not run, then what is not needed for the number that must.
fn shrink(must_run: i32, all: i32, new: Size, old: &[Size]) -> Vec<i32> {
    let idle = |size: &Size| (size.desired - size.available).max(0);
    let mut spare = (all - must_run - idle(&new)).max(0);
    let mut next: Vec<i32> = old.iter().map(|size| size.desired).collect();
    for (size, next) in old.iter().zip(&mut next) {
        let down = idle(size).min(spare);
        *next -= down;
        spare -= down;
    }
    let running = new.available + old.iter().map(|size| size.available).sum::<i32>();
    let mut spare = spare.min(running - must_run).max(0);
    for next in &mut next {
        let down = (*next).min(spare);
        *next -= down;
        spare -= down;
    }
    next
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn size(desired: i32, available: i32) -> Size {
        Size { desired, pods: desired, available }
    }

    #[test]
    fn bounds_are_numbers_or_percentages() {
        let bounds = |strategy: Value, wanted: i32| {
            let spec = json!({"selector": {}, "template": {}, "strategy": strategy});
            Bounds::of(&from_value::<Deployment>(json!({"metadata": {}, "spec": spec})).unwrap(), wanted)
        };
        let rolling = |surge, unavailable| Bounds::Rolling { surge, unavailable };
        assert_eq!(bounds(Value::Null, 1), rolling(1, 0));
        assert_eq!(bounds(Value::Null, 10), rolling(3, 2));
        assert_eq!(bounds(json!({"type": "Recreate"}), 3), Bounds::Recreate);
        let given = |surge: Value, unavailable: Value| json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        assert_eq!(bounds(given(json!("50%"), json!(2)), 4), rolling(2, 2));
        assert_eq!(bounds(given(json!(0), json!(0)), 4), rolling(0, 1));
    }

    #[test]
    fn first_set_gets_all_its_pods_and_a_smaller_wish_is_followed() {
        let bounds = Bounds::Rolling { surge: 1, unavailable: 0 };
        assert_eq!(next(3, bounds, size(0, 0), &[]), (3, vec![]));
        assert_eq!(next(1, bounds, size(3, 3), &[]), (1, vec![]));
        assert_eq!(next(0, bounds, size(3, 3), &[]), (0, vec![]));
    }

    #[test]
    fn old_pod_goes_once_the_new_one_runs() {
        let bounds = Bounds::Rolling { surge: 1, unavailable: 0 };
        assert_eq!(next(1, bounds, size(0, 0), &[size(1, 1)]), (1, vec![1]));
        assert_eq!(next(1, bounds, size(1, 0), &[size(1, 1)]), (1, vec![1]));
        assert_eq!(next(1, bounds, size(1, 1), &[size(1, 1)]), (1, vec![0]));
    }

    #[test]
    fn old_pod_that_never_ran_makes_way() {
        let bounds = Bounds::Rolling { surge: 1, unavailable: 0 };
        assert_eq!(next(2, bounds, size(1, 1), &[size(1, 0), size(1, 1)]).1, [0, 1]);
    }

    #[test]
    fn recreation_waits_until_the_old_pods_are_gone() {
        let leaving = Size { desired: 0, pods: 1, available: 0 };
        assert_eq!(next(1, Bounds::Recreate, size(0, 0), &[size(1, 1)]), (0, vec![0]));
        assert_eq!(next(1, Bounds::Recreate, size(0, 0), &[leaving]), (0, vec![0]));
        assert_eq!(next(1, Bounds::Recreate, size(0, 0), &[size(0, 0)]), (1, vec![0]));
    }

    proptest! {
        /// Whatever the bounds, a rollout in which every pod that shall run does run comes to its end, and on its way
        /// never has fewer than it must.
        #[test]
        fn rollout_ends_and_keeps_its_bounds(wanted in 1..12_i32, surge in 0..4_i32, unavailable in 0..4_i32, old in 1..12_i32) {
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
            let bounds = Bounds::Rolling { surge, unavailable };
            let (mut new, mut old) = (size(0, 0), size(old, old));
            for _ in 0..60 {
                let (grown, shrunk) = next(wanted, bounds, new, &[old]);
                let before = new.available + old.available;
                old = size(shrunk[0], shrunk[0].min(old.available));
                let kept = new.available.min(grown) + old.available;
                prop_assert!(kept >= (wanted - unavailable).min(before), "{kept} run");
                new = size(grown, grown);
            }
            prop_assert_eq!((new.desired, old.desired), (wanted, 0));
        }
    }
}
