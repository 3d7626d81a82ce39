//! Contents: the snapshots that are made and removed behind the objects.

use std::{collections::HashSet, sync::Arc, time::UNIX_EPOCH};

use serde_json::Value;

use super::objects;
use crate::{
    object::{is_terminating, name, text, uid},
    quantity,
    storage::{
        Member,
        names::{CONTENTS, SNAPSHOTS, VOLUMES, handle},
        settings,
    },
    timers::Timers,
};

/// The sidecar's part.
pub(super) struct Contents<'a> {
    member: &'a Member,
    busy: HashSet<String>,
    pub(super) timers: Timers<ContentStep>,
}

pub(super) struct ContentStep {
    content: Arc<Value>,
    attempt: u32,
    /// Whether the attempt is over, and whether it failed; none while it is still to begin.
    failed: Option<bool>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(member: &'a Member) -> Self {
        Self { member, busy: HashSet::new(), timers: Timers::new() }
    }

    pub(super) fn changed(&mut self, content: &Value, gone: bool) {
        if gone {
            self.busy.remove(uid(content));
        } else {
            let live = self.live(content);
            self.look(live.as_ref());
        }
    }

    pub(super) fn look(&mut self, content: Option<&Arc<Value>>) {
        if let Some(content) = content
            && self.has_work(content)
            && self.busy.insert(uid(content).to_owned())
        {
            self.attempt(Arc::clone(content), 0);
        }
    }

    fn live(&self, seen: &Value) -> Option<Arc<Value>> {
        self.member.cluster.get(CONTENTS, "", name(seen)).filter(|content| uid(content) == uid(seen))
    }

    /// To be made, or to be removed once its snapshot lets it.
    fn has_work(&self, content: &Value) -> bool {
        if text(content, "/spec/driver") != self.member.settings.provisioner {
            return false;
        }
        if !is_terminating(content) {
            return !objects::is_ready(content);
        }
        let told = |field: &str| text(content, &format!("/spec/volumeSnapshotRef/{field}"));
        let snapshot = self.member.cluster.get(SNAPSHOTS, told("namespace"), told("name"));
        snapshot.is_none_or(|snapshot| is_terminating(&snapshot) || !objects::is_of(content, &snapshot))
    }

    fn attempt(&mut self, content: Arc<Value>, attempt: u32) {
        let storage = &self.member.settings;
        let (work, doing) = match &storage.uploading {
            _ if is_terminating(&content) => (&storage.deleting, "remove"),
            Some(uploading) if objects::is_cut(&content) => (uploading, "upload"),
            _ => (&storage.snapshotting, "snapshot"),
        };
        let thing = format!("{doing} {}", name(&content));
        let (takes, fails) = settings::attempt(work, self.member.cluster.seed(), &thing, attempt);
        self.timers.add(takes, ContentStep { content, attempt, failed: Some(fails) });
    }

    pub(super) fn take(&mut self, ContentStep { content, attempt, failed }: ContentStep) {
        let Some(failed) = failed else {
            self.again(&content, attempt);
            return;
        };
        let outcome = match (failed, is_terminating(&content)) {
            (true, _) => Err("the storage failed".to_owned()),
            (false, true) => self.remove(&content),
            (false, false) => self.make(&content),
        };
        match outcome {
            // What was asked meanwhile, such as its end, comes next.
            Ok(()) => self.again(&content, 0),
            Err(message) => {
                let now = self.member.cluster.stamp();
                self.edit(&content, |content| objects::tell_error(content, &message, &now));
                self.timers.add(settings::pause(attempt), ContentStep { content, attempt: attempt + 1, failed: None });
            }
        }
    }

    fn again(&mut self, content: &Value, attempt: u32) {
        match self.live(content).filter(|content| self.has_work(content)) {
            Some(content) => self.attempt(content, attempt),
            None => drop(self.busy.remove(uid(content))),
        }
    }

    fn make(&self, content: &Value) -> Result<(), String> {
        if objects::is_cut(content) {
            self.edit(content, objects::tell_uploaded);
            return Ok(());
        }
        let (backing, source) = (&self.member.backing, text(content, "/spec/source/volumeHandle"));
        let taken = text(content, "/spec/source/snapshotHandle");
        let made = format!("snapshot-{}", text(content, "/spec/volumeSnapshotRef/uid"));
        let (snapshot, bytes) = if taken.is_empty() {
            backing.snapshot(&made, source).map_err(|trouble| trouble.to_string())?;
            (made.as_str(), self.size(source))
        } else {
            (taken, 0)
        };
        if !backing.has(snapshot) {
            return Err(format!("there is no snapshot {snapshot}"));
        }
        let since = self.member.cluster.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let ready = self.member.settings.uploading.is_none();
        self.edit(content, |content| objects::tell_made(content, snapshot, bytes, nanoseconds, ready));
        Ok(())
    }

    /// Volumes are named after what they are known by.
    fn size(&self, source: &str) -> u64 {
        let volume = self.member.cluster.get(VOLUMES, "", source).filter(|volume| handle(volume) == source);
        volume.and_then(|volume| quantity::parse(text(&volume, "/spec/capacity/storage"))).unwrap_or(0)
    }

    fn remove(&self, content: &Value) -> Result<(), String> {
        if objects::deletes(content) {
            let made = text(content, "/status/snapshotHandle");
            self.member.backing.remove(made).map_err(|trouble| trouble.to_string())?;
        }
        self.edit(content, objects::release_content);
        Ok(())
    }

    fn edit(&self, content: &Value, edit: impl FnOnce(&mut Value)) {
        let same = |live: &mut Value| {
            if uid(live) == uid(content) {
                edit(live);
            }
        };
        drop(self.member.cluster.change(CONTENTS, "", name(content), same));
    }
}
