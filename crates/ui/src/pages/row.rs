//! A volume as one line, whichever page shows it.

use domain::{
    printable::one_line,
    volume::{LeafPlace, VolumeHash, VolumeId, plan::Phase},
};
use driver::provision::health::known_ailments;
use host::volumes::HostVolumes;
use leaf::row::{ClaimRow, Row, VolumeRow};
use member::Member;
use serde::Serialize;

use crate::shown::{Bytes, Level, Seconds};

/// What [`VolumeLine::state`] may say.
pub(crate) const STATES: [&str; 7] = ["Bound", "Pending", "Moving", "Lost", "Terminating", "Released", NOT_FOLLOWED];
const NOT_FOLLOWED: &str = "NotFollowed";

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeLine {
    /// `NAMESPACE/NAME` in the host, where that is known, else of the leaf claim.
    pub(crate) claim: String,
    /// In the host; empty where it is not known.
    pub(crate) volume: String,
    pub(crate) member: String,
    /// The one node there that it can be used on.
    pub(crate) member_node: String,
    pub(crate) size: Bytes,
    pub(crate) leaf_class: String,
    pub(crate) access_modes: Vec<&'static str>,
    pub(crate) reclaim_policy: &'static str,
    /// Nodes of the host that it is published on.
    pub(crate) nodes: Vec<String>,
    pub(crate) state: &'static str,
    pub(crate) level: Level,
    /// What is wrong, where something is.
    pub(crate) why: String,
    pub(crate) age: Seconds,
    pub(crate) handle: String,
}

/// What the host says of a volume, in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct InHost {
    pub(crate) volume: String,
    pub(crate) claim: String,
    pub(crate) reclaim_policy: &'static str,
    is_leaving: bool,
    released: bool,
}

impl InHost {
    /// Of several with one handle, the first by name.
    pub(crate) fn of(volumes: Option<&HostVolumes>, handle: &str) -> Option<Self> {
        let first = volumes?.with(handle).into_iter().next()?;
        Some(Self {
            volume: first.name.to_string(),
            claim: first.claim.as_deref().unwrap_or_default().to_owned(),
            reclaim_policy: if first.retains { "Retain" } else { "Delete" },
            is_leaving: first.is_leaving(),
            released: first.released,
        })
    }

    /// Where the host has more to say than that there is such a volume.
    fn state(&self) -> Option<(&'static str, Level)> {
        match (self.is_leaving, self.released) {
            (true, _) => Some(("Terminating", Level::Waits)),
            (false, true) => Some(("Released", Level::Well)),
            (false, false) => None,
        }
    }
}

pub(crate) fn handle_of(member: &str, hash: VolumeHash, row: &Row) -> String {
    let place = row.claim.as_ref().map(ClaimRow::handle_place);
    let place = place.or_else(|| row.volume.as_ref().map(VolumeRow::handle_place));
    let id = place.map(|place| VolumeId::new(member, &place.namespace, &place.claim, hash));
    id.map(|id| id.to_string()).unwrap_or_default()
}

impl VolumeLine {
    pub(crate) fn of_leaf(member: &Member, hash: VolumeHash, row: &Row, volumes: Option<&HostVolumes>) -> Self {
        let handle = handle_of(&member.name, hash, row);
        let in_host = InHost::of(volumes, &handle).unwrap_or_default();
        let claim = row.claim.as_ref();
        let leaf_place = claim.map(|claim| &claim.place).or_else(|| row.volume.as_ref().map(|one| &one.claim_place));
        let (state, mut level) = in_host.state().unwrap_or_else(|| state(row));
        let ailment = known_ailments(row, member).into_iter().next().filter(|_| state != "Released");
        if ailment.is_some() {
            level = Level::Wrong;
        }
        let created = claim.map(ClaimRow::created).or_else(|| row.volume.as_ref().map(VolumeRow::created));
        Self {
            claim: if in_host.claim.is_empty() { leaf_place.map(words).unwrap_or_default() } else { in_host.claim },
            volume: in_host.volume,
            member: member.name.clone(),
            member_node: row.volume.as_ref().map(|volume| one_line(&volume.node)).unwrap_or_default(),
            size: Bytes(claim.map_or(0, |claim| match claim.capacity() {
                0 => claim.life.requested,
                capacity => capacity,
            })),
            leaf_class: claim.map(|claim| one_line(&claim.class)).unwrap_or_default(),
            access_modes: claim
                .map(|claim| claim.access.iter().map(|mode| mode.as_str()).collect())
                .unwrap_or_default(),
            reclaim_policy: in_host.reclaim_policy,
            nodes: claim.map(|claim| claim.life.published.nodes().map(one_line).collect()).unwrap_or_default(),
            state,
            level,
            why: ailment.map(|ailment| one_line(&ailment.message)).unwrap_or_default(),
            age: Seconds::since(created.unwrap_or_default()),
            handle: one_line(&handle),
        }
    }

    /// Of a volume of the host whose leaf is in no memory.
    pub(crate) fn not_followed(member: &str, handle: &str, volumes: &HostVolumes) -> Option<Self> {
        let in_host = InHost::of(Some(volumes), handle)?;
        Some(Self {
            claim: in_host.claim,
            volume: in_host.volume,
            member: member.to_owned(),
            member_node: String::new(),
            size: Bytes(0),
            leaf_class: String::new(),
            access_modes: Vec::new(),
            reclaim_policy: in_host.reclaim_policy,
            nodes: Vec::new(),
            state: NOT_FOLLOWED,
            level: Level::Waits,
            why:
                "its leaf claim is not among those that are followed: an imported one is not, and one of a member that \
                  has not been listed; kosmos-csi trace looks there"
                    .to_owned(),
            age: Seconds::default(),
            handle: handle.to_owned(),
        })
    }
}

/// As it is written in commands.
pub(crate) fn words(place: &LeafPlace) -> String {
    one_line(&format!("{}/{}", place.namespace, place.claim))
}

fn state(row: &Row) -> (&'static str, Level) {
    let Some(claim) = &row.claim else { return ("Released", Level::Well) };
    let size = claim.size();
    match size.phase {
        _ if size.terminating => ("Terminating", Level::Waits),
        _ if row.is_moving() => ("Moving", Level::Waits),
        Phase::Pending => ("Pending", Level::Waits),
        Phase::Lost => ("Lost", Level::Wrong),
        Phase::Bound => ("Bound", Level::Well),
    }
}
