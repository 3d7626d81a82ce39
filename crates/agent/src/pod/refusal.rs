//! Why a pod is not run in a member, whatever is there. Pure.

use serde_json::Value;

use super::{
    super::{
        node::is_of_daemon_set,
        object::{items, room, text},
    },
    ephemeral,
    level::refused_level,
    names::{named, tokens},
    rejection::{Here, PodRejection},
};
use domain::volume::moving::YARD;
use leaf::stats;

/// Kinds of volumes that mean the same in a member.
const VOLUMES: [&str; 11] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "hostPath",
    "image",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// What a projected volume may hold: of the others a member has its own.
const SOURCES: [&str; 4] = ["configMap", "downwardAPI", "secret", "serviceAccountToken"];

/// Kinds of volumes that are claims.
const CLAIMS: [&str; 2] = ["ephemeral", "persistentVolumeClaim"];

/// Objects that one pod names: each is asked for by itself before the pod is copied, and others of the member wait meanwhile.
const MOST_NAMED: usize = 200;

/// In bytes of memory, of what one pod asks for. While it is copied, it is there five times, beside all else that the agent has.
const MOST_ROOM: usize = 32 << 20;

/// Why it is not run, also where it runs already.
pub(super) fn refusal(pod: &Value, here: Here<'_>) -> Option<PodRejection> {
    refused_kind(pod).or_else(|| refused_volume(pod)).or_else(|| refused_level(&ephemeral::without(pod), here))
}

/// Why it is run in none.
fn refused_kind(pod: &Value) -> Option<PodRejection> {
    if is_of_daemon_set(pod) {
        let message = "virtual nodes run no pods of DaemonSets, as these look after a machine: keep the DaemonSet off \
                       virtual nodes by a node affinity (kosmos.io/node DoesNotExist)";
        return Some(PodRejection::new("DaemonSetNotCopied", message));
    }
    if text(pod, "/metadata/namespace") == "kube-system" {
        let message =
            "members run no pods of the host's kube-system, as they have their own: keep the pod off virtual nodes";
        return Some(PodRejection::new("NamespaceNotCopied", message));
    }
    if text(pod, "/metadata/namespace") == YARD {
        let message =
            "members run no pods of hosts in this namespace, which is for movers of volumes: use another namespace";
        return Some(PodRejection::new("NamespaceNotCopied", message));
    }
    if text(pod, "/metadata/namespace") == stats::NAMESPACE {
        let message =
            "members run no pods of hosts in this namespace, which is for accounts of hosts: use another namespace";
        return Some(PodRejection::new("NamespaceNotCopied", message));
    }
    let claims = items(pod, "/spec/resourceClaims").next();
    if claims.is_some() {
        let message =
            "spec.resourceClaims names devices of the host, which members do not have: keep the pod off virtual nodes";
        return Some(PodRejection::new("FieldNotCopied", message));
    }
    None
}

fn refused_volume(pod: &Value) -> Option<PodRejection> {
    items(pod, "/spec/volumes").find_map(|volume| {
        let name = text(volume, "/name");
        let kinds = || volume.as_object().into_iter().flatten().map(|(kind, _)| kind).filter(|kind| *kind != "name");
        let secret = !volume["csi"]["nodePublishSecretRef"].is_null();
        let unknown = kinds().find(|kind| !VOLUMES.contains(&kind.as_str())).or_else(|| kinds().find(|_| secret));
        let fields = items(volume, "/projected/sources").filter_map(Value::as_object).flatten();
        let source = fields.map(|(source, _)| source).find(|source| !SOURCES.contains(&source.as_str()));
        let message = match (unknown, source) {
            (Some(kind), _) => {
                let with = if secret { " with a Secret" } else { "" };
                format!("volume {name} is of kind {kind}{with}, which members do not mount for pods of hosts: use a claim")
            }
            (None, Some(source)) => {
                format!("volume {name} has a source {source}, whose data in a member would be the member's own: leave it out")
            }
            (None, None) => return None,
        };
        Some(PodRejection::new("VolumeNotCopied", message))
    })
}

/// Why one that has no copy yet is given none. One that runs goes on to be given what it was.
pub(super) fn refused_number(pod: &Value) -> Option<PodRejection> {
    let spec = &pod["spec"];
    let is_claim = |volume: &&Value| CLAIMS.iter().any(|kind| volume.get(kind).is_some());
    let claims = items(spec, "/volumes").filter(is_claim).count();
    let number = named(spec).len() + tokens(spec).len() + claims;
    (number > MOST_NAMED).then(|| {
        let message = format!(
            "the pod names {number} ConfigMaps, Secrets, tokens and claims, but a pod on a virtual node may name {MOST_NAMED} at most: \
             put several of them into one"
        );
        PodRejection::new("TooManyObjects", message)
    })
}

