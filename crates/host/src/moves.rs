//! Moves of volumes to other members, as users ask for them: the kind VolumeMove, which lies beside the claim. Its spec is the
//! user's word, its status the driver's, and all that a later look needs to know of what was decided.

mod change;
mod follow;
mod rivals;
mod source;
mod stall;
pub mod subject;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::PersistentVolume,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::SignedDuration,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
    core::{Object, Request},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

pub use self::{
    change::{
        StatusChange, attempt, begun, condition, phase, prepared, progress, refused, source_deleted, switching,
        switching_with, verified,
    },
    follow::keep,
    rivals::rival,
    source::{
        BACK, DELETED, DELETING, FORGOTTEN, GONE, KEPT, fate_of_source, has_succeeded_before, is_deleting_source,
        is_due_in_host, source_in_words, source_is_back, source_is_due, source_is_forgotten, source_is_gone,
        source_is_kept, succeeded, told_of_forgotten,
    },
    stall::{awaited, now_in_words, stall, told_since},
};

use super::{Host, outcome, unread};
use cluster::{items::Items, metrics::MovesNow, read_list, unmanaged::Unmanaged};
use domain::{
    error::{Error, Result},
    volume::{
        Claim, LeafPlace,
        moving::{MoveMark, Part, Phase, Sum},
    },
};

pub type VolumeMove = Object<MoveSpec, MoveStatus>;

pub const KIND: &str = "VolumeMove";
/// The condition that says whether it goes on, and its reason where it does.
const STALLED: &str = "Stalled";
/// The condition that says whether the source was given up, as its user asked for it.
const SOURCE_DELETED: &str = "SourceDeleted";
pub const PROGRESSING: &str = "Progressing";
/// Nothing is waited for.
const GOES_ON: &str = "it goes on";
/// Holds a move until nothing of it is left in the members.
const FINALIZER: &str = "kosmos.csi.io/move";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveSpec {
    /// In the same namespace.
    pub claim_name: String,
    pub to: Destination,
    #[serde(default)]
    pub cutover: Cutover,
    /// The word to switch, where that is waited for.
    #[serde(default)]
    pub approved: bool,
    /// So long after its success the source is given up with its data; without it, it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_source_after: Option<String>,
}

impl MoveSpec {
    /// How long the source is kept, where somebody has said that.
    pub fn keeps_source_for(&self) -> Result<Option<Duration>> {
        let Some(text) = &self.delete_source_after else { return Ok(None) };
        let parsed = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        parsed.map(Some).ok_or_else(|| {
            Error::Invalid(format!("spec.deleteSourceAfter: {text:?} is not a time such as 72h, 90m or 1h30m"))
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Destination {
    pub member: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cutover {
    #[default]
    Automatic,
    Manual,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MoveStatus {
    pub phase: Option<Phase>,
    pub volume: Option<PinnedVolume>,
    pub from: Option<Side>,
    pub to: Option<Side>,
    /// Of the movers; one that carries another number is of no use any more.
    pub attempt: u32,
    pub verified: Option<Sum>,
    /// Of the copy that is under way, or was.
    pub progress: Option<Progress>,
    /// The host's volume as it is to be, decided with the phase `Switching`.
    pub switch: Option<PersistentVolume>,
    /// The leaf volume that the data comes from.
    pub source: Option<PinnedLeaf>,
    /// The one that it is copied into, from when that was made to stay. None also where the move is older than this.
    pub copy: Option<PinnedLeaf>,
    /// Of its success.
    pub completion_time: Option<Time>,
    pub conditions: Vec<Condition>,
}

/// A leaf volume: another one may have its name later, as where its member was restored from a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedLeaf {
    pub name: String,
    pub uid: String,
}

/// The host's volume and its claim, as they were when the move began.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedVolume {
    pub name: String,
    pub uid: String,
    pub claim_uid: String,
    /// Its VolumeAttributesClass, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes_class: Option<String>,
}

/// What has gone over the line of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    pub bytes: u64,
    pub bytes_per_second: u64,
}

/// A leaf of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    pub member: String,
    /// The UID of that, as another one may have its name later. Empty where the move is older than this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    pub handle: String,
    /// Where the pods of the host's claim look for it.
    pub namespace: String,
    pub claim_name: String,
}

impl Side {
    pub fn home(&self) -> LeafPlace {
        LeafPlace { namespace: self.namespace.clone(), claim: self.claim_name.clone() }
    }
}

/// The moves that there are, fed by one watch. It says where to look, and never what to do.
#[derive(Debug, Default)]
pub struct Moves {
    known: Mutex<BTreeMap<String, VolumeMove>>,
    told: watch::Sender<()>,
}

impl Moves {
    /// By their UIDs.
    pub fn all(&self) -> BTreeMap<String, VolumeMove> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those that are not over, but for these.
    pub fn under_way_but(&self, driven: &BTreeSet<String>) -> Vec<(String, VolumeMove)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = known.iter().filter(|(uid, of)| !is_over(of) && !driven.contains(*uid));
        wanted.map(|(uid, of)| (uid.clone(), of.clone())).collect()
    }

    /// Changes whenever there is news.
    pub fn told(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }

    /// Those under way, counted for the metrics.
    pub fn now(&self) -> MovesNow {
        let mut now = MovesNow::default();
        for of in self.all().values().filter(|of| !is_over(of)) {
            let phase = phase_of(of).map_or_else(|| "New".to_owned(), |phase| format!("{phase:?}"));
            *now.phases.entry(phase).or_default() += 1;
            if let Some(since) = stall::stalled_since(of) {
                now.stalled += 1;
                now.longest_stall = now.longest_stall.max(since);
            }
        }
        now
    }

    fn write(&self, change: impl FnOnce(&mut BTreeMap<String, VolumeMove>)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
        self.told.send_replace(());
    }
}

pub fn phase_of(of: &VolumeMove) -> Option<Phase> {
    of.status.as_ref()?.phase
}

/// Nothing is to be done for it.
pub fn is_over(of: &VolumeMove) -> bool {
    phase_of(of).is_some_and(Phase::is_over) && !is_held(of)
}

pub fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.csi.io", "v1alpha1", KIND))
}

