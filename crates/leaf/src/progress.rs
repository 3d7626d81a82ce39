//! What of a leaf claim goes on changing after it was bound: its size, its VolumeAttributesClass, the nodes it is
//! published on, and its health. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus};
use kube::ResourceExt;

use super::ownership::PUBLISHED;
use domain::{
    compact_text::Interner,
    volume::{
        AccessMode, Request, VolumeMode, attributes::AttributesSeen, growth::Growth, published::Published, quantity,
    },
};

/// Conditions that only say that work is under way.
const AT_WORK: [&str; 3] = ["Resizing", "FileSystemResizePending", "ModifyingVolume"];
const INFEASIBLE: [&str; 2] = ["ControllerResizeInfeasible", "NodeResizeInfeasible"];

#[derive(Clone, Debug, Default)]
pub struct ClaimProgress {
    /// The size in its spec.
    pub requested: u64,
    pub growth: Growth,
    pub attributes: AttributesSeen,
    pub published: Published,
    /// How the host asked for it, where the leaf claim is of another kind.
    pub asked: Option<(Box<[AccessMode]>, VolumeMode)>,
    complaints: Box<[Complaint]>,
}

/// The same in memory: volumes that only live take hardly anything, and those of one node share its name.
#[derive(Debug)]
pub(super) struct CompactProgress {
    requested: u64,
    published: Option<Arc<str>>,
    rest: Option<Box<ClaimProgress>>,
}

impl CompactProgress {
    pub(super) fn keep(life: &ClaimProgress, names: &mut Interner) -> Self {
        // What cannot be read is kept as something that cannot be read.
        let record = if life.published.is_corrupt() { Some(String::new()) } else { record(&life.published) };
        let rest = ClaimProgress { requested: 0, published: Published::default(), ..life.clone() };
        Self {
            requested: life.requested,
            published: record.map(|record| names.share(&record)),
            rest: (!rest.is_quiet()).then(|| Box::new(rest)),
        }
    }

    pub(super) fn life(&self) -> ClaimProgress {
        let rest = self.rest.as_deref().cloned().unwrap_or_default();
        ClaimProgress { requested: self.requested, published: published(self.published.as_deref()), ..rest }
    }

    pub(super) fn requested(&self) -> u64 {
        self.requested
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.rest.is_none()
    }

    /// What its texts take.
    pub(super) fn length(&self) -> usize {
        let classes = |seen: &AttributesSeen| {
            [&seen.asked, &seen.current, &seen.infeasible].into_iter().flatten().map(|class| class.len()).sum::<usize>()
        };
        let complaints =
            |life: &ClaimProgress| life.complaints.iter().map(|one| one.kind.len() + one.message.len()).sum::<usize>();
        let rest = self.rest.as_deref().map_or(0, |life| classes(&life.attributes) + complaints(life));
        self.published.as_deref().map_or(0, str::len) + rest
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        let named = self.published.as_deref().is_some_and(|record| record.contains(node));
        named && published(self.published.as_deref()).is_on(node)
    }
}

/// A condition that says more than that work is under way.
#[derive(Clone, Debug)]
struct Complaint {
    kind: Box<str>,
    message: Box<str>,
}

impl ClaimProgress {
    pub(super) fn new(claim: &PersistentVolumeClaim, asked: Option<&Request>) -> Self {
        let spec = claim.spec.as_ref();
        let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        let requested = requests.and_then(|requests| quantity::parse(&requests.get("storage")?.0)).unwrap_or_default();
        let mut life = Self {
            requested,
            published: published(claim.annotations().get(PUBLISHED).map(String::as_str)),
            ..Self::default()
        };
        life.attributes.asked = spec.and_then(|spec| text(spec.volume_attributes_class_name.as_deref()));
        life.asked = asked.and_then(|asked| {
            let block = spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
            let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
            let same = modes.iter().map(String::as_str).eq(asked.access.iter().map(|mode| mode.as_str()));
            (!same || block != asked.mode.is_block()).then(|| (asked.access.as_slice().into(), asked.mode))
        });
        if let Some(status) = &claim.status {
            life.growth = growth(status, requested);
            life.attributes.current = text(status.current_volume_attributes_class_name.as_deref());
            let change = status.modify_volume_status.as_ref();
            let infeasible = change.filter(|change| change.status == "Infeasible");
            life.attributes.infeasible =
                infeasible.and_then(|change| text(change.target_volume_attributes_class_name.as_deref()));
            life.complaints = complaints(status);
        }
        life
    }

    /// Nothing but its size and its nodes is worth telling.
    fn is_quiet(&self) -> bool {
        self.growth == Growth::Untold
            && self.attributes == AttributesSeen::default()
            && self.asked.is_none()
            && self.complaints.is_empty()
    }

    /// What a condition says of which one of the names is the type.
    pub fn complaint(&self, kinds: &[&str]) -> Option<&str> {
        let complaint = self.complaints.iter().find(|complaint| kinds.contains(&&*complaint.kind));
        complaint.map(|complaint| &*complaint.message)
    }
}

