//! What an object says of its owners, and what follows from what became of them. Pure.

use serde_json::{Value, json};

use super::Place;
use crate::object::{items, set, text};

/// One owner, as its dependent names it.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Whether an owner that is deleted in the foreground waits for this dependent.
    pub(super) blocks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    There,
    /// It ends, and waits for its dependents.
    Waits(Place),
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Goes,
    /// Some owners are gone and others are not: those that are gone are struck out.
    Forgets,
}

pub(super) fn references(object: &Value) -> Vec<Reference> {
    let owners = items(object, "/metadata/ownerReferences").iter();
    let read = |owner: &Value| Reference {
        group: text(owner, "/apiVersion").rsplit_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default(),
        kind: text(owner, "/kind").to_owned(),
        name: text(owner, "/name").to_owned(),
        uid: text(owner, "/uid").to_owned(),
        blocks: owner["blockOwnerDeletion"] == json!(true),
    };
    owners.map(read).collect()
}

pub(super) fn fate(owners: &[State]) -> Fate {
    let there = owners.contains(&State::There);
    let absent = owners.contains(&State::Absent);
    match (there, absent) {
        _ if owners.is_empty() => Fate::Stays,
        (false, _) => Fate::Goes,
        (true, true) => Fate::Forgets,
        (true, false) => Fate::Stays,
    }
}

/// Strikes owners out.
pub(super) fn forget(object: &mut Value, uids: &[&str]) {
    let kept: Vec<Value> = items(object, "/metadata/ownerReferences")
        .iter()
        .filter(|owner| !uids.contains(&text(owner, "/uid")))
        .cloned()
        .collect();
    set(object, &["metadata", "ownerReferences"], json!(kept));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_goes_only_when_no_owner_is_left() {
        let waits = || State::Waits(("pods".into(), (String::new(), String::new())));
        for (owners, expected) in [
            (vec![], Fate::Stays),
            (vec![State::There], Fate::Stays),
            (vec![State::There, State::Absent], Fate::Forgets),
            (vec![State::There, waits()], Fate::Stays),
            (vec![State::Absent, State::Absent], Fate::Goes),
            (vec![waits(), State::Absent], Fate::Goes),
        ] {
            assert_eq!(fate(&owners), expected, "{owners:?}");
        }
    }
}
