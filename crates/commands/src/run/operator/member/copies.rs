//! Pods of the host that run in a member. Who takes the agent's account away leaves nobody to end them, nor the ConfigMaps and Secrets that
//! were copied for them.

use std::collections::BTreeMap;

use anyhow::anyhow;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};

use crate::run::operator::connect;
use cluster::{Dial, with_causes};
use domain::volume::{DRIVER, MEMBER_KEY};
use host::Host;
use leaf::ownership::{self, MANAGED_BY};
use member::source::MemberDefinition;

/// By this the agent's virtual nodes of a member are known. Those of clustertree are for that to drain.
pub(super) fn selector(member: &str) -> String {
    format!("{MANAGED_BY}={DRIVER},{MEMBER_KEY}={member}")
}

/// What is bound to these nodes. Pods of DaemonSets are not run, and go with the node.
pub(super) async fn bound(host: &Host, member: &str) -> anyhow::Result<Vec<String>> {
    let nodes = Api::<Node>::all(host.client.clone());
    let nodes = nodes.list_metadata(&ListParams::default().labels(&selector(member))).await;
    let nodes = nodes.map_err(|error| anyhow!("list nodes of member {member}: {}", with_causes(&error)))?;
    let mut bound = Vec::new();
    for node in nodes.iter().map(ResourceExt::name_any) {
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(host.client.clone()).list(&there).await;
        let pods = pods.map_err(|error| anyhow!("list pods of node {node}: {}", with_causes(&error)))?;
        bound.extend(pods.iter().filter(|pod| !is_of_daemon_set(pod)).map(place));
    }
    Ok(bound)
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true))
}

/// What runs in the member, by the account that runs it: the driver's may list no pods.
pub(super) async fn there(
    host: &Host,
    member: &str,
    definition: &MemberDefinition,
    record: &BTreeMap<String, String>,
    dial: &Dial,
) -> Result<Vec<String>, String> {
    let known = connect::known(host, member, definition, record, dial).await?;
    let ours = ListParams::default().labels(&ownership::selector(&host.id));
    match Api::<Pod>::all(known.leaf.client).list(&ours).await {
        Ok(pods) => Ok(pods.iter().map(place).collect()),
        // In a folder of members it may be the driver's.
        Err(kube::Error::Api(status)) if status.code == 403 && definition.secret.is_none() => Ok(Vec::new()),
        Err(error) => Err(with_causes(&error)),
    }
}

fn place(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
