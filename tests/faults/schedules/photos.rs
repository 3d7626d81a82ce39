//! What a schedule does with a volume's snapshots: taken while the volume lives, looked at, copied into a new volume, cut again
//! as a group, and removed before the volume or after it.

use std::{sync::Arc, time::Duration};

use csi::v1::{self, controller_server::Controller as _, volume_content_source as content};
use fastrand::Rng;
use tokio::time::{sleep, timeout};

use super::Story;
use crate::{
    bench::{Bench, lock, with_deadline},
    caller::{Caller, Ending, Script},
    snapshotter::{KEPT, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish},
};

/// Nobody waits longer for a snapshot that does not come.
const GIVES_UP: Duration = Duration::from_mins(20);

/// A snapshot in the life of a volume.
#[derive(Clone, Debug)]
pub struct Photo {
    /// From the volume's beginning.
    after: Duration,
    class: &'static str,
    at_once: usize,
    /// From the first call for it to its deletion by the user; none: it is kept.
    deleted_after: Option<Duration>,
    /// A volume is filled with it, or with the volume itself.
    copied: Option<Copied>,
    /// Volume and copy are cut together.
    grouped: bool,
    /// When nobody needs the group any more, somebody in the member removes it before the host does.
    robbed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    Snapshot,
    Volume,
}

/// What is left of it: volumes that were filled, and snapshots that are kept.
#[derive(Default)]
pub struct Album {
    pub stories: Vec<Story>,
    pub kept: Vec<Snapshotter>,
}

impl Photo {
    pub fn draw(chance: &mut Rng) -> Self {
        let (early, late) = (Duration::from_millis(chance.u64(..10_000)), Duration::from_secs(chance.u64(30..240)));
        Self {
            after: Duration::from_millis(chance.u64(..30_000)),
            class: if chance.u8(..4) == 0 { KEPT } else { USUAL },
            at_once: if chance.u8(..5) == 0 { 2 } else { 1 },
            deleted_after: [Some(early), Some(late), Some(late), None][chance.usize(..4)],
            copied: [None, None, Some(Copied::Snapshot), Some(Copied::Volume)][chance.usize(..4)],
            grouped: chance.u8(..4) == 0,
            robbed: chance.u8(..3) == 0,
        }
    }

    /// All that is done with a volume's snapshots, whatever becomes of the volume meanwhile.
    pub async fn live(self, bench: Arc<Bench>, volume: Caller) -> Album {
        sleep(self.after).await;
        // Without word of the host's objects nothing that has lost its source is ever given up: so the host keeps the source.
        if volume.script().told {
            return self.take(&bench, &volume).await;
        }
        if volume.claim_was_deleted() {
            return Album::default();
        }
        volume.hold(true);
        let album = self.take(&bench, &volume).await;
        volume.hold(false);
        album
    }

    async fn take(&self, bench: &Arc<Bench>, volume: &Caller) -> Album {
        let mut snapshot = Snapshotter::new(bench, self.wish(Kind::Snapshot, volume, &[volume]));
        let user = discard(snapshot.clone(), self.deleted_after);
        let work = async {
            let mut stories = Vec::new();
            if snapshot.make().await {
                snapshot.look().await;
                stories.extend(self.copy(bench, volume, &snapshot).await);
                snapshot.look().await;
            }
            stories
        };
        let (stories, ()) = tokio::join!(work, user);
        let is_kept = snapshot.handle().is_some() && !snapshot.is_discarded();
        if snapshot.handle().is_some() && !is_kept {
            snapshot.remove().await;
        }
        Album { stories, kept: is_kept.then_some(snapshot).into_iter().collect() }
    }

    fn wish(&self, kind: Kind, volume: &Caller, sources: &[&Caller]) -> Wish {
        let what = if kind == Kind::Group { "groupsnapshot" } else { "snapshot" };
        Wish {
            kind,
            name: format!("{what}-{}", volume.volume()),
            sources: sources.iter().filter_map(|source| source.handle().map(str::to_owned)).collect(),
            class: self.class,
            told: volume.script().told,
            at_once: self.at_once,
        }
    }

