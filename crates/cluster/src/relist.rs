//! A list that tells its objects one by one, as a watch begins: what it has not told at its end has gone.

use std::collections::BTreeSet;

/// The objects that the list under way has told.
#[derive(Debug)]
pub struct Relist<K> {
    /// None while there is no list under way.
    told: Option<BTreeSet<K>>,
}

impl<K> Default for Relist<K> {
    fn default() -> Self {
        Self { told: None }
    }
}

impl<K: Ord + Clone> Relist<K> {
    pub fn begin(&mut self) {
        self.told = Some(BTreeSet::new());
    }

    /// An object is there: the list tells it, or somebody has just written it.
    pub fn tell(&mut self, key: &K) {
        if let Some(told) = &mut self.told {
            told.insert(key.clone());
        }
    }

    /// Whether a list is under way that has not told it yet.
    pub fn awaits(&self, key: &K) -> bool {
        self.told.as_ref().is_some_and(|told| !told.contains(key))
    }

    /// The list has come to its end: what it has not told of all that is known.
    pub fn end<'a>(&mut self, known: impl IntoIterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let gone = known.into_iter().filter(|key| self.awaits(key)).cloned().collect();
        self.told = None;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_has_not_told_at_its_end_has_gone() {
        let mut relist = Relist::default();
        relist.tell(&"before");
        relist.begin();
        relist.tell(&"a");
        assert!(relist.awaits(&"before") && !relist.awaits(&"a"));
        assert_eq!(relist.end(&["a", "b", "before"]), ["b", "before"]);
        assert!(!relist.awaits(&"before"), "it is under way no more");
    }

    #[test]
    fn list_that_begins_again_forgets_what_the_one_before_has_told() {
        let mut relist = Relist::default();
        relist.begin();
        relist.tell(&"a");
        relist.begin();
        assert_eq!(relist.end(&["a"]), ["a"]);
    }

    #[test]
    fn without_a_list_nothing_has_gone() {
        assert!(Relist::default().end(&["a"]).is_empty());
    }
}
