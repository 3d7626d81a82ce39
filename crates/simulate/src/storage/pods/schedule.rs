//! What the scheduler does with a pod that has no node yet: whether its claims and the node are ready for it. Pure.

use std::sync::Arc;

use serde_json::Value;

use super::fit;
use crate::{
    object::{annotation, is_terminating, name, text},
    quantity,
    storage::names::{SELECTED_NODE, is_bound, waits_for_pod},
};

/// A claim that a pod names, with its class and volume as far as they are there.
#[derive(Clone, Debug, Default)]
pub(super) struct Claimed {
    pub(super) name: String,
    pub(super) claim: Option<Arc<Value>>,
    pub(super) class: Option<Arc<Value>>,
    pub(super) volume: Option<Arc<Value>>,
    /// The room left for it; none where there is no limit.
    pub(super) room: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everything is ready: the pod gets the node.
    Bind,
    /// These claims are told the node first.
    Select(Vec<String>),
    /// Volumes for the node are being made.
    Wait,
    Unschedulable(String),
}

/// `node` is none while it is gone.
pub(super) fn decide(pod: &Value, node: Option<&Value>, claims: &[Claimed]) -> Verdict {
    let stuck = |reason: String| Verdict::Unschedulable(format!("0/1 nodes are available: {reason}."));
    if let Some(reason) = claims.iter().find_map(trouble) {
        return stuck(reason);
    }
    let Some(node) = node else {
        return Verdict::Unschedulable("no nodes available to schedule pods".to_owned());
    };
    if let Some(reason) = fit::obstacle(pod, node).or_else(|| claims.iter().find_map(|one| misplaced(one, node))) {
        return stuck(reason);
    }
    let open: Vec<_> = claims.iter().filter(|one| !one.claim.as_ref().is_some_and(|claim| is_bound(claim))).collect();
    let unselected = open.iter().filter(|one| selected(one).is_empty());
    let untold: Vec<String> = unselected.map(|one| one.name.clone()).collect();
    match (open.is_empty(), untold.is_empty()) {
        (true, _) => Verdict::Bind,
        (false, true) => Verdict::Wait,
        (false, false) => Verdict::Select(untold),
    }
}

/// What no choice of a node can mend.
fn trouble(claimed: &Claimed) -> Option<String> {
    let name = &claimed.name;
    let Some(claim) = &claimed.claim else {
        return Some(format!("persistentvolumeclaim \"{name}\" not found"));
    };
    if is_terminating(claim) {
        return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    if text(claim, "/status/phase") == "Lost" || (is_bound(claim) && claimed.volume.is_none()) {
        return Some(format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume"));
    }
    let waits = claimed.class.as_ref().is_some_and(|class| waits_for_pod(class));
    let unbound = !is_bound(claim) && !waits;
    unbound.then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
}

/// Why a claim's volume cannot be used on the node, or be made there.
fn misplaced(claimed: &Claimed, node: &Value) -> Option<String> {
    let affinity = claimed.volume.as_ref().and_then(|volume| volume.pointer("/spec/nodeAffinity/required"));
    if affinity.is_some_and(|selector| !fit::selects_node(selector, node)) {
        return Some("1 node(s) had volume node affinity conflict".to_owned());
    }
    let claim = claimed.claim.as_ref().filter(|claim| !is_bound(claim))?;
    match selected(claimed) {
        "" => {
            let wanted = quantity::parse(text(claim, "/spec/resources/requests/storage")).unwrap_or(0);
            let short = claimed.room.is_some_and(|room| room < wanted);
            short.then(|| "1 node(s) did not have enough free storage".to_owned())
        }
        chosen => {
            (chosen != name(node)).then(|| "1 node(s) didn't find available persistent volumes to bind".to_owned())
        }
    }
}

fn selected(claimed: &Claimed) -> &str {
    claimed.claim.as_ref().map(|claim| annotation(claim, SELECTED_NODE)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claimed(change: impl FnOnce(&mut Value)) -> Claimed {
        let mut claim = json!({
            "metadata": {"name": "data", "annotations": {}},
            "spec": {"resources": {"requests": {"storage": "10"}}},
            "status": {"phase": "Pending"},
        });
        change(&mut claim);
        let class = json!({"volumeBindingMode": "WaitForFirstConsumer"});
        Claimed {
            name: "data".to_owned(),
            claim: Some(Arc::new(claim)),
            class: Some(Arc::new(class)),
            ..Claimed::default()
        }
    }

    fn bound(claim: &mut Value) {
        claim["spec"]["volumeName"] = json!("pv");
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    }

    fn verdict(claimed: Claimed) -> Verdict {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}});
        decide(&json!({}), Some(&node), &[claimed])
    }

    fn stuck(claimed: Claimed, because: &str) {
        assert!(matches!(verdict(claimed), Verdict::Unschedulable(message) if message.contains(because)), "{because}");
    }

    #[test]
    fn a_waiting_claim_is_told_the_node_then_waited_for_then_used() {
        assert_eq!(verdict(claimed(|_| ())), Verdict::Select(vec!["data".to_owned()]));
        let selected = |claim: &mut Value| claim["metadata"]["annotations"][SELECTED_NODE] = json!("n1");
        assert_eq!(verdict(claimed(selected)), Verdict::Wait);
        let volume = Some(Arc::new(json!({})));
        assert_eq!(verdict(Claimed { volume, ..claimed(bound) }), Verdict::Bind);
    }

    #[test]
    fn a_pod_waits_for_what_its_claims_lack() {
        stuck(Claimed { claim: None, ..claimed(|_| ()) }, "not found");
        stuck(claimed(|claim| claim["metadata"]["deletionTimestamp"] = json!("now")), "is being deleted");
        stuck(claimed(bound), "non-existent persistentvolume");
        stuck(Claimed { class: None, ..claimed(|_| ()) }, "unbound immediate");
        stuck(Claimed { room: Some(9), ..claimed(|_| ()) }, "enough free storage");
        stuck(claimed(|claim| claim["metadata"]["annotations"][SELECTED_NODE] = json!("n2")), "to bind");
        let rule = json!({"key": "zone", "operator": "In", "values": ["b"]});
        let volume =
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}});
        stuck(Claimed { volume: Some(Arc::new(volume)), ..claimed(bound) }, "affinity conflict");
    }

    #[test]
    fn without_a_node_nothing_is_scheduled() {
        assert!(matches!(decide(&json!({}), None, &[]), Verdict::Unschedulable(_)));
    }
}
