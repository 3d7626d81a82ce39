//! The parameters of a VolumeAttributesClass: which class of the same kind the leaf claim gets, and how far that is. Pure.

use std::collections::BTreeMap;

use super::{
    id::{is_member_name, is_subdomain},
    parameters::{PerMember, own},
};
use crate::error::{Error, Result};

const KEY: &str = "leafVolumeAttributesClass";

/// The VolumeAttributesClass of the leaf, per member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(PerMember<String>);

impl Attributes {
    /// All of it is understood, or nothing is.
    pub fn parse(raw: &BTreeMap<String, String>) -> Result<Self> {
        let mut attributes = Self::default();
        for (key, value) in own(raw) {
            let (base, member) = key.split_once('.').map_or((key.as_str(), None), |(base, rest)| (base, Some(rest)));
            if base != KEY || member.is_some_and(|member| !is_member_name(member)) {
                return Err(Error::Invalid(format!(
                    "unknown VolumeAttributesClass parameter {key:?}; known is {KEY}, also with the suffix .<member>"
                )));
            }
            // It becomes part of a path.
            if !is_subdomain(value) {
                return Err(Error::Invalid(format!(
                    "VolumeAttributesClass parameter {key}: {value:?} is no name of a VolumeAttributesClass"
                )));
            }
            attributes.0.set(member, value.clone());
        }
        Ok(attributes)
    }

    pub fn at(&self, member: &str) -> Option<&str> {
        self.0.at(member).map(String::as_str)
    }
}

/// What a leaf claim tells of its VolumeAttributesClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributesSeen {
    /// In its spec.
    pub asked: Option<Box<str>>,
    /// In force.
    pub current: Option<Box<str>>,
    /// The member's storage refuses this one.
    pub infeasible: Option<Box<str>>,
}

/// The next step towards a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Done,
    Ask,
    Await,
    Infeasible,
}

pub fn change(target: &str, seen: &AttributesSeen) -> Change {
    let is = |class: &Option<Box<str>>| class.as_deref() == Some(target);
    match () {
        () if !is(&seen.asked) => Change::Ask,
        () if is(&seen.current) => Change::Done,
        () if is(&seen.infeasible) => Change::Infeasible,
        () => Change::Await,
    }
}

/// Whether a claim that is bound has another class than this one, or is to have one. Storage that knows no classes never says that the one
/// which a claim was made with is in force.
pub fn differs(target: &str, seen: &AttributesSeen) -> bool {
    match change(target, seen) {
        Change::Done => false,
        Change::Await => seen.current.is_some(),
        Change::Ask | Change::Infeasible => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Attributes> {
        Attributes::parse(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn class_of_a_member_wins_over_the_common_one() {
        let attributes =
            parse(&[(KEY, "gold"), ("leafVolumeAttributesClass.b", "silver"), ("csi.storage.k8s.io/pvc/name", "x")])
                .unwrap();
        assert_eq!((attributes.at("a"), attributes.at("b")), (Some("gold"), Some("silver")));
        assert_eq!(parse(&[]).unwrap().at("a"), None);
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (key, value, word) in [
            ("iops", "3", "\"iops\""),
            ("leafVolumeAttributesClass.A", "x", "leafVolumeAttributesClass.A"),
            (KEY, "", "is no name"),
            (KEY, "gold/../x", "is no name"),
        ] {
            let error = parse(&[("leafVolumeAttributesClass.b", "x"), (key, value)]).unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(word)), "{error}");
        }
    }

    #[test]
    fn class_is_asked_for_once_and_awaited() {
        let class = |name: &str| Some(name.into());
        let seen = AttributesSeen { asked: class("old"), current: class("old"), infeasible: None };
        assert_eq!(change("old", &seen), Change::Done);
        assert_eq!(change("new", &seen), Change::Ask);
        let asked = AttributesSeen { asked: class("new"), ..seen };
        assert_eq!(change("new", &asked), Change::Await);
        assert_eq!(change("old", &asked), Change::Ask, "back to what is still in force");
        let refused = AttributesSeen { infeasible: class("new"), ..asked };
        assert_eq!(change("new", &refused), Change::Infeasible);
        assert_eq!(change("third", &refused), Change::Ask);
    }

    #[test]
    fn claim_differs_that_has_another_class_or_waits_for_its_own_in_place_of_one() {
        let class = |name: &str| Some(name.into());
        let has = AttributesSeen { asked: class("gold"), current: class("gold"), infeasible: None };
        assert!(!differs("gold", &has) && differs("silver", &has));
        let changes = AttributesSeen { asked: class("silver"), ..has };
        assert!(differs("silver", &changes) && differs("gold", &changes));
        let made_with = AttributesSeen { current: None, ..changes };
        assert!(!differs("silver", &made_with) && differs("gold", &made_with));
        assert!(differs("silver", &AttributesSeen { infeasible: class("silver"), ..made_with }));
        assert!(differs("gold", &AttributesSeen::default()), "it was made without any");
    }
}
