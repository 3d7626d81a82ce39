//! Kinds of snapshots that a member does not have.

use kube::{Resource, api::ApiResource};

use super::{kinds, serves};
use crate::MemberClient;
use domain::error::{Error, Result};

/// What was answered about one of these kinds.
pub(super) async fn told<K: Resource<DynamicType = ()>, T>(
    client: &MemberClient,
    doing: &str,
    answer: kube::Result<T>,
) -> Result<T> {
    match answer {
        Ok(told) => Ok(told),
        Err(error) => Err(outcome(client, doing, &ApiResource::erase::<K>(&()), &error).await),
    }
}

/// Ok where a member has none of these kinds. Then it answers 404 about the path, as a proxy on the way may: what the member says of all its
/// kinds decides.
pub(super) async fn has_none<K: Resource<DynamicType = ()>>(
    client: &MemberClient,
    doing: &str,
    error: &kube::Error,
) -> Result<()> {
    if is_about_the_path(error) && matches!(serves(client, kinds::GROUP).await, Ok(false)) {
        return Ok(());
    }
    Err(outcome(client, doing, &ApiResource::erase::<K>(&()), error).await)
}

pub(super) fn no_kinds(client: &MemberClient) -> Error {
    Error::Refused(format!(
        "member {} has no volume snapshots: install the CRDs of {} and the snapshot controller there",
        client.member,
        kinds::GROUP
    ))
}

pub(super) fn is_about_the_path(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && !cluster::says_what_is_missing(status))
}

/// What an answer about one kind means. Where people of the member have removed its CRD and not the others, it is a 404 about the path; a proxy on
/// the way may answer so too. Which kinds it has, the member says itself.
pub(super) async fn outcome(client: &MemberClient, doing: &str, kind: &ApiResource, error: &kube::Error) -> Error {
    if is_about_the_path(error)
        && let Ok(served) = client.client.list_api_group_resources(&kind.api_version).await
        && served.resources.iter().all(|one| one.kind != kind.kind)
    {
        return Error::Refused(format!(
            "member {}: {doing}: it has no {}, and others of {}: install the CRD {}.{} there",
            client.member, kind.kind, kind.api_version, kind.plural, kind.group
        ));
    }
    client.outcome(doing, error)
}
