//! Who has connected and not shown who he is. Everybody can connect, so they have places apart from those of conversations, and
//! no single address can take all of them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// At a time, of one address.
const OF_ONE: usize = 8;
/// So many addresses take all places.
const ADDRESSES: usize = 8;

#[derive(Debug)]
pub(super) struct Entrance {
    entering: Mutex<HashMap<IpAddr, usize>>,
    all: usize,
    of_one: usize,
}

/// A place at the entrance, until this is dropped.
#[derive(Debug)]
pub(super) struct Entering {
    entrance: Arc<Entrance>,
    from: IpAddr,
}

impl Entrance {
    /// Who asks all nodes, at a port each, asks them together.
    pub(super) fn of_ports(count: usize) -> Self {
        let of_one = OF_ONE.max(count);
        Self { entering: Mutex::default(), all: of_one * ADDRESSES, of_one }
    }

    /// None where there is no place.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Option<Entering> {
        let mut entering = self.lock();
        let there = entering.get(&from).copied().unwrap_or_default();
        if there >= self.of_one || entering.values().sum::<usize>() >= self.all {
            return None;
        }
        entering.insert(from, there + 1);
        Some(Entering { entrance: Arc::clone(self), from })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.entering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        let mut entering = self.entrance.lock();
        let left = entering.get(&self.from).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            entering.remove(&self.from);
        } else {
            entering.insert(self.from, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_only_some_of_the_places_and_gives_them_back() {
        let entrance = Arc::new(Entrance::of_ports(1));
        let address = |number: usize| IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()]);
        let silent: Vec<Entering> = (0..300).filter_map(|_| entrance.enter(address(1))).collect();
        assert_eq!(silent.len(), OF_ONE);
        let other = entrance.enter(address(2));
        assert!(other.is_some(), "another address is kept out");
        let crowd: Vec<Entering> = (3..30)
            .flat_map(|number| (0..9).map(move |_| number))
            .filter_map(|number| entrance.enter(address(number)))
            .collect();
        assert_eq!(crowd.len(), OF_ONE * ADDRESSES - OF_ONE - 1);
        assert!(entrance.enter(address(40)).is_none());
        drop(silent);
        assert!(entrance.enter(address(1)).is_some());
        drop((crowd, other));
        assert!(entrance.lock().is_empty());
    }

    #[test]
    fn whoever_asks_all_nodes_at_once_has_a_place_for_each_and_leaves_most_to_others() {
        let entrance = Arc::new(Entrance::of_ports(200));
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let scraper: Vec<Entering> = (0..300).filter_map(|_| entrance.enter(one)).collect();
        assert_eq!(scraper.len(), 200);
        assert!(entrance.enter(other).is_some());
    }
}
