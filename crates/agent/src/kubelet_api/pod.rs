//! Which pod of a member is meant by a pod of the host. Only one that was made there for it can be reached.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, core::PartialObjectMeta};

use super::{super::pod::COPY_OF, Server, path::Asked};
use domain::{
    error::{Error, Result},
    volume::{HostId, MEMBER_KEY},
};
use host::pod::PlacedPod;
use leaf::ownership;
use member::Member;

impl Server {
    /// The member whose pod of the same name was made for the host's pod.
    pub(super) async fn member_of(&self, asked: &Asked) -> Result<Arc<Member>> {
        let (namespace, name) = (asked.namespace.as_str(), asked.pod.as_str());
        let missing = |why: &str| Error::NotFound(format!("pod {namespace}/{name}: {why}"));
        let pod =
            host::pod::placed(&self.host, namespace, name).await?.ok_or_else(|| missing("the host has no such pod"))?;
        let node = pod.node.as_deref().ok_or_else(|| missing("it is not bound to a node yet"))?;
        let member = host::node::label_of(&self.host, node, MEMBER_KEY).await?;
        let member = member.ok_or_else(|| missing(&format!("node {node} is no virtual node")))?;
        let member = self.members.get(&member).await?;
        let there = metadata_of(&member, namespace, name).await?;
        if there.is_some_and(|there| is_made_for(&there, &pod, &self.host.id)) {
            return Ok(member);
        }
        Err(missing(&format!("member {} has no pod that was made for it", member.name)))
    }
}

async fn metadata_of(member: &Member, namespace: &str, name: &str) -> Result<Option<PartialObjectMeta<Pod>>> {
    let pods = Api::<Pod>::namespaced(member.leaf()?.client.clone(), namespace);
    cluster::read(pods.get_metadata(name).await, name).map_err(|error| Error::Unreachable {
        member: member.name.clone(),
        reason: format!("get pod {namespace}/{name}: {}", cluster::with_causes(&error)),
    })
}

/// By the labels that the agent writes. Names alone prove nothing: the member has pods of its own.
fn is_made_for(there: &PartialObjectMeta<Pod>, pod: &PlacedPod, host: &HostId) -> bool {
    let of_host = there.labels().get(ownership::HOST).is_some_and(|of| *of == host.0);
    of_host && !pod.uid.is_empty() && there.annotations().get(COPY_OF) == Some(&pod.uid)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    #[test]
    fn pod_is_reached_only_where_it_was_made_for_this_pod_of_this_host() {
        let host = HostId("host".to_owned());
        let there = |labels: &serde_json::Value, annotations: &serde_json::Value| -> PartialObjectMeta<Pod> {
            from_value(json!({"metadata": {"name": "a", "labels": labels, "annotations": annotations}})).unwrap()
        };
        let (ours, for_it) = (json!({"kosmos.csi.io/host": "host"}), json!({"kosmos.csi.io/pod-uid": "u1"}));
        let pod = |uid: &str| PlacedPod { uid: uid.to_owned(), node: None };
        assert!(is_made_for(&there(&ours, &for_it), &pod("u1"), &host));
        assert!(!is_made_for(&there(&ours, &for_it), &pod("u2"), &host), "an earlier pod of the name");
        assert!(!is_made_for(&there(&json!({"kosmos.csi.io/host": "other"}), &for_it), &pod("u1"), &host));
        assert!(!is_made_for(&there(&json!({}), &for_it), &pod("u1"), &host));
        assert!(!is_made_for(&there(&ours, &json!({})), &pod(""), &host));
    }
}
