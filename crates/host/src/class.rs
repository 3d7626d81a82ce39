//! StorageClasses of the host.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;

use super::{Host, unread};
use domain::{
    error::Result,
    volume::{MEMBER_KEY, id::is_subdomain},
};

#[derive(Clone, Debug, Default)]
pub struct HostClass {
    pub parameters: BTreeMap<String, String>,
    /// Members that its topologies allow; none where they say nothing.
    pub members: Option<Vec<String>>,
}

/// None: there is no such class.
pub async fn read(host: &Host, name: &str) -> Result<Option<HostClass>> {
    // What a volume says of its class may be any text; the name of an object is part of a path.
    if !is_subdomain(name) {
        return Ok(None);
    }
    let classes = Api::<StorageClass>::all(host.client.clone());
    let answer = cluster::read(classes.get(name).await, name);
    let found = answer.map_err(|error| unread(&format!("get storageclass {name}"), &error))?;
    Ok(found.map(|class| HostClass {
        parameters: class.parameters.unwrap_or_default(),
        members: class.allowed_topologies.filter(|terms| !terms.is_empty()).map(|terms| {
            let of = terms.into_iter().flat_map(|term| term.match_label_expressions.unwrap_or_default());
            of.filter(|one| one.key == MEMBER_KEY).flat_map(|one| one.values).collect()
        }),
    }))
}