/// Users write them: whatever one of them is, all others go on.
type AnyMove = Unmanaged<VolumeMove>;
type AnyObject = Unmanaged<DynamicObject>;

/// Of all of them less is kept: who writes one writes labels and annotations of any length, which nobody here reads.
fn trimmed(found: AnyObject) -> DynamicObject {
    let mut found = found.into_object();
    let metadata = &mut found.metadata;
    (metadata.labels, metadata.annotations, metadata.owner_references) = (None, None, None);
    found
}

fn moves_in(host: &Host, namespace: &str) -> Api<AnyMove> {
    Api::namespaced_with(host.client.clone(), namespace, &resource())
}

/// The move as it is now; none where it has gone, or another one has its name.
pub async fn read(host: &Host, of: &VolumeMove) -> Result<Option<VolumeMove>> {
    let (namespace, name) = (of.namespace().unwrap_or_default(), of.name_any());
    let answer = moves_in(host, &namespace).get(&name).await;
    let found =
        cluster::read(answer, &name).map_err(|error| unread(&format!("get volumemove {namespace}/{name}"), &error))?;
    Ok(found.map(AnyMove::into_object).filter(|found| found.uid() == of.uid()))
}

/// The one that a leaf says has it.
pub async fn is_under_way(host: &Host, mark: &MoveMark) -> Result<bool> {
    let answer = moves_in(host, &mark.namespace).get(&mark.name).await;
    let found = cluster::read(answer, &mark.name).map_err(|error| unread(&format!("get {}", mark.object()), &error))?;
    Ok(found.is_some_and(|found| found.uid().as_ref() == Some(&mark.uid) && !is_over(&found)))
}

/// All of the host's, as they are now, taken one by one as they come.
pub async fn list(host: &Host) -> Result<Vec<VolumeMove>> {
    let doing = |error: &kube::Error| unread("list volumemoves", error);
    let all = Api::<AnyObject>::all_with(host.client.clone(), &resource());
    let request = Request::new(all.resource_url()).list(&ListParams::default());
    let request = request.map_err(|error| doing(&kube::Error::BuildRequest(error)))?;
    let mut found = Vec::new();
    let listed = read_list(&host.client, request, Items::of_list(), |items, piece| -> kube::Result<()> {
        items.feed(piece, &mut |item| {
            let one = serde_json::from_slice(item).map_err(kube::Error::SerdeError)?;
            found.push(understood(trimmed(one)));
            Ok(())
        })
    });
    listed.await.map_err(|error| doing(&error))?;
    Ok(found)
}

