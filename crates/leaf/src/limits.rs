//! How much of a member is remembered. Its administrator decides what it says, and one process serves all members: one that
//! says more is closed, with the reason, and takes nothing away from the others. Pure.

/// Leaves of one member, its snapshots, or the objects in one list.
const MOST: usize = 200_000;
/// Claims or volumes that carry the labels of one volume.
const COPIES: usize = 1000;
/// What they say besides: names that are no UIDs, nodes, conditions.
const TEXTS: usize = 64 << 20;
/// An object in a list, what is between two, or all else in it: as much as a line of a watch.
const OBJECT: usize = 10 << 20;

/// How much is remembered: of one volume, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) leaves: usize,
    pub(super) texts: usize,
    /// The most that there are of one volume.
    pub(super) copies: usize,
}

impl Extent {
    /// One volume has changed.
    pub(super) fn change(&mut self, before: Self, after: Self) {
        self.leaves = (self.leaves + after.leaves).saturating_sub(before.leaves);
        self.texts = (self.texts + after.texts).saturating_sub(before.texts);
        self.copies = self.copies.max(after.copies);
    }

    /// Why no more is remembered.
    pub(super) fn too_much(self) -> Option<String> {
        let what = if self.leaves > MOST {
            format!("more than {MOST} objects of a kind carry this host's labels")
        } else if self.copies > COPIES {
            format!("more than {COPIES} objects carry the labels of one leaf")
        } else if self.texts > TEXTS {
            format!("the objects that carry this host's labels have more than {} MiB", TEXTS >> 20)
        } else {
            return None;
        };
        Some(format!(
            "{what}, which is more than the driver remembers of one member: remove those there that are no leaves"
        ))
    }
}

/// Why a list is not read to its end. `count`: of its objects so far; `unfinished`: how long what is not whole yet
/// has become.
pub(super) fn overlong(count: usize, unfinished: usize) -> Option<String> {
    if count > MOST {
        return Some(format!("a list of it has more than {MOST} objects"));
    }
    (unfinished > OBJECT).then(|| format!("a part of a list of it is longer than {} MiB", OBJECT >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_told_by_its_own_words() {
        let usual = Extent { leaves: MOST, texts: TEXTS, copies: COPIES };
        assert_eq!(usual.too_much(), None);
        for (extent, words) in [
            (Extent { leaves: MOST + 1, ..usual }, "200000 objects"),
            (Extent { copies: COPIES + 1, ..usual }, "of one leaf"),
            (Extent { texts: TEXTS + 1, ..usual }, "64 MiB"),
        ] {
            assert!(extent.too_much().is_some_and(|told| told.contains(words)), "{extent:?}");
        }
        assert_eq!(overlong(MOST, OBJECT), None);
        assert!(overlong(MOST + 1, 0).is_some() && overlong(0, OBJECT + 1).is_some_and(|told| told.contains("10 MiB")));
    }

    #[test]
    fn extent_follows_what_changes() {
        let (mut all, one) = (Extent::default(), Extent { leaves: 1, texts: 100, copies: 1 });
        all.change(Extent::default(), one);
        all.change(one, Extent { texts: 40, ..one });
        assert_eq!(all, Extent { leaves: 1, texts: 40, copies: 1 });
        all.change(Extent { texts: 40, ..one }, Extent::default());
        assert_eq!((all.leaves, all.texts), (0, 0));
    }
}
