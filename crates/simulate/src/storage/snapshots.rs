//! Snapshots, where a cluster has their kinds: what the snapshot controller does with the objects of users, and what the
//! driver's sidecar does with the contents behind them.

mod content;
pub mod objects;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use self::content::Contents;
use super::{
    Member,
    names::{CLAIMS, CONTENTS, PROVISIONED_BY, SNAPSHOT_CLASSES, SNAPSHOTS, VOLUMES, class_of, handle, is_bound},
    restore, settings,
};
use crate::{
    What,
    events::{self, About},
    object::{annotate, annotation, is_terminating, name, namespace, text, uid},
    store::Key,
    timers::Timers,
};

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[SNAPSHOTS, CONTENTS]);
    let mut snapshots = Snapshots { member, sources: HashMap::new(), attempts: HashMap::new(), timers: Timers::new() };
    let mut contents = Contents::new(member);
    loop {
        tokio::select! {
            biased;
            change = changes.next() => {
                let gone = change.what == What::Deleted;
                if change.resource == SNAPSHOTS {
                    snapshots.changed(&change.object, gone);
                    contents.look(snapshots.content(&change.object).as_ref());
                } else {
                    contents.changed(&change.object, gone);
                    snapshots.look_at_owner(&change.object);
                }
            }
            key = snapshots.timers.next() => snapshots.look(&key),
            step = contents.timers.next() => contents.take(step),
        }
    }
}

/// The controller's part.
struct Snapshots<'a> {
    member: &'a Member,
    /// Snapshots that are not ready yet, by the claim that they are made of.
    sources: HashMap<Key, BTreeSet<Key>>,
    /// How often a snapshot was tried in vain.
    attempts: HashMap<Key, u32>,
    timers: Timers<Key>,
}

