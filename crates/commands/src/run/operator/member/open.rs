//! Namespaces that a member has, and that its administrator names.

use anyhow::anyhow;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::run::Misuse;
use cluster::with_causes;
use member::policy::{BASELINE, PODS};
use operator::{objects::MANAGER, table::Table};

/// Those that a flag names, as they are now.
pub(super) async fn named(client: &Client, flag: &str, names: &[String]) -> anyhow::Result<Vec<Namespace>> {
    let mut found = Vec::new();
    for name in names {
        let read = cluster::read(Api::<Namespace>::all(client.clone()).get(name).await, name);
        let read = read.map_err(|error| anyhow!("get namespace {name}: {}", with_causes(&error)))?;
        found.push(read.ok_or_else(|| {
            let own =
                if flag == "--pods-in" { "; a namespace that is made for the host needs no --pods-in" } else { "" };
            Misuse(format!("{flag} {name}: the member has no such namespace{own}"))
        })?);
    }
    Ok(found)
}

/// They take pods of hosts from now on. One that says already up to which level it takes pods stays as it is.
pub(super) async fn open(
    client: &Client,
    namespaces: &[Namespace],
    member: &str,
    dry: bool,
    table: &mut Table,
) -> anyhow::Result<()> {
    for namespace in namespaces {
        let name = namespace.name_any();
        let result = match (namespace.labels().contains_key(PODS), dry) {
            (true, _) => "unchanged",
            (false, true) => "would be opened to pods",
            (false, false) => {
                let label = Patch::Merge(json!({"metadata": {"labels": {PODS: BASELINE}}}));
                let namespaces = Api::<Namespace>::all(client.clone());
                let ours = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
                let written = namespaces.patch(&name, &ours, &label).await;
                written.map_err(|error| anyhow!("label namespace {name}: {}", with_causes(&error)))?;
                "opened to pods"
            }
        };
        table.row([format!("Namespace {name}").as_str(), member, result]);
    }
    Ok(())
}