/// The same of one that would take too much memory.
pub(super) fn refused_length(pod: &Value) -> Option<PodRejection> {
    let room = room(&pod["spec"]);
    (room > MOST_ROOM).then(|| {
        let message = format!(
            "the pod takes {} MiB of memory while it is copied, but a pod on a virtual node may take {} at most: give it fewer variables, \
             volumes and containers, or put variables into a ConfigMap",
            room >> 20,
            MOST_ROOM >> 20
        );
        PodRejection::new("TooLong", message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HERE: Here<'static> = Here { host: "h", member: "m", privileged: false };

    fn pod() -> Value {
        json!({"metadata": {"uid": "u", "namespace": "shop", "name": "p"}, "status": {"phase": "Pending"}})
    }

    #[test]
    fn what_means_nothing_in_a_member_is_refused_with_the_reason() {
        let owner = json!([{"kind": "DaemonSet", "controller": true}]);
        for (change, reason, words) in [
            (json!({"metadata": {"ownerReferences": owner}}), "DaemonSetNotCopied", "affinity"),
            (json!({"metadata": {"namespace": "kube-system"}}), "NamespaceNotCopied", "kube-system"),
            (json!({"metadata": {"namespace": "kosmos-csi-movers"}}), "NamespaceNotCopied", "movers"),
            (json!({"metadata": {"namespace": "kosmos-csi"}}), "NamespaceNotCopied", "accounts"),
            (json!({"spec": {"resourceClaims": [{"name": "gpu"}]}}), "FieldNotCopied", "resourceClaims"),
            (json!({"spec": {"volumes": [{"name": "v", "iscsi": {}}]}}), "VolumeNotCopied", "iscsi"),
            (
                json!({"spec": {"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {"name": "s"}}}]}}),
                "VolumeNotCopied",
                "with a Secret",
            ),
            (json!({"spec": {"hostNetwork": true}}), "AboveBaseline", "spec.hostNetwork"),
            (
                json!({"spec": {"volumes": [{"name": "v", "csi": {"driver": "d"}}]}}),
                "AboveBaseline",
                "spec.volumes[v].csi",
            ),
            (
                json!({"spec": {"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]}}),
                "VolumeNotCopied",
                "clusterTrustBundle",
            ),
        ] {
            let mut new = pod();
            for (part, fields) in change.as_object().unwrap() {
                for (field, value) in fields.as_object().unwrap() {
                    new[part][field] = value.clone();
                }
            }
            let refusal = refusal(&new, HERE).unwrap();
            assert_eq!(refusal.reason, reason);
            assert!(refusal.message.contains(words) && refusal.message.len() < 900, "{}", refusal.message);
        }
        let mut usual = pod();
        let projected = json!({"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "t"}}]});
        usual["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}, {"name": "p", "projected": projected}]);
        assert_eq!(refusal(&usual, HERE), None);
        usual["spec"]["volumes"] = json!([{"name": "w", "csi": {"driver": "d"}}]);
        assert_eq!(refusal(&usual, Here { privileged: true, ..HERE }), None);
    }

    /// What is optional is asked for as well.
    #[test]
    fn pod_that_names_more_objects_than_it_is_given_is_refused_with_both_numbers() {
        let names = |number: usize, of_kind: &dyn Fn(String) -> Value| -> Value {
            (0..number).map(|one| of_kind(format!("n{one}"))).collect()
        };
        let variable = |name: String| json!({"configMapRef": {"name": name, "optional": true}});
        let token = |path: String| json!({"serviceAccountToken": {"path": path}});
        let claim = |name: String| json!({"name": name, "persistentVolumeClaim": {"claimName": "data"}});
        for (number, refused) in [(MOST_NAMED, false), (MOST_NAMED + 1, true)] {
            let projected = json!([{"name": "t", "projected": {"sources": names(number, &token)}}]);
            for spec in [
                json!({"containers": [{"envFrom": names(number, &variable)}]}),
                json!({"volumes": projected}),
                json!({"volumes": names(number, &claim)}),
            ] {
                let mut many = pod();
                many["spec"] = spec;
                assert_eq!(refusal(&many, HERE), None, "one that runs already goes on");
                let refusal = refused_number(&many);
                assert_eq!(refusal.as_ref().map(|why| why.reason), refused.then_some("TooManyObjects"));
                let message = refusal.map(|why| why.message).unwrap_or_default();
                let says = |words: &str| message.contains(words);
                assert_eq!(says("names 201 ") && says("may name 200 at most"), refused, "{message}");
            }
        }
        let mut again = pod();
        again["spec"] = json!({"containers": vec![json!({"envFrom": [variable("a".to_owned())]}); 300]});
        assert_eq!(refused_number(&again), None, "one that is named again is asked for once");
    }

    #[test]
    fn pod_that_takes_more_memory_than_the_agent_gives_it_is_refused_with_both_numbers() {
        let mut long = pod();
        long["spec"] = json!({"containers": [{"name": "c", "args": vec!["a"; 500_000]}]});
        assert_eq!(refused_length(&long), None, "values alone take little");
        long["spec"] = json!({"containers": [{"name": "c", "env": vec![json!({"name": "a"}); 100_000]}]});
        assert_eq!(refusal(&long, HERE), None, "one that runs already goes on");
        let (why, takes) = (refused_length(&long).unwrap(), format!("takes {} MiB ", room(&long["spec"]) >> 20));
        assert!(why.reason == "TooLong" && why.message.contains(&takes), "{why:?}");
        assert!(why.message.contains("may take 32 at most"), "{why:?}");
    }
}
