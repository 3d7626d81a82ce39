//! Which virtual node has which port. Whoever asks a kubelet for what pods use says by the address alone which node he means, and
//! all virtual nodes have that of one process. Pure.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Debug)]
pub struct Ports {
    /// Those that are for one node each.
    own: RangeInclusive<u16>,
    given: Mutex<BTreeMap<u16, String>>,
}

impl Ports {
    pub fn new(own: RangeInclusive<u16>) -> Self {
        Self { own, given: Mutex::default() }
    }

    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    pub(super) fn node_at(&self, port: u16) -> Option<String> {
        self.lock().get(&port).cloned()
    }

    /// The node's, the same for as long as it tells it; none where all are given. `told`: what each Node tells.
    pub(super) fn of(&self, node: &str, told: impl FnOnce() -> BTreeMap<String, u16>) -> Option<u16> {
        let mut given = self.lock();
        if let Some((port, _)) = given.iter().find(|(_, name)| *name == node) {
            return Some(*port);
        }
        let told = told();
        if self.own.clone().all(|port| given.contains_key(&port)) {
            given.retain(|_, name| told.contains_key(name));
        }
        let port = choose(node, &self.own, &given, &told)?;
        given.insert(port, node.to_owned());
        Some(port)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, String>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one it tells already, or the first that neither has been given nor is told by another.
fn choose(
    node: &str,
    own: &RangeInclusive<u16>,
    given: &BTreeMap<u16, String>,
    told: &BTreeMap<String, u16>,
) -> Option<u16> {
    let free = |port: &u16| !given.contains_key(port);
    let before = told.get(node).copied().filter(|port| own.contains(port) && free(port));
    before.or_else(|| own.clone().find(|port| free(port) && told.values().all(|other| other != port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(nodes: &[(&str, u16)]) -> BTreeMap<String, u16> {
        nodes.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect()
    }

    #[test]
    fn each_node_has_a_port_and_keeps_it_when_another_process_leads() {
        let ports = Ports::new(20..=22);
        assert_eq!(ports.of("a", BTreeMap::new), Some(20));
        assert_eq!(ports.of("b", BTreeMap::new), Some(21));
        assert_eq!(ports.of("a", BTreeMap::new), Some(20));
        let next = Ports::new(20..=22);
        let tell = || told(&[("a", 20), ("b", 21)]);
        assert_eq!(next.of("c", tell), Some(22), "what others tell is theirs");
        assert_eq!((next.of("b", tell), next.of("a", tell)), (Some(21), Some(20)));
        assert_eq!(next.node_at(21).as_deref(), Some("b"));
        assert_eq!(next.node_at(23), None);
    }

    #[test]
    fn two_nodes_that_tell_one_port_get_two() {
        let ports = Ports::new(20..=22);
        let tell = || told(&[("a", 20), ("b", 20)]);
        assert_eq!((ports.of("a", tell), ports.of("b", tell)), (Some(20), Some(21)));
    }

    #[test]
    fn where_all_are_given_those_of_nodes_that_are_gone_are_given_again() {
        let ports = Ports::new(20..=21);
        assert_eq!((ports.of("a", BTreeMap::new), ports.of("b", BTreeMap::new)), (Some(20), Some(21)));
        let tell = || told(&[("a", 20), ("b", 21), ("c", 10250)]);
        assert_eq!(ports.of("c", tell), None);
        let tell = || told(&[("b", 21), ("c", 10250)]);
        assert_eq!(ports.of("c", tell), Some(20));
    }

    #[test]
    fn port_outside_of_those_of_today_is_given_up() {
        assert_eq!(Ports::new(30..=31).of("a", || told(&[("a", 20)])), Some(30));
    }
}