    /// A volume that begins with what was there, and its life. It goes where the volume goes.
    async fn copy(&self, bench: &Arc<Bench>, volume: &Caller, snapshot: &Snapshotter) -> Option<Story> {
        let Some(copied) = self.copied else {
            self.group(bench, volume, &[volume]).await;
            return None;
        };
        let (snapshot_id, volume_id) = (snapshot.handle()?.to_owned(), volume.handle()?.to_owned());
        let source = match copied {
            Copied::Snapshot => content::Type::Snapshot(content::SnapshotSource { snapshot_id }),
            Copied::Volume => content::Type::Volume(content::VolumeSource { volume_id }),
        };
        let original = volume.script();
        let script = Script {
            gibibytes: 2 * original.gibibytes,
            leaf_class: original.leaf_class,
            told: original.told,
            source: Some(v1::VolumeContentSource { r#type: Some(source) }),
            ..Script::new(&format!("filled-{}", original.claim))
        };
        let mut copy = Caller::new(bench, script);
        // What it is to be filled with may go before.
        let ending = patiently(&mut copy).await;
        if ending == Ending::Provisioned {
            copy.hold(!original.told);
            self.group(bench, volume, &[volume, &copy]).await;
            copy.hold(false);
        }
        let deleted = original.deleted_after.is_some() || ending == Ending::Forgotten;
        if deleted {
            copy.delete_claim();
            copy.reclaim().await;
        }
        Some(Story { caller: copy, ending, deleted })
    }

    async fn group(&self, bench: &Arc<Bench>, volume: &Caller, sources: &[&Caller]) {
        if !self.grouped {
            return;
        }
        let mut group = Snapshotter::new(bench, self.wish(Kind::Group, volume, sources));
        let user = discard(group.clone(), self.deleted_after);
        let (made, ()) = tokio::join!(group.make(), user);
        if made {
            group.look().await;
            group.discard();
            if self.robbed {
                group.let_go();
                group.rob();
                sleep(self.after).await;
            }
            group.remove().await;
        }
    }
}

/// The user does not wait for ever.
async fn patiently(copy: &mut Caller) -> Ending {
    let user = copy.clone();
    let mut work = Box::pin(copy.provision());
    if let Ok(ending) = timeout(GIVES_UP, &mut work).await {
        return ending;
    }
    user.delete_claim();
    work.await
}

/// The user deletes it after a while; what is to be kept only if it does not come.
pub async fn discard(snapshot: Snapshotter, after: Option<Duration>) {
    sleep(after.unwrap_or(GIVES_UP)).await;
    if after.is_some() {
        snapshot.discard();
    } else {
        snapshot.discard_unless_made();
    }
}

/// The list has what was handed out, each once, and nothing else.
pub async fn are_listed(bench: &Bench, kept: &[Snapshotter]) {
    let request = v1::ListSnapshotsRequest::default();
    let all = bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
    let mut listed: Vec<String> = match all.await {
        Ok(all) => all.entries.into_iter().filter_map(|entry| Some(entry.snapshot?.snapshot_id)).collect(),
        Err(status) => return bench.guard.report(format!("I10: snapshots cannot be listed: {status}")),
    };
    let mut known: Vec<String> = kept.iter().flat_map(|snapshot| snapshot.parts().to_vec()).collect();
    listed.retain(|handle| {
        if known.contains(handle) {
            return true;
        }
        let (parts, member) = (handle.split('/').collect::<Vec<_>>(), bench.member_of(handle));
        let leaf = member.and_then(|member| Some((member, member.get(SNAPSHOTS, parts[1], parts[2])?)));
        leaf.is_none_or(|(member, leaf)| !lock(&bench.guard.history).is_nobodys(member, &leaf))
    });
    listed.sort();
    known.sort();
    if listed != known {
        bench.guard.report(format!("I4: the list of snapshots is {listed:?}, and there are {known:?}"));
    }
}
