//! Plays the attach-detach controller and external-attacher: a VolumeAttachment for each volume of ours that a pod on a
//! node wants, the driver asked to publish it there, and to take it back once no pod wants it any more and its node does not say
//! that it is in use.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    create, ignore_conflict,
    provisioner::{Attempts, PATIENCE, capabilities},
    workloads::ephemeral::claim_name,
};
use csi::{
    client::{CallError, Client},
    v1::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest},
};
use domain::volume::{DRIVER, published::host_attachment_name};
use simulate::{Cluster, text};

pub(super) const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
const DRIVERS: &str = "csidrivers.storage.k8s.io";
const FINALIZER: &str = "external-attacher/kosmos-csi-io";
/// The node's id, for when the node itself has gone.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
const NODES: &str = "nodes";
const FOLLOWED: [&str; 7] =
    ["pods", "persistentvolumeclaims", "persistentvolumes", NODES, "csinodes.storage.k8s.io", DRIVERS, ATTACHMENTS];
/// Where nothing is due.
const IDLE: std::time::Duration = std::time::Duration::from_hours(1);

/// What the host wants: a volume on a node.
#[derive(Clone, Debug, PartialEq)]
struct WantedAttachment {
    node: String,
    node_id: String,
    volume: String,
}

/// What is to be done about an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttachStep {
    Nothing,
    Publish,
    /// Nobody wants it any more.
    Delete,
    Unpublish,
}

fn step(attachment: &Value, wanted: bool) -> AttachStep {
    let leaving = !text(attachment, "/metadata/deletionTimestamp").is_empty();
    match (leaving, wanted, attachment["status"]["attached"] == true) {
        (true, ..) => AttachStep::Unpublish,
        (false, false, _) => AttachStep::Delete,
        (false, true, false) => AttachStep::Publish,
        (false, true, true) => AttachStep::Nothing,
    }
}

/// An answer about the attachment of this name.
enum Answer {
    Published(String, Result<HashMap<String, String>, CallError>),
    Unpublished(String, Result<(), CallError>),
}

pub(super) async fn run(host: Cluster, driver: Client) {
    let mut changes = simulate::follow::follow(&host, &FOLLOWED);
    let mut attacher = Attacher { host, driver, work: BTreeMap::new(), calls: JoinSet::new() };
    loop {
        while changes.try_next().is_some() {}
        let now = Instant::now();
        attacher.look(now);
        let due = attacher.work.values().filter(|attempts| attempts.due > now).map(|attempts| attempts.due).min();
        tokio::select! {
            _ = changes.next() => {}
            Some(ended) = attacher.calls.join_next() => match ended {
                Ok(answer) => attacher.answered(answer, Instant::now()),
                Err(error) => tracing::error!(%error, "a call of the driver has failed in itself"),
            },
            () = sleep_until(due.unwrap_or(now + IDLE)) => {}
        }
    }
}

struct Attacher {
    host: Cluster,
    driver: Client,
    /// By the attachment's name.
    work: BTreeMap<String, Attempts>,
    calls: JoinSet<Answer>,
}

impl Attacher {
    fn look(&mut self, now: Instant) {
        let wanted = wanted(&self.host);
        for (name, wanted) in &wanted {
            if self.host.get(ATTACHMENTS, "", name).is_none() {
                ignore_conflict("an attachment", create(&self.host, ATTACHMENTS, manifest(name, wanted)));
            }
        }
        let attachments = self.host.list(ATTACHMENTS);
        let mut known: Vec<&str> = Vec::new();
        for attachment in attachments.iter().filter(|attachment| text(attachment, "/spec/attacher") == DRIVER) {
            let name = text(attachment, "/metadata/name");
            known.push(name);
            match step(attachment, wanted.contains_key(name)) {
                AttachStep::Nothing => {}
                AttachStep::Delete if self.is_in_use(attachment) => {}
                AttachStep::Delete => drop(ignore_conflict("a detachment", self.host.delete(ATTACHMENTS, "", name))),
                step => self.ask(step, name, attachment, now),
            }
        }
        self.work.retain(|name, attempts| attempts.under_way || known.contains(&name.as_str()));
        self.tell_nodes();
    }

