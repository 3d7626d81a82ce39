//! The end of volumes: those that are Released and whose policy says so are removed, slowly, and their objects after them.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;

use super::{
    Member,
    names::{PROVISIONED_BY, VOLUME_FINALIZER, VOLUMES, handle},
    settings,
};
use crate::{
    events::{self, About},
    object::{add_finalizer, annotation, drop_finalizer, has_finalizer, is_terminating, name, text, uid},
    timers::Timers,
};

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[VOLUMES]);
    let mut reclaimer = Reclaimer { member, busy: HashSet::new(), timers: Timers::new() };
    loop {
        tokio::select! {
            biased;
            change = changes.next() => reclaimer.changed(&change.object),
            attempt = reclaimer.timers.next() => reclaimer.take(attempt),
        }
    }
}

struct Reclaimer<'a> {
    member: &'a Member,
    busy: HashSet<String>,
    timers: Timers<ReclaimStep>,
}

enum ReclaimStep {
    Finish { volume: Arc<Value>, attempt: u32, fails: bool },
    Again { volume: Arc<Value>, attempt: u32 },
}

impl Reclaimer<'_> {
    fn changed(&mut self, seen: &Value) {
        let Some(volume) = self.ours(seen) else {
            return;
        };
        self.guard(&volume);
        if is_doomed(&volume) && self.busy.insert(uid(&volume).to_owned()) {
            self.attempt(volume, 0);
        }
    }

    fn attempt(&mut self, volume: Arc<Value>, attempt: u32) {
        let thing = format!("delete {}", name(&volume));
        let (takes, fails) =
            settings::attempt(&self.member.settings.deleting, self.member.cluster.seed(), &thing, attempt);
        self.timers.add(takes, ReclaimStep::Finish { volume, attempt, fails });
    }

    fn take(&mut self, step: ReclaimStep) {
        let (volume, attempt, fails) = match step {
            ReclaimStep::Again { volume, attempt } => {
                match self.ours(&volume).filter(|volume| is_doomed(volume)) {
                    Some(volume) => self.attempt(volume, attempt),
                    None => drop(self.busy.remove(uid(&volume))),
                }
                return;
            }
            ReclaimStep::Finish { volume, attempt, fails } => (volume, attempt, fails),
        };
        let removed = if fails { Err("the storage failed".to_owned()) } else { self.remove(&volume) };
        match removed {
            Ok(()) => drop(self.busy.remove(uid(&volume))),
            Err(message) => {
                let source = &self.member.settings.provisioner;
                events::tell(
                    &self.member.cluster,
                    &About::volume(&volume),
                    source,
                    "Warning",
                    "VolumeFailedDelete",
                    &message,
                );
                self.timers.add(settings::pause(attempt), ReclaimStep::Again { volume, attempt: attempt + 1 });
            }
        }
    }

    fn remove(&self, volume: &Value) -> Result<(), String> {
        self.member.backing.remove(handle(volume)).map_err(|trouble| trouble.to_string())?;
        if self.ours(volume).is_some() {
            // Gone already is what is wanted.
            drop(self.member.cluster.delete(VOLUMES, "", name(volume)));
            drop(
                self.member
                    .cluster
                    .change(VOLUMES, "", name(volume), |volume| drop_finalizer(volume, VOLUME_FINALIZER)),
            );
        }
        Ok(())
    }

    /// The volume as it is now, if it is one that was made here.
    fn ours(&self, seen: &Value) -> Option<Arc<Value>> {
        let volume = self.member.cluster.get(VOLUMES, "", name(seen))?;
        let same = uid(&volume) == uid(seen) && annotation(&volume, PROVISIONED_BY) == self.member.settings.provisioner;
        same.then_some(volume)
    }

    /// Only a volume that goes with its claim is kept until it is removed.
    fn guard(&self, volume: &Value) {
        let (guarded, goes) = (has_finalizer(volume, VOLUME_FINALIZER), goes_with_claim(volume));
        let edit = match (guarded, goes) {
            (true, false) => drop_finalizer,
            (false, true) if !is_terminating(volume) => add_finalizer,
            _ => return,
        };
        drop(self.member.cluster.change(VOLUMES, "", name(volume), |volume| edit(volume, VOLUME_FINALIZER)));
    }
}

fn goes_with_claim(volume: &Value) -> bool {
    text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
}

fn is_doomed(volume: &Value) -> bool {
    let removed = is_terminating(volume) && !has_finalizer(volume, VOLUME_FINALIZER);
    text(volume, "/status/phase") == "Released" && goes_with_claim(volume) && !removed
}