pub(super) fn published(record: Option<&str>) -> Published {
    match record.map(serde_json::from_str) {
        None => Published::default(),
        Some(Ok(nodes)) => Published::new(nodes),
        Some(Err(_)) => Published::spoilt(),
    }
}

/// The nodes as they are kept; none where there are none.
pub(super) fn record(published: &Published) -> Option<String> {
    published.record().map(|nodes| serde_json::json!(nodes).to_string())
}

fn text(text: Option<&str>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty()).map(Into::into)
}

fn growth(status: &PersistentVolumeClaimStatus, requested: u64) -> Growth {
    let allocated = status.allocated_resources.as_ref().and_then(|sizes| quantity::parse(&sizes.get("storage")?.0));
    // Members without this field do not say for which size a filesystem waits.
    let size = allocated.unwrap_or(requested);
    let state = status.allocated_resource_statuses.as_ref().and_then(|states| states.get("storage"));
    match state.map(String::as_str) {
        Some(state) if INFEASIBLE.contains(&state) => Growth::Infeasible { size },
        Some("NodeResizePending") => Growth::OnNode { size },
        _ if has(status, "FileSystemResizePending") => Growth::OnNode { size },
        _ => Growth::Untold,
    }
}

fn has(status: &PersistentVolumeClaimStatus, kind: &str) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn complaints(status: &PersistentVolumeClaimStatus) -> Box<[Complaint]> {
    let told = status.conditions.iter().flatten();
    let told = told.filter(|one| one.status == "True" && !AT_WORK.contains(&one.type_.as_str()));
    let words = |words: &Option<String>| words.clone().unwrap_or_default();
    told.map(|condition| Complaint {
        kind: condition.type_.as_str().into(),
        message: format!("{} {}", words(&condition.reason), words(&condition.message)).trim().into(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json};

    use super::*;

    fn life(status: Value) -> ClaimProgress {
        let mut claim = json!({"metadata": {}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        claim["status"] = status;
        ClaimProgress::new(&from_value::<PersistentVolumeClaim>(claim).unwrap(), None)
    }

    #[test]
    fn growth_is_told_by_the_state_or_by_a_condition() {
        let state = |state: &str| {
            let allocated = json!({"storage": "3Gi"});
            life(json!({"allocatedResources": allocated, "allocatedResourceStatuses": {"storage": state}})).growth
        };
        assert_eq!(state("NodeResizePending"), Growth::OnNode { size: 3 << 30 });
        assert_eq!(state("ControllerResizeInfeasible"), Growth::Infeasible { size: 3 << 30 });
        assert_eq!(state("NodeResizeInfeasible"), Growth::Infeasible { size: 3 << 30 });
        assert_eq!(state("ControllerResizeInProgress"), Growth::Untold);
        let condition =
            |status: &str| life(json!({"conditions": [{"type": "FileSystemResizePending", "status": status}]})).growth;
        assert_eq!(condition("True"), Growth::OnNode { size: 2 << 30 });
        assert_eq!(condition("False"), Growth::Untold);
    }

    #[test]
    fn published_nodes_are_read_as_they_were_written() {
        let text = r#"{"real/b":{"access":"ReadWriteMany","readonly":true},"virtual/a":{"access":"ReadWriteMany"}}"#;
        let there = published(Some(text));
        assert_eq!(there.nodes().collect::<Vec<_>>(), ["real/b", "virtual/a"]);
        assert_eq!(record(&there).as_deref(), Some(text));
        assert_eq!(published(None), Published::default());
        assert_eq!(record(&Published::default()), None);
        for spoilt in ["", "yes", "[]", r#"{"real/b":{"access":"Sometimes"}}"#] {
            assert!(published(Some(spoilt)).is_corrupt(), "{spoilt}");
        }
    }

    #[test]
    fn what_is_kept_is_what_was_there() {
        let mut names = Interner::default();
        let mut kept = |life: &ClaimProgress| CompactProgress::keep(life, &mut names);
        let quiet = life(json!({"phase": "Bound", "capacity": {"storage": "2Gi"}}));
        let node = |record: &str| ClaimProgress { published: published(Some(record)), ..quiet.clone() };
        assert!(kept(&quiet).is_quiet() && !kept(&quiet).is_on("virtual/a"));
        let there = kept(&node(r#"{"virtual/a":{"access":"ReadWriteOnce"}}"#));
        assert!(there.is_quiet() && there.is_on("virtual/a") && !there.is_on("virtual/aa") && !there.is_on("virtual/"));
        assert!(kept(&node("nonsense")).life().published.is_corrupt());
        let growing = life(json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "currentVolumeAttributesClassName": "gold"}));
        let again = kept(&growing).life();
        assert_eq!((again.requested, again.growth), (2 << 30, Growth::OnNode { size: 2 << 30 }));
        assert_eq!(again.attributes, growing.attributes);
    }

    #[test]
    fn conditions_that_tell_of_work_are_no_complaints() {
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Why", "message": "because"});
        let told = life(json!({"conditions": [condition("Resizing"), condition("ControllerResizeError")]}));
        assert_eq!(told.complaint(&["ControllerResizeError"]), Some("Why because"));
        assert_eq!(told.complaint(&["Resizing"]), None);
    }
}
