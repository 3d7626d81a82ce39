//! The host pod a claim waits for.

use futures::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, Pod, PodSpec};
use kube::{Api, Resource, ResourceExt, api::ListParams, core::Request};

use super::{Host, unread};
use cluster::{
    events,
    items::Items,
    read_list,
    trimmed::{Reads, Trimmed},
};
use domain::{
    error::Result,
    volume::{Claim, id::is_subdomain},
};

/// The scheduler's words for pods whose volumes are where they may not go; they differ between its releases.
const KEPT_FROM_VOLUME: [&str; 2] = ["volume node affinity conflict", "match PersistentVolume's node affinity"];

/// An annotation: what clustertree has its copy of a pod ask of nodes.
const CLUSTER_SELECTOR: &str = "kosmos.io/cluster-selector";

/// Who goes by labels and annotations of pods.
#[derive(Clone, Debug)]
enum OfPods {}

impl Reads for OfPods {
    fn reads(key: &str) -> bool {
        key == CLUSTER_SELECTOR
    }
}

/// Whatever is said of one, all others of its namespace are read.
type SeenPod = Trimmed<Pod, OfPods>;

/// A pod that mounts a claim, and all the claims it mounts. What its containers run is left out.
#[derive(Clone, Debug)]
pub struct HostPod {
    pub spec: PodSpec,
    pub claims: Vec<String>,
    /// What it asks of a member's nodes where clustertree copies it.
    pub cluster_selector: Option<String>,
}

/// A pod, and the node it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPod {
    pub uid: String,
    pub node: Option<String>,
}

/// A pod for which the scheduler finds no node where its volumes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrandedPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl StrandedPod {
    fn new(event: &events::Event) -> Option<Self> {
        let pod = &event.involved_object;
        let is_named = ![&pod.namespace, &pod.name, &pod.uid].iter().any(|word| word.is_empty());
        let is_stranded = KEPT_FROM_VOLUME.iter().any(|words| event.message.contains(words));
        (is_named && is_stranded).then(|| Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    }
}

/// A claim of a pod that has a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundClaim {
    pub name: String,
    pub uid: String,
    pub volume: String,
}

/// Told as the scheduler tells it, until the host ends it. What it has said before comes first.
pub async fn stranded(host: &Host) -> Result<impl Stream<Item = Result<StrandedPod>> + Send> {
    let unheard = |error: kube::Error| unread("watch events of pods", &error);
    let fields = "involvedObject.kind=Pod,reason=FailedScheduling";
    let events = events::listen(&Api::all(host.client.clone()), fields).await.map_err(unheard)?;
    Ok(events.map_err(unheard).try_filter_map(async |event| Ok(StrandedPod::new(&event))))
}

/// The bound claims of a pod; none where it is gone.
pub async fn bound_claims(host: &Host, pod: &StrandedPod) -> Result<Vec<BoundClaim>> {
    let (namespace, name) = (&pod.namespace, &pod.name);
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let pods = Api::<SeenPod>::namespaced(host.client.clone(), namespace).list(&named).await;
    let pods = pods.map_err(|error| unread(&format!("list pods in {namespace}"), &error))?;
    let there = pods.items.into_iter().find(|there| there.uid().as_ref() == Some(&pod.uid));
    let claims = Api::<PersistentVolumeClaim>::namespaced(host.client.clone(), namespace);
    let mut bound = Vec::new();
    for name in there.iter().flat_map(|pod| claims_of(pod)) {
        let found = cluster::read(claims.get(&name).await, &name);
        let found = found.map_err(|error| unread(&format!("get claim {namespace}/{name}"), &error))?;
        let Some(claim) = found else { continue };
        let uid = claim.uid().unwrap_or_default();
        let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|volume| !volume.is_empty());
        bound.extend(volume.map(|volume| BoundClaim { name, uid, volume }));
    }
    Ok(bound)
}

pub async fn placed(host: &Host, namespace: &str, name: &str) -> Result<Option<PlacedPod>> {
    let pods = Api::<SeenPod>::namespaced(host.client.clone(), namespace);
    let found = cluster::read(pods.get(name).await, name);
    let found = found.map_err(|error| unread(&format!("get pod {namespace}/{name}"), &error))?;
    Ok(found.map(SeenPod::into_object).map(|pod| PlacedPod {
        uid: pod.uid().unwrap_or_default(),
        node: pod.spec.and_then(|spec| spec.node_name).filter(|node| !node.is_empty()),
    }))
}

/// The pod that uses the claim: the one that still waits for a node, where several do.
pub async fn of(host: &Host, claim: &Claim) -> Result<Option<HostPod>> {
    Ok(choose(users_of(host, claim).await?, &claim.name))
}

