//! What is to become of one claim, drawn: before the host goes back, and afterwards.

use std::time::Duration;

use csi::v1::{self, volume_content_source as content};
use fastrand::Rng;

use crate::{
    caller::{Change, Script},
    fixture::{self, LONG},
    snapshotter,
};

pub const MEMBERS: usize = 3;
pub const ATTACH_MODE: &[(&str, &str)] = &[("attachMode", "volume-attachment")];

/// What happens to volumes while they live.
const BEFORE: [&[Change]; 6] = [
    &[],
    &[Change::Publish],
    &[Change::Publish, Change::Unpublish],
    &[Change::Publish, Change::Expand],
    &[Change::Modify, Change::Publish, Change::Expand, Change::Unpublish],
    &[Change::Expand, Change::Modify],
];
/// What their users want of them again. A node may have them that the host knows nothing of.
const AFTERWARDS: [&[Change]; 4] =
    [&[], &[Change::Publish], &[Change::Publish, Change::Expand, Change::Unpublish], &[Change::Modify, Change::Expand]];
/// The same of those that are on a node by what the host knows.
const ON_A_NODE: [&[Change]; 3] = [&[], &[Change::Unpublish], &[Change::Publish, Change::Expand, Change::Unpublish]];

/// How it goes at the moment when the host goes back.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// All members are known all the while, so that pods may be sent elsewhere: nobody knows what a member keeps that does not answer.
    pub is_calm: bool,
    /// Provisioners that were at work go on, some of them for claims that are not there any more.
    pub sidecars_go_on: bool,
}

impl Day {
    pub fn draw(chance: &mut Rng) -> Self {
        Self { is_calm: chance.u8(..3) == 0, sidecars_go_on: chance.bool() }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub script: Script,
    /// From the beginning of this life.
    pub deleted_after: Option<Duration>,
    pub changes: &'static [Change],
    /// Before each of them.
    pub pace: Duration,
    pub shot: Option<Shot>,
    /// Another volume is filled with this one.
    pub is_copied: bool,
    /// Where it has ended, its user makes the claim again under the same name.
    pub comes_again: bool,
    /// The scheduler takes these members first, and thinks better of it after a while.
    pub at_first: Option<Vec<usize>>,
}

/// A snapshot in the life of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// The first word of its name.
    pub name: &'static str,
    pub after: Duration,
    pub class: &'static str,
    /// From the first call for it; none: it is kept.
    pub deleted_after: Option<Duration>,
}

impl Shot {
    fn draw(chance: &mut Rng, name: &'static str) -> Self {
        let (early, late) = (Duration::from_millis(chance.u64(..10_000)), Duration::from_secs(chance.u64(30..240)));
        Self {
            name,
            after: Duration::from_millis(chance.u64(..60_000)),
            class: if chance.u8(..4) == 0 { snapshotter::KEPT } else { snapshotter::USUAL },
            deleted_after: [Some(early), Some(late), None, None][chance.usize(..4)],
        }
    }
}

impl Plan {
    pub fn draw(chance: &mut Rng, number: usize, is_calm: bool) -> Self {
        let (is_attached, is_long) = (chance.u8(..8) == 0, chance.u8(..6) == 0);
        let mut places: Vec<usize> = (0..MEMBERS).collect();
        chance.shuffle(&mut places);
        places.truncate(if is_calm && chance.bool() { 2 } else { 1 });
        if is_attached {
            places = vec![0];
        }
        let is_deferred = !is_attached && chance.u8(..12) == 0;
        let script = Script {
            gibibytes: chance.u64(1..4),
            leaf_class: [fixture::NOW, fixture::NOW, fixture::LATER, fixture::KEPT][chance.usize(..4)],
            node_selected: places.len() > 1 || chance.bool(),
            told: chance.u8(..10) > 0,
            retain: chance.u8(..5) == 0,
            at_once: if chance.u8(..10) == 0 { 2 } else { 1 },
            asks_again: chance.u8(..6) == 0,
            binding: is_deferred.then_some("deferred"),
            parameters: if is_attached { ATTACH_MODE } else { &[] },
            places,
            ..Script::new(&named(number, is_attached, is_long))
        };
        let deleted_after = deletion(chance);
        // Without word of the host's objects nothing that has lost its source is ever given up.
        let is_source = script.told && !is_deferred;
        Self {
            deleted_after,
            changes: BEFORE[chance.usize(..BEFORE.len())],
            pace: pace(chance),
            shot: (chance.u8(..3) == 0 && is_source).then(|| Shot::draw(chance, "snapshot")),
            is_copied: chance.u8(..8) == 0 && is_source,
            comes_again: deleted_after.is_some() && chance.bool(),
            at_first: None,
            script,
        }
    }

    /// The life of a claim whose host has gone back. `is_on_a_node`: as far as the host knows.
    pub fn afterwards(&self, chance: &mut Rng, is_on_a_node: bool, is_calm: bool) -> Self {
        let changes = if is_on_a_node {
            ON_A_NODE[chance.usize(..ON_A_NODE.len())]
        } else {
            AFTERWARDS[chance.usize(..AFTERWARDS.len())]
        };
        let is_source = self.script.told && self.script.binding.is_none();
        let elsewhere = is_calm && self.script.places.len() > 1 && chance.bool();
        Self {
            script: self.script.clone(),
            deleted_after: deletion(chance),
            changes,
            pace: pace(chance),
            shot: (chance.u8(..4) == 0 && is_source).then(|| Shot::draw(chance, "later")),
            is_copied: false,
            comes_again: false,
            at_first: elsewhere.then(|| self.script.places.iter().rev().copied().collect()),
        }
    }

    /// A claim that begins with what is in this one's volume.
    pub fn of_copy(&self, handle: &str) -> Self {
        let volume_id = handle.to_owned();
        let source = content::Type::Volume(content::VolumeSource { volume_id });
        let script = Script {
            gibibytes: 2 * self.script.gibibytes,
            leaf_class: self.script.leaf_class,
            places: self.script.places.clone(),
            source: Some(v1::VolumeContentSource { r#type: Some(source) }),
            ..Script::new(&format!("filled-{}", self.script.claim))
        };
        Self {
            script,
            deleted_after: self.deleted_after,
            changes: &[],
            pace: self.pace,
            shot: None,
            is_copied: false,
            comes_again: false,
            at_first: None,
        }
    }
}

fn named(number: usize, is_attached: bool, is_long: bool) -> String {
    let kind = if is_attached { "attached" } else { "data" };
    if is_long && !is_attached { format!("{kind}-{}-{number}", "x".repeat(LONG)) } else { format!("{kind}-{number}") }
}

fn deletion(chance: &mut Rng) -> Option<Duration> {
    let (early, late) = (Duration::from_millis(chance.u64(..20_000)), Duration::from_secs(chance.u64(30..240)));
    [Some(early), Some(late), Some(late), None, None][chance.usize(..5)]
}

fn pace(chance: &mut Rng) -> Duration {
    Duration::from_millis([0, chance.u64(..10_000), chance.u64(..60_000)][chance.usize(..3)])
}
