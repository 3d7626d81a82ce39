//! Claims that name another VolumeAttributesClass: the volume takes its attributes on, and then the claim tells it. A class
//! with the parameter `infeasible` is refused.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    Member,
    names::{ATTRIBUTES_CLASSES, CLAIMS, PROVISIONED_BY, VOLUMES},
    settings,
};
use crate::{
    What,
    events::{self, About},
    object::{annotation, name, namespace, set, text, uid, unset},
    timers::Timers,
};

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[CLAIMS, ATTRIBUTES_CLASSES]);
    let mut modifier = Modifier { member, busy: HashSet::new(), timers: Timers::new() };
    loop {
        tokio::select! {
            biased;
            change = changes.next() => {
                if change.resource == CLAIMS {
                    modifier.look(&change.object, change.what == What::Deleted);
                } else {
                    member.cluster.list(CLAIMS).iter().for_each(|claim| modifier.look(claim, false));
                }
            }
            claim = modifier.timers.next() => modifier.finish(&claim),
        }
    }
}

struct Modifier<'a> {
    member: &'a Member,
    /// UIDs of the claims that are worked on.
    busy: HashSet<String>,
    timers: Timers<Arc<Value>>,
}

impl Modifier<'_> {
    fn look(&mut self, seen: &Value, gone: bool) {
        if gone {
            self.busy.remove(uid(seen));
            return;
        }
        let Some(claim) = self.wanting(seen) else { return };
        let target = text(&claim, "/spec/volumeAttributesClassName").to_owned();
        let Some(class) = self.member.cluster.get(ATTRIBUTES_CLASSES, "", &target) else {
            self.tell_state(&claim, &target, "Pending");
            return;
        };
        if text(&class, "/driverName") != self.member.settings.provisioner {
            return;
        }
        if class.pointer("/parameters/infeasible").is_some() {
            self.tell_state(&claim, &target, "Infeasible");
            return;
        }
        if self.busy.insert(uid(&claim).to_owned()) {
            self.tell_state(&claim, &target, "InProgress");
            let thing = format!("modify {}/{} {target}", namespace(&claim), name(&claim));
            let (takes, _) = settings::attempt(&self.member.settings.resizing, self.member.cluster.seed(), &thing, 0);
            self.timers.add(takes, claim);
        }
    }

    /// The claim as it is now, where its bound volume of ours has other attributes than it should.
    fn wanting(&self, seen: &Value) -> Option<Arc<Value>> {
        let claim = self.member.cluster.get(CLAIMS, namespace(seen), name(seen))?;
        let target = text(&claim, "/spec/volumeAttributesClassName");
        let differs = !target.is_empty() && target != text(&claim, "/status/currentVolumeAttributesClassName");
        let volume = self.member.cluster.get(VOLUMES, "", text(&claim, "/spec/volumeName"))?;
        let ours = annotation(&volume, PROVISIONED_BY) == self.member.settings.provisioner;
        (uid(&claim) == uid(seen) && text(&claim, "/status/phase") == "Bound" && differs && ours).then_some(claim)
    }

    fn finish(&mut self, begun: &Value) {
        self.busy.remove(uid(begun));
        let target = text(begun, "/spec/volumeAttributesClassName");
        let done = |claim: &mut Value| {
            if uid(claim) == uid(begun) {
                set(claim, &["status", "currentVolumeAttributesClassName"], json!(target));
                unset(claim, &["status", "modifyVolumeStatus"]);
            }
        };
        drop(self.member.cluster.change(CLAIMS, namespace(begun), name(begun), done));
        // What was asked for meanwhile comes next.
        self.look(begun, false);
    }

    fn tell_state(&self, claim: &Value, target: &str, state: &str) {
        let told = json!({"targetVolumeAttributesClassName": target, "status": state});
        if claim["status"]["modifyVolumeStatus"] == told {
            return;
        }
        let tell = |claim: &mut Value| set(claim, &["status", "modifyVolumeStatus"], told.clone());
        drop(self.member.cluster.change(CLAIMS, namespace(claim), name(claim), tell));
        if state == "Infeasible" {
            let message = format!("the attributes of class {target} cannot be had");
            events::tell(
                &self.member.cluster,
                &About::claim(claim),
                "external-resizer",
                "Warning",
                "VolumeModifyFailed",
                &message,
            );
        }
    }
}
