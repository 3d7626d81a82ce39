//! The short-lived pod that is the first consumer of leaf claims whose class waits for one. The member's own scheduler
//! places it as it will place the host pod's copy; it need not run, so its image need not exist.

mod clustertree;
mod preference;
mod resources;

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use k8s_openapi::{
    api::core::v1::{
        Affinity, Capabilities, Container, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec,
        ResourceRequirements, SeccompProfile, SecurityContext, Toleration, Volume, VolumeDevice, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use serde_json::{from_value, json};
use tokio::time::{Instant, sleep};

use super::{MemberClient, ownership, row::Consumer, scheduling};
use domain::{
    error::{Error, Result},
    volume::VolumeHash,
};

/// In seconds, from when a kubelet has seen it: its claim is bound by then. One that comes late holds what it asks for no
/// longer.
const LIFE: i64 = 300;
/// What the name of each begins with.
pub const PREFIX: &str = "kosmos-csi-consumer-";
/// Never pulled: the pod is only to be scheduled.
const IMAGE: &str = "kosmos.csi.io/consumer";
const NOBODY: i64 = 65532;
/// A namespace takes no pods before it has its account, which the member makes a moment later. Looking for that is no right
/// of ours, so the pod itself is tried again, after these pauses.
const ACCOUNT_PAUSES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// What a member says that has not made it yet.
const NO_ACCOUNT: &str = "error looking up service account";
/// What one says that lacks the RuntimeClass of a pod.
const NO_RUNTIME_CLASS: &str = "pod rejected: RuntimeClass";

/// What is asked of a node. Not how pods are to be spread: that counts them by labels, of which a consumer has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    /// Of each container.
    resources: Vec<ResourceRequirements>,
    /// Of all of them together, where the pod says so.
    pod_resources: Option<ResourceRequirements>,
    affinity: Option<Affinity>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Vec<Toleration>,
    /// By its name a member adds nodes, tolerations and overhead of its own, to a copy as well.
    runtime_class: Option<String>,
}

/// Our consumer pod, as the member's scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    pub uid: String,
    /// Why it has no node yet.
    pub obstacle: Option<String>,
    pub has_node: bool,
}

/// A leaf claim that the pod mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumed {
    pub claim: String,
    pub uid: String,
    pub block: bool,
}

impl Constraints {
    /// What the host pod's copy requires, and as a preference what the pod asks of nodes besides. `nodes` are those of the member that will do;
    /// none where any will.
    pub fn of(pod: Option<&PodSpec>, nodes: &[&str]) -> Self {
        let nobody = PodSpec::default();
        let pod = pod.unwrap_or(&nobody);
        let PodSpec { mut affinity, tolerations, .. } = as_in_copy(pod, nodes);
        let preferred = preference::of(pod);
        if !preferred.is_empty() {
            let nodes = affinity.get_or_insert_default().node_affinity.get_or_insert_default();
            nodes.preferred_during_scheduling_ignored_during_execution = Some(preferred);
        }
        Self {
            resources: resources::of(pod),
            pod_resources: pod.resources.clone().map(resources::schedulable),
            affinity,
            node_selector: None,
            tolerations: tolerations.unwrap_or_default(),
            runtime_class: pod.runtime_class_name.clone(),
        }
    }
}

/// Copies are made of pods as they come, and not as types.
fn as_in_copy(pod: &PodSpec, nodes: &[&str]) -> PodSpec {
    let (affinity, tolerations) = (pod.affinity.clone(), pod.tolerations.clone());
    let asked = PodSpec { affinity, tolerations, ..PodSpec::default() };
    let mut spec = json!(asked);
    scheduling::rewrite(&mut spec, nodes);
    from_value(spec).unwrap_or_default()
}

pub fn pod_name(hash: VolumeHash) -> String {
    format!("{PREFIX}{}", hash.prefix())
}

/// The volumes whose consumer has this name.
pub fn volumes_of(pod: &str) -> Option<RangeInclusive<VolumeHash>> {
    pod.strip_prefix(PREFIX).and_then(VolumeHash::beginning_with)
}

/// One that comes when its claim has gone, long after it was sent, is removed by the member's garbage collector.
fn owner(claim: &Consumed) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "PersistentVolumeClaim".to_owned(),
        name: claim.claim.clone(),
        uid: claim.uid.clone(),
        ..OwnerReference::default()
    }
}

