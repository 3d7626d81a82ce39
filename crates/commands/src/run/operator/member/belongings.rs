//! What the host has in a member: volumes, snapshots, groups of snapshots, and what moves have there. Once a member is forgotten, each is let
//! go at a word, and what is behind it stays there for ever.

use std::fmt;

use anyhow::Context;
use serde_json::Value;

use super::{counted_as, volumes_by_member};
use crate::run::operator::objects::{lacks, list};
use domain::volume::{
    DRIVER, VolumeId,
    moving::{Part, Phase},
};
use host::{
    Host,
    moves::{self, Side, VolumeMove},
    pins,
};
use operator::{backup::SNAPSHOTS, objects::word};

const GROUPS: &str = "groupsnapshot.storage.k8s.io/v1";
/// Where the host's contents say what they lead to, or before that of what they are cut.
const OF_SNAPSHOT: [&str; 3] = ["/status/snapshotHandle", "/spec/source/snapshotHandle", "/spec/source/volumeHandle"];
const OF_GROUP: [&str; 3] = [
    "/status/volumeGroupSnapshotHandle",
    "/spec/source/groupSnapshotHandles/volumeGroupSnapshotHandle",
    "/spec/source/volumeHandles/0",
];
/// Where a move says between which members it is, and which clusters they are.
const SIDES: [&str; 2] = ["/status/from", "/status/to"];

/// By name.
#[derive(Debug, Default)]
pub(super) struct Belongings {
    volumes: Vec<String>,
    snapshots: Vec<String>,
    groups: Vec<String>,
    /// Under way, from it or to it.
    moves: Vec<String>,
    /// What moves have or had there and nobody has seen to be gone, in words.
    of_moves: Vec<String>,
}

impl Belongings {
    pub(super) async fn of(host: &Host, member: &str) -> anyhow::Result<Self> {
        let volumes = volumes_by_member(host).await?.remove(member).unwrap_or_default();
        let meant = Meant { member, cluster: pins::pins(host).await?.remove(member) };
        let moves = moves_of(host, &meant).await?;
        Ok(Self {
            moves: moves.iter().filter(|of| !moves::is_over(of)).map(place).collect(),
            of_moves: moves.iter().filter_map(|of| left_by(of, &meant)).collect(),
            volumes: volumes.iter().map(|volume| volume.name.to_string()).collect(),
            snapshots: contents(host, member, (SNAPSHOTS, "VolumeSnapshotContent"), OF_SNAPSHOT).await?,
            groups: contents(host, member, (GROUPS, "VolumeGroupSnapshotContent"), OF_GROUP).await?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds().iter().all(|(_, names)| names.is_empty())
    }

    pub(super) fn has_moves(&self) -> bool {
        !self.moves.is_empty()
    }

    /// What of moves is there, each in a line. Of sources that were kept some may have been discarded since.
    pub(super) fn of_moves(&self) -> String {
        if self.of_moves.is_empty() {
            return String::new();
        }
        format!(
            "Of moves, it has the following, unless somebody has discarded it since:\n  {}\n",
            self.of_moves.join("\n  ")
        )
    }

    fn kinds(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            ("volumes", &self.volumes),
            ("snapshots", &self.snapshots),
            ("groups of snapshots", &self.groups),
            ("moves", &self.moves),
        ]
    }
}

impl fmt::Display for Belongings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds();
        let told = kinds.iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| counted_as(kind, names));
        out.write_str(&told.collect::<Vec<_>>().join(", "))
    }
}

/// All of a kind that are there; none where the host has no such kind.
async fn all(
    host: &Host,
    member: &str,
    (version, kind): (&str, &str),
    is_there: impl Fn(&Value) -> bool,
) -> anyhow::Result<Vec<Value>> {
    match list(&host.client, version, kind, is_there).await {
        Err(_) if lacks(&host.client, version, kind).await => Ok(Vec::new()),
        found => found.with_context(|| format!("this command cannot count what the host has in member {member}")),
    }
}

async fn contents(host: &Host, member: &str, kind: (&str, &str), handles: [&str; 3]) -> anyhow::Result<Vec<String>> {
    let found = all(host, member, kind, |content| is_in(content, member, handles)).await?;
    Ok(found.iter().map(|content| word(content, "/metadata/name").to_owned()).collect())
}

/// The member of moves: its name may have been another cluster's before, which was forgotten.
struct Meant<'a> {
    member: &'a str,
    /// As the host has it on record; none where it has nothing of it there.
    cluster: Option<String>,
}

impl Meant<'_> {
    /// A move that is older than that says of no cluster which it is.
    fn is(&self, member: &str, cluster: &str) -> bool {
        let is_unknown = cluster.is_empty() || self.cluster.is_none();
        self.member == member && (is_unknown || self.cluster.as_deref() == Some(cluster))
    }

    fn is_side(&self, side: &Side) -> bool {
        self.is(&side.member, &side.cluster)
    }
}

/// From it or to it, as far as they have begun.
async fn moves_of(host: &Host, meant: &Meant<'_>) -> anyhow::Result<Vec<VolumeMove>> {
    let says = |of: &Value, side: &str, what: &str| word(of, &format!("{side}/{what}")).to_owned();
    let is_there =
        |of: &Value| SIDES.iter().any(|side| meant.is(&says(of, side, "member"), &says(of, side, "cluster")));
    let kind = moves::resource().api_version;
    let found = all(host, meant.member, (kind.as_str(), moves::KIND), is_there).await?;
    found.into_iter().map(|of| serde_json::from_value(of).context("a VolumeMove cannot be read")).collect()
}

fn place(of: &VolumeMove) -> String {
    let named = moves::mark(of, Part::Source);
    format!("{}/{}", named.namespace, named.name)
}

/// The source of one that was not called off, and the copy of one that is under way.
fn left_by(of: &VolumeMove, meant: &Meant<'_>) -> Option<String> {
    let (status, claim, name) = (of.status.as_ref()?, moves::claim_of(of), moves::name(of));
    let is_from = status.from.as_ref().is_some_and(|from| meant.is_side(from));
    let is_wanted = !moves::is_over(of) || status.phase == Some(Phase::Succeeded);
    if is_from && is_wanted && !moves::source_is_gone(of) {
        return Some(format!("{}, the source of {name} of claim {claim}", moves::source_in_words(of)?));
    }
    let to = status.to.as_ref().filter(|to| meant.is_side(to) && !moves::is_over(of))?;
    Some(format!("the copy of {name} of claim {claim}, {}", to.handle))
}

fn is_in(content: &Value, member: &str, handles: [&str; 3]) -> bool {
    let handle = handles.iter().map(|path| word(content, path)).find(|handle| !handle.is_empty());
    let id = handle.and_then(VolumeId::parse);
    word(content, "/spec/driver") == DRIVER && id.is_some_and(|id| id.member == member)
}
