//! Of a pod, which claims it uses, where it is, and what it asks of a node. Whoever writes a pod may give it a hundred thousand volumes, of which each
//! takes three kilobytes in Kubernetes' own type, whatever it is. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Container, PodSpec, ResourceRequirements, Toleration};
use serde::{Deserialize, de::IgnoredAny};

use super::{CLUSTER_SELECTOR, HostPod, claim_of, is_end};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UsingPod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    annotations: Option<BTreeMap<String, String>>,
    /// Whatever it says, also where nobody reads it as a time.
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    affinity: Option<Affinity>,
    containers: Option<Vec<Asking>>,
    init_containers: Option<Vec<Asking>>,
    node_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    resources: Option<ResourceRequirements>,
    runtime_class_name: Option<String>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<Mounted>>,
}

/// What a container asks for says which node its pod can have, and nothing else of it does.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asking {
    name: String,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mounted {
    name: String,
    persistent_volume_claim: Option<Source>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    claim_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

impl UsingPod {
    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = String> {
        self.spec.volumes.iter().flatten().filter_map(|volume| {
            let named = volume.persistent_volume_claim.as_ref().map(|source| &*source.claim_name);
            claim_of(&self.metadata.name, &volume.name, named, volume.ephemeral.is_some())
        })
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        is_end(self.status.phase.as_deref())
    }

    pub(super) fn into_host_pod(self) -> HostPod {
        let claims = self.claims().collect();
        let cluster_selector = self.metadata.annotations.and_then(|mut all| all.remove(CLUSTER_SELECTOR));
        let asked = self.spec;
        let containers = |all: Vec<Asking>| all.into_iter().map(Asking::into_container).collect::<Vec<Container>>();
        let spec = PodSpec {
            affinity: asked.affinity,
            containers: containers(asked.containers.unwrap_or_default()),
            init_containers: asked.init_containers.map(containers),
            node_name: asked.node_name,
            node_selector: asked.node_selector,
            resources: asked.resources,
            runtime_class_name: asked.runtime_class_name,
            tolerations: asked.tolerations,
            ..PodSpec::default()
        };
        HostPod { spec, claims, cluster_selector }
    }
}

impl Asking {
    fn into_container(self) -> Container {
        let Self { name, resources, restart_policy } = self;
        Container { name, resources, restart_policy, ..Container::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a hundred thousand volumes it is what counts.
    #[test]
    fn volume_of_a_pod_takes_about_as_much_as_its_text() {
        assert!(size_of::<Mounted>() <= 64, "{} bytes", size_of::<Mounted>());
        assert!(size_of::<Asking>() <= 160, "{} bytes", size_of::<Asking>());
    }
}
