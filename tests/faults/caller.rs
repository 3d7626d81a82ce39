//! A user with one claim, the provisioner beside the driver, and what they do after each answer. The provisioner's rules are
//! those of external-provisioner: which codes mean "still at work", which one moves the claim to another node, and that
//! anything else makes it forget the volume for good.

mod answers;
mod changes;
mod provision;
mod reclaim;
mod script;

use std::{collections::HashMap, sync::Arc, time::Duration};

use csi::v1::{
    self, CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, Topology, TopologyRequirement, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::Status;

use crate::{
    bench::{Bench, SHOP, lock},
    fixture,
    sidecar::Class,
};

pub use changes::Change;
pub use reclaim::{claim_again, set_policy};
pub use script::Script;

/// The finalizer of a claim whose volume is being copied.
const COPYING: &str = "example.com/copying";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Enough for time to pass at all.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
pub const MEMBER_KEY: &str = "topology.kosmos.csi.io/member";
pub const NODE_KEY: &str = "topology.kosmos.csi.io/node";
const GIB: u64 = 1 << 30;

/// How a claim's life stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// There is a host volume.
    Provisioned,
    /// The provisioner was told that nothing is left behind, and the claim is gone.
    Forgotten,
}

/// One claim with all who care for it.
#[derive(Clone)]
pub struct Caller {
    bench: Arc<Bench>,
    script: Script,
    /// The claim's UID.
    uid: String,
    /// The volume's name.
    volume: String,
    handle: Option<String>,
    /// What the host keeps with the volume.
    context: HashMap<String, String>,
    /// It may be on a node.
    attached: bool,
    /// The leaf volume's name when it was given out: where the data is.
    leaf_volume: Option<String>,
    places: Vec<usize>,
}

