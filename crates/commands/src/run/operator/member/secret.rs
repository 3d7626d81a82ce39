//! The Secrets by which the host knows a member, one for the driver and one for the agent, each in a namespace that the other
//! cannot read. One that is not a member's is never written on.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use cluster::with_causes;
use host::Host;
use member::{
    policy::CORDON,
    source::secrets::{KEY, LABEL},
};

fn secrets(host: &Host) -> Api<Secret> {
    Api::namespaced(host.client.clone(), &host.namespace)
}

pub(in crate::run::operator) async fn has_namespace(host: &Host) -> anyhow::Result<bool> {
    let name = &host.namespace;
    let read = cluster::read(Api::<Namespace>::all(host.client.clone()).get(name).await, name);
    let read = read.map_err(|error| anyhow!("get namespace {name}: {}", with_causes(&error)))?;
    Ok(read.is_some())
}

/// What is installed in the host brings it.
pub(in crate::run::operator) async fn needs_namespace(host: &Host) -> anyhow::Result<()> {
    if has_namespace(host).await? {
        return Ok(());
    }
    bail!(
        "the host has no namespace {}: install the chart there, or apply deploy/host.yaml for the driver and \
         deploy/manifests/virtual-node.yaml for the agent (--volumes-only does without an agent)",
        host.namespace
    )
}

/// The Secrets that name a member, in the order in which they count.
pub(in crate::run::operator) async fn of_member(host: &Host, member: &str) -> anyhow::Result<Vec<Secret>> {
    let named = ListParams::default().labels(&format!("{LABEL}={member}"));
    let found = secrets(host).list(&named).await;
    let mut found =
        found.map_err(|error| anyhow!("list Secrets in {}: {}", host.namespace, with_causes(&error)))?.items;
    found.sort_by_key(ResourceExt::name_any);
    Ok(found)
}

/// The kubeconfig in it.
pub(super) fn kubeconfig(secret: &Secret) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(KEY)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// The Secret that is to be written on; none where a new one is to be made.
pub(super) async fn target(host: &Host, member: &str) -> anyhow::Result<Option<Secret>> {
    if let Some(known) = of_member(host, member).await?.into_iter().next() {
        return Ok(Some(known));
    }
    let taken = cluster::read(secrets(host).get(member).await, member);
    let taken = taken.map_err(|error| anyhow!("get Secret {}/{member}: {}", host.namespace, with_causes(&error)))?;
    if taken.is_some() {
        bail!(
            "Secret {}/{member} is there already and is not that of a member (label {LABEL}: {member}): it is left \
             untouched; delete it, or give the member another name",
            host.namespace
        );
    }
    Ok(None)
}

/// Writes an account's kubeconfig; whether the Secret was made or renewed.
pub(super) async fn write(
    host: &Host,
    member: &str,
    target: Option<&Secret>,
    kubeconfig: &str,
) -> anyhow::Result<&'static str> {
    let data = BTreeMap::from([(KEY.to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))]);
    let Some(target) = target else {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(member.to_owned()),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), member.to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..Secret::default()
        };
        let made = secrets(host).create(&PostParams::default(), &secret).await;
        made.map_err(|error| anyhow!("create Secret {}/{member}: {}", host.namespace, with_causes(&error)))?;
        return Ok("made");
    };
    change(host, target, json!({"data": data})).await?;
    Ok("renewed")
}

pub(super) async fn cordon(host: &Host, target: &Secret, is_closed: bool) -> anyhow::Result<()> {
    change(host, target, json!({"metadata": {"annotations": {CORDON: is_closed.then_some("true")}}})).await
}

/// Written only on the object that was read.
async fn change(host: &Host, target: &Secret, mut change: serde_json::Value) -> anyhow::Result<()> {
    let name = target.name_any();
    change["metadata"]["uid"] = json!(target.uid());
    let patched = secrets(host).patch_metadata(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map_err(|error| anyhow!("change Secret {}/{name}: {}", host.namespace, with_causes(&error)))?;
    Ok(())
}

pub(super) async fn delete(host: &Host, target: &Secret) -> anyhow::Result<()> {
    let name = target.name_any();
    let seen = Preconditions { uid: target.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
    let deleted = secrets(host).delete(&name, &parameters).await;
    deleted.map_err(|error| anyhow!("delete Secret {}/{name}: {}", host.namespace, with_causes(&error)))?;
    Ok(())
}