/// The pods that mount the claim, without what they run. All of the namespace are looked at one by one, as they come: whoever writes some of them
/// decides how long they are.
async fn users_of(host: &Host, claim: &Claim) -> Result<Vec<Pod>> {
    let doing = |error: &kube::Error| unread(&format!("list pods in {}", claim.namespace), error);
    let request = Request::new(Pod::url_path(&(), Some(&claim.namespace))).list(&ListParams::default());
    let request = request.map_err(|error| doing(&kube::Error::BuildRequest(error)))?;
    let mut users = Vec::new();
    let mut take = |pod: Pod| {
        if claims_of(&pod).contains(&claim.name) {
            users.push(without_what_runs(pod));
        }
    };
    let listed = read_list(&host.client, request, Items::of_list(), |items, piece| -> kube::Result<()> {
        items.feed(piece, &mut |item| {
            let pod = serde_json::from_slice::<SeenPod>(item).map_err(kube::Error::SerdeError);
            pod.map(|pod| take(pod.into_object()))
        })
    });
    listed.await.map_err(|error| doing(&error))?;
    Ok(users)
}

/// What its containers ask for says which node it can have, and nothing else of them does.
fn without_what_runs(mut pod: Pod) -> Pod {
    let spec = pod.spec.get_or_insert_default();
    spec.ephemeral_containers = None;
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Container { name, resources, restart_policy, .. } = std::mem::take(container);
        *container = Container { name, resources, restart_policy, ..Container::default() };
    }
    pod
}

fn choose(pods: Vec<Pod>, claim: &str) -> Option<HostPod> {
    let living = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut users: Vec<HostPod> = living
        .filter_map(|pod| {
            let (claims, cluster_selector) = (claims_of(&pod), pod.annotations().get(CLUSTER_SELECTOR).cloned());
            Some(HostPod { spec: pod.spec?, claims, cluster_selector })
        })
        .filter(|pod| pod.claims.iter().any(|used| used == claim))
        .collect();
    users.sort_by_key(|pod| pod.spec.node_name.is_some());
    users.into_iter().next()
}

/// Whether a pod on this node that has not ended mounts a claim.
pub async fn has_user(host: &Host, claim: &Claim, node: &str) -> Result<bool> {
    let users = users_of(host, claim).await?;
    let is_there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    Ok(users.iter().any(|pod| !has_ended(pod) && is_there(pod)))
}

/// Its containers have, and are not started again.
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Claims by name, and those made for the pod itself, which are called after it. Whoever writes a pod may name any text, which is not to lead
/// elsewhere as a part of a path.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    });
    claims.filter(|name| is_subdomain(name)).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn pod_is_stranded_where_the_scheduler_speaks_of_its_volumes() {
        let said = |message: &str| {
            let pod = json!({"kind": "Pod", "namespace": "shop", "name": "web", "uid": "u"});
            let event = from_value(json!({"metadata": {}, "involvedObject": pod, "message": message})).unwrap();
            StrandedPod::new(&event).map(|pod| pod.name)
        };
        let web = Some("web".to_owned());
        assert_eq!(
            said("0/3 nodes are available: 1 node(s) had volume node affinity conflict, 2 Insufficient cpu."),
            web
        );
        assert_eq!(said("0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."), web);
        assert_eq!(said("0/3 nodes are available: 3 Insufficient cpu."), None);
    }

    #[test]
    fn pod_that_still_waits_for_a_node_is_the_one_that_counts() {
        let pod = |name: &str, node: Option<&str>, claim: &str| -> Pod {
            from_value(json!({"metadata": {"name": name}, "spec": {"containers": [], "nodeName": node, "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": claim}},
                {"name": "b", "ephemeral": {}},
            ]}}))
            .unwrap()
        };
        let pods = vec![pod("old", Some("n"), "data"), pod("new", None, "data"), pod("other", None, "else")];
        let chosen = choose(pods, "data").unwrap();
        assert_eq!(chosen.claims, ["data", "new-b"]);
        assert!(choose(Vec::new(), "data").is_none());
    }

    #[test]
    fn of_containers_what_they_ask_for_is_kept_and_nothing_that_they_run() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let mut long = sidecar.clone();
        for (field, value) in
            [("image", json!("i")), ("args", json!(["a"])), ("command", json!(["b"])), ("env", json!([{"name": "c"}]))]
        {
            long[field] = value;
        }
        let spec = json!({"containers": [long], "initContainers": [long], "ephemeralContainers": [{"name": "d"}]});
        let pod = without_what_runs(from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap());
        assert_eq!(to_value(pod.spec).unwrap(), json!({"containers": [sidecar], "initContainers": [sidecar]}));
    }
}