impl Snapshots<'_> {
    fn changed(&mut self, snapshot: &Value, gone: bool) {
        let key: Key = (namespace(snapshot).to_owned(), name(snapshot).to_owned());
        self.hold_source(&key, snapshot, gone);
        if gone {
            self.attempts.remove(&key);
        } else {
            self.look(&key);
        }
    }

    fn look_at_owner(&mut self, content: &Value) {
        let told = |field: &str| text(content, &format!("/spec/volumeSnapshotRef/{field}")).to_owned();
        self.look(&(told("namespace"), told("name")));
    }

    fn look(&mut self, key: &Key) {
        let Some(snapshot) = self.member.cluster.get(SNAPSHOTS, &key.0, &key.1) else {
            return;
        };
        if is_terminating(&snapshot) {
            self.end(key, &snapshot);
            return;
        }
        match self.content(&snapshot) {
            Some(content) => self.tell_state(&snapshot, &content),
            None if objects::content_of(&snapshot).is_empty() => self.begin(key, &snapshot),
            // Its content has been taken away: nothing makes it whole again.
            None => self.fail(&snapshot, "VolumeSnapshotContent is missing", "SnapshotContentMissing"),
        }
    }

    /// The content that is bound to a snapshot.
    fn content(&self, snapshot: &Value) -> Option<Arc<Value>> {
        self.member.cluster.get(CONTENTS, "", objects::content_of(snapshot))
    }

    fn tell_state(&self, snapshot: &Value, content: &Value) {
        if objects::is_ready(content) && !objects::is_ready(snapshot) {
            let now = self.member.cluster.stamp();
            self.edit(snapshot, |snapshot| objects::tell_ready(snapshot, content, &now));
            self.tell(snapshot, "Normal", "SnapshotReady", "the snapshot can be used");
            return;
        }
        if objects::is_cut(content) && !objects::is_cut(snapshot) {
            let now = self.member.cluster.stamp();
            self.edit(snapshot, |snapshot| objects::tell_cut(snapshot, content, &now));
        }
        let problem = text(content, "/status/error/message");
        if !problem.is_empty() && !objects::is_ready(content) {
            self.fail(snapshot, problem, "SnapshotCreationFailed");
        }
    }

    fn begin(&mut self, key: &Key, snapshot: &Value) {
        let taken = text(snapshot, "/spec/source/volumeSnapshotContentName");
        let outcome = if taken.is_empty() { self.make(snapshot) } else { self.take(snapshot, taken) };
        let Err(problem) = outcome else {
            self.attempts.remove(key);
            return;
        };
        if let Some(problem) = problem {
            self.fail(snapshot, &problem, "SnapshotContentCreationFailed");
            let attempt = self.attempts.entry(key.clone()).or_default();
            *attempt += 1;
            self.timers.add(settings::pause(*attempt), key.clone());
        }
    }

    /// A content of its own; an error without words is no business of ours.
    fn make(&self, snapshot: &Value) -> Result<(), Option<String>> {
        let class = self.class_for(snapshot)?;
        let claim = text(snapshot, "/spec/source/persistentVolumeClaimName");
        let claim = self.member.cluster.get(CLAIMS, namespace(snapshot), claim);
        let claim = claim.ok_or_else(|| Some("the claim is not there".to_owned()))?;
        if !is_bound(&claim) {
            return Err(Some(format!("claim {} is not bound", name(&claim))));
        }
        let volume = self.member.cluster.get(VOLUMES, "", text(&claim, "/spec/volumeName"));
        let ours = volume.filter(|volume| annotation(volume, PROVISIONED_BY) == self.member.settings.provisioner);
        let volume = ours.ok_or_else(|| Some(format!("the volume of claim {} is another driver's", name(&claim))))?;
        let mut classes = self.member.settings.classes.iter();
        if classes.any(|class| class.name == class_of(&claim) && !class.snapshots) {
            return Err(Some(format!("volumes of class {} have no snapshots", class_of(&claim))));
        }
        self.edit(snapshot, |snapshot| objects::begin(snapshot, name(&class)));
        self.edit_claim(&(namespace(&claim).to_owned(), name(&claim).to_owned()), objects::hold_source);
        let content = objects::content(snapshot, &class, handle(&volume));
        let content_name = name(&content).to_owned();
        if let Err(refusal) = self.member.cluster.create(CONTENTS, content)
            && refusal.reason != "AlreadyExists"
        {
            return Err(Some(refusal.message));
        }
        self.edit(snapshot, |snapshot| objects::bind(snapshot, &content_name));
        self.tell(snapshot, "Normal", "CreatingSnapshot", "the snapshot is being made");
        Ok(())
    }

    /// The class that a snapshot names, or the default one, if it is of our driver.
    fn class_for(&self, snapshot: &Value) -> Result<Arc<Value>, Option<String>> {
        let named = text(snapshot, "/spec/volumeSnapshotClassName");
        let ours = |class: &Arc<Value>| text(class, "/driver") == self.member.settings.provisioner;
        if named.is_empty() {
            let mut classes = self.member.cluster.list(SNAPSHOT_CLASSES).into_iter();
            return classes.find(|class| ours(class) && objects::is_default(class)).ok_or(None);
        }
        let class = self.member.cluster.get(SNAPSHOT_CLASSES, "", named);
        let class = class.ok_or_else(|| Some(format!("VolumeSnapshotClass {named} is not there")))?;
        if ours(&class) { Ok(class) } else { Err(None) }
    }

    /// A content that is there already, and names this snapshot.
    fn take(&self, snapshot: &Value, content: &str) -> Result<(), Option<String>> {
        let found = self.member.cluster.get(CONTENTS, "", content);
        let found = found.ok_or_else(|| Some(format!("VolumeSnapshotContent {content} is not there")))?;
        if text(&found, "/spec/driver") != self.member.settings.provisioner {
            return Err(None);
        }
        if !objects::is_of(&found, snapshot) {
            return Err(Some(format!("VolumeSnapshotContent {content} is of another snapshot")));
        }
        self.edit(snapshot, |snapshot| objects::begin(snapshot, ""));
        let edit = |content: &mut Value| objects::bind_content(content, snapshot);
        drop(self.member.cluster.change(CONTENTS, "", content, edit));
        self.edit(snapshot, |snapshot| objects::bind(snapshot, content));
        Ok(())
    }

    /// A snapshot that ends waits for volumes that are filled with it, and for its content.
    fn end(&mut self, key: &Key, snapshot: &Value) {
        let claims = self.member.cluster.list(CLAIMS);
        if claims.iter().any(|claim| restore::restores(claim, snapshot) && !is_bound(claim)) {
            self.timers.add(settings::pause(0), key.clone());
            return;
        }
        let content = self.content(snapshot).filter(|content| objects::is_of(content, snapshot));
        if let Some(content) = content {
            let edit = |content: &mut Value| annotate(content, objects::BEING_DELETED, "yes");
            drop(self.member.cluster.change(CONTENTS, "", name(&content), edit));
            if objects::deletes(&content) {
                drop(self.member.cluster.delete(CONTENTS, "", name(&content)));
                if self.content(snapshot).is_some() {
                    return;
                }
            }
        }
        self.edit(snapshot, objects::release);
    }

    /// A claim is kept while a snapshot of it is being made.
    fn hold_source(&mut self, key: &Key, snapshot: &Value, gone: bool) {
        let source = text(snapshot, "/spec/source/persistentVolumeClaimName");
        if source.is_empty() {
            return;
        }
        let source: Key = (key.0.clone(), source.to_owned());
        let open = self.sources.entry(source.clone()).or_default();
        if !gone && !objects::is_ready(snapshot) {
            open.insert(key.clone());
        } else if open.remove(key) && open.is_empty() {
            self.sources.remove(&source);
            self.edit_claim(&source, objects::release_source);
        }
    }

    fn fail(&self, snapshot: &Value, message: &str, reason: &str) {
        if text(snapshot, "/status/error/message") != message {
            let now = self.member.cluster.stamp();
            self.edit(snapshot, |snapshot| objects::tell_error(snapshot, message, &now));
            self.tell(snapshot, "Warning", reason, message);
        }
    }

    fn edit(&self, snapshot: &Value, edit: impl FnOnce(&mut Value)) {
        let same = |live: &mut Value| {
            if uid(live) == uid(snapshot) {
                edit(live);
            }
        };
        drop(self.member.cluster.change(SNAPSHOTS, namespace(snapshot), name(snapshot), same));
    }

    fn edit_claim(&self, key: &Key, edit: impl FnOnce(&mut Value)) {
        drop(self.member.cluster.change(CLAIMS, &key.0, &key.1, edit));
    }

    fn tell(&self, snapshot: &Value, level: &'static str, reason: &str, message: &str) {
        events::tell(&self.member.cluster, &About::snapshot(snapshot), "snapshot-controller", level, reason, message);
    }
}
