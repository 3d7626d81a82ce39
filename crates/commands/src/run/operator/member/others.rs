//! Who else uses what `member add` has made in a member: hosts by accounts of their own, hosts by one that is for all, and whoever its
//! roles were given to by hand.

use std::collections::BTreeSet;

use anyhow::anyhow;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, ServiceAccount},
    rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::run::operator::objects::read;
use cluster::with_causes;
use host::Host;
use leaf::ownership::HOST;
use operator::objects::{ACCOUNT, NAMESPACE, PODS_ACCOUNT, STATS_ACCOUNT, word};

/// The accounts of a member.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Hosts that have some of their own.
    hosts: BTreeSet<String>,
    /// Some are there that may be any host's.
    pub(super) may_be_any_hosts: bool,
}

impl Accounts {
    pub(super) async fn of(client: &Client) -> anyhow::Result<Self> {
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await;
        let accounts =
            accounts.map_err(|error| anyhow!("list ServiceAccounts in {NAMESPACE}: {}", with_causes(&error)))?;
        let is_any =
            |account: &ServiceAccount| [ACCOUNT, PODS_ACCOUNT, STATS_ACCOUNT].contains(&account.name_any().as_str());
        Ok(Self {
            hosts: accounts.iter().filter_map(|account| account.labels().get(HOST).cloned()).collect(),
            may_be_any_hosts: accounts.iter().any(is_any),
        })
    }

    /// Whether there are any but this host's own.
    pub(super) fn has_others(&self, host: &Host) -> bool {
        self.may_be_any_hosts || self.hosts.iter().any(|of| *of != host.id.0)
    }
}

/// Whether somebody has given a role of these objects to who is no account of `member add`, as to a user with a certificate.
pub(super) async fn has_given(client: &Client, objects: &[Value]) -> anyhow::Result<bool> {
    let is_role = |role: &RoleRef| {
        let is_it =
            |object: &Value| word(object, "/kind") == "ClusterRole" && word(object, "/metadata/name") == role.name;
        role.kind == "ClusterRole" && objects.iter().any(is_it)
    };
    let everywhere = Api::<ClusterRoleBinding>::all(client.clone()).list(&ListParams::default()).await;
    let everywhere = everywhere.map_err(|error| anyhow!("list ClusterRoleBindings: {}", with_causes(&error)))?;
    if everywhere.iter().any(|one| is_role(&one.role_ref) && is_of_others(one.subjects.as_deref())) {
        return Ok(true);
    }
    let within = Api::<RoleBinding>::all(client.clone()).list(&ListParams::default()).await;
    let within = within.map_err(|error| anyhow!("list RoleBindings: {}", with_causes(&error)))?;
    Ok(within.iter().any(|one| is_role(&one.role_ref) && is_of_others(one.subjects.as_deref())))
}

fn is_of_others(subjects: Option<&[Subject]>) -> bool {
    let is_account =
        |subject: &Subject| subject.kind == "ServiceAccount" && subject.namespace.as_deref() == Some(NAMESPACE);
    subjects.unwrap_or_default().iter().any(|subject| !is_account(subject))
}

/// Other hosts that have volumes there and no account. Where no policy holds an account to its host, this host's may have been given to
/// them by hand. On a claim whoever may make one writes any host's label, but not on a volume.
pub(super) async fn without_account(host: &Host, client: &Client) -> anyhow::Result<Vec<String>> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": ACCOUNT},
    });
    let accounts = Accounts::of(client).await?;
    if accounts.may_be_any_hosts || !accounts.hosts.contains(&host.id.0) || read(client, &policy).await?.is_some() {
        return Ok(Vec::new());
    }
    let leaves = Api::<PersistentVolume>::all(client.clone()).list_metadata(&ListParams::default().labels(HOST)).await;
    let leaves = leaves.map_err(|error| anyhow!("list leaf volumes of other hosts: {}", with_causes(&error)))?;
    let hosts: BTreeSet<String> = leaves.iter().filter_map(|leaf| leaf.labels().get(HOST).cloned()).collect();
    Ok(hosts.difference(&accounts.hosts).cloned().collect())
}
