//! Claims that ask for more than they have: the volume grows, on its node too where its class says so, and then the
//! claim tells it.

mod growth;

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::{
    Growth, Member,
    names::{CLAIMS, CLASSES, PODS, PROVISIONED_BY, VOLUMES, class_of, handle},
    settings,
};
use crate::{
    What,
    events::{self, About},
    object::{annotation, name, namespace, set, text, uid},
    quantity,
    store::Key,
    timers::Timers,
    users::{self, Users},
};

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[CLAIMS, PODS]);
    let mut resizer = Resizer { member, busy: HashMap::new(), users: Users::default(), timers: Timers::new() };
    loop {
        tokio::select! {
            biased;
            change = changes.next() => resizer.changed(&change.resource, &change.object, change.what == What::Deleted),
            step = resizer.timers.next() => resizer.take(step),
        }
    }
}

struct Resizer<'a> {
    member: &'a Member,
    /// The size that is worked on, by the UID of the claim.
    busy: HashMap<String, u64>,
    users: Users,
    timers: Timers<ResizeStep>,
}

enum ResizeStep {
    Finish { claim: Arc<Value>, attempt: u32, fails: bool },
    Again { claim: Arc<Value>, attempt: u32 },
}

impl Resizer<'_> {
    fn changed(&mut self, resource: &str, object: &Value, gone: bool) {
        if resource == CLAIMS {
            self.look(object, gone);
            return;
        }
        self.users.put(object, gone);
        if text(object, "/status/phase") == "Running" {
            for (namespace, claim) in users::keys_of(object) {
                if let Some(claim) = self.member.cluster.get(CLAIMS, &namespace, &claim) {
                    self.finish_on_node(&claim);
                }
            }
        }
    }

    fn look(&mut self, seen: &Value, gone: bool) {
        if gone {
            self.busy.remove(uid(seen));
            return;
        }
        let Some(claim) = self.growing(seen) else {
            self.finish_on_node(seen);
            return;
        };
        if !self.busy.contains_key(uid(&claim)) {
            self.attempt(claim, 0);
        }
    }

    fn attempt(&mut self, claim: Arc<Value>, attempt: u32) {
        let (cluster, size) = (&self.member.cluster, growth::requested(&claim));
        self.busy.insert(uid(&claim).to_owned(), size);
        let now = cluster.stamp();
        self.edit(&claim, |claim| growth::begin(claim, &now));
        self.tell(&claim, "Normal", "Resizing", "the volume is made larger");
        let thing = format!("resize {}/{} {size}", namespace(&claim), name(&claim));
        let (takes, fails) = settings::attempt(&self.member.settings.resizing, cluster.seed(), &thing, attempt);
        self.timers.add(takes, ResizeStep::Finish { claim, attempt, fails });
    }

    fn take(&mut self, step: ResizeStep) {
        let (claim, attempt, fails) = match step {
            ResizeStep::Again { claim, attempt } => {
                self.busy.remove(uid(&claim));
                if let Some(claim) = self.growing(&claim) {
                    self.attempt(claim, attempt);
                }
                return;
            }
            ResizeStep::Finish { claim, attempt, fails } => (claim, attempt, fails),
        };
        let outcome = if fails { Err("the storage failed".to_owned()) } else { self.grow(&claim) };
        match outcome {
            Ok(()) => {
                self.busy.remove(uid(&claim));
                // What was asked for meanwhile comes next.
                self.look(&claim, false);
            }
            Err(message) => {
                self.tell(&claim, "Warning", "VolumeResizeFailed", &message);
                self.timers.add(settings::pause(attempt), ResizeStep::Again { claim, attempt: attempt + 1 });
            }
        }
    }

    /// The claim as it is now, if the controller has to make its volume larger.
    fn growing(&self, seen: &Value) -> Option<Arc<Value>> {
        let claim =
            self.member.cluster.get(CLAIMS, namespace(seen), name(seen)).filter(|claim| uid(claim) == uid(seen))?;
        if !growth::is_wanted(&claim) || growth::waits_for_node(&claim) {
            return None;
        }
        let volume = self.member.cluster.get(VOLUMES, "", text(&claim, "/spec/volumeName"))?;
        let class = self.member.cluster.get(CLASSES, "", class_of(&claim))?;
        let ours = annotation(&volume, PROVISIONED_BY) == self.member.settings.provisioner;
        (ours && class["allowVolumeExpansion"] == Value::Bool(true)).then_some(claim)
    }

    fn grow(&self, claim: &Value) -> Result<(), String> {
        let size = text(claim, "/spec/resources/requests/storage");
        let volume = self.member.cluster.get(VOLUMES, "", text(claim, "/spec/volumeName"));
        let Some(volume) = volume else {
            return Ok(());
        };
        let bytes = quantity::parse(size).unwrap_or(0);
        self.member.backing.grow(handle(&volume), bytes).map_err(|trouble| {
            format!("rpc error: code = ResourceExhausted desc = the volume cannot be made larger: {trouble}")
        })?;
        let edit = |volume: &mut Value| set(volume, &["spec", "capacity", "storage"], Value::from(size));
        drop(self.member.cluster.change(VOLUMES, "", name(&volume), edit));
        let now = self.member.cluster.stamp();
        if self.grows_on_node(claim) {
            self.edit(claim, |claim| growth::leave_to_node(claim, &now));
            self.tell(claim, "Normal", "FileSystemResizeRequired", "the node has to make the file system larger");
        } else {
            self.edit(claim, |claim| growth::finish(claim, size));
            self.tell(claim, "Normal", "VolumeResizeSuccessful", "the volume is larger");
        }
        Ok(())
    }

    fn grows_on_node(&self, claim: &Value) -> bool {
        let class = self.member.settings.classes.iter().find(|class| class.name == class_of(claim));
        class.is_some_and(|class| class.growth == Growth::OnNode)
    }

    /// The node's part, where a pod runs with the volume.
    fn finish_on_node(&self, claim: &Value) {
        let key: Key = (namespace(claim).to_owned(), name(claim).to_owned());
        let runs = |pod: &str| {
            let pod = self.member.cluster.get(PODS, &key.0, pod);
            pod.is_some_and(|pod| text(&pod, "/status/phase") == "Running")
        };
        if growth::waits_for_node(claim) && self.users.of(&key).any(runs) {
            let size = growth::allocated(claim).to_owned();
            self.edit(claim, |claim| growth::finish(claim, &size));
            self.tell(claim, "Normal", "FileSystemResizeSuccessful", "the file system is larger");
        }
    }

    fn edit(&self, claim: &Value, edit: impl FnOnce(&mut Value)) {
        let same = |live: &mut Value| {
            if uid(live) == uid(claim) {
                edit(live);
            }
        };
        drop(self.member.cluster.change(CLAIMS, namespace(claim), name(claim), same));
    }

    fn tell(&self, claim: &Value, level: &'static str, reason: &str, message: &str) {
        events::tell(&self.member.cluster, &About::claim(claim), "external-resizer", level, reason, message);
    }
}
