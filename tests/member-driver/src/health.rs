//! Whether a volume's data is there and whole, which is all that can go wrong with a file or a folder short of the
//! machine's own disk. A test that wants a sick volume removes or cuts its data in the state folder.

use std::fs;
use std::io;

use crate::driver::Driver;
use crate::proto::csi;
use crate::proto::csi::volume_health::VolumeHealthEntry;
use crate::proto::csi::{StorageHealthErrorType, VolumeHealthErrorType};
use crate::volume::{Format, Volume};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    Missing,
    /// The file has so many bytes.
    Short(u64),
    Unreadable(io::ErrorKind),
}

/// None is healthy.
pub(crate) fn ailment(driver: &Driver, volume: &Volume) -> Option<Ailment> {
    let found = fs::metadata(driver.data.path(&volume.id)).map(|data| data.len());
    judge(volume, &found)
}

pub(crate) fn wire_health(driver: &Driver, volume: &Volume) -> csi::VolumeHealth {
    let entry = ailment(driver, volume).map(|ailment| wire_entry(&ailment));
    csi::VolumeHealth { volume_id: volume.id.clone(), health_statuses: entry.into_iter().collect() }
}

/// What is wrong with the storage as a whole; nothing is healthy.
pub(crate) fn wire_storage(driver: &Driver) -> Vec<csi::node_get_storage_health_response::StorageBackendHealth> {
    let Err(error) = driver.data.check() else {
        return Vec::new();
    };
    vec![csi::node_get_storage_health_response::StorageBackendHealth {
        status: StorageHealthErrorType::StorageUnreachable.into(),
        reason: "FolderUnreadable".to_owned(),
        message: error.to_string(),
        volume_capability: None,
    }]
}

fn judge(volume: &Volume, found: &io::Result<u64>) -> Option<Ailment> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Ailment::Missing),
        Err(error) => Some(Ailment::Unreadable(error.kind())),
        Ok(bytes) if volume.format != Format::Folder && *bytes < volume.bytes => Some(Ailment::Short(*bytes)),
        Ok(_) => None,
    }
}

fn wire_entry(ailment: &Ailment) -> VolumeHealthEntry {
    let (status, reason, message) = match ailment {
        Ailment::Missing => (VolumeHealthErrorType::DataLoss, "DataMissing", "the data is gone".to_owned()),
        Ailment::Short(bytes) => (VolumeHealthErrorType::DataLoss, "DataShort", format!("only {bytes} bytes are left")),
        Ailment::Unreadable(kind) => {
            (VolumeHealthErrorType::Inaccessible, "DataUnreadable", format!("the data cannot be read: {kind}"))
        }
    };
    VolumeHealthEntry { status: status.into(), reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_as_healthy_as_its_data() {
        let (gone, denied) = (io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied);
        let table = [
            (Format::Ext4, Ok(10), None),
            (Format::Block, Ok(11), None),
            (Format::Xfs, Ok(9), Some(Ailment::Short(9))),
            (Format::Folder, Ok(1), None),
            (Format::Folder, Err(gone), Some(Ailment::Missing)),
            (Format::Ext4, Err(denied), Some(Ailment::Unreadable(denied))),
        ];
        for (format, found, ailment) in table {
            let volume = Volume { format, bytes: 10, ..Volume::default() };
            assert_eq!(judge(&volume, &found.map_err(io::Error::from)), ailment, "{format:?}");
        }
    }
}
