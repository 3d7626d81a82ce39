//! The host pod a claim waits for.

mod user;

use futures::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodSpec};
use kube::{
    Api, Resource, ResourceExt,
    api::{GetParams, ListParams},
    core::Request,
};

use super::{Host, unread};
use cluster::{events, items::Items, read_list};
use domain::{
    error::Result,
    volume::{Claim, id::is_subdomain},
};
use user::UsingPod;

/// The scheduler's words for pods whose volumes are where they may not go; they differ between its releases.
const KEPT_FROM_VOLUME: [&str; 2] = ["volume node affinity conflict", "match PersistentVolume's node affinity"];

/// An annotation: what clustertree has its copy of a pod ask of nodes.
const CLUSTER_SELECTOR: &str = "kosmos.io/cluster-selector";

/// A pod that mounts a claim, and all the claims it mounts. Of its spec only what it asks of a node is there.
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
    let mut mounted = Vec::new();
    let take = |there: UsingPod| {
        if there.uid() == pod.uid {
            mounted.extend(there.claims());
        }
    };
    for_each(host, namespace, &named, take).await?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(host.client.clone(), namespace);
    let mut bound = Vec::new();
    for name in mounted {
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
    let doing = |error: &kube::Error| unread(&format!("get pod {namespace}/{name}"), error);
    let request = Request::new(Pod::url_path(&(), Some(namespace))).get(name, &GetParams::default());
    let request = request.map_err(|error| doing(&kube::Error::BuildRequest(error)))?;
    let found = cluster::read(host.client.request::<UsingPod>(request).await, name);
    let found = found.map_err(|error| doing(&error))?;
    Ok(found.map(|pod| PlacedPod {
        uid: pod.uid().to_owned(),
        node: pod.node().filter(|node| !node.is_empty()).map(str::to_owned),
    }))
}

/// The pod that uses the claim: the one that still waits for a node, where several do.
pub async fn of(host: &Host, claim: &Claim) -> Result<Option<HostPod>> {
    let mut chosen = None;
    for_users(host, claim, |pod| choose(&mut chosen, pod)).await?;
    Ok(chosen)
}

/// Takes the pods that mount the claim.
async fn for_users(host: &Host, claim: &Claim, mut take: impl FnMut(UsingPod)) -> Result<()> {
    let take_user = |pod: UsingPod| {
        if pod.claims().any(|used| used == claim.name) {
            take(pod);
        }
    };
    for_each(host, &claim.namespace, &ListParams::default(), take_user).await
}

/// Takes these pods of a namespace one by one, as they come: whoever writes some of them decides how long they are, and how many.
async fn for_each(host: &Host, namespace: &str, which: &ListParams, mut take: impl FnMut(UsingPod)) -> Result<()> {
    let doing = |error: &kube::Error| unread(&format!("list pods in {namespace}"), error);
    let request = Request::new(Pod::url_path(&(), Some(namespace))).list(which);
    let request = request.map_err(|error| doing(&kube::Error::BuildRequest(error)))?;
    let listed = read_list(&host.client, request, Items::of_list(), |items, piece| -> kube::Result<()> {
        items.feed(piece, &mut |item| -> kube::Result<()> {
            serde_json::from_slice::<UsingPod>(item).map(&mut take).map_err(kube::Error::SerdeError)
        })
    });
    listed.await.map(drop).map_err(|error| doing(&error))
}

fn choose(chosen: &mut Option<HostPod>, pod: UsingPod) {
    let is_bound = |before: &HostPod| before.spec.node_name.is_some();
    if !pod.is_leaving() && chosen.as_ref().is_none_or(|before| is_bound(before) && pod.node().is_none()) {
        *chosen = Some(pod.into_host_pod());
    }
}

/// Whether a pod on this node that has not ended mounts a claim.
pub async fn has_user(host: &Host, claim: &Claim, node: &str) -> Result<bool> {
    let mut is_there = false;
    for_users(host, claim, |pod| is_there |= !pod.has_ended() && pod.node() == Some(node)).await?;
    Ok(is_there)
}

/// Its containers have, and are not started again.
pub fn has_ended(pod: &Pod) -> bool {
    is_end(pod.status.as_ref().and_then(|status| status.phase.as_deref()))
}

fn is_end(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Each of its claims, by name.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let (name, volumes) = (pod.name_any(), pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()));
    let claims = volumes.filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref().map(|source| &*source.claim_name);
        claim_of(&name, &volume.name, claim, volume.ephemeral.is_some())
    });
    claims.collect()
}

/// Of a volume of a pod: the claim that it names, or the one made for the pod itself, which is called after it. Whoever writes a pod may name any
/// text, which is not to lead elsewhere as a part of a path.
fn claim_of(pod: &str, volume: &str, named: Option<&str>, is_own: bool) -> Option<String> {
    let claim = match named {
        Some(claim) => claim.to_owned(),
        None if is_own => format!("{pod}-{volume}"),
        None => return None,
    };
    is_subdomain(&claim).then_some(claim)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json, to_value};

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

    fn pod(pod: Value) -> UsingPod {
        from_value(pod).unwrap()
    }

    #[test]
    fn pod_that_still_waits_for_a_node_is_the_one_that_counts() {
        let of = |name: &str, node: Option<&str>, ends: Option<&str>| {
            pod(json!({"metadata": {"name": name, "deletionTimestamp": ends}, "spec": {"nodeName": node, "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "b", "ephemeral": {}},
                {"name": "c", "emptyDir": {}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "../secrets"}},
            ]}}))
        };
        let (mut chosen, now) = (None, Some("2026-11-30T12:00:00Z"));
        choose(&mut chosen, of("leaving", None, now));
        assert!(chosen.is_none());
        for (name, node, expected) in
            [("old", Some("n"), "old"), ("older", Some("n"), "old"), ("new", None, "new"), ("last", None, "new")]
        {
            choose(&mut chosen, of(name, node, None));
            let claims = chosen.as_ref().map(|chosen| chosen.claims.clone());
            assert_eq!(claims, Some(vec!["data".to_owned(), format!("{expected}-b")]), "after {name}");
        }
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
        let pod = pod(json!({"metadata": {"name": "p"}, "spec": spec})).into_host_pod();
        assert_eq!(to_value(pod.spec).unwrap(), json!({"containers": [sidecar], "initContainers": [sidecar]}));
    }

    #[test]
    fn what_a_pod_asks_of_a_node_is_kept_as_it_is() {
        let asked = json!({
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "containers": [],
            "nodeName": "n",
            "nodeSelector": {"disk": "ssd"},
            "resources": {"requests": {"cpu": "1"}},
            "runtimeClassName": "r",
            "tolerations": [{"operator": "Exists"}],
        });
        let mut spec = asked.clone();
        spec["hostAliases"] = json!([{"ip": "10.0.0.1"}]);
        let metadata = json!({"name": "p", "annotations": {CLUSTER_SELECTOR: "{}", "other": "a"}});
        let pod = pod(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Failed"}}));
        assert!(pod.has_ended() && pod.node() == Some("n"));
        let kept = pod.into_host_pod();
        assert_eq!((to_value(kept.spec).unwrap(), kept.cluster_selector.as_deref()), (asked, Some("{}")));
    }
}