/// A pod that passes the `restricted` level and mounts the claims.
fn manifest(
    namespace: &str,
    labels: BTreeMap<String, String>,
    name: String,
    claims: &[Consumed],
    wishes: &Constraints,
) -> Pod {
    let (block, files): (Vec<_>, Vec<_>) = claims.iter().enumerate().partition(|(_, claim)| claim.block);
    let volume_name = |index: usize| format!("claim-{index}");
    let devices = block
        .iter()
        .map(|(index, _)| VolumeDevice { device_path: format!("/claims/{index}"), name: volume_name(*index) });
    let mounts = files.iter().map(|(index, _)| VolumeMount {
        mount_path: format!("/claims/{index}"),
        name: volume_name(*index),
        ..VolumeMount::default()
    });
    let mut containers: Vec<Container> = wishes.resources.iter().cloned().map(Some).map(container).collect();
    if containers.is_empty() {
        containers.push(container(None));
    }
    for (index, container) in containers.iter_mut().enumerate() {
        container.name = format!("consumer-{index}");
    }
    containers[0].volume_mounts = Some(mounts.collect());
    containers[0].volume_devices = Some(devices.collect());
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            owner_references: claims.first().map(|claim| vec![owner(claim)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers,
            volumes: Some(claims.iter().enumerate().map(|(index, claim)| volume(volume_name(index), claim)).collect()),
            resources: wishes.pod_resources.clone(),
            affinity: wishes.affinity.clone(),
            node_selector: wishes.node_selector.clone(),
            tolerations: Some(wishes.tolerations.clone()),
            runtime_class_name: wishes.runtime_class.clone(),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            restart_policy: Some("Never".to_owned()),
            active_deadline_seconds: Some(LIFE),
            termination_grace_period_seconds: Some(1),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NOBODY),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn container(resources: Option<ResourceRequirements>) -> Container {
    Container {
        image: Some(IMAGE.to_owned()),
        image_pull_policy: Some("Never".to_owned()),
        resources,
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn volume(name: String, claim: &Consumed) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.claim.clone(), read_only: None };
    Volume { name, persistent_volume_claim: Some(source), ..Volume::default() }
}

fn pods(client: &MemberClient, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.client.clone(), namespace)
}

/// Makes the pod once; called again it finds it. In a namespace that is new it waits, at most so long, for the account. A member that lacks the pod's
/// RuntimeClass takes no copy of it, and says so there; a pod on a node of the host needs none.
pub async fn ensure(
    client: &MemberClient,
    namespace: &str,
    hash: VolumeHash,
    claims: &[Consumed],
    wishes: &Constraints,
    until: Instant,
) -> Result<()> {
    let mut pod = manifest(namespace, ownership::labels(&client.host, hash), pod_name(hash), claims, wishes);
    let made = ensure_with_account(client, namespace, hash, &pod, until).await;
    let lacks = matches!(&made, Err(Error::InProgress(reason)) if reason.contains(NO_RUNTIME_CLASS));
    match &mut pod.spec {
        Some(spec) if lacks => spec.runtime_class_name = None,
        _ => return made,
    }
    ensure_with_account(client, namespace, hash, &pod, until).await
}

async fn ensure_with_account(
    client: &MemberClient,
    namespace: &str,
    hash: VolumeHash,
    pod: &Pod,
    until: Instant,
) -> Result<()> {
    for pause in ACCOUNT_PAUSES {
        match create_consumer(client, namespace, hash, pod).await {
            Err(Error::InProgress(reason)) if reason.contains(NO_ACCOUNT) && Instant::now() + pause < until => {}
            made => return made,
        }
        sleep(pause).await;
    }
    create_consumer(client, namespace, hash, pod).await
}

async fn create_consumer(client: &MemberClient, namespace: &str, hash: VolumeHash, pod: &Pod) -> Result<()> {
    let doing = format!("create consumer pod {namespace}/{}", pod_name(hash));
    // It may be there from now on, whatever is answered, and whether or not anybody waits for the answer.
    client.rows.set_consumer(hash, Consumer::Unknown);
    match pods(client, namespace).create(&PostParams::default(), pod).await {
        Ok(pod) => {
            client.rows.set_consumer(hash, made(pod.uid()));
            Ok(())
        }
        Err(error) => match client.outcome(&doing, &error) {
            Error::Exists(_) => look_at(client, namespace, hash).await.map(drop),
            // A quota on pods says nothing about storage: the user is told, and it is tried again.
            Error::NoPlace(reason) | Error::Refused(reason) | Error::Denied(reason) => Err(Error::InProgress(reason)),
            other => Err(other),
        },
    }
}

/// Our consumer pod, read from the member. One that was evicted is no consumer any more.
pub async fn look_at(client: &MemberClient, namespace: &str, hash: VolumeHash) -> Result<Option<Sight>> {
    let ours = read_consumer(client, namespace, hash).await?;
    let ended = ours.as_ref().and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Failed");
    let uid = ours.as_ref().and_then(ResourceExt::uid);
    if let (true, Some(uid)) = (ended, &uid) {
        delete_consumer(client, namespace, hash, uid).await?;
        return Ok(None);
    }
    client.rows.set_consumer(hash, made(uid.clone()));
    let has_node = ours.as_ref().is_some_and(has_node);
    Ok(uid.map(|uid| Sight { uid, obstacle: ours.as_ref().and_then(obstacle), has_node }))
}

async fn read_consumer(client: &MemberClient, namespace: &str, hash: VolumeHash) -> Result<Option<Pod>> {
    let name = pod_name(hash);
    let answer = pods(client, namespace).get(&name).await;
    let found = cluster::read(answer, &name)
        .map_err(|error| client.outcome(&format!("get consumer pod {namespace}/{name}"), &error))?;
    Ok(found.filter(|pod| ownership::volume_of(pod.meta(), &client.host) == Some(hash)))
}

/// Whether the pod with this UID is a volume's consumer, whoever has made it.
pub async fn is_consumer(client: &MemberClient, namespace: &str, hash: VolumeHash, uid: &str) -> Result<bool> {
    let ours = read_consumer(client, namespace, hash).await?;
    Ok(ours.is_some_and(|pod| pod.uid().as_deref() == Some(uid)))
}

/// Removes the pod; one that this process did not make is looked up first.
pub async fn remove(client: &MemberClient, namespace: &str, hash: VolumeHash) -> Result<()> {
    let uid = match client.rows.consumer(hash) {
        Consumer::Gone => None,
        Consumer::Made(uid) => Some(uid.to_string()),
        Consumer::Unknown => look_at(client, namespace, hash).await?.map(|pod| pod.uid),
    };
    match uid {
        Some(uid) => delete_consumer(client, namespace, hash, &uid).await,
        None => Ok(()),
    }
}

/// The same, whatever is remembered of it.
pub async fn end(client: &MemberClient, namespace: &str, hash: VolumeHash) -> Result<()> {
    match look_at(client, namespace, hash).await? {
        Some(pod) => delete_consumer(client, namespace, hash, &pod.uid).await,
        None => Ok(()),
    }
}

async fn delete_consumer(client: &MemberClient, namespace: &str, hash: VolumeHash, uid: &str) -> Result<()> {
    let name = pod_name(hash);
    let parameters = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    let deleted = pods(client, namespace).delete(&name, &parameters).await;
    match deleted.map_err(|error| client.outcome(&format!("delete consumer pod {namespace}/{name}"), &error)) {
        Ok(_) | Err(Error::NotFound(_)) => {}
        // A conflict may be about another pod of that name, or about nothing that lasts: a read tells.
        Err(conflict @ Error::InProgress(_)) => {
            let there = read_consumer(client, namespace, hash).await?;
            if there.is_some_and(|pod| pod.uid().as_deref() == Some(uid)) {
                return Err(conflict);
            }
        }
        Err(error) => return Err(error),
    }
    client.rows.set_consumer(hash, Consumer::Gone);
    Ok(())
}

pub(crate) fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn obstacle(pod: &Pod) -> Option<String> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled")?;
    if scheduled.status == "False" { scheduled.message.clone() } else { None }
}

fn made(uid: Option<String>) -> Consumer {
    uid.map_or(Consumer::Gone, |uid| Consumer::Made(uid.into()))
}

#[cfg(test)]
mod tests;
