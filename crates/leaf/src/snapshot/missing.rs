//! Kinds of snapshots that a member does not have.

use kube::api::ApiResource;

use crate::MemberClient;
use domain::error::Error;

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