/// One that nobody understands, as another version of this program has led it on, keeps no other from anything: it counts with its claim, its
/// volume and its source, and for one that is under way, and may have led the host away from its source, unless it says that it is over.
fn understood(found: DynamicObject) -> VolumeMove {
    let (spec, said) = (&found.data["spec"], &found.data["status"]);
    let claim_name = spec["claimName"].as_str().unwrap_or_default().to_owned();
    let status = MoveStatus {
        phase: Some(serde_json::from_value(said["phase"].clone()).unwrap_or(Phase::Finishing)),
        volume: serde_json::from_value(said["volume"].clone()).ok(),
        source: serde_json::from_value(said["source"].clone()).ok(),
        ..MoveStatus::default()
    };
    let read = serde_json::to_value(&found).and_then(serde_json::from_value);
    read.unwrap_or_else(|_| VolumeMove {
        types: found.types,
        metadata: found.metadata,
        spec: MoveSpec {
            claim_name,
            to: Destination { member: String::new() },
            cutover: Cutover::Manual,
            approved: false,
            delete_source_after: None,
        },
        status: Some(status),
    })
}

/// Writes its status over the version that was read.
pub async fn change_status(host: &Host, of: &VolumeMove, change: StatusChange) -> Result<VolumeMove> {
    let change = json!({"metadata": {"resourceVersion": of.resource_version()}, "status": change.0});
    let answer = moves_in(host, &of.namespace().unwrap_or_default())
        .patch_status(&of.name_any(), &PatchParams::default(), &Patch::Merge(change))
        .await;
    changed(of, answer)
}

/// Nobody takes it away before nothing is left of it.
pub async fn hold(host: &Host, of: &VolumeMove) -> Result<VolumeMove> {
    let mut finalizers = of.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    write_finalizers(host, of, &finalizers).await
}

pub async fn release(host: &Host, of: &VolumeMove) -> Result<VolumeMove> {
    let mut finalizers = of.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    write_finalizers(host, of, &finalizers).await
}

pub fn is_held(of: &VolumeMove) -> bool {
    of.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

async fn write_finalizers(host: &Host, of: &VolumeMove, finalizers: &[String]) -> Result<VolumeMove> {
    let change = json!({"metadata": {"resourceVersion": of.resource_version(), "finalizers": finalizers}});
    let answer = moves_in(host, &of.namespace().unwrap_or_default())
        .patch(&of.name_any(), &PatchParams::default(), &Patch::Merge(change))
        .await;
    changed(of, answer)
}

fn changed(of: &VolumeMove, answer: Result<AnyMove, kube::Error>) -> Result<VolumeMove> {
    let doing = format!("change volumemove {}/{}", of.namespace().unwrap_or_default(), of.name_any());
    answer.map(AnyMove::into_object).map_err(|error| match outcome(&doing, &error) {
        Error::NotFound(reason) => Error::InProgress(reason),
        other => other,
    })
}

/// The claim that is moved.
pub fn claim_of(of: &VolumeMove) -> Claim {
    Claim { namespace: of.namespace().unwrap_or_default(), name: of.spec.claim_name.clone() }
}

/// What its leaves say of it.
pub fn mark(of: &VolumeMove, part: Part) -> MoveMark {
    let (namespace, name) = (of.namespace().unwrap_or_default(), of.name_any());
    MoveMark { namespace, name, uid: of.uid().unwrap_or_default(), part }
}

/// For people.
pub fn name(of: &VolumeMove) -> String {
    mark(of, Part::Source).object()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn move_that_nobody_understands_counts_with_what_it_is_about_and_is_under_way_unless_it_says_that_it_is_over() {
        let pinned = json!({"name": "pvc-1", "uid": "v", "claimUid": "c"});
        let source = json!({"name": "pv-1", "uid": "s"});
        for (phase, attempt, expected) in [
            ("Copying", json!(1), Phase::Copying),
            ("Unheard", json!(1), Phase::Finishing),
            ("Succeeded", json!("first"), Phase::Succeeded),
        ] {
            let status = json!({"phase": phase, "attempt": attempt, "volume": pinned, "source": source});
            let found = serde_json::from_value(json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": KIND,
                "metadata": {"name": "to", "namespace": "shop", "uid": "u"},
                "spec": {"claimName": "data", "to": {"member": "m1"}}, "status": status}));
            let of = understood(found.unwrap());
            assert_eq!(
                (claim_of(&of).to_string(), of.uid(), phase_of(&of)),
                ("shop/data".to_owned(), Some("u".to_owned()), Some(expected))
            );
            let status = of.status.unwrap();
            assert_eq!((status.volume.unwrap().name, status.source.unwrap().uid), ("pvc-1".to_owned(), "s".to_owned()));
        }
    }
}
