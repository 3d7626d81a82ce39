//! Plays the agent behind a virtual node: copies the host's pods that are bound to it into the member once their volumes
//! are attached, and tells the host what becomes of them. Deleting works both ways: a pod goes with its copy, and a copy with its pod.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    attacher::{ATTACHMENTS, is_attached},
    conditions::{self, Condition},
    create, overtaken,
    workloads::ephemeral::claim_name,
};
use crate::{
    simulate::{
        Cluster,
        events::{self, About},
        text,
    },
    volume::MEMBER_KEY,
};

const SPEAKER: &str = "dev-mirror";
/// On a copy: the UID of the pod it is a copy of.
const COPY_OF: &str = "kosmos.csi.io/dev-copy-of";
const TAINT: &str = "kosmos.io/node";
/// Nodes, classes and accounts are the host's.
const HOSTS_OWN: [&str; 8] = [
    "nodeName",
    "nodeSelector",
    "affinity",
    "schedulerName",
    "priority",
    "priorityClassName",
    "serviceAccount",
    "serviceAccountName",
];
/// The volume in which the host hands its pods the account's token; the member hands them its own.
const TOKEN: &str = "kube-api-access-";
const AGAIN: Duration = Duration::from_secs(1);
/// What the member says of a pod; the rest of the status stays the host's own.
const TOLD: [&str; 11] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "containerStatuses",
    "initContainerStatuses",
    "qosClass",
];

/// What to do about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Copy,
    /// The member has a pod of that name that is not ours.
    Foreign,
    RemoveCopy,
    /// Somebody in the member deletes the copy.
    DeletePod,
    /// The copy is gone, so the pod has ended.
    EndPod,
    Tell,
}

/// From a pod, the pod of that name in the member, and whether the first one has had a copy before.
fn step(pod: Option<&Value>, there: Option<&Value>, had_copy: bool) -> Step {
    let uid = pod.map(|pod| text(pod, "/metadata/uid"));
    let copy_of = there.and_then(|there| there["metadata"]["annotations"].get(COPY_OF)).and_then(Value::as_str);
    let leaving =
        |object: Option<&Value>| object.is_some_and(|object| !text(object, "/metadata/deletionTimestamp").is_empty());
    let over = pod.is_some_and(|pod| ["Succeeded", "Failed"].contains(&text(pod, "/status/phase")));
    match (uid, there, copy_of) {
        (None, _, None) => Step::Nothing,
        (Some(_), None, _) | (Some(_), Some(_), None) if leaving(pod) => Step::EndPod,
        (Some(_), None, _) if over => Step::Nothing,
        (Some(_), None, _) if had_copy => Step::EndPod,
        (Some(_), None, _) => Step::Copy,
        (Some(_), Some(_), None) => Step::Foreign,
        (uid, Some(_), Some(of)) if uid != Some(of) || leaving(pod) => {
            if leaving(there) {
                Step::Nothing
            } else {
                Step::RemoveCopy
            }
        }
        // Before it tells of its end: the host would take a pod that was stopped for one that has done its work.
        _ if leaving(there) && !over => Step::DeletePod,
        _ => Step::Tell,
    }
}

/// A pod as the member gets it: without what only the host means.
fn copy(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let mut annotations = metadata["annotations"].clone();
    annotations[COPY_OF] = metadata["uid"].clone();
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        for field in HOSTS_OWN {
            spec.remove(field);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        // The host's claim for it has its leaf, which the member's own controller would take for a stranger's.
        if let Some(volume) = volume.as_object_mut()
            && volume.remove("ephemeral").is_some()
        {
            let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
            let claim = claim_name(text(pod, "/metadata/name"), name);
            volume.insert("persistentVolumeClaim".to_owned(), json!({"claimName": claim}));
        }
    }
    let is_token = |named: &Value| text(named, "/name").starts_with(TOKEN);
    retain(&mut spec, "tolerations", |toleration| toleration["key"] != TAINT);
    retain(&mut spec, "volumes", |volume| !is_token(volume));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            retain(container, "volumeMounts", |mount| !is_token(mount));
        }
    }
    json!({
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": metadata["labels"],
            "annotations": annotations,
        },
        "spec": spec,
    })
}

