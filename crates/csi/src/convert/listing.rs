//! Volumes as they are listed, and their health.

use std::collections::HashMap;

use crate::v1::{
    self, Topology, VolumeHealthErrorType, list_volumes_response::Entry, list_volumes_response::VolumeStatus,
    volume_health::VolumeHealthEntry,
};
use domain::{
    error::{Error, Result},
    printable::short,
    volume::MEMBER_KEY,
};
use driver::provision::{Ailment, Health, Listed, Severity};

/// In bytes, of what is wrong with a volume: whoever asks takes 4 MiB of an answer, and one page has thousands of them.
const LONGEST_MESSAGE: usize = 400;

/// How many entries are wanted at most; zero: all that fit.
pub fn most(max_entries: i32) -> Result<usize> {
    usize::try_from(max_entries).map_err(|_| Error::Invalid(format!("max_entries is {max_entries}: it is negative")))
}

pub fn entry(listed: Listed) -> Entry {
    let (volume, published_node_ids) = volume(listed);
    Entry { volume: Some(volume), status: Some(VolumeStatus { published_node_ids }) }
}

/// A volume, and the ids of the nodes it is published on.
pub fn volume(listed: Listed) -> (v1::Volume, Vec<String>) {
    let segments = HashMap::from([(MEMBER_KEY.to_owned(), listed.id.member.clone())]);
    let volume = v1::Volume {
        capacity_bytes: i64::try_from(listed.capacity).unwrap_or(i64::MAX),
        volume_id: listed.id.to_string(),
        accessible_topology: vec![Topology { segments }],
        ..v1::Volume::default()
    };
    (volume, listed.nodes)
}

pub fn health(health: Health) -> v1::VolumeHealth {
    let health_statuses = health.ailments.iter().map(ailment).collect();
    v1::VolumeHealth { volume_id: health.handle, health_statuses }
}

fn ailment(ailment: &Ailment) -> VolumeHealthEntry {
    let status = match ailment.severity {
        Severity::Degraded => VolumeHealthErrorType::Degraded,
        Severity::Inaccessible => VolumeHealthErrorType::Inaccessible,
        Severity::DataLoss => VolumeHealthErrorType::DataLoss,
    };
    let message = short(&ailment.message, LONGEST_MESSAGE);
    VolumeHealthEntry { status: status.into(), reason: ailment.reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever may write events in its namespace decides what is said of a leaf claim.
    #[test]
    fn what_is_told_of_the_health_of_a_volume_is_a_short_line() {
        let message = format!("a\n\u{1b}[2J{}", "x".repeat(1 << 20));
        let said = Ailment { severity: Severity::Degraded, reason: "VolumeConditionAbnormal", message };
        let told = health(Health { handle: "m/shop/db/0123456789abcdef".to_owned(), ailments: vec![said] });
        let message = &told.health_statuses[0].message;
        assert!(message.starts_with("a \u{fffd}[2Jx") && message.len() == LONGEST_MESSAGE, "{message}");
    }
}
