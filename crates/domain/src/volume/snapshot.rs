//! What the host asks of a snapshot or a group of them, and what follows from what was observed. Pure.

use std::collections::BTreeMap;

use super::{
    LeafName, LeafPlace, MEMBER_KEY, VolumeHash, VolumeId,
    id::is_member_name,
    parameters::{PerMember, own},
};
use crate::error::{Error, Result};

/// One snapshot, or one group of them, as the host wants it.
#[derive(Clone, Debug)]
pub struct SnapshotSpec {
    pub name: String,
    /// Handles of the volumes; one, but for a group.
    pub sources: Vec<String>,
    /// The members' own class, or what is wrong in the host's: that matters only where nothing is made yet, as somebody may have
    /// changed it since.
    pub leaf_class: Result<PerMember<String>>,
    /// Members that may hold it; empty where any may.
    pub allowed: Vec<String>,
    /// The host's content object for which it is made, where the sidecar tells it.
    pub content: Option<String>,
}

impl SnapshotSpec {
    /// A snapshot lies where its volume does.
    pub fn check_place(&self, member: &str) -> Result<()> {
        if self.allowed.is_empty() || self.allowed.iter().any(|allowed| allowed == member) {
            return Ok(());
        }
        Err(Error::NoPlace(format!(
            "the volume is in member {member} and its snapshots are kept there, but accessibility_requirements allow \
             {MEMBER_KEY} to be only {}",
            self.allowed.join(", ")
        )))
    }
}

/// The one parameter of the host's class: the members' class, for all or by member.
pub fn leaf_class(kind: &str, known: &str, raw: &BTreeMap<String, String>) -> Result<PerMember<String>> {
    let mut class = PerMember::default();
    for (key, value) in own(raw) {
        let (base, member) = key.split_once('.').map_or((key.as_str(), None), |(base, member)| (base, Some(member)));
        if base != known || member.is_some_and(|member| !is_member_name(member)) {
            return Err(Error::Invalid(format!(
                "unknown {kind} parameter {key:?}; known is {known}, also with the suffix .<member>"
            )));
        }
        if value.is_empty() {
            return Err(Error::Invalid(format!("{kind} parameter {key} is empty: give it a value or leave it out")));
        }
        class.set(member, value.clone());
    }
    Ok(class)
}

/// A leaf snapshot's name says whose it is: it is found, and a copy is told from it, by that.
pub fn leaf_name(hash: VolumeHash) -> String {
    format!("s-{hash}")
}

/// The same for a group.
pub fn leaf_group_name(hash: VolumeHash) -> String {
    format!("g-{hash}")
}

/// The handle of a group in a namespace of a member.
pub fn group_id(member: &str, namespace: &str, hash: VolumeHash) -> VolumeId {
    VolumeId::new(member, namespace, &leaf_group_name(hash), hash)
}

/// The hash in the handle of a group.
pub fn group_hash(id: &VolumeId) -> Option<VolumeHash> {
    match (id.place(), &id.leaf) {
        (Some(place), _) => place.claim.strip_prefix("g-").and_then(VolumeHash::parse).filter(|hash| id.names(*hash)),
        (None, LeafName::Hashed(hash)) => Some(*hash),
        (None, LeafName::Readable { .. }) => None,
    }
}

/// Whether a leaf snapshot of this source may lie in a namespace: a copy in another one is not ours.
pub fn belongs(source: &str, namespace: &str) -> bool {
    let place = VolumeId::parse(source).map(|id| id.place());
    place.is_some_and(|place: Option<LeafPlace>| place.is_none_or(|place| place.namespace == namespace))
}

/// A leaf snapshot or group of ours, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSnapshot {
    /// The volumes it is of, by handle.
    pub sources: Vec<String>,
    pub terminating: bool,
    /// The data as of one moment is kept; it may not be usable yet.
    pub cut: bool,
    /// The member's own complaint.
    pub trouble: Option<String>,
}

/// The next step towards a snapshot that is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cutting {
    Create,
    /// An earlier one of the same name is on its way out.
    AwaitRemoval,
    /// It is of other volumes.
    Differs(String),
    Await,
    /// The member tries again and again, and says why in vain.
    Failing(String),
    Cut,
}

