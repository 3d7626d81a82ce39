//! What a user wants, and what happens to it.

use std::time::Duration;

use csi::v1::{self, volume_content_source::Type};

use super::Change;
use crate::fixture;

/// One user with one claim.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Script {
    pub claim: String,
    pub gibibytes: u64,
    /// The members' class.
    pub leaf_class: &'static str,
    /// Members in the order of the requirement; none: wherever the driver likes.
    pub places: Vec<usize>,
    /// The host's class waits for a pod, and the scheduler chooses the first of the places.
    pub node_selected: bool,
    /// The provisioner tells the driver which claim it works for.
    pub told: bool,
    /// The host keeps the volume when its claim goes.
    pub retain: bool,
    /// Time from the claim's creation to its deletion by the user.
    pub deleted_after: Option<Duration>,
    /// Every call is made so many times at once.
    pub at_once: usize,
    /// The provisioner asks once more for what it already has.
    pub asks_again: bool,
    /// The provisioner stands still for so long between its look at a volume that is to go and its call.
    pub stands_still: Option<Duration>,
    /// What happens to the volume while it lives, and the time before each of it.
    pub changes: &'static [Change],
    pub pace: Duration,
    /// The class's leafBinding.
    pub binding: Option<&'static str>,
    /// The host's virtual nodes stand for single nodes of the members.
    pub on_node: bool,
    /// The claim was restored from a backup, and says in which member it was then.
    pub was_in: Option<usize>,
    /// What the volume is to be filled with.
    pub source: Option<v1::VolumeContentSource>,
    /// Of the class, besides; they win over what the rest of the script says.
    pub parameters: &'static [(&'static str, &'static str)],
}

impl Script {
    pub fn new(claim: &str) -> Self {
        Self {
            claim: claim.to_owned(),
            gibibytes: 1,
            leaf_class: fixture::NOW,
            places: Vec::new(),
            node_selected: false,
            told: true,
            retain: false,
            deleted_after: None,
            at_once: 1,
            asks_again: false,
            stands_still: None,
            changes: &[],
            pace: Duration::ZERO,
            binding: None,
            on_node: false,
            was_in: None,
            source: None,
            parameters: &[],
        }
    }

    /// The class has its volumes attached in the member.
    pub fn attaches(&self) -> bool {
        self.parameters.iter().any(|(key, _)| *key == "attachMode")
    }

    /// Of the volume that it is a copy of, as that one's handle ends.
    pub fn hash_of_the_source(&self) -> Option<&str> {
        match self.source.as_ref()?.r#type.as_ref()? {
            Type::Volume(volume) => volume.volume_id.rsplit('/').next(),
            Type::Snapshot(_) => None,
        }
    }
}
