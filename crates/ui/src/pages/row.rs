//! A volume as one line, whichever page shows it.

use std::collections::BTreeMap;

use domain::volume::{LeafPlace, VolumeHash, plan::Phase};
use driver::provision::health::known_ailments;
use host::{volume::HostVolume, volumes::HostVolumes};
use leaf::row::{ClaimRow, Row, VolumeRow};
use member::{Member, registry::KnownAs};
use serde::Serialize;

use crate::shown::{Bytes, Level, Seconds, text};

/// What [`VolumeLine::state`] may say.
pub(crate) const STATES: [&str; 9] =
    [BOUND, "Pending", "Moving", "Lost", NO_CLAIM, "Terminating", "Released", "Available", NOT_FOLLOWED];
const BOUND: &str = "Bound";
/// The host's volume is in use, and its leaf claim has gone.
const NO_CLAIM: &str = "LeafClaimGone";
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
    /// None where it is not known.
    pub(crate) size: Option<Bytes>,
    pub(crate) leaf_class: String,
    pub(crate) access_modes: Vec<&'static str>,
    pub(crate) reclaim_policy: &'static str,
    /// Nodes of the host that it is published on.
    pub(crate) nodes: Vec<String>,
    pub(crate) state: &'static str,
    pub(crate) level: Level,
    /// What is wrong, where something is.
    pub(crate) why: String,
    /// None where it is not known.
    pub(crate) age: Option<Seconds>,
    pub(crate) handle: String,
}

/// How a volume of the host stands.
pub(crate) fn state_in_host(volume: &HostVolume) -> (&'static str, Level) {
    match (volume.terminating, volume.released) {
        (true, _) => ("Terminating", Level::Waits),
        (false, true) => ("Released", if volume.deletes { Level::Waits } else { Level::Well }),
        (false, false) if volume.claim_uid.is_empty() => ("Available", Level::Well),
        (false, false) => (BOUND, Level::Well),
    }
}

/// What the host says of a volume, in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct InHost {
    pub(crate) volume: String,
    pub(crate) claim: String,
    pub(crate) claim_uid: String,
    pub(crate) reclaim_policy: &'static str,
    /// Where that is more than that somebody has it.
    state: Option<(&'static str, Level)>,
}

impl InHost {
    /// Of several with one handle, the first by name.
    fn of(volumes: &HostVolumes, handle: &str) -> Option<Self> {
        let first = volumes.with(handle).into_iter().next()?;
        Some(Self {
            volume: first.name.to_string(),
            claim: text(first.claim.as_deref().unwrap_or_default()),
            claim_uid: first.claim_uid.to_string(),
            reclaim_policy: if first.retains { "Retain" } else { "Delete" },
            state: Some(state_in_host(&first)).filter(|(state, _)| *state != BOUND),
        })
    }
}

/// One member as its volumes are gone through.
pub(crate) struct Side<'a> {
    member: &'a Member,
    aliases: Vec<String>,
    /// Why it cannot be asked, where it cannot.
    trouble: Option<String>,
    volumes: Option<&'a HostVolumes>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(known: &BTreeMap<String, KnownAs>, member: &'a Member, volumes: Option<&'a HostVolumes>) -> Self {
        let trouble = member.leaf().err().map(|error| text(&error.to_string()));
        let aliases = known.get(&member.name).map(|known| known.aliases.clone()).unwrap_or_default();
        Self { member, aliases, trouble, volumes }
    }

    /// Its handle, and what the host says of it: the host may know it by another name of the member.
    pub(crate) fn in_host(&self, hash: VolumeHash, row: &Row) -> (String, Option<InHost>) {
        let own = handle_of(&self.member.name, hash, row);
        let Some(volumes) = self.volumes else { return (own, None) };
        let others = self.aliases.iter().map(|alias| handle_of(alias, hash, row));
        let known = std::iter::once(own.clone()).chain(others).find_map(|handle| {
            let in_host = InHost::of(volumes, &handle)?;
            Some((handle, Some(in_host)))
        });
        known.unwrap_or((own, None))
    }

    /// Whether the host has it in use, and its leaf claim has gone.
    pub(crate) fn is_without_claim(&self, hash: VolumeHash, row: &Row) -> bool {
        let (_, in_host) = self.in_host(hash, row);
        in_host.is_some_and(|in_host| state(row, Some(&in_host), true).0 == NO_CLAIM)
    }
}

