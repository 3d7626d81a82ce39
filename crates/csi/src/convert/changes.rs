//! What is asked of a volume that is there: another size, other attributes, a node.

use super::{missing, one_use, sizes};
use crate::v1::{CapacityRange, VolumeCapability};
use domain::{
    error::Result,
    volume::{AccessMode, Attributes, VolumeMode},
};

/// The parameters of a VolumeAttributesClass.
pub fn attributes(mutable: impl IntoIterator<Item = (String, String)>) -> Result<Attributes> {
    Attributes::parse(&mutable.into_iter().collect())
}

/// The size that a volume is to have at least, and at most; an expansion needs one of them.
pub fn new_size(range: Option<&CapacityRange>) -> Result<(u64, u64)> {
    match sizes(range)? {
        (0, 0) => Err(missing("capacity_range")),
        sizes => Ok(sizes),
    }
}

/// The one way in which a volume is to be published.
pub fn volume_use(capability: Option<&VolumeCapability>) -> Result<(AccessMode, VolumeMode)> {
    one_use(capability.ok_or_else(|| missing("volume_capability"))?)
}
