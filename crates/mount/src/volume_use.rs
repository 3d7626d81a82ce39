//! How a volume is to be used, as a request says it.

use serde::{Deserialize, Serialize};

use domain::volume::VolumeMode;

/// The interface's access modes. Unlike Kubernetes' own they tell whether one node may have a volume twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
}

impl Access {
    pub const ALL: [Self; 7] = [
        Self::SingleNodeWriter,
        Self::SingleNodeReaderOnly,
        Self::SingleNodeSingleWriter,
        Self::SingleNodeMultiWriter,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
    ];

    /// Whether one node may publish it at a second target.
    pub fn allows_two_targets(self) -> bool {
        !matches!(self, Self::SingleNodeWriter | Self::SingleNodeReaderOnly | Self::SingleNodeSingleWriter)
    }

    pub fn only_reads(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    pub fn is_for_one_node(self) -> bool {
        !matches!(self, Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeUse {
    pub access: Access,
    pub mode: VolumeMode,
    /// Empty where the request leaves it open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filesystem: String,
    /// Mount options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Who may have the files besides their owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}
