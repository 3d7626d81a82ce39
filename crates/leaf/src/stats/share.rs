//! What is looked at and told where there is not room for all: each namespace has a share, so that whoever fills one of his own with what
//! looks like copies takes nothing from the others. Pure.

use std::collections::BTreeMap;

use super::VolumeStats;

/// The most that each may have of what there is room for. Who wants less leaves the rest to the others.
pub(super) fn share(mut wanted: Vec<usize>, mut room: usize) -> usize {
    wanted.sort_unstable();
    let mut others = wanted.len();
    for wants in wanted {
        let share = room / others;
        if wants > share {
            return share;
        }
        room -= wants;
        others -= 1;
    }
    usize::MAX
}

/// Of each namespace the first up to its share, and how many are left out. `size`: what one takes.
pub(super) fn shared<T>(all: &mut BTreeMap<String, Vec<T>>, room: usize, size: impl Fn(&T) -> usize) -> usize {
    let share = share(all.values().map(|of_one| of_one.iter().map(&size).sum::<usize>()).collect(), room);
    let mut left_out = 0;
    for of_one in all.values_mut() {
        let mut left = share;
        of_one.retain(|one| {
            let rest = left.checked_sub(size(one));
            left = rest.unwrap_or(left);
            left_out += usize::from(rest.is_none());
            rest.is_some()
        });
    }
    left_out
}

/// What is told in a line of so many bytes, and how many are left out: who asks gives up one that is too long, with all that is in it.
pub(super) fn line(volumes: Vec<VolumeStats>, room: usize) -> (Vec<VolumeStats>, usize) {
    let mut all: BTreeMap<String, Vec<(usize, VolumeStats)>> = BTreeMap::new();
    for one in volumes {
        // With a comma behind it.
        let length = serde_json::to_vec(&one).map_or(0, |text| text.len() + 1);
        all.entry(one.namespace.clone()).or_default().push((length, one));
    }
    let left_out = shared(&mut all, room, |(length, _)| *length);
    (all.into_values().flatten().map(|(_, one)| one).collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::{super::Figures, *};

    fn volumes(namespace: &str, count: usize) -> Vec<VolumeStats> {
        let one = || VolumeStats {
            namespace: namespace.to_owned(),
            pod: "db-0".to_owned(),
            pod_uid: "u".to_owned(),
            volume: "data".to_owned(),
            time: String::new(),
            figures: Figures::default(),
        };
        std::iter::repeat_with(one).take(count).collect()
    }

    fn told_of(volumes: &[VolumeStats], namespace: &str) -> usize {
        volumes.iter().filter(|one| one.namespace == namespace).count()
    }

    #[test]
    fn share_is_as_large_as_all_can_have_and_what_one_leaves_is_the_others() {
        for (wanted, room, expected) in [
            (vec![], 10, usize::MAX),
            (vec![4, 6], 10, usize::MAX),
            (vec![100, 6], 10, 5),
            (vec![100, 2, 100], 10, 4),
            (vec![1, 1], 1, 0),
        ] {
            assert_eq!(share(wanted.clone(), room), expected, "{wanted:?}");
        }
    }

    #[test]
    fn namespace_that_is_full_of_what_looks_like_copies_takes_no_others_place_in_the_line() {
        let length = serde_json::to_vec(&volumes("a", 1)[0]).unwrap().len() + 1;
        let all = || [volumes("a", 1000), volumes("b", 3), volumes("c", 1)].concat();
        let (told, left_out) = line(all(), 10 * length);
        assert_eq!((told_of(&told, "a"), told_of(&told, "b"), told_of(&told, "c"), left_out), (6, 3, 1, 994));
        let (told, left_out) = line(all(), 1004 * length);
        assert_eq!((told.len(), left_out), (1004, 0));
    }
}
