//! How a volume may be used.

use serde::{Deserialize, Serialize};

/// Access modes in Kubernetes' own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

impl AccessMode {
    pub const ALL: [Self; 4] = [Self::ReadWriteOnce, Self::ReadOnlyMany, Self::ReadWriteMany, Self::ReadWriteOncePod];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }

    pub fn is_for_one_node(self) -> bool {
        matches!(self, Self::ReadWriteOnce | Self::ReadWriteOncePod)
    }
}

/// A filesystem, or the bare device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeMode {
    Filesystem,
    Block,
}

impl VolumeMode {
    pub fn is_block(self) -> bool {
        self == Self::Block
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}