pub fn cutting(sources: &[String], observed: Option<&ObservedSnapshot>) -> Cutting {
    let Some(observed) = observed else { return Cutting::Create };
    let sorted = |handles: &[String]| {
        let mut handles = handles.to_vec();
        handles.sort_unstable();
        handles.dedup();
        handles
    };
    let (then, now) = (sorted(&observed.sources), sorted(sources));
    match &observed.trouble {
        _ if observed.terminating => Cutting::AwaitRemoval,
        _ if then != now => Cutting::Differs(format!(
            "it was first asked for of {} and is now asked for of {}",
            then.join(", "),
            now.join(", ")
        )),
        _ if observed.cut => Cutting::Cut,
        Some(trouble) => Cutting::Failing(trouble.clone()),
        None => Cutting::Await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn class(pairs: &[(&str, &str)]) -> Result<PerMember<String>> {
        leaf_class("VolumeSnapshotClass", "leafSnapshotClass", &raw(pairs))
    }

    fn observed(source: &str) -> ObservedSnapshot {
        ObservedSnapshot { sources: vec![source.to_owned()], terminating: false, cut: false, trouble: None }
    }

    #[test]
    fn the_members_class_is_taken_and_what_the_sidecar_adds_is_not() {
        let parameters = [
            ("leafSnapshotClass", "fast"),
            ("leafSnapshotClass.b", "slow"),
            ("csi.storage.k8s.io/volumesnapshot/name", "x"),
        ];
        let class = class(&parameters).unwrap();
        assert_eq!([class.at("a").unwrap(), class.at("b").unwrap()], ["fast", "slow"]);
    }

    #[test]
    fn unknown_and_empty_parameters_are_refused_by_name() {
        for (key, value) in
            [("leafClass", "x"), ("leafSnapshotClass.No Member", "x"), ("leafSnapshotClass", ""), ("member", "a")]
        {
            let error = class(&[(key, value)]).unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(key)), "{error}");
        }
    }

    #[test]
    fn cutting_follows_what_is_there() {
        let sources = ["m/n/c/0123456789abcdef".to_owned()];
        let seen = observed(&sources[0]);
        let leaving = ObservedSnapshot { terminating: true, cut: true, ..seen.clone() };
        let failing = ObservedSnapshot { trouble: Some("no class".to_owned()), ..seen.clone() };
        let cut = ObservedSnapshot { cut: true, ..failing.clone() };
        for (observed, expected) in [
            (None, Cutting::Create),
            (Some(seen), Cutting::Await),
            (Some(leaving), Cutting::AwaitRemoval),
            (Some(failing), Cutting::Failing("no class".to_owned())),
            (Some(cut), Cutting::Cut),
        ] {
            assert_eq!(cutting(&sources, observed.as_ref()), expected, "{observed:?}");
        }
        let other = ObservedSnapshot { cut: true, ..observed("m/n/d/0123456789abcdef") };
        assert!(matches!(cutting(&sources, Some(&other)), Cutting::Differs(_)));
    }

    #[test]
    fn a_copy_in_another_namespace_does_not_belong() {
        assert!(belongs("m/shop/c/0123456789abcdef", "shop"));
        assert!(!belongs("m/shop/c/0123456789abcdef", "backup"));
        assert!(belongs("m///0123456789abcdef0123456789abcdef", "shop"));
        assert!(!belongs("", "shop"));
    }

    #[test]
    fn a_snapshot_cannot_be_kept_where_its_volume_is_not() {
        let spec = |allowed: &[&str]| SnapshotSpec {
            name: "s".to_owned(),
            sources: Vec::new(),
            leaf_class: Ok(PerMember::default()),
            allowed: allowed.iter().map(|name| (*name).to_owned()).collect(),
            content: None,
        };
        assert!(spec(&[]).check_place("a").is_ok() && spec(&["b", "a"]).check_place("a").is_ok());
        assert!(matches!(spec(&["b"]).check_place("a"), Err(Error::NoPlace(_))));
    }
}
