//! A user with one claim, the provisioner beside the driver, and what they do after each answer. The provisioner's rules are
//! those of external-provisioner: which codes mean "still at work", which one moves the claim to another node, and that
//! anything else makes it forget the volume for good.

mod changes;
mod reclaim;

use std::{collections::HashMap, sync::Arc, time::Duration};

use kosmos_csi::csi::v1::{
    self, CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, Topology, TopologyRequirement, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::{
    bench::{Bench, SHOP, lock},
    fixture,
    history::made_for,
};

pub use changes::Change;
pub use reclaim::{claim_again, set_policy};

/// The finalizer of a claim whose volume is being copied.
const COPYING: &str = "example.com/copying";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Enough for time to pass at all.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
pub const MEMBER_KEY: &str = "topology.kosmos.csi.io/member";
pub const NODE_KEY: &str = "topology.kosmos.csi.io/node";
const GIB: u64 = 1 << 30;

/// What a user wants, and what happens to it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Script {
    pub claim: String,
    pub gibibytes: u64,
    /// The members' class.
    pub leaf_class: &'static str,
    /// Members in the order of the requirement; none: wherever the driver likes.
    pub places: Vec<usize>,
    /// The host's class waits for a pod, and the scheduler chooses the first of the places.
    pub node_selected: bool,
    /// The provisioner tells the driver which claim it works for.
    pub told: bool,
    /// The host keeps the volume when its claim goes.
    pub retain: bool,
    /// Time from the claim's creation to its deletion by the user.
    pub deleted_after: Option<Duration>,
    /// Every call is made so many times at once.
    pub at_once: usize,
    /// The provisioner asks once more for what it already has.
    pub asks_again: bool,
    /// What happens to the volume while it lives.
    pub changes: &'static [Change],
    /// The class's leafBinding.
    pub binding: Option<&'static str>,
    /// The host's virtual nodes stand for single nodes of the members.
    pub on_node: bool,
    /// What the volume is to be filled with.
    pub source: Option<v1::VolumeContentSource>,
    /// Of the class, besides; they win over what the rest of the script says.
    pub parameters: &'static [(&'static str, &'static str)],
}

impl Script {
    pub fn new(claim: &str) -> Self {
        Self {
            claim: claim.to_owned(),
            gibibytes: 1,
            leaf_class: fixture::NOW,
            places: Vec::new(),
            node_selected: false,
            told: true,
            retain: false,
            deleted_after: None,
            at_once: 1,
            asks_again: false,
            changes: &[],
            binding: None,
            on_node: false,
            source: None,
            parameters: &[],
        }
    }
}

