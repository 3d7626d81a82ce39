//! Claims and volumes find each other. Whatever changes, the objects it touches are looked at as they are now; the
//! indexes only say which ones these are.

mod claim;
mod index;
#[cfg(test)]
mod tests;
mod volume;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use self::index::Index;
use crate::{
    Cluster, What,
    events::{self, About},
    object::{annotate, annotation, is_terminating, name, namespace, set, text, uid},
    store::Key,
};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const CLASSES: &str = "storageclasses.storage.k8s.io";

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Told in both notations, the newer one last.
const PROVISIONER: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];

const SOURCE: &str = "persistentvolume-controller";
/// Between two looks at what nothing has happened to.
const RESYNC: Duration = Duration::from_secs(15);

pub(super) async fn run(cluster: Cluster) {
    let mut changes = crate::follow::follow(&cluster, &[CLASSES, CLAIMS, VOLUMES]);
    let mut binder = Binder { cluster, index: Index::default(), later: BTreeSet::new() };
    let began = Instant::now();
    loop {
        let change = tokio::select! {
            biased;
            change = changes.next() => change,
            () = sleep_until(next_resync(began)), if !binder.later.is_empty() => {
                binder.resync();
                continue;
            }
        };
        let gone = change.what == What::Deleted;
        match change.resource.as_str() {
            CLAIMS => binder.claim_changed(&change.object, gone),
            VOLUMES => binder.volume_changed(&change.object, gone),
            _ => binder.wake_class(name(&change.object)),
        }
    }
}

fn next_resync(began: Instant) -> Instant {
    let passed = began.elapsed().as_secs() / RESYNC.as_secs() + 1;
    began + Duration::from_secs(passed * RESYNC.as_secs())
}

struct Binder {
    cluster: Cluster,
    index: Index,
    /// Claims that name a volume which has changed, and are not bound. A claim is looked at when it changes itself, or at last with
    /// all that there is; only one that names no volume hears of the volume that was made for it.
    later: BTreeSet<Key>,
}

impl Binder {
    fn resync(&mut self) {
        for claim in std::mem::take(&mut self.later) {
            self.sync_claim(&claim);
        }
    }

    fn claim_changed(&mut self, claim: &Value, gone: bool) {
        let key = (namespace(claim).to_owned(), name(claim).to_owned());
        self.index.put_claim(&key, claim, gone);
        self.sync_claim(&key);
        let named = text(claim, "/spec/volumeName");
        if !named.is_empty() {
            self.sync_volume(named);
        }
        for volume in self.index.volumes_of(&key) {
            self.sync_volume(&volume);
        }
    }

    fn volume_changed(&mut self, volume: &Value, gone: bool) {
        self.index.put_volume(volume, gone);
        self.sync_volume(name(volume));
        for claim in self.index.claims_of(volume) {
            if gone || self.names_no_volume(&claim) {
                self.sync_claim(&claim);
            } else {
                self.later.insert(claim);
            }
        }
        if !gone && is_free(volume) && text(volume, "/status/phase") == "Available" {
            self.wake_class(class_of(volume));
        }
    }

    fn names_no_volume(&self, (namespace, name): &Key) -> bool {
        let claim = self.cluster.get(CLAIMS, namespace, name);
        claim.is_none_or(|claim| text(&claim, "/spec/volumeName").is_empty())
    }

    fn wake_class(&mut self, class: &str) {
        for claim in self.index.waiting(class) {
            self.sync_claim(&claim);
        }
    }

    fn sync_claim(&mut self, key: &Key) {
        self.later.remove(key);
        let (namespace, name) = key;
        let Some(claim) = self.cluster.get(CLAIMS, namespace, name) else {
            return;
        };
        let named = Some(text(&claim, "/spec/volumeName")).filter(|named| !named.is_empty());
        let named = named.and_then(|named| self.volume(named));
        let class = self.cluster.get(CLASSES, "", class_of(&claim));
        let offers: Vec<_> = self.index.offers(&claim).filter_map(|volume| self.volume(volume)).collect();
        let seen = claim::Seen {
            class: class.as_deref(),
            named: named.as_deref(),
            offers: offers.iter().map(AsRef::as_ref).collect(),
        };
        self.act(&claim, claim::decide(&claim, &seen));
    }