    /// The name of its volume, as nodes know it.
    fn volume_of(&self, attachment: &Value) -> Option<String> {
        let volume = self.host.get("persistentvolumes", "", text(attachment, "/spec/source/persistentVolumeName"))?;
        Some(format!("kubernetes.io/csi/{DRIVER}^{}", text(&volume, "/spec/csi/volumeHandle")))
    }

    fn is_in_use(&self, attachment: &Value) -> bool {
        let node = self.host.get(NODES, "", text(attachment, "/spec/nodeName"));
        let in_use = node.as_ref().and_then(|node| node["status"]["volumesInUse"].as_array());
        let volume = self.volume_of(attachment);
        in_use.into_iter().flatten().any(|name| name.as_str() == volume.as_deref())
    }

    /// Nodes say which volumes are attached to them.
    fn tell_nodes(&self) {
        let mut attached: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for attachment in self.host.list(ATTACHMENTS).iter().filter(|one| step(one, true) == AttachStep::Nothing) {
            let node = attached.entry(text(attachment, "/spec/nodeName").to_owned()).or_default();
            node.extend(self.volume_of(attachment).map(|name| json!({"name": name, "devicePath": ""})));
        }
        for node in self.host.list(NODES) {
            let name = text(&node, "/metadata/name");
            let now = attached.remove(name).unwrap_or_default();
            if node["status"]["volumesAttached"].as_array().map_or(0, Vec::len) + now.len() > 0 {
                let tell = |node: &mut Value| node["status"]["volumesAttached"] = json!(now);
                ignore_conflict("what is attached to a node", self.host.change(NODES, "", name, tell));
            }
        }
    }

    fn ask(&mut self, step: AttachStep, name: &str, attachment: &Value, now: Instant) {
        let attempts = self.work.entry(name.to_owned()).or_insert_with(|| Attempts::new(now));
        if attempts.under_way || attempts.due > now {
            return;
        }
        let volume = self.host.get("persistentvolumes", "", text(attachment, "/spec/source/persistentVolumeName"));
        let Some(volume) = volume else { return self.let_go(name) };
        attempts.under_way = true;
        let (driver, name) = (self.driver.clone(), name.to_owned());
        let volume_id = text(&volume, "/spec/csi/volumeHandle").to_owned();
        let node_id = attachment["metadata"]["annotations"][NODE_ID].as_str().unwrap_or_default().to_owned();
        if step == AttachStep::Unpublish {
            let request = ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
            self.calls
                .spawn(async move { Answer::Unpublished(name, driver.unpublish_volume(request, PATIENCE).await) });
            return;
        }
        let volume_capability = capabilities(&volume).into_iter().next();
        let request = ControllerPublishVolumeRequest { volume_id, node_id, volume_capability, ..Default::default() };
        self.calls.spawn(async move { Answer::Published(name, driver.publish_volume(request, PATIENCE).await) });
    }

    fn answered(&mut self, answer: Answer, now: Instant) {
        let (name, refusal) = match answer {
            Answer::Published(name, Ok(context)) => {
                let status = json!({"attached": true, "attachmentMetadata": context});
                self.tell(&name, &status);
                (name, None)
            }
            Answer::Unpublished(name, Ok(())) => {
                self.let_go(&name);
                (name, None)
            }
            Answer::Published(name, Err(refusal)) => (name, Some(("attachError", refusal))),
            Answer::Unpublished(name, Err(refusal)) => (name, Some(("detachError", refusal))),
        };
        let Some((field, refusal)) = refusal else {
            self.work.remove(&name);
            return;
        };
        if let Some(attempts) = self.work.get_mut(&name) {
            attempts.under_way = false;
            attempts.again(now);
        }
        let attached = field == "detachError";
        self.tell(
            &name,
            &json!({"attached": attached, field: {"message": refusal.to_string(), "time": self.host.stamp()}}),
        );
    }

