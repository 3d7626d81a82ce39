//! Whether a member has groups of snapshots, and in which version.

use kube::api::ListParams;

use super::{
    group::{GROUP, Groups},
    missing::is_about_the_path,
};
use crate::{MemberClient, ownership};
use domain::error::Result;

/// Those in which snapshot controllers have known groups.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// None where the member has no group snapshots: it does not name them among its kinds, and it knows none of their paths. An API
/// server that has just started answers at once, and does not name all of its kinds yet.
pub async fn groups(client: &MemberClient) -> Result<Option<Groups<'_>>> {
    let told = told_groups(client).await?;
    if told.is_some() {
        return Ok(told);
    }
    for version in VERSIONS {
        let groups = Groups::new(client, version.to_owned());
        if are_served(client, &groups).await? {
            return Ok(Some(groups));
        }
    }
    Ok(None)
}

/// The same from the member's list of its kinds alone: that they are not in it proves nothing.
pub async fn told_groups(client: &MemberClient) -> Result<Option<Groups<'_>>> {
    let served = client.client.list_api_groups().await;
    let served = served.map_err(|error| client.outcome("list API groups", &error))?;
    let group = served.groups.into_iter().find(|group| group.name == GROUP);
    Ok(group.and_then(|group| {
        let newest = group.versions.iter().find(|version| version.version == "v1");
        let version = newest.cloned().or(group.preferred_version)?;
        Some(Groups::new(client, version.version))
    }))
}

/// Whether the member has their path. Nothing but a 404 about the path says that it has not.
async fn are_served(client: &MemberClient, groups: &Groups<'_>) -> Result<bool> {
    let one = ListParams::default().labels(&ownership::selector(&client.host)).limit(1);
    for namespace in client.namespaces.each() {
        match groups.within(namespace).list(&one).await {
            Ok(_) => return Ok(true),
            Err(error) if is_about_the_path(&error) => {}
            Err(error) => return Err(client.outcome("list groups", &error)),
        }
    }
    Ok(false)
}