fn handle_of(member: &str, hash: VolumeHash, row: &Row) -> String {
    row.id(member, hash).map(|id| id.to_string()).unwrap_or_default()
}

impl VolumeLine {
    pub(crate) fn of_leaf(side: &Side<'_>, hash: VolumeHash, row: &Row) -> Self {
        let (handle, in_host) = side.in_host(hash, row);
        let (state, mut level) = state(row, in_host.as_ref(), side.volumes.is_some());
        let ailment = known_ailments(row, &side.member.name, side.trouble.as_deref()).into_iter().next();
        // Where the host gave it up, nothing is wrong with what is left.
        let ailment = ailment.filter(|_| !["Released", "Terminating"].contains(&state));
        if ailment.is_some() && (in_host.is_some() || row.claim.is_some()) {
            level = Level::Wrong;
        }
        let (claim, in_host) = (row.claim.as_ref(), in_host.unwrap_or_default());
        let leaf_place = claim.map(|claim| &claim.place).or_else(|| row.volume.as_ref().map(|one| &one.claim_place));
        let created = claim.map(ClaimRow::created).or_else(|| row.volume.as_ref().map(VolumeRow::created));
        Self {
            claim: if in_host.claim.is_empty() { leaf_place.map(words).unwrap_or_default() } else { in_host.claim },
            volume: in_host.volume,
            member: side.member.name.clone(),
            member_node: row.volume.as_ref().map(|volume| text(&volume.node)).unwrap_or_default(),
            size: claim.map(size),
            leaf_class: claim.map(|claim| text(&claim.class)).unwrap_or_default(),
            access_modes: claim.map(modes).unwrap_or_default(),
            reclaim_policy: in_host.reclaim_policy,
            nodes: claim.map(nodes).unwrap_or_default(),
            state,
            level,
            why: ailment.map(|ailment| text(&ailment.message)).unwrap_or_default(),
            age: created.map(Seconds::since),
            handle: text(&handle),
        }
    }

    /// Of a volume of the host whose leaf is in no memory.
    pub(crate) fn not_followed(member: &str, handle: &str, volumes: &HostVolumes) -> Option<Self> {
        let in_host = InHost::of(volumes, handle)?;
        Some(Self {
            claim: in_host.claim,
            volume: in_host.volume,
            member: member.to_owned(),
            member_node: String::new(),
            size: None,
            leaf_class: String::new(),
            access_modes: Vec::new(),
            reclaim_policy: in_host.reclaim_policy,
            nodes: Vec::new(),
            state: NOT_FOLLOWED,
            level: Level::Waits,
            why:
                "this page does not follow its leaf claim, as the claim was imported, or its member has left or was not \
                  listed yet; kosmos-csi trace shows it"
                    .to_owned(),
            age: None,
            handle: handle.to_owned(),
        })
    }
}

/// As it is written in commands.
pub(crate) fn words(place: &LeafPlace) -> String {
    text(&place.to_string())
}

/// What it asks for, until it has something.
fn size(claim: &ClaimRow) -> Bytes {
    Bytes(if claim.capacity() == 0 { claim.life.requested } else { claim.capacity() })
}

pub(crate) fn modes(claim: &ClaimRow) -> Vec<&'static str> {
    claim.access.iter().map(|mode| mode.as_str()).collect()
}

/// Of the host, by their ids.
pub(crate) fn nodes(claim: &ClaimRow) -> Vec<String> {
    claim.life.published.nodes().map(text).collect()
}

/// `is_host_known`: a volume that the host has would be found.
fn state(row: &Row, in_host: Option<&InHost>, is_host_known: bool) -> (&'static str, Level) {
    match (&row.claim, in_host.map(|in_host| in_host.state)) {
        (_, Some(Some(state))) => state,
        (None, Some(None)) => (NO_CLAIM, Level::Wrong),
        (None, None) if is_host_known => ("Released", Level::Well),
        // Whether somebody uses it is not known here.
        (None, None) => (NO_CLAIM, Level::Waits),
        (Some(claim), _) => match claim.size().phase {
            _ if claim.size().terminating => ("Terminating", Level::Waits),
            _ if row.is_moving() => ("Moving", Level::Waits),
            Phase::Pending => ("Pending", Level::Waits),
            Phase::Lost => ("Lost", Level::Wrong),
            Phase::Bound => (BOUND, Level::Well),
        },
    }
}
