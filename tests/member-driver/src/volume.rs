//! What a volume, a snapshot and a group of snapshots are, and when a repeated request means the same one. Nothing
//! here touches the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::parameters::{Kind, PASSWORD};
use crate::placement::Range;

/// Parameters, attributes and contexts as CSI carries them.
pub(crate) type Map = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: String,
    /// The name under which it was asked for.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    pub(crate) parameters: Map,
    pub(crate) mutable_parameters: Map,
    pub(crate) source: Option<Source>,
    /// Nodes it is attached to, and whether for reading alone.
    pub(crate) attached: BTreeMap<String, bool>,
    /// What was asked for at each staging path. Whether it is mounted there, the kernel knows.
    pub(crate) staged: BTreeMap<PathBuf, Capability>,
    /// What was asked for at each target path, likewise.
    pub(crate) published: BTreeMap<PathBuf, Publication>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Ext4,
    Xfs,
    /// A bare device.
    Block,
    /// A folder of the machine's own filesystem.
    Folder,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    Snapshot(String),
    Volume(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capability {
    pub(crate) access: Access,
    pub(crate) mode: Mode,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Access {
    Block,
    Mount {
        /// None leaves the choice to the volume.
        filesystem: Option<Format>,
        options: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    SingleNodeWriter,
    SingleNodeReader,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
    MultiNodeReader,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Publication {
    pub(crate) capability: Capability,
    pub(crate) read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) volume: String,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    /// Since the epoch.
    pub(crate) created: Duration,
    pub(crate) group: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) volumes: BTreeSet<String>,
    pub(crate) snapshots: BTreeSet<String>,
    /// Since the epoch.
    pub(crate) created: Duration,
}

/// What a volume is asked to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeRequest {
    pub(crate) name: String,
    pub(crate) range: Range,
    pub(crate) capabilities: Vec<Capability>,
    pub(crate) parameters: Map,
    pub(crate) mutable_parameters: Map,
    pub(crate) source: Option<Source>,
    /// The places of which at least one must reach the volume; none means any.
    pub(crate) requisite: Vec<Map>,
}

impl Mode {
    pub(crate) fn reads_only(self) -> bool {
        matches!(self, Self::SingleNodeReader | Self::MultiNodeReader)
    }

    fn one_node(self) -> bool {
        matches!(
            self,
            Self::SingleNodeWriter
                | Self::SingleNodeReader
                | Self::SingleNodeSingleWriter
                | Self::SingleNodeMultiWriter
        )
    }
}

impl Kind {
    /// Whether volumes of this kind can be used in this way.
    pub(crate) fn supports(self, capability: &Capability) -> Result<(), Error> {
        let refusal = match (self, &capability.access) {
            (Self::Loop, _) if !capability.mode.one_node() => "a loop volume is used from one node only",
            (Self::Shared, Access::Block) => "a shared folder is not a block device",
            (Self::Shared, Access::Mount { filesystem: Some(_), .. }) => {
                "a shared folder has no filesystem of its own to choose"
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid(refusal.to_owned()))
    }

    /// The format of a new volume. A copy keeps its source's, whatever is left open.
    pub(crate) fn format(self, capabilities: &[Capability], source: Option<Format>) -> Result<Format, Error> {
        if self == Self::Shared {
            return Ok(Format::Folder);
        }
        let mut chosen = None;
        for capability in capabilities {
            let format = match &capability.access {
                Access::Block => Some(Format::Block),
                Access::Mount { filesystem, .. } => Some(filesystem.or(source).unwrap_or(Format::Ext4)),
            };
            if chosen.is_some() && chosen != format {
                return Err(Error::Invalid("the capabilities ask for different formats".to_owned()));
            }
            chosen = format;
        }
        chosen.ok_or_else(|| Error::Invalid("no volume capability is given".to_owned()))
    }
}

impl Volume {
    /// Whether a request that carries this volume's name asks for this volume.
    pub(crate) fn matches(&self, wanted: &VolumeRequest) -> Result<(), Error> {
        let difference = if !wanted.range.contains(self.bytes) {
            "size"
        } else if self.parameters != wanted.parameters {
            "parameters"
        } else if self.source != wanted.source {
            "source"
        } else if wanted.capabilities.iter().any(|capability| self.allows(capability).is_err()) {
            "capabilities"
        } else {
            return Ok(());
        };
        Err(Error::Exists(format!("volume {} has the name {:?} and another {difference}", self.id, self.name)))
    }

    /// Whether the volume, as it is, can be used in this way.
    pub(crate) fn allows(&self, capability: &Capability) -> Result<(), Error> {
        self.kind.supports(capability)?;
        let format = self.kind.format(std::slice::from_ref(capability), Some(self.format))?;
        if format == self.format {
            return Ok(());
        }
        Err(Error::Invalid(format!("volume {} was made as {:?}, not as {format:?}", self.id, self.format)))
    }

    /// Whether a call carries the password that the volume's class has set, if any.
    pub(crate) fn opens_with(&self, secrets: &Map) -> Result<(), Error> {
        match self.parameters.get(PASSWORD) {
            Some(password) if secrets.get(PASSWORD) != Some(password) => {
                Err(Error::Precondition(format!("the secrets lack the password of volume {}", self.id)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(filesystem: Option<Format>, mode: Mode) -> Capability {
        Capability { access: Access::Mount { filesystem, options: vec![] }, mode }
    }

    fn block(mode: Mode) -> Capability {
        Capability { access: Access::Block, mode }
    }

    fn wanted() -> VolumeRequest {
        VolumeRequest {
            name: "a".to_owned(),
            range: Range { required: 1 << 20, limit: 0 },
            capabilities: vec![mount(None, Mode::SingleNodeWriter)],
            ..VolumeRequest::default()
        }
    }

    fn volume() -> Volume {
        Volume { id: "vol-1".to_owned(), name: "a".to_owned(), bytes: 1 << 20, ..Volume::default() }
    }

    #[test]
    fn each_kind_has_its_uses() {
        let ext4 = Some(Format::Ext4);
        let table = [
            (Kind::Loop, mount(None, Mode::SingleNodeWriter), true),
            (Kind::Loop, mount(ext4, Mode::SingleNodeSingleWriter), true),
            (Kind::Loop, block(Mode::SingleNodeReader), true),
            (Kind::Loop, mount(None, Mode::MultiNodeMultiWriter), false),
            (Kind::Loop, block(Mode::MultiNodeReader), false),
            (Kind::Shared, mount(None, Mode::MultiNodeMultiWriter), true),
            (Kind::Shared, mount(None, Mode::SingleNodeWriter), true),
            (Kind::Shared, mount(ext4, Mode::SingleNodeWriter), false),
            (Kind::Shared, block(Mode::SingleNodeWriter), false),
        ];
        for (kind, capability, supported) in table {
            assert_eq!(kind.supports(&capability).is_ok(), supported, "{kind:?} {capability:?}");
        }
    }

    #[test]
    fn the_format_comes_from_the_capability_then_the_source() {
        let mode = Mode::SingleNodeWriter;
        let table = [
            (Kind::Loop, vec![mount(None, mode)], None, Some(Format::Ext4)),
            (Kind::Loop, vec![mount(Some(Format::Xfs), mode)], None, Some(Format::Xfs)),
            (Kind::Loop, vec![mount(None, mode)], Some(Format::Xfs), Some(Format::Xfs)),
            (Kind::Loop, vec![block(mode)], None, Some(Format::Block)),
            (Kind::Loop, vec![block(mode), mount(None, mode)], None, None),
            (Kind::Loop, vec![], None, None),
            (Kind::Shared, vec![mount(None, mode)], None, Some(Format::Folder)),
        ];
        for (kind, capabilities, source, format) in table {
            assert_eq!(kind.format(&capabilities, source).ok(), format, "{kind:?} {capabilities:?}");
        }
    }

    #[test]
    fn a_repeated_request_finds_its_volume() {
        assert_eq!(volume().matches(&wanted()), Ok(()));
        let later = VolumeRequest { mutable_parameters: Map::from([("iops".to_owned(), "9".to_owned())]), ..wanted() };
        assert_eq!(volume().matches(&later), Ok(()), "attributes may have changed since");
    }

    #[test]
    fn any_other_request_of_the_name_is_refused() {
        let others = [
            VolumeRequest { range: Range { required: 2 << 20, limit: 0 }, ..wanted() },
            VolumeRequest { range: Range { required: 0, limit: 1 }, ..wanted() },
            VolumeRequest { parameters: Map::from([("kind".to_owned(), "loop".to_owned())]), ..wanted() },
            VolumeRequest { source: Some(Source::Volume("vol-2".to_owned())), ..wanted() },
            VolumeRequest { capabilities: vec![block(Mode::SingleNodeWriter)], ..wanted() },
            VolumeRequest { capabilities: vec![mount(Some(Format::Xfs), Mode::SingleNodeWriter)], ..wanted() },
            VolumeRequest { capabilities: vec![mount(None, Mode::MultiNodeMultiWriter)], ..wanted() },
        ];
        for other in others {
            assert!(matches!(volume().matches(&other), Err(Error::Exists(_))), "{other:?}");
        }
    }
}