fn retain(object: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(list) = object.get_mut(list).and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

/// What the member says of the copy becomes what the host says of the pod.
fn tell(pod: &mut Value, copy: &Value, now: &str) {
    for field in TOLD {
        if let Some(told) = copy["status"].get(field) {
            pod["status"][field] = told.clone();
        }
    }
    for told in copy["status"]["conditions"].as_array().into_iter().flatten() {
        let kind = text(told, "/type");
        if kind != "PodScheduled" {
            let holds = text(told, "/status") == "True";
            let condition = Condition { kind, holds, reason: text(told, "/reason"), message: text(told, "/message") };
            conditions::set(&mut pod["status"]["conditions"], condition, now);
        }
    }
}

pub(super) async fn run(host: Cluster, name: String, member: Cluster) {
    let mut host_changes = host.follow(&["pods", "nodes", ATTACHMENTS]);
    let mut member_changes = member.follow(&["pods", "namespaces", "serviceaccounts"]);
    let mut mirror = Mirror { host, name, member, copied: HashSet::new() };
    loop {
        while host_changes.try_next().is_some() || member_changes.try_next().is_some() {}
        let settled = mirror.pass();
        tokio::select! {
            _ = host_changes.next() => {}
            _ = member_changes.next() => {}
            () = tokio::time::sleep(AGAIN), if !settled => {}
        }
    }
}

struct Mirror {
    host: Cluster,
    name: String,
    member: Cluster,
    /// UIDs of pods whose copy was seen.
    copied: HashSet<String>,
}

impl Mirror {
    /// Whether everything could be done that was to be done.
    fn pass(&mut self) -> bool {
        let pods = self.pods();
        let of_copies = self.member.list("pods");
        let of_copies = of_copies.iter().filter(|pod| pod["metadata"]["annotations"].get(COPY_OF).is_some());
        let names: HashSet<(String, String)> = pods.iter().chain(of_copies).map(|pod| key(pod)).collect();
        let known: HashSet<&str> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
        self.copied.retain(|uid| known.contains(uid.as_str()));
        let mut settled = true;
        for (namespace, name) in names {
            let pod = pods.iter().find(|pod| key(pod) == (namespace.clone(), name.clone()));
            let there = self.member.get("pods", &namespace, &name);
            let had_copy = pod.is_some_and(|pod| self.copied.contains(text(pod, "/metadata/uid")));
            let step = step(pod.map(|pod| &**pod), there.as_deref(), had_copy);
            settled &= self.act(step, &namespace, &name, pod.map(|pod| &**pod), there.as_deref()).is_some();
        }
        settled
    }

    /// The host's pods on this member's virtual nodes.
    fn pods(&self) -> Vec<Arc<Value>> {
        let nodes = self.host.list("nodes");
        let ours: HashSet<&str> = nodes
            .iter()
            .filter(|node| node["metadata"]["labels"][MEMBER_KEY] == *self.name)
            .map(|node| text(node, "/metadata/name"))
            .collect();
        let mut pods = self.host.list("pods");
        pods.retain(|pod| ours.contains(text(pod, "/spec/nodeName")));
        pods
    }

    fn act(
        &mut self,
        step: Step,
        namespace: &str,
        name: &str,
        pod: Option<&Value>,
        there: Option<&Value>,
    ) -> Option<()> {
        match (step, pod, there) {
            // No kubelet waits for it, so the agent does.
            (Step::Copy, Some(pod), _) if !is_attached(&self.host, pod) => {}
            (Step::Copy, Some(pod), _) => {
                if self.member.get("namespaces", "", namespace).is_none() {
                    overtaken(
                        "a namespace",
                        self.member.create("namespaces", json!({"metadata": {"name": namespace}})),
                    )?;
                }
                overtaken("a copy", create(&self.member, "pods", copy(pod)))?;
                self.copied.insert(text(pod, "/metadata/uid").to_owned());
            }
            (Step::Foreign, Some(pod), _) => self.complain(pod),
            (Step::RemoveCopy, ..) => overtaken("a deletion", self.member.delete("pods", namespace, name))?,
            (Step::DeletePod, ..) => overtaken("a deletion", self.host.delete("pods", namespace, name))?,
            (Step::EndPod, ..) => overtaken("a deletion", self.host.delete_now("pods", namespace, name))?,
            (Step::Tell, Some(pod), Some(copy)) => {
                self.copied.insert(text(pod, "/metadata/uid").to_owned());
                let now = self.host.stamp();
                overtaken("a status", self.host.change("pods", namespace, name, |pod| tell(pod, copy, &now)))?;
            }
            _ => {}
        }
        Some(())
    }

    /// Once: a pod that says so already is not told again.
    fn complain(&self, pod: &Value) {
        let message = format!("member {} has a pod of this name that is no copy of it; it is left alone", self.name);
        if text(pod, "/status/message") == message {
            return;
        }
        let edit = |pod: &mut Value| pod["status"]["message"] = json!(message);
        let (namespace, name) = key(pod);
        overtaken("a status", self.host.change("pods", &namespace, &name, edit));
        events::tell(&self.host, &About::pod(pod), SPEAKER, "Warning", "NameTaken", &message);
    }
}

fn key(object: &Value) -> (String, String) {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, leaving: bool, phase: &str) -> Value {
        let gone = leaving.then_some("2026-01-01T00:00:00Z");
        json!({"metadata": {"uid": uid, "deletionTimestamp": gone}, "status": {"phase": phase}})
    }

    fn copy_of(uid: &str, leaving: bool) -> Value {
        let mut copy = pod("c", leaving, "Running");
        copy["metadata"]["annotations"] = json!({COPY_OF: uid});
        copy
    }

    #[test]
    fn pod_and_copy_come_and_go_together() {
        let (living, leaving, over) =
            (pod("u", false, "Running"), pod("u", true, "Running"), pod("u", false, "Failed"));
        let (ours, going, former) = (copy_of("u", false), copy_of("u", true), copy_of("old", false));
        let (foreign, former_going) = (pod("x", false, "Running"), copy_of("old", true));
        for (pod, there, had_copy, expected) in [
            (Some(&living), None, false, Step::Copy),
            (Some(&living), None, true, Step::EndPod),
            (Some(&over), None, true, Step::Nothing),
            (Some(&living), Some(&ours), true, Step::Tell),
            (Some(&living), Some(&going), true, Step::DeletePod),
            (Some(&over), Some(&going), true, Step::Tell),
            (Some(&living), Some(&foreign), false, Step::Foreign),
            (Some(&living), Some(&former), false, Step::RemoveCopy),
            (Some(&living), Some(&former_going), false, Step::Nothing),
            (Some(&leaving), Some(&ours), true, Step::RemoveCopy),
            (Some(&leaving), Some(&going), true, Step::Nothing),
            (Some(&leaving), Some(&foreign), false, Step::EndPod),
            (Some(&leaving), None, true, Step::EndPod),
            (None, Some(&ours), false, Step::RemoveCopy),
            (None, Some(&going), false, Step::Nothing),
            (None, Some(&foreign), false, Step::Nothing),
        ] {
            assert_eq!(step(pod, there, had_copy), expected, "{pod:?} {there:?} {had_copy}");
        }
    }

    #[test]
    fn copy_is_without_what_only_the_host_means() {
        let ours = json!({"key": "kosmos.io/node", "operator": "Exists"});
        let other = json!({"key": "disk", "operator": "Exists"});
        let spec = json!({"nodeName": "kosmos-a", "nodeSelector": {"a": "b"}, "affinity": {"nodeAffinity": {}},
            "tolerations": [ours, other], "serviceAccountName": "default",
            "containers": [{"name": "c", "volumeMounts": [{"name": "kube-api-access-x"}, {"name": "d"}]}],
            "volumes": [{"name": "d"}, {"name": "kube-api-access-x", "projected": {}}]});
        let owners = json!([{"uid": "o"}]);
        let metadata =
            json!({"namespace": "x", "name": "p", "uid": "u", "labels": {"l": "1"}, "ownerReferences": owners});
        let copy = copy(&json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}));
        let containers = json!([{"name": "c", "volumeMounts": [{"name": "d"}]}]);
        let spec = json!({"tolerations": [other], "containers": containers, "volumes": [{"name": "d"}]});
        assert_eq!(copy["spec"], spec);
        let metadata = json!({"namespace": "x", "name": "p", "labels": {"l": "1"}, "annotations": {COPY_OF: "u"}});
        assert_eq!(copy["metadata"], metadata);
        assert_eq!(copy.get("status"), None);
    }

    #[test]
    fn copy_mounts_the_claim_that_was_made_for_the_pod() {
        let volumes = json!([{"name": "scratch", "ephemeral": {}}]);
        let copy =
            copy(&json!({"metadata": {"namespace": "x", "name": "p", "uid": "u"}, "spec": {"volumes": volumes}}));
        let mounted = json!([{"name": "scratch", "persistentVolumeClaim": {"claimName": "p-scratch"}}]);
        assert_eq!(copy["spec"]["volumes"], mounted);
    }

    #[test]
    fn status_comes_from_the_member_and_the_schedulers_word_from_the_host() {
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        let mut pod = json!({"status": {"phase": "Pending", "conditions": [scheduled]}});
        let theirs = json!([{"type": "PodScheduled", "status": "False"}, {"type": "Ready", "status": "True"}]);
        tell(&mut pod, &json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": theirs}}), "1");
        assert_eq!((text(&pod, "/status/phase"), text(&pod, "/status/podIP")), ("Running", "10.0.0.1"));
        assert_eq!(pod["status"]["conditions"][0], scheduled);
        assert_eq!(pod["status"]["conditions"][1]["status"], "True");
        let told = pod.clone();
        tell(&mut pod, &json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": theirs}}), "2");
        assert_eq!(pod, told, "nothing new was said");
    }
}