impl Script {
    /// The class has its volumes attached in the member.
    pub fn attaches(&self) -> bool {
        self.parameters.iter().any(|(key, _)| *key == "attachMode")
    }
}

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
        let claim = json!({
            "metadata": {"name": script.claim, "namespace": SHOP},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "kosmos",
                "resources": {"requests": {"storage": format!("{}Gi", script.gibibytes)}},
            },
        });
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

    /// Somebody edits what the host keeps with the volume.
    pub fn garble_context(&mut self, key: &str, value: &str) {
        self.context.insert(key.to_owned(), value.to_owned());
    }

    /// What follows is about another volume of the same kind.
    pub fn stands_for(&mut self, handle: &str) {
        self.handle = Some(handle.to_owned());
    }

    /// Somebody makes the class anew.
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

    /// From the first call to a bound claim, or to nothing, whatever the user does meanwhile.
    pub async fn provision(&mut self) -> Ending {
        let (mut pause, mut at_work) = (FIRST_PAUSE, false);
        loop {
            if self.host_volume_is_there() {
                return Ending::Provisioned;
            }
            if !at_work && !self.claim_is_there() {
                return Ending::Forgotten;
            }
            match self.create_at_once().await {
                Ok(volume) => {
                    self.check_volume(&volume);
                    self.make_host_volume(&volume);
                    if self.script.asks_again {
                        self.ask_again().await;
                    }
                    return Ending::Provisioned;
                }
                Err(status) => match status.code() {
                    Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => at_work = true,
                    code => {
                        at_work = false;
                        self.nothing_is_left(&status);
                        if code == Code::ResourceExhausted && self.script.node_selected {
                            self.choose_again();
                        }
                    }
                },
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// All that is to happen to the volume while it lives.
    pub async fn live(&mut self) {
        for change in self.script.changes {
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
        lock(&self.bench.guard.history).let_go(&self.volume);
        let mut pause = FIRST_PAUSE / 2;
        while let Err(status) = self.delete(&handle).await {
            self.answered("DeleteVolume", &status);
            pause = next(pause);
            sleep(pause).await;
            if !self.is_to_be_removed() {
                return self.bench.guard.note(|| format!("{} is not to be removed any more", self.script.claim));
            }
        }
        self.bench.guard.note(|| format!("DeleteVolume {} is done", self.script.claim));
        for left in self.bench.leaf_objects(&self.volume) {
            self.wrong(&format!("I5: DeleteVolume is done and {left} is there"));
        }
        let host = &self.bench.host;
        host.change("persistentvolumes", "", &self.volume, |volume| {
            volume["metadata"]["finalizers"] = json!([]);
        })
        .unwrap();
        let _ = host.delete("persistentvolumes", "", &self.volume);
    }

    /// Several provisioners, or one that has lost its memory, ask for the same at once.
    async fn create_at_once(&self) -> Result<v1::Volume, Status> {
        let twins = (0..self.script.at_once).map(|_| self.create());
        let answers = futures::future::join_all(twins).await;
        let handles: Vec<&str> = answers.iter().flatten().map(|volume| volume.volume_id.as_str()).collect();
        if handles.windows(2).any(|two| two[0] != two[1]) {
            self.wrong(&format!("I2: calls at once were given {handles:?}"));
        }
        for status in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.answered("CreateVolume", status);
        }
        // The one that goes on is the one that does not merely wait for another.
        let rank = |answer: &Result<v1::Volume, Status>| match answer {
            Ok(_) => 0,
            Err(status) if status.code() != Code::Aborted => 1,
            Err(_) => 2,
        };
        answers.into_iter().min_by_key(rank).expect("at least one call was made")
    }

    pub async fn create(&self) -> Result<v1::Volume, Status> {
        let request = self.request();
        self.bench.create(request).await
    }

    pub async fn delete(&self, handle: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: handle.to_owned(), ..DeleteVolumeRequest::default() };
        self.bench.delete(request).await
    }

    fn request(&self) -> CreateVolumeRequest {
        let mut parameters = HashMap::from([("leafStorageClass".to_owned(), self.script.leaf_class.to_owned())]);
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

    fn bytes(&self) -> u64 {
        self.script.gibibytes * GIB
    }

    /// What an answer promises is looked up at once, with no help of the driver's.
    fn check_volume(&mut self, volume: &v1::Volume) {
        self.bench.guard.note(|| format!("CreateVolume {}: {}", self.script.claim, volume.volume_id));
        if self.handle.as_ref().is_some_and(|before| *before != volume.volume_id) {
            self.wrong(&format!("I4: the handle was {:?} and is {}", self.handle, volume.volume_id));
        }
        self.handle = Some(volume.volume_id.clone());
        self.context.clone_from(&volume.volume_context);
        if volume.capacity_bytes.cast_unsigned() < self.bytes() {
            self.wrong(&format!("I4: {} bytes were given", volume.capacity_bytes));
        }
        match self.bench.leaf_behind(&volume.volume_id) {
            Ok(leaf) => {
                let bound = text(&leaf, "/status/phase") == "Bound";
                let terminating = leaf.pointer("/metadata/deletionTimestamp").is_some();
                let uid = text(&leaf, "/metadata/uid");
                let name = made_for(&leaf);
                let told = volume.volume_context.get("leafClaimUID").map(String::as_str);
                if !(bound || self.is_deferred()) || terminating || name != self.volume || told != Some(uid) {
                    self.wrong(&format!("I4: given out while the leaf claim is {leaf}"));
                }
                self.bench.guard.look();
                lock(&self.bench.guard.history).rely_on(uid, &self.volume);
                self.leaf_volume = Some(text(&leaf, "/spec/volumeName").to_owned()).filter(|name| !name.is_empty());
            }
            Err(reason) => self.wrong(&format!("I4: {} was given out and {reason}", volume.volume_id)),
        }
    }

    /// After an answer that makes the provisioner forget the volume there must be nothing to forget.
    fn nothing_is_left(&self, status: &Status) {
        for left in self.bench.leaf_objects(&self.volume) {
            self.wrong(&format!("I1: {:?} was answered ({}) and {left} is there", status.code(), status.message()));
        }
    }

    fn make_host_volume(&self, volume: &v1::Volume) {
        let attributes: serde_json::Map<_, _> =
            volume.volume_context.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let object = json!({
            "metadata": {
                "name": self.volume,
                "annotations": {"pv.kubernetes.io/provisioned-by": "kosmos.csi.io"},
                "finalizers": if self.script.retain { json!([]) } else { json!([reclaim::FINALIZER]) },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": volume.capacity_bytes.to_string()},
                "storageClassName": "kosmos",
                "persistentVolumeReclaimPolicy": if self.script.retain { "Retain" } else { "Delete" },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP,
                    "name": self.script.claim, "uid": self.uid,
                },
                "csi": {"driver": "kosmos.csi.io", "volumeHandle": volume.volume_id, "volumeAttributes": attributes},
            },
        });
        self.bench.host.create("persistentvolumes", object).unwrap();
    }

    /// A provisioner that has forgotten what it did asks again, perhaps after the claim is gone.
    async fn ask_again(&mut self) {
        match self.create_at_once().await {
            Ok(volume) => self.check_volume(&volume),
            Err(status) => self.bench.guard.note(|| format!("asked again for {}: {status}", self.script.claim)),
        }
    }

    fn claim_is_there(&self) -> bool {
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
    }

    fn wrong(&self, what: &str) {
        self.bench.guard.report(format!("claim {} (volume {}): {what}", self.script.claim, self.volume));
    }
}
