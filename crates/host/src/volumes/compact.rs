//! A volume of the host in little room: some three hundred bytes with the indexes that lead to it. What is handed out is a
//! [`HostVolume`], made when it is asked for. Pure.

use std::sync::Arc;

use crate::volume::{GivenOutDigest, HostVolume};
use domain::{compact_text::CompactText, volume::VolumeHash};

/// Comes before all other names.
const FIRST: CompactText = CompactText::Uuid([0; 16]);

/// By what volumes of one member are found, and in which order they are gone through.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The half of the volume's hash that the handle says, as a number; 0 where it says none.
    half: u64,
    /// Whole. The index by names has the same one.
    pub(super) handle: Arc<str>,
    /// People make several volumes with one handle.
    pub(super) name: CompactText,
}

impl Key {
    pub(super) fn of(volume: &HostVolume) -> Self {
        Self::new((*volume.handle).into(), CompactText::from(&*volume.name))
    }

    pub(super) fn new(handle: Arc<str>, name: CompactText) -> Self {
        Self { half: half_of(&handle), handle, name }
    }

    /// Comes before all volumes with this handle, and after all that do.
    pub(super) fn before(handle: &str) -> Self {
        Self::new(handle.into(), FIRST)
    }

    /// Comes after all volumes with this handle, and before all that do.
    pub(super) fn after(handle: &str) -> Self {
        Self { half: half_of(handle), handle: format!("{handle}\u{0}").into(), name: FIRST }
    }

    /// Comes before all volumes whose handle may be for this hash.
    pub(super) fn before_all_of(hash: VolumeHash) -> Self {
        Self { half: hash.seed(), handle: "".into(), name: FIRST }
    }

    pub(super) fn may_be_of(&self, hash: VolumeHash) -> bool {
        self.half == hash.seed()
    }
}

/// All else that is known of a volume.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub(super) struct CompactVolume {
    uid: CompactText,
    claim_uid: CompactText,
    /// Its claim is called as the leaf claim that the handle names.
    claim_as_in_handle: bool,
    /// Where it is another one.
    claim: Option<Box<str>>,
    leaf: Option<GivenOutDigest>,
    deletes: bool,
    retains: bool,
    released: bool,
    terminating: bool,
}

impl CompactVolume {
    pub(super) fn of(volume: &HostVolume) -> Self {
        let claim_as_in_handle = volume.claim.is_some() && volume.claim.as_deref() == claim_in(&volume.handle);
        Self {
            uid: CompactText::from(&*volume.uid),
            claim_uid: CompactText::from(&*volume.claim_uid),
            claim_as_in_handle,
            claim: volume.claim.clone().filter(|_| !claim_as_in_handle),
            leaf: volume.leaf,
            deletes: volume.deletes,
            retains: volume.retains,
            released: volume.released,
            terminating: volume.terminating,
        }
    }

    pub(super) fn volume(&self, key: &Key) -> HostVolume {
        let claim = if self.claim_as_in_handle { claim_in(&key.handle).map(Into::into) } else { self.claim.clone() };
        HostVolume {
            name: key.name.text(),
            uid: self.uid.text(),
            handle: (*key.handle).into(),
            claim_uid: self.claim_uid.text(),
            claim,
            leaf: self.leaf,
            deletes: self.deletes,
            retains: self.retains,
            released: self.released,
            terminating: self.terminating,
        }
    }

    /// As the volume itself would say it.
    pub(super) fn is_to_be_reclaimed(&self) -> bool {
        self.released && self.deletes
    }
}

/// The member that a handle names.
pub(crate) fn member_of(handle: &str) -> &str {
    handle.split_once('/').map_or(handle, |(member, _)| member)
}

/// Of both kinds of handles the last part begins with it.
fn half_of(handle: &str) -> u64 {
    let digits = handle.rsplit('/').next().and_then(|last| last.get(..16)).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

/// The leaf claim that a handle names, as `NAMESPACE/NAME`.
fn claim_in(handle: &str) -> Option<&str> {
    let (_, rest) = handle.split_once('/')?;
    rest.rsplit_once('/').map(|(claim, _)| claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "ad86ef86-23c1-407e-a8e7-0b3e44d36254";

    fn volume(name: &str, handle: &str, claim: Option<&str>) -> HostVolume {
        HostVolume {
            name: name.into(),
            uid: UID.into(),
            handle: handle.into(),
            claim_uid: "".into(),
            claim: claim.map(Into::into),
            leaf: None,
            deletes: true,
            retains: false,
            released: false,
            terminating: true,
        }
    }

    #[test]
    fn volume_comes_out_as_it_went_in() {
        for handle in
            ["m/shop/db/0123456789abcdef", "m///0123456789abcdef0123456789abcdef", "no handle of ours", "m/", ""]
        {
            for claim in [None, Some("shop/db"), Some("bank/db"), Some(""), Some("/")] {
                for name in [format!("pvc-{UID}"), "by-hand".to_owned()] {
                    let volume = volume(&name, handle, claim);
                    assert_eq!(CompactVolume::of(&volume).volume(&Key::of(&volume)), volume);
                }
            }
        }
    }

    #[test]
    fn claim_that_is_called_as_its_leaf_claim_takes_no_room() {
        let compact = CompactVolume::of(&volume("a", "m/shop/db/0123456789abcdef", Some("shop/db")));
        assert!(compact.claim_as_in_handle && compact.claim.is_none());
    }

    #[test]
    fn volumes_with_one_handle_stand_together_between_all_others() {
        let handles = ["m/n/a/1", "m/n/a/0000000000000001", "m/n/a/0000000000000001\u{1}", "m/n/b/0000000000000001"];
        for handle in handles {
            let (before, after) = (Key::before(handle), Key::after(handle));
            for other in handles {
                let key = Key::new(other.into(), CompactText::from("x"));
                assert_eq!(before <= key && key < after, other == handle, "{handle} and {other}");
            }
        }
    }
}
