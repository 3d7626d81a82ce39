//! Rights of the driver's account that an earlier `member add` has bound elsewhere, in the whole member or in other namespaces.

use anyhow::{anyhow, bail};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{args::operator::Add, run::operator::objects::read};
use cluster::{unmanaged::Unmanaged, with_causes};
use domain::volume::{HostId, namespaces::Namespaces};
use leaf::ownership;
use operator::{
    narrow::names_of_bindings,
    objects::{BY_HAND, NAMESPACE, PODS_ACCOUNT, is_ours, own_name, title, word},
};

/// What an earlier `member add` has bound and this one takes back.
pub(super) async fn former(
    flags: &Add,
    client: &Client,
    host: Option<&str>,
    wanted: &[Value],
) -> anyhow::Result<Vec<Value>> {
    let mut found = others(client, host, wanted).await?;
    // Whoever only renews tokens may have something there that needs them.
    if flags.attach {
        found.extend(in_own_namespace(client, host).await?);
    }
    Ok(found)
}

/// Those that are there and not wanted now.
pub(super) async fn others(client: &Client, host: Option<&str>, wanted: &[Value]) -> anyhow::Result<Vec<Value>> {
    let (everywhere, within) = names_of_bindings(host);
    let mut found = Vec::new();
    for name in everywhere {
        let binding = binding("ClusterRoleBinding", "", &name);
        if read(client, &binding).await?.is_some() {
            found.push(binding);
        }
    }
    let named = ListParams::default().fields(&format!("metadata.name={within}"));
    let listed = Api::<RoleBinding>::all(client.clone()).list(&named).await;
    let listed = listed.map_err(|error| anyhow!("list RoleBindings called {within}: {}", with_causes(&error)))?;
    found.extend(listed.iter().map(|one| binding("RoleBinding", &one.namespace().unwrap_or_default(), &within)));
    found.retain(|there| wanted.iter().all(|wanted| title(wanted) != title(there)));
    Ok(found)
}

/// Rights on machines and on Secrets that an earlier `member add --attach` gave in the namespace of the accounts, which keeps credentials.
pub(super) async fn in_own_namespace(client: &Client, host: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for role in BY_HAND {
        let name = host.map_or_else(|| role.to_owned(), |host| own_name(role, host));
        let binding = binding("RoleBinding", NAMESPACE, &name);
        if is_made(client, &binding).await? {
            found.push(binding);
        }
    }
    Ok(found)
}

/// Whether an earlier `member add` gave a host this role in the whole member.
pub(super) async fn has(client: &Client, role: &str, host: &str) -> anyhow::Result<bool> {
    is_made(client, &binding("ClusterRoleBinding", "", &own_name(role, host))).await
}

async fn is_made(client: &Client, binding: &Value) -> anyhow::Result<bool> {
    Ok(read(client, binding).await?.is_some_and(|live| is_ours(&live)))
}

/// How the rights are given that each have a namespace of their own, which nobody but the member's administrator knows.
pub(super) fn by_hand(account: &str) -> String {
    let commands = BY_HAND.map(|role| {
        format!(
            "  kubectl create rolebinding {account}-{role} --clusterrole={role} --serviceaccount={NAMESPACE}:{account} \
             --namespace=NAMESPACE\n"
        )
    });
    format!(
        "The account needs rights on virtual machines, and on Secrets that leaf volumes name for nodes, in the namespaces where these are. If a \
         class needs them, type in the member:\n{}",
        commands.concat()
    )
}

/// What a host was given before: whether it may run pods, and where its driver has rights; none where that has none.
pub(super) async fn given(client: &Client, host: &str) -> anyhow::Result<Option<(bool, Namespaces)>> {
    let found = others(client, Some(host), &[]).await?;
    if found.is_empty() {
        return Ok(None);
    }
    let ([whole, _], _) = names_of_bindings(Some(host));
    let within: Vec<&str> =
        found.iter().map(|one| word(one, "/metadata/namespace")).filter(|of| !of.is_empty()).collect();
    let namespaces = if found.iter().any(|one| word(one, "/metadata/name") == whole) {
        Namespaces::All
    } else if within.is_empty() {
        bail!(
            "the namespaces in which this host had rights are gone: name others by --volumes-only and --namespace. Nothing \
             was written"
        );
    } else {
        Namespaces::named(within).map_err(anyhow::Error::msg)?
    };
    let pods = read(client, &binding("ClusterRoleBinding", "", &own_name(PODS_ACCOUNT, host))).await?;
    Ok(Some((pods.is_some(), namespaces)))
}

/// Rights of before can be given again in namespaces that are there; which of them a host is to do without, somebody has to say.
pub(super) async fn are_there(client: &Client, namespaces: &Namespaces) -> anyhow::Result<()> {
    let Namespaces::Only(names) = namespaces else { return Ok(()) };
    for name in names {
        let found = cluster::read(Api::<Namespace>::all(client.clone()).get(name).await, name);
        let found = found.map_err(|error| anyhow!("get namespace {name}: {}", with_causes(&error)))?;
        if found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()) {
            bail!(
                "namespace {name}, in which this host had rights, is gone, or is being deleted: make it again, or name other namespaces by \
                 --volumes-only and --namespace. Nothing was written"
            );
        }
    }
    Ok(())
}

fn binding(kind: &str, namespace: &str, name: &str) -> Value {
    let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        binding["metadata"]["namespace"] = json!(namespace);
    }
    binding
}

/// Refuses to take rights away where the host has something: what the driver cannot see, it can neither use nor remove. The
/// agent's account would keep rights in the whole member.
pub(super) async fn nothing_is_outside(
    client: &Client,
    host: Option<&str>,
    namespaces: &Namespaces,
) -> anyhow::Result<()> {
    let (Some(host), Namespaces::Only(_)) = (host, namespaces) else { return Ok(()) };
    let agents = binding("ClusterRoleBinding", "", &own_name(PODS_ACCOUNT, host));
    if read(client, &agents).await?.is_some() {
        bail!(
            "{} gives the account that runs this host's pods rights in the whole member: drain its virtual node, and delete that \
             binding there first. Nothing was written",
            title(&agents)
        );
    }
    let ours = ListParams::default().labels(&ownership::selector(&HostId(host.to_owned())));
    for (group, kind) in [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let all = Api::<Unmanaged<DynamicObject>>::all_with(client.clone(), &resource);
        let listed = match all.list(&ours).await {
            // A member without the kind.
            Err(kube::Error::Api(status)) if status.code == 404 && !group.is_empty() => continue,
            listed => listed.map_err(|error| anyhow!("list {kind}s of this host: {}", with_causes(&error)))?,
        };
        let outside = listed.iter().filter(|one| !namespaces.has(&one.namespace().unwrap_or_default()));
        let outside: Vec<String> =
            outside.map(|one| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any())).collect();
        if let Some(first) = outside.first() {
            bail!(
                "this host has {} {kind}s in other namespaces than {namespaces}, such as {first}: name these namespaces by --namespace as \
                 well, or remove their volumes in the host first. Nothing was written",
                outside.len()
            );
        }
    }
    Ok(())
}