impl Caller {
    /// The user makes the claim.
    pub fn new(bench: &Arc<Bench>, script: Script) -> Self {
        // The host's controller tells provisioners in two notations whose turn it is. Of the newer one the driver makes something.
        let told = json!({"volume.beta.kubernetes.io/storage-provisioner": "kosmos.csi.io"});
        let mut claim = json!({
            "metadata": {"name": script.claim, "namespace": SHOP, "annotations": told},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "kosmos",
                "resources": {"requests": {"storage": format!("{}Gi", script.gibibytes)}},
            },
        });
        if let Some(member) = script.was_in {
            let annotations = &mut claim["metadata"]["annotations"];
            annotations["kosmos.csi.io/member"] = json!(bench.members[member].name());
            annotations["kosmos.csi.io/member-of"] = json!("the-uid-of-then");
        }
        let made = bench.host.create("persistentvolumeclaims", claim).unwrap();
        let uid = text(&made, "/metadata/uid").to_owned();
        let (bench, places) = (Arc::clone(bench), script.places.clone());
        let caller = Self {
            bench,
            volume: format!("pvc-{uid}"),
            uid,
            handle: None,
            context: HashMap::new(),
            attached: false,
            leaf_volume: None,
            places,
            script,
        };
        caller.select_node();
        caller
    }

    pub fn claim(&self) -> &str {
        &self.script.claim
    }

    pub fn script(&self) -> &Script {
        &self.script
    }

    pub fn volume(&self) -> &str {
        &self.volume
    }

    pub fn handle(&self) -> Option<&str> {
        self.handle.as_deref()
    }

    pub fn context(&self) -> &HashMap<String, String> {
        &self.context
    }

    /// It may be on a node.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Its sidecars begin again, and know of its volume what the host says.
    pub fn learn_again(&mut self) {
        let volume = self.bench.host.get("persistentvolumes", "", &self.volume);
        let attributes = volume.as_ref().and_then(|volume| volume["spec"]["csi"]["volumeAttributes"].as_object());
        let told = attributes.into_iter().flatten();
        self.context = told.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        self.handle = volume.as_ref().map(|volume| text(volume, "/spec/csi/volumeHandle").to_owned());
        self.leaf_volume = self.context.get("leafVolume").cloned();
    }

    /// What follows is about the claim that has the volume now, whoever's that is.
    pub fn stands_for_its_user(&mut self) {
        if let Some(volume) = self.bench.host.get("persistentvolumes", "", &self.volume) {
            text(&volume, "/spec/claimRef/uid").clone_into(&mut self.uid);
        }
    }

    /// Somebody edits what the host keeps with the volume.
    pub fn garble_context(&mut self, key: &str, value: &str) {
        self.context.insert(key.to_owned(), value.to_owned());
    }

    /// What follows is about another volume of the same kind.
    pub fn stands_for(&mut self, handle: &str) {
        self.handle = Some(handle.to_owned());
    }

    /// Somebody recreates the class.
    pub fn class_becomes(&mut self, parameters: &'static [(&'static str, &'static str)]) {
        self.script.parameters = parameters;
    }

    /// The scheduler chooses again.
    pub fn goes_to(&mut self, places: Vec<usize>) {
        self.places = places;
    }

    /// Nobody waits for the leaf to be bound.
    pub fn is_deferred(&self) -> bool {
        self.script.binding == Some("deferred") || self.script.parameters.contains(&("leafBinding", "deferred"))
    }

    pub fn leaf_volume(&self) -> Option<&str> {
        self.leaf_volume.as_deref()
    }

    /// All that is to happen to the volume while it lives.
    pub async fn live(&mut self) {
        for change in self.script.changes {
            sleep(self.script.pace).await;
            // Without a pod, nothing binds a deferred leaf, and what is not bound cannot be changed.
            if !self.is_deferred() || matches!(change, Change::Publish | Change::Unpublish) {
                self.change(*change).await;
            }
        }
    }

    /// Asks until there is a volume, without a pause.
    pub async fn insist_on_creation(&mut self) {
        loop {
            if let Ok(volume) = self.create_at_once().await {
                self.check_volume(&volume);
                return self.make_host_volume(&volume);
            }
            sleep(LEAST_PAUSE).await;
        }
    }

    /// Asks until the volume is removed, without a pause.
    pub async fn insist_on_deletion(&mut self) {
        self.remove_with(|_| LEAST_PAUSE).await;
    }

    /// The user deletes the claim.
    pub fn delete_claim(&self) {
        if self.claim_is_there() {
            self.bench.guard.note(|| format!("the user deletes claim {}", self.script.claim));
            self.bench.host.delete("persistentvolumeclaims", SHOP, &self.script.claim).unwrap();
        }
    }

    /// The same when the script says so.
    pub async fn delete_claim_in_time(&self) {
        if let Some(after) = self.script.deleted_after {
            sleep(after).await;
            self.delete_claim();
        }
    }

    /// The claim is gone: its volume is released, and the provisioner has it removed, for as long as it takes.
    pub async fn reclaim(&mut self) {
        while let Some(volume) = self.bench.host.get("persistentvolumes", "", &self.volume) {
            if self.is_used_again(&volume) {
                return self.detach().await;
            }
            if text(&volume, "/status/phase") != "Released" {
                sleep(FIRST_PAUSE).await;
                continue;
            }
            if self.is_retained() {
                return self.detach().await;
            }
            self.remove_with(|before| (before * 2).min(LONGEST_PAUSE)).await;
        }
    }

    async fn remove_with(&mut self, next: impl Fn(Duration) -> Duration) {
        self.detach().await;
        let handle = self.handle.clone().expect("a host volume has a handle");
        if let Some(time) = self.script.stands_still {
            let another = Box::pin(self.is_changed_late(time));
            tokio::join!(self.bench.sidecar.stand_still(&self.volume, time), another);
        }
        let is_kept = self.is_kept();
        if !is_kept {
            lock(&self.bench.guard.history).let_go(&self.volume);
            lock(&self.bench.guard.history).may_go(&handle, &self.volume);
        }
        let mut pause = FIRST_PAUSE / 2;
        while let Err(status) = self.delete(&handle).await {
            self.answered("DeleteVolume", &status);
            pause = next(pause);
            sleep(pause).await;
            if !self.is_to_be_removed() {
                return self.bench.guard.note(|| format!("{} is not to be removed any more", self.script.claim));
            }
        }
        if is_kept {
            return self.wrong("I6: the host keeps it since before DeleteVolume was called, which is done");
        }
        self.bench.guard.note(|| format!("DeleteVolume {} is done", self.script.claim));
        self.bench.guard.look();
        for left in self.bench.leaf_objects_in_time(&self.volume) {
            self.wrong(&format!("I5: DeleteVolume is done and {left} is there"));
        }
        let host = &self.bench.host;
        host.change("persistentvolumes", "", &self.volume, |volume| {
            volume["metadata"]["finalizers"] = json!([]);
        })
        .unwrap();
        let _ = host.delete("persistentvolumes", "", &self.volume);
    }

    pub async fn create(&self) -> Result<v1::Volume, Status> {
        let request = self.request();
        self.bench.create(request).await
    }

    pub async fn delete(&self, handle: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: handle.to_owned(), ..DeleteVolumeRequest::default() };
        self.bench.delete(request).await
    }

    pub fn request(&self) -> CreateVolumeRequest {
        let mut parameters = HashMap::from([("leafStorageClass".to_owned(), self.leaf_class().to_owned())]);
        if self.bench.sidecar.class() == Class::WithASlip {
            parameters.insert("leafStorageClas".to_owned(), self.script.leaf_class.to_owned());
        }
        if self.script.told {
            parameters.insert("csi.storage.k8s.io/pvc/namespace".to_owned(), SHOP.to_owned());
            parameters.insert("csi.storage.k8s.io/pvc/name".to_owned(), self.script.claim.clone());
            parameters.insert("csi.storage.k8s.io/pv/name".to_owned(), self.volume.clone());
        }
        parameters.extend(self.script.binding.map(|binding| ("leafBinding".to_owned(), binding.to_owned())));
        let more = self.script.parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        parameters.extend(more);
        let segments = |place: &usize| {
            let member = self.bench.members[*place].name().to_owned();
            let node = self.script.on_node.then(|| (NODE_KEY.to_owned(), format!("{member}-n1")));
            Topology { segments: [(MEMBER_KEY.to_owned(), member)].into_iter().chain(node).collect() }
        };
        let places: Vec<Topology> = self.places.iter().map(segments).collect();
        CreateVolumeRequest {
            name: self.volume.clone(),
            capacity_range: Some(CapacityRange { required_bytes: self.bytes().cast_signed(), limit_bytes: 0 }),
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
            }],
            parameters,
            volume_content_source: self.script.source.clone(),
            accessibility_requirements: (!places.is_empty())
                .then(|| TopologyRequirement { requisite: places.clone(), preferred: places }),
            ..CreateVolumeRequest::default()
        }
    }

    /// Of the host's class as it is now. Where nobody says for which claim he asks, nobody can be told to delete that.
    fn leaf_class(&self) -> &'static str {
        let usual = self.script.leaf_class;
        if !self.script.told || self.bench.sidecar.class() != Class::OfOtherLeaves {
            return usual;
        }
        if usual == fixture::NOW { fixture::KEPT } else { fixture::NOW }
    }

    fn bytes(&self) -> u64 {
        self.script.gibibytes * GIB
    }

    pub fn claim_is_there(&self) -> bool {
        self.seen_claim().is_some()
    }

    /// Its volume is being copied, and whoever does it keeps the claim until that is done.
    pub fn hold(&self, held: bool) {
        let edit = |claim: &mut Value| {
            let mut finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            finalizers.retain(|one| one != COPYING);
            finalizers.extend(held.then(|| json!(COPYING)));
            claim["metadata"]["finalizers"] = json!(finalizers);
        };
        if self.claim_is_there() {
            let _ = self.bench.host.change("persistentvolumeclaims", SHOP, &self.script.claim, edit);
        }
    }

    /// The user has deleted it, whether or not it is gone already.
    pub fn claim_was_deleted(&self) -> bool {
        self.seen_claim().is_none_or(|claim| claim.pointer("/metadata/deletionTimestamp").is_some())
    }

    fn seen_claim(&self) -> Option<Arc<Value>> {
        let claim = self.bench.host.get("persistentvolumeclaims", SHOP, &self.script.claim);
        claim.filter(|claim| text(claim, "/metadata/uid") == self.uid)
    }

    fn host_volume_is_there(&self) -> bool {
        self.bench.host.get("persistentvolumes", "", &self.volume).is_some()
    }

    /// The scheduler's choice, as it stands on the claim.
    fn select_node(&self) {
        if !self.script.node_selected {
            return;
        }
        let node = self.places.first().map(|place| format!("kosmos-{}", self.bench.members[*place].name()));
        let _ = self.bench.host.change("persistentvolumeclaims", SHOP, &self.script.claim, |claim| {
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!(node);
        });
    }

    /// No room there: the scheduler takes the next node.
    fn choose_again(&mut self) {
        let by = self.places.len().min(1);
        self.places.rotate_left(by);
        self.select_node();
    }

    fn answered(&self, what: &str, status: &Status) {
        self.bench.guard.note(|| format!("{what} {}: {:?}: {}", self.script.claim, status.code(), status.message()));
        let of_this = || self.bench.hash(&self.volume).to_string();
        let was_stripped = |hash: &str| lock(&self.bench.guard.history).was_stripped(hash);
        let one_was = || was_stripped(&of_this()) || self.script.hash_of_the_source().is_some_and(was_stripped);
        if status.message().contains("labels were removed") && !one_was() {
            self.wrong(&format!("I3: nobody took labels off a leaf, and the answer is {status}"));
        }
    }

    fn wrong(&self, what: &str) {
        self.bench.guard.report(format!("claim {} (volume {}): {what}", self.script.claim, self.volume));
    }
}
