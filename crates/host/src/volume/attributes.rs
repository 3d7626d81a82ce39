//! What a host volume says of its leaf. Pure.

use std::collections::BTreeMap;

use domain::{
    error::{Error, Result},
    volume::backing::{self, AttachMode},
};

/// The attribute under which a host volume keeps the UID of its leaf claim.
pub const LEAF_UID: &str = "leafClaimUID";

pub const LEAF_VOLUME: &str = "leafVolume";

const LEAF_DRIVER: &str = "leafDriver";

const LEAF_HANDLE: &str = "leafVolumeHandle";

/// In bytes, all together: CSI lets a driver say no more of a volume.
const LONGEST: usize = 4 << 10;

/// What a host volume says of its leaf in its attributes; what is empty is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeafAttributes<'a> {
    pub claim_uid: &'a str,
    pub volume: &'a str,
    pub driver: &'a str,
    pub handle: &'a str,
    pub attach_mode: AttachMode,
}

impl LeafAttributes<'_> {
    fn pairs(&self) -> [(&'static str, &str); 5] {
        let mode = if self.attach_mode == AttachMode::None { "" } else { self.attach_mode.as_str() };
        [
            (LEAF_UID, self.claim_uid),
            (LEAF_VOLUME, self.volume),
            (LEAF_DRIVER, self.driver),
            (LEAF_HANDLE, self.handle),
            (backing::MODE, mode),
        ]
    }

    /// The same, where a volume of the host has room for it: a member says how long most of it is.
    pub fn checked(self, member: &str) -> Result<Self> {
        let size: usize = self.pairs().iter().map(|(key, value)| key.len() + value.len()).sum();
        if size <= LONGEST {
            return Ok(self);
        }
        Err(Error::Refused(format!(
            "member {member}: the attributes of the host's volume would have {size} bytes, and {LONGEST} are allowed: \
             the names that the member's storage driver gives the leaf volume are too long"
        )))
    }

    /// These, in the place of those of another leaf.
    pub fn put_into(&self, attributes: &mut BTreeMap<String, String>) {
        for (key, value) in self.pairs() {
            attributes.remove(key);
            if !value.is_empty() {
                attributes.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}

impl From<LeafAttributes<'_>> for BTreeMap<String, String> {
    fn from(told: LeafAttributes<'_>) -> Self {
        let mut attributes = Self::new();
        told.put_into(&mut attributes);
        attributes
    }
}
