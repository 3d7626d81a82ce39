//! The host pod a claim waits for.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Api, ResourceExt, api::ListParams};

use super::{Host, unread};
use crate::{cluster, error::Result, volume::Claim};

/// A pod that mounts a claim, and all the claims it mounts.
#[derive(Clone, Debug)]
pub struct HostPod {
    pub spec: PodSpec,
    pub claims: Vec<String>,
}

/// A pod, and the node it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPod {
    pub uid: String,
    pub node: Option<String>,
}

impl Host {
    pub async fn placed_pod(&self, namespace: &str, name: &str) -> Result<Option<PlacedPod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let found = cluster::read(pods.get(name).await, name);
        let found = found.map_err(|error| unread(&format!("get pod {namespace}/{name}"), &error))?;
        Ok(found.map(|pod| PlacedPod {
            uid: pod.uid().unwrap_or_default(),
            node: pod.spec.and_then(|spec| spec.node_name).filter(|node| !node.is_empty()),
        }))
    }

    /// The pod that uses the claim: the one that still waits for a node, where several do.
    pub async fn pod_of(&self, claim: &Claim) -> Result<Option<HostPod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &claim.namespace);
        let doing = format!("list pods in {}", claim.namespace);
        let pods = pods.list(&ListParams::default()).await.map_err(|error| unread(&doing, &error))?;
        Ok(choose(pods.items, &claim.name))
    }
}

fn choose(pods: Vec<Pod>, claim: &str) -> Option<HostPod> {
    let living = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut users: Vec<HostPod> = living
        .filter_map(|pod| {
            let claims = claims_of(&pod);
            Some(HostPod { spec: pod.spec?, claims })
        })
        .filter(|pod| pod.claims.iter().any(|used| used == claim))
        .collect();
    users.sort_by_key(|pod| pod.spec.node_name.is_some());
    users.into_iter().next()
}

/// Claims by name, and those made for the pod itself, which are called after it.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    });
    claims.collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

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
}
