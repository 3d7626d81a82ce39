//! Between the node's messages and the machine's words.

use std::path::{Path, PathBuf};

use crate::{
    convert::{changes, missing},
    v1::{
        self, VolumeCapability, VolumeHealthErrorType, VolumeUsage,
        volume_capability::{AccessType, access_mode::Mode},
        volume_health::VolumeHealthEntry,
        volume_usage::Unit,
    },
};
use domain::error::{Error, Result};
use mount::{Access, Amounts, Trouble, Usage, VolumeUse};

pub(super) fn path(field: &str, text: &str) -> Result<PathBuf> {
    if text.is_empty() { Err(missing(field)) } else { Ok(Path::new(text).to_owned()) }
}

pub fn volume_use(capability: Option<&VolumeCapability>) -> Result<VolumeUse> {
    let (_, mode) = changes::volume_use(capability)?;
    let mut way =
        VolumeUse { access: access(capability)?, mode, filesystem: String::new(), flags: Vec::new(), group: None };
    if let Some(AccessType::Mount(mount)) = capability.and_then(|capability| capability.access_type.as_ref()) {
        way.filesystem.clone_from(&mount.fs_type);
        way.flags.clone_from(&mount.mount_flags);
        way.group = group(&mount.volume_mount_group)?;
    }
    Ok(way)
}

fn access(capability: Option<&VolumeCapability>) -> Result<Access> {
    let mode =
        capability.and_then(|capability| capability.access_mode.as_ref()).map(v1::volume_capability::AccessMode::mode);
    match mode {
        Some(Mode::SingleNodeWriter) => Ok(Access::SingleNodeWriter),
        Some(Mode::SingleNodeReaderOnly) => Ok(Access::SingleNodeReaderOnly),
        Some(Mode::SingleNodeSingleWriter) => Ok(Access::SingleNodeSingleWriter),
        Some(Mode::SingleNodeMultiWriter) => Ok(Access::SingleNodeMultiWriter),
        Some(Mode::MultiNodeReaderOnly) => Ok(Access::MultiNodeReaderOnly),
        Some(Mode::MultiNodeSingleWriter) => Ok(Access::MultiNodeSingleWriter),
        Some(Mode::MultiNodeMultiWriter) => Ok(Access::MultiNodeMultiWriter),
        Some(Mode::Unknown) | None => Err(missing("volume_capability.access_mode")),
    }
}

fn group(text: &str) -> Result<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse();
    number.map(Some).map_err(|_| Error::Invalid(format!("volume_mount_group {text:?} is not the number of a group")))
}

pub(super) fn usage(usage: &Usage) -> v1::NodeGetVolumeStatsResponse {
    let amounts = [(Unit::Bytes, usage.bytes.as_ref()), (Unit::Inodes, usage.inodes.as_ref())];
    let usage = amounts.into_iter().filter_map(|(unit, amounts)| Some(in_unit(unit, amounts?))).collect();
    v1::NodeGetVolumeStatsResponse { usage }
}

fn in_unit(unit: Unit, amounts: &Amounts) -> VolumeUsage {
    let number = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    VolumeUsage {
        unit: unit.into(),
        total: number(amounts.total),
        available: number(amounts.available),
        used: number(amounts.used),
    }
}

pub(super) fn health(volume: String, troubles: Vec<Trouble>) -> v1::VolumeHealth {
    v1::VolumeHealth { volume_id: volume, health_statuses: troubles.into_iter().map(entry).collect() }
}

fn entry(trouble: Trouble) -> VolumeHealthEntry {
    let (status, reason, path, what) = match trouble {
        Trouble::NotMounted(path) => (VolumeHealthErrorType::Inaccessible, "NotMounted", path, "nothing is mounted at"),
        Trouble::Dead(path) => {
            (VolumeHealthErrorType::Inaccessible, "DeadMount", path, "its storage does not answer at")
        }
        Trouble::ReadOnly(path) => {
            (VolumeHealthErrorType::Degraded, "ReadOnly", path, "after an error its filesystem can only be read at")
        }
    };
    VolumeHealthEntry {
        status: status.into(),
        reason: reason.to_owned(),
        message: format!("{what} {}", path.display()),
    }
}
