//! What was ever given out, whatever the host knows of it now: it stays until its removal is asked for by who may ask. A host that is
//! restored from a backup forgets; this does not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulate::text;

/// A member by its number, and a name.
type Key = (usize, String);

/// A leaf volume that was given out.
#[derive(Clone, Debug)]
struct Given {
    /// The host's.
    volume: String,
    may_go: bool,
}

#[derive(Debug, Default)]
pub struct Ledger {
    /// By the leaf volume's name.
    given: BTreeMap<Key, Given>,
    /// Leaf volumes that were on a node, or were seen with a volume of the host: somebody's data may be in them.
    used: BTreeSet<Key>,
    /// UIDs of their leaf claims.
    used_claims: BTreeSet<String>,
    /// Volumes of the host whose removal was asked for since they were given out last.
    asked: BTreeSet<Key>,
}

impl Ledger {
    /// What a leaf claim says of itself just now.
    pub fn note(&mut self, member: usize, leaf: &Value) {
        let says = |key: &str| leaf["metadata"]["annotations"][format!("kosmos.csi.io/{key}")].is_string();
        if says("had-pv") || says("published") {
            self.used_claims.insert(text(leaf, "/metadata/uid").to_owned());
            self.used.insert((member, text(leaf, "/spec/volumeName").to_owned()));
        }
    }

    /// Of one without a volume the leaf volume has no name: there is nothing in it.
    pub fn is_used(&self, member: usize, leaf: &Value) -> bool {
        let volume = text(leaf, "/spec/volumeName");
        let has_data = !volume.is_empty() && self.used.contains(&(member, volume.to_owned()));
        has_data || self.used_claims.contains(text(leaf, "/metadata/uid"))
    }

    pub fn give_out(&mut self, member: usize, leaf_volume: &str, volume: &str) {
        self.asked.remove(&(member, volume.to_owned()));
        let given = Given { volume: volume.to_owned(), may_go: false };
        self.given.insert((member, leaf_volume.to_owned()), given);
    }

    /// Its removal is asked for by who may ask, or a person removes it.
    pub fn may_go(&mut self, member: usize, volume: &str) {
        self.asked.insert((member, volume.to_owned()));
        for ((at, _), given) in &mut self.given {
            given.may_go |= *at == member && given.volume == volume;
        }
    }

    /// A person throws a leaf volume away. The host's volume that it was given out as, where it was.
    pub fn is_thrown_away(&mut self, member: usize, leaf_volume: &str) -> Option<String> {
        let given = self.given.get_mut(&(member, leaf_volume.to_owned()))?;
        given.may_go = true;
        Some(given.volume.clone())
    }

    pub fn was_asked_to_go(&self, member: usize, volume: &str) -> bool {
        self.asked.contains(&(member, volume.to_owned()))
    }

    /// What must be there still: member, leaf volume, and the host's volume that it was given out as. One that was given out a moment
    /// before and that no pod has had may be taken back by CreateVolume where the host has forgotten it.
    pub fn kept(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let kept = self.given.iter().filter(|(key, given)| !given.may_go && self.used.contains(*key));
        kept.map(|((at, leaf_volume), given)| (*at, leaf_volume.as_str(), given.volume.as_str()))
    }
}
