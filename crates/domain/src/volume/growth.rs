//! From the size of a leaf claim to the next step towards a larger one. Pure.
//!
//! A size is true only once the leaf claim reports it: what its class promises, or its volume already has, is not what a
//! pod can write to.

use super::plan::Phase;

/// How far a member is with making a volume larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// Nothing is told.
    #[default]
    Untold,
    /// The volume is larger; its filesystem grows once a node mounts it.
    OnNode { size: u64 },
    /// This size cannot be had, says the member's storage.
    Infeasible { size: u64 },
}

/// A leaf claim, as far as its size goes.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub phase: Phase,
    pub terminating: bool,
    /// What it reports.
    pub capacity: u64,
    /// What it asks for.
    pub requested: u64,
    pub growth: Growth,
}

/// The next step towards a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    Done {
        capacity: u64,
    },
    /// It is larger than is allowed, and never gets smaller.
    TooLarge {
        capacity: u64,
    },
    /// It has not been bound yet, or is on its way out.
    NotNow,
    Lost,
    Ask,
    Await,
    /// Its filesystem waits for a mount.
    AwaitMount,
    Infeasible,
}

pub fn expansion(required: u64, limit: u64, size: Size) -> Expansion {
    match size.phase {
        Phase::Lost => return Expansion::Lost,
        Phase::Pending => return Expansion::NotNow,
        Phase::Bound => {}
    }
    if size.capacity >= required {
        let too_large = limit > 0 && size.capacity > limit;
        let capacity = size.capacity;
        return if too_large { Expansion::TooLarge { capacity } } else { Expansion::Done { capacity } };
    }
    match size.growth {
        _ if size.terminating => Expansion::NotNow,
        Growth::OnNode { size } if size >= required => Expansion::AwaitMount,
        // A smaller size than the one that could not be had is how people get out of it.
        _ if size.requested != required => Expansion::Ask,
        Growth::Infeasible { size } if size == required => Expansion::Infeasible,
        _ => Expansion::Await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: Size =
        Size { phase: Phase::Bound, terminating: false, capacity: 10, requested: 10, growth: Growth::Untold };

    #[test]
    fn size_is_asked_for_once_and_awaited() {
        assert_eq!(expansion(20, 0, THERE), Expansion::Ask);
        assert_eq!(expansion(20, 0, Size { requested: 20, ..THERE }), Expansion::Await);
        assert_eq!(expansion(20, 0, Size { requested: 20, capacity: 20, ..THERE }), Expansion::Done { capacity: 20 });
    }

    #[test]
    fn what_is_large_enough_is_left_alone() {
        assert_eq!(expansion(5, 0, THERE), Expansion::Done { capacity: 10 });
        assert_eq!(expansion(0, 20, THERE), Expansion::Done { capacity: 10 });
        assert_eq!(expansion(5, 9, THERE), Expansion::TooLarge { capacity: 10 });
        assert_eq!(expansion(5, 0, Size { terminating: true, ..THERE }), Expansion::Done { capacity: 10 });
    }

    #[test]
    fn size_that_cannot_be_had_is_told_until_another_is_asked_for() {
        let stuck = Size { requested: 30, growth: Growth::Infeasible { size: 30 }, ..THERE };
        assert_eq!(expansion(30, 0, stuck), Expansion::Infeasible);
        assert_eq!(expansion(20, 0, stuck), Expansion::Ask);
        assert_eq!(expansion(20, 0, Size { requested: 20, ..stuck }), Expansion::Await);
    }

    #[test]
    fn filesystem_that_waits_for_a_mount_is_told_where_that_is_enough() {
        let waiting = Size { requested: 20, growth: Growth::OnNode { size: 20 }, ..THERE };
        assert_eq!(expansion(20, 0, waiting), Expansion::AwaitMount);
        assert_eq!(expansion(15, 0, waiting), Expansion::AwaitMount);
        assert_eq!(expansion(30, 0, waiting), Expansion::Ask);
    }

    #[test]
    fn nothing_is_asked_of_what_is_not_there_or_on_its_way_out() {
        assert_eq!(expansion(20, 0, Size { phase: Phase::Pending, ..THERE }), Expansion::NotNow);
        assert_eq!(expansion(20, 0, Size { terminating: true, ..THERE }), Expansion::NotNow);
        assert_eq!(expansion(5, 0, Size { phase: Phase::Lost, ..THERE }), Expansion::Lost);
    }
}
