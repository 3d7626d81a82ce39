//! What a leaf volume is made of, as far as a node of the host has to know it to use it. The controller reads it from the
//! leaf volume at publish and hands it over in the publish context; the node has nobody else to ask. Pure.
//!
//! The publish context stands on the VolumeAttachment, which many may read: no secret is ever part of it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// In the publish context, and before that in the volume context: the class's parameter of the same name.
pub const MODE: &str = "attachMode";
const VOLUME: &str = "volume";
const BACKING: &str = "backing";
/// The interface's limit for all keys and values of a context.
const LARGEST_CONTEXT: usize = 4096;

/// What the controller does in the member to bring a volume to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachMode {
    /// Nothing.
    #[default]
    None,
    /// A VolumeAttachment for the member node that the host node is.
    VolumeAttachment,
    /// A disk of the virtual machine that the host node is.
    VirtualMachine,
}

impl AttachMode {
    pub const ALL: [Self; 3] = [Self::None, Self::VolumeAttachment, Self::VirtualMachine];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::VolumeAttachment => "volume-attachment",
            Self::VirtualMachine => "virtual-machine",
        }
    }

    /// From the volume context, where a volume that is not attached in any way says nothing.
    pub fn of_volume(context: &BTreeMap<String, String>) -> Result<Self> {
        let Some(text) = context.get(MODE) else { return Ok(Self::None) };
        Self::parse(text).ok_or_else(|| {
            Error::Invalid(format!(
                "volume_context {MODE}: {text:?} is not one of none, volume-attachment, virtual-machine: correct the volume's \
                 attributes"
            ))
        })
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Who lets a pod's group have the files of a CSI volume, by the leaf driver's own `fsGroupPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GroupPolicy {
    /// The node, where the volume has a filesystem and is for one node.
    #[default]
    WithFilesystem,
    /// The node, always.
    Always,
    /// Nobody.
    Never,
}

/// A volume of a member's own CSI driver, for that driver's node service on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CsiLeaf {
    pub driver: String,
    pub handle: String,
    /// What the leaf volume says its filesystem is; empty where it says nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filesystem: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// What the leaf driver said when it attached the volume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    #[serde(default)]
    pub group_policy: GroupPolicy,
}

/// What a leaf volume is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Backing {
    Nfs {
        server: String,
        path: String,
    },
    /// A folder, or for a raw volume a device, of the machine itself.
    Local {
        path: String,
    },
    Csi(CsiLeaf),
    /// A disk under the node's `--device-dir`.
    Device {
        /// Names it may have there; the first one that is found counts.
        names: Vec<String>,
        /// Where the leaf volume says which.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        filesystem: String,
    },
}

impl Backing {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nfs { .. } => "nfs",
            Self::Local { .. } => "local",
            Self::Csi(_) => "csi",
            Self::Device { .. } => "device",
        }
    }
}

/// A volume as it is handed to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The handle of the host's volume.
    pub volume: String,
    pub mode: AttachMode,
    pub backing: Backing,
    /// The mount options of the leaf volume; those of the host's own come after them.
    pub options: Vec<String>,
    /// The leaf volume can only be read.
    pub readonly: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    backing: Backing,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    readonly: bool,
}

impl Attached {
    /// The publish context.
    pub fn context(&self) -> Result<BTreeMap<String, String>> {
        let wire = Wire { backing: self.backing.clone(), options: self.options.clone(), readonly: self.readonly };
        let backing = serde_json::to_string(&wire)
            .map_err(|error| Error::Refused(format!("the leaf volume cannot be described to a node: {error}")))?;
        let context = BTreeMap::from([
            (MODE.to_owned(), self.mode.to_string()),
            (VOLUME.to_owned(), self.volume.clone()),
            (BACKING.to_owned(), backing),
        ]);
        let size: usize = context.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > LARGEST_CONTEXT {
            return Err(Error::Refused(format!(
                "what a node must know of the leaf volume has {size} bytes, and {LARGEST_CONTEXT} are allowed: the \
                 volume attributes of the leaf volume are too long"
            )));
        }
        Ok(context)
    }

    /// From the publish context of a request for this volume.
    pub fn parse(context: &BTreeMap<String, String>, volume: &str) -> Result<Self> {
        let field = |key: &str| context.get(key).map(String::as_str).ok_or_else(|| missing(key));
        let mode = field(MODE)?;
        let mode = AttachMode::parse(mode)
            .ok_or_else(|| Error::Invalid(format!("publish_context {MODE}: {mode:?} is no way to attach a volume")))?;
        let named = field(VOLUME)?;
        if named != volume {
            return Err(Error::Invalid(format!(
                "publish_context {VOLUME}: it was made for volume {named:?}, and the request is for {volume:?}"
            )));
        }
        let wire: Wire = serde_json::from_str(field(BACKING)?)
            .map_err(|error| Error::Invalid(format!("publish_context {BACKING}: {error}")))?;
        Ok(Self {
            volume: volume.to_owned(),
            mode,
            backing: wire.backing,
            options: wire.options,
            readonly: wire.readonly,
        })
    }
}

fn missing(key: &str) -> Error {
    Error::Invalid(format!(
        "publish_context {key} is missing: a node can use a volume only once the controller has published it there"
    ))
}

/// The publish context for a node that mounts nothing itself.
pub fn context_of_virtual_node() -> BTreeMap<String, String> {
    BTreeMap::from([(MODE.to_owned(), AttachMode::None.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME_ID: &str = "cluster38/shop/data/0123456789abcdef";

    fn attached(backing: Backing) -> Attached {
        let options = vec!["noatime".to_owned()];
        Attached { volume: VOLUME_ID.to_owned(), mode: AttachMode::None, backing, options, readonly: true }
    }

    fn backings() -> Vec<Backing> {
        let csi = CsiLeaf {
            driver: "storage.example".to_owned(),
            handle: "vol-1".to_owned(),
            context: BTreeMap::from([("device".to_owned(), "sdb".to_owned())]),
            group_policy: GroupPolicy::Never,
            ..CsiLeaf::default()
        };
        vec![
            Backing::Nfs { server: "10.0.0.1".to_owned(), path: "/export".to_owned() },
            Backing::Local { path: "/mnt/disks/a".to_owned() },
            Backing::Csi(csi),
            Backing::Device { names: vec!["wwn-0x6000c29a".to_owned()], filesystem: "xfs".to_owned() },
        ]
    }

    #[test]
    fn node_reads_what_the_controller_wrote() {
        for backing in backings() {
            let attached = attached(backing);
            assert_eq!(Attached::parse(&attached.context().unwrap(), VOLUME_ID).unwrap(), attached);
        }
    }

    #[test]
    fn context_that_the_controller_did_not_write_is_refused_by_field() {
        let good = attached(backings().remove(0)).context().unwrap();
        let other = r#"{"backing":{"kind":"nfs","server":"a","path":"/","command":"rm"}}"#;
        for (key, value, word) in [
            (MODE, None, "attachMode is missing"),
            (MODE, Some("ssh"), "\"ssh\" is no way"),
            (VOLUME, None, "volume is missing"),
            (VOLUME, Some("cluster38/shop/other/0123456789abcdef"), "was made for volume"),
            (BACKING, None, "backing is missing"),
            (BACKING, Some("{}"), "backing"),
            (BACKING, Some(r#"{"backing":{"kind":"rbd"}}"#), "rbd"),
            (BACKING, Some(other), "command"),
        ] {
            let mut context = good.clone();
            match value {
                Some(value) => drop(context.insert(key.to_owned(), value.to_owned())),
                None => drop(context.remove(key)),
            }
            let error = Attached::parse(&context, VOLUME_ID).unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(word)), "{error}");
        }
    }

    #[test]
    fn context_is_never_longer_than_the_interface_allows() {
        let attributes = BTreeMap::from([("long".to_owned(), "x".repeat(LARGEST_CONTEXT))]);
        let error = attached(Backing::Csi(CsiLeaf { attributes, ..CsiLeaf::default() })).context().unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
    }
}
