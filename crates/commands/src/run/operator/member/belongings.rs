//! What the host has in a member: volumes, snapshots, and groups of snapshots. Once a member is forgotten, each is let go at a word, and
//! what is behind it stays there for ever.

use std::fmt;

use anyhow::Context;
use serde_json::Value;

use super::{counted_as, volumes_by_member};
use crate::run::operator::objects::{lacks, list};
use domain::volume::{DRIVER, VolumeId};
use host::Host;
use operator::{backup::SNAPSHOTS, objects::word};

const GROUPS: &str = "groupsnapshot.storage.k8s.io/v1";
/// Where the host's contents say what they lead to, or before that of what they are cut.
const OF_SNAPSHOT: [&str; 3] = ["/status/snapshotHandle", "/spec/source/snapshotHandle", "/spec/source/volumeHandle"];
const OF_GROUP: [&str; 3] = [
    "/status/volumeGroupSnapshotHandle",
    "/spec/source/groupSnapshotHandles/volumeGroupSnapshotHandle",
    "/spec/source/volumeHandles/0",
];
/// By name.
#[derive(Debug, Default)]
pub(super) struct Belongings {
    volumes: Vec<String>,
    snapshots: Vec<String>,
    groups: Vec<String>,
}

impl Belongings {
    pub(super) async fn of(host: &Host, member: &str) -> anyhow::Result<Self> {
        let volumes = volumes_by_member(host).await?.remove(member).unwrap_or_default();
        Ok(Self {
            volumes: volumes.iter().map(|volume| volume.name.to_string()).collect(),
            snapshots: contents(host, member, (SNAPSHOTS, "VolumeSnapshotContent"), OF_SNAPSHOT).await?,
            groups: contents(host, member, (GROUPS, "VolumeGroupSnapshotContent"), OF_GROUP).await?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds().iter().all(|(_, names)| names.is_empty())
    }

    fn kinds(&self) -> [(&'static str, &Vec<String>); 3] {
        [("volumes", &self.volumes), ("snapshots", &self.snapshots), ("groups of snapshots", &self.groups)]
    }
}

impl fmt::Display for Belongings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds();
        let told = kinds.iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| counted_as(kind, names));
        out.write_str(&told.collect::<Vec<_>>().join(", "))
    }
}

async fn contents(
    host: &Host,
    member: &str,
    (version, kind): (&str, &str),
    handles: [&str; 3],
) -> anyhow::Result<Vec<String>> {
    let unseen = || format!("what the host has in member {member} cannot be counted");
    let is_there = |content: &Value| is_in(content, member, handles);
    let found = match list(&host.client, version, kind, is_there).await {
        Err(_) if lacks(&host.client, version, kind).await => return Ok(Vec::new()),
        found => found.with_context(unseen)?,
    };
    Ok(found.iter().map(|content| word(content, "/metadata/name").to_owned()).collect())
}

fn is_in(content: &Value, member: &str, handles: [&str; 3]) -> bool {
    let handle = handles.iter().map(|path| word(content, path)).find(|handle| !handle.is_empty());
    let id = handle.and_then(VolumeId::parse);
    word(content, "/spec/driver") == DRIVER && id.is_some_and(|id| id.member == member)
}
