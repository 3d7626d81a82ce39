//! Volumes for claims. What was begun is finished even if the claim has gone meanwhile: the volume is then Released, and
//! reclaimed like any other.

mod volume;

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;

use self::volume::{Source, requested};
use super::{
    Member,
    names::{CLAIMS, CLASSES, NODES, SELECTED_NODE, VOLUMES, class_of, waits_for_pod},
    restore, settings,
};
use crate::{
    events::{self, About},
    object::{annotation, name, namespace, text, uid, unset},
    timers::Timers,
};

/// Whose claims are provisioned, in both notations.
const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[CLAIMS]);
    let mut provisioner = Provisioner { member, busy: HashSet::new(), timers: Timers::new() };
    loop {
        tokio::select! {
            biased;
            change = changes.next() => provisioner.begin(&change.object),
            step = provisioner.timers.next() => provisioner.take(step),
        }
    }
}

struct Provisioner<'a> {
    member: &'a Member,
    /// UIDs of the claims that are worked on.
    busy: HashSet<String>,
    timers: Timers<ProvisionStep>,
}

enum ProvisionStep {
    /// The work of an attempt is over.
    Finish { claim: Arc<Value>, attempt: u32, fails: bool },
    /// It is time for another attempt.
    Again { claim: Arc<Value>, attempt: u32 },
}

/// Why an attempt came to nothing.
enum Failure {
    /// Not here: the scheduler may choose again, where it chose.
    Elsewhere(String),
    Other(String),
}

impl Provisioner<'_> {
    fn begin(&mut self, seen: &Value) {
        if let Some(claim) = self.wanting(seen)
            && self.busy.insert(uid(&claim).to_owned())
        {
            self.attempt(claim, 0);
        }
    }

    fn attempt(&mut self, claim: Arc<Value>, attempt: u32) {
        let thing = format!("provision {}/{}", namespace(&claim), name(&claim));
        self.tell(&claim, "Normal", "Provisioning", "a volume is being made");
        let (takes, fails) =
            settings::attempt(&self.member.settings.provisioning, self.member.cluster.seed(), &thing, attempt);
        self.timers.add(takes, ProvisionStep::Finish { claim, attempt, fails });
    }

    fn take(&mut self, step: ProvisionStep) {
        match step {
            ProvisionStep::Again { claim, attempt } => match self.wanting(&claim) {
                Some(claim) => self.attempt(claim, attempt),
                None => drop(self.busy.remove(uid(&claim))),
            },
            ProvisionStep::Finish { claim, attempt, fails } => {
                let outcome =
                    if fails { Err(Failure::Other("the storage failed".to_owned())) } else { self.make(&claim) };
                self.conclude(claim, attempt, outcome);
            }
        }
    }

    fn conclude(&mut self, claim: Arc<Value>, attempt: u32, outcome: Result<String, Failure>) {
        let (message, rescheduled) = match outcome {
            Ok(volume) => {
                self.busy.remove(uid(&claim));
                self.tell(&claim, "Normal", "ProvisioningSucceeded", &format!("volume {volume} is made"));
                return;
            }
            Err(Failure::Elsewhere(message)) => (message, !annotation(&claim, SELECTED_NODE).is_empty()),
            Err(Failure::Other(message)) => (message, false),
        };
        let class = class_of(&claim);
        self.tell(&claim, "Warning", "ProvisioningFailed", &format!("no volume of class \"{class}\": {message}"));
        if rescheduled {
            self.busy.remove(uid(&claim));
            self.unselect(&claim);
        } else {
            self.timers.add(settings::pause(attempt), ProvisionStep::Again { claim, attempt: attempt + 1 });
        }
    }

    /// The claim as it is now, if it waits for a volume of ours.
    fn wanting(&self, seen: &Value) -> Option<Arc<Value>> {
        let claim =
            self.member.cluster.get(CLAIMS, namespace(seen), name(seen)).filter(|claim| uid(claim) == uid(seen))?;
        let provisioner = PROVISIONER.iter().map(|key| annotation(&claim, key)).find(|value| !value.is_empty())?;
        if provisioner != self.member.settings.provisioner || !text(&claim, "/spec/volumeName").is_empty() {
            return None;
        }
        let class = self.member.cluster.get(CLASSES, "", class_of(&claim))?;
        let chosen = !waits_for_pod(&class) || !annotation(&claim, SELECTED_NODE).is_empty();
        chosen.then_some(claim)
    }

    fn make(&self, claim: &Value) -> Result<String, Failure> {
        let (backing, other) = (&self.member.backing, |trouble: String| Failure::Other(trouble));
        let class = self.member.cluster.get(CLASSES, "", class_of(claim));
        let class = class.ok_or_else(|| Failure::Other("the class is gone".to_owned()))?;
        if claim.pointer("/spec/selector").is_some_and(|selector| !selector.is_null()) {
            return Err(Failure::Other("a selector asks for a volume that is there already".to_owned()));
        }
        let place = self.place(claim, &class)?;
        let volume = format!("pvc-{}", uid(claim));
        if self.member.cluster.get(VOLUMES, "", &volume).is_some() {
            return Ok(volume);
        }
        let origin = restore::origin(self.member, claim).map_err(other)?;
        backing.make(&volume, class_of(claim), requested(claim)).map_err(|trouble| match trouble {
            super::backing::Trouble::Full(room) => Failure::Elsewhere(format!(
                "rpc error: code = ResourceExhausted desc = not enough space: {room} of {} bytes are left",
                requested(claim)
            )),
            super::backing::Trouble::Disk(error) => other(error.to_string()),
        })?;
        if let Some(origin) = origin {
            backing.fill(&volume, &origin.handle).map_err(|trouble| other(trouble.to_string()))?;
        }
        let path = backing.path(&volume).map_err(|error| other(error.to_string()))?;
        let source = Source { driver: &self.member.settings.provisioner, directory: path };
        let object = volume::object(claim, &class, source, place.as_deref());
        if let Err(refusal) = self.member.cluster.create(VOLUMES, object) {
            backing.remove(&volume).map_err(|trouble| other(trouble.to_string()))?;
            return Err(other(refusal.message));
        }
        Ok(volume)
    }

    /// The node that a volume is bound to, where its class waits for one.
    fn place(&self, claim: &Value, class: &Value) -> Result<Option<String>, Failure> {
        if !waits_for_pod(class) {
            return Ok(None);
        }
        let node = annotation(claim, SELECTED_NODE);
        let there = self.member.cluster.get(NODES, "", node).map(|_| node.to_owned());
        there.map(Some).ok_or_else(|| Failure::Elsewhere(format!("node {node} is not there")))
    }

    /// Leaves the choice of a node to the scheduler again.
    fn unselect(&self, claim: &Value) {
        let edit = |live: &mut Value| {
            if uid(live) == uid(claim) {
                unset(live, &["metadata", "annotations", SELECTED_NODE]);
            }
        };
        // A claim that is gone needs no node.
        drop(self.member.cluster.change(CLAIMS, namespace(claim), name(claim), edit));
    }

    fn tell(&self, claim: &Value, level: &'static str, reason: &str, message: &str) {
        let source = &self.member.settings.provisioner;
        events::tell(&self.member.cluster, &About::claim(claim), source, level, reason, message);
    }
}