    fn tell(&self, name: &str, status: &Value) {
        let change = |attachment: &mut Value| attachment["status"] = status.clone();
        ignore_conflict("the state of an attachment", self.host.change(ATTACHMENTS, "", name, change));
    }

    fn let_go(&self, name: &str) {
        let release = |attachment: &mut Value| attachment["metadata"]["finalizers"] = json!([]);
        ignore_conflict("the end of an attachment", self.host.change(ATTACHMENTS, "", name, release));
    }
}

fn manifest(name: &str, wanted: &WantedAttachment) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": [FINALIZER], "annotations": {NODE_ID: wanted.node_id}},
        "spec": {"attacher": DRIVER, "nodeName": wanted.node, "source": {"persistentVolumeName": wanted.volume}},
    })
}

/// What all pods together want, by the attachment's name.
fn wanted(host: &Cluster) -> BTreeMap<String, WantedAttachment> {
    let pods = host.list("pods");
    let living = pods.iter().filter(|pod| !["Succeeded", "Failed"].contains(&text(pod, "/status/phase")));
    living.flat_map(|pod| of_pod(host, pod)).collect()
}

/// The attachments that a pod needs, where there are any to be made.
fn of_pod(host: &Cluster, pod: &Value) -> Vec<(String, WantedAttachment)> {
    let node = text(pod, "/spec/nodeName");
    let required = host.get(DRIVERS, "", DRIVER).is_none_or(|driver| driver["spec"]["attachRequired"] != false);
    let Some(node_id) = node_id(host, node).filter(|_| required) else { return Vec::new() };
    let volumes = claims(pod).into_iter().filter_map(|claim| {
        let claim = host.get("persistentvolumeclaims", text(pod, "/metadata/namespace"), &claim)?;
        let volume = host.get("persistentvolumes", "", text(&claim, "/spec/volumeName"))?;
        (text(&volume, "/spec/csi/driver") == DRIVER).then_some(volume)
    });
    let wanted = |volume: &Value| WantedAttachment {
        node: node.to_owned(),
        node_id: node_id.clone(),
        volume: text(volume, "/metadata/name").to_owned(),
    };
    let name = |volume: &Value| host_attachment_name(text(volume, "/spec/csi/volumeHandle"), node);
    volumes.map(|volume| (name(&volume), wanted(&volume))).collect()
}

fn node_id(host: &Cluster, node: &str) -> Option<String> {
    let node = host.get("csinodes.storage.k8s.io", "", node)?;
    let drivers = node["spec"]["drivers"].as_array()?;
    let ours = drivers.iter().find(|driver| driver["name"] == DRIVER)?;
    Some(text(ours, "/nodeID").to_owned())
}

fn claims(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claim = |volume: &Value| match text(volume, "/persistentVolumeClaim/claimName") {
        "" if volume["ephemeral"].is_object() => Some(claim_name(text(pod, "/metadata/name"), text(volume, "/name"))),
        "" => None,
        claim => Some(claim.to_owned()),
    };
    volumes.filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachment_is_published_while_it_is_wanted_and_taken_back_after_it() {
        let state = |attached: bool| json!({"status": {"attached": attached}});
        let mut leaving = state(true);
        leaving["metadata"]["deletionTimestamp"] = json!("now");
        for (attachment, wanted, expected) in [
            (state(false), true, AttachStep::Publish),
            (state(true), true, AttachStep::Nothing),
            (state(true), false, AttachStep::Delete),
            (state(false), false, AttachStep::Delete),
            (leaving.clone(), true, AttachStep::Unpublish),
            (leaving, false, AttachStep::Unpublish),
        ] {
            assert_eq!(step(&attachment, wanted), expected, "{attachment} {wanted}");
        }
    }

    #[test]
    fn claims_of_a_pod_are_those_it_names_and_those_made_for_it() {
        let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "b", "ephemeral": {}}, {"name": "c", "emptyDir": {}}]);
        let pod = json!({"metadata": {"name": "web"}, "spec": {"volumes": volumes}});
        assert_eq!(claims(&pod), ["data", "web-b"]);
    }
}