    fn act(&self, claim: &Arc<Value>, verdict: claim::Verdict) {
        match verdict {
            claim::Verdict::Bind(volume) => self.bind(claim, &volume),
            claim::Verdict::Wait(event) => {
                self.tell_phase(claim, "Pending");
                if let Some((reason, message)) = event {
                    self.tell(claim, "Normal", reason, &message);
                }
            }
            claim::Verdict::Refuse(reason, message) => {
                self.tell_phase(claim, "Pending");
                self.tell(claim, "Warning", reason, &message);
            }
            claim::Verdict::Provision(provisioner) => self.ask_for(claim, &provisioner),
            claim::Verdict::Lost(reason, message) => {
                if text(claim, "/status/phase") != "Lost" {
                    self.tell_phase(claim, "Lost");
                    self.tell(claim, "Warning", reason, &message);
                }
            }
        }
    }

    /// The volume first, in its reference and in its phase, then the claim: whoever watches sees the steps in that order.
    fn bind(&self, claim: &Value, volume: &str) {
        let Some(before) = self.volume(volume) else {
            return;
        };
        if text(&before, "/spec/claimRef/uid") != uid(claim) {
            self.edit_volume(volume, |volume| volume::bind(volume, claim));
        }
        if text(&before, "/status/phase") != "Bound" {
            self.edit_volume(volume, |volume| set(volume, &["status", "phase"], json!("Bound")));
        }
        if text(claim, "/spec/volumeName") != volume || annotation(claim, BIND_COMPLETED).is_empty() {
            // The news of it brings the last step, so others may act in between, as they may in a real cluster.
            self.edit_claim(claim, |claim| claim::bind(claim, volume));
            return;
        }
        if text(claim, "/status/phase") != "Bound" {
            self.edit_claim(claim, |claim| claim::tell_bound(claim, &before));
        }
    }

    fn ask_for(&self, claim: &Arc<Value>, provisioner: &str) {
        self.tell_phase(claim, "Pending");
        if PROVISIONER.iter().any(|key| annotation(claim, key) != provisioner) {
            self.edit_claim(claim, |claim| PROVISIONER.iter().for_each(|key| annotate(claim, key, provisioner)));
        }
        let message = format!("waiting for the provisioner \"{provisioner}\", or for a volume made by hand");
        self.tell(claim, "Normal", "ExternalProvisioning", &message);
    }

    fn tell_phase(&self, claim: &Value, phase: &str) {
        if text(claim, "/status/phase") != phase {
            self.edit_claim(claim, |claim| claim::tell_phase(claim, phase));
        }
    }

    fn sync_volume(&self, volume: &str) {
        let Some(volume) = self.volume(volume) else {
            return;
        };
        let bound_to = |field: &str| text(&volume, &format!("/spec/claimRef/{field}")).to_owned();
        let claim = self.cluster.get(CLAIMS, &bound_to("namespace"), &bound_to("name"));
        match volume::decide(&volume, claim.as_deref()) {
            volume::Verdict::Unbind => self.edit_volume(name(&volume), volume::unbind),
            volume::Verdict::Phase(phase) if text(&volume, "/status/phase") != phase => {
                self.edit_volume(name(&volume), |volume| set(volume, &["status", "phase"], json!(phase)));
            }
            volume::Verdict::Wait | volume::Verdict::Phase(_) => {}
        }
    }

    fn volume(&self, name: &str) -> Option<Arc<Value>> {
        self.cluster.get(VOLUMES, "", name)
    }

    fn edit_volume(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        // It may be gone: its end is told, and looked at, too.
        drop(self.cluster.change(VOLUMES, "", name, edit));
    }

    /// Only the very claim that was looked at is changed.
    fn edit_claim(&self, claim: &Value, edit: impl FnOnce(&mut Value)) {
        let wanted = uid(claim);
        let same = |live: &mut Value| {
            if uid(live) == wanted {
                edit(live);
            }
        };
        drop(self.cluster.change(CLAIMS, namespace(claim), name(claim), same));
    }

    fn tell(&self, claim: &Value, level: &'static str, reason: &str, message: &str) {
        if !is_terminating(claim) {
            events::tell(&self.cluster, &About::claim(claim), SOURCE, level, reason, message);
        }
    }
}

/// Whether a volume's reference names this claim, by its UID where it tells one.
fn is_bound_to(volume: &Value, claim: &Value) -> bool {
    let told = |field: &str| text(volume, &format!("/spec/claimRef/{field}"));
    told("name") == name(claim)
        && told("namespace") == namespace(claim)
        && (told("uid").is_empty() || told("uid") == uid(claim))
}

fn is_free(volume: &Value) -> bool {
    volume.pointer("/spec/claimRef").is_none_or(Value::is_null)
}

/// The class of a claim or a volume, in the notation of now or in that of before.
fn class_of(object: &Value) -> &str {
    match annotation(object, "volume.beta.kubernetes.io/storage-class") {
        "" => text(object, "/spec/storageClassName"),
        old => old,
    }
}
