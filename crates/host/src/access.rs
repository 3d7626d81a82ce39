//! What the host lets somebody do, asked of itself.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ConfigMap,
};
use kube::{Api, api::PostParams};

use super::{Host, unread};
use domain::error::{Error, Result};

/// Every user whose name is known is of this group.
const AUTHENTICATED: &str = "system:authenticated";

/// Somebody, as his certificate says, or the host of his token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    pub groups: Vec<String>,
}

/// Where an API server says by whom those are known who have a certificate.
const AUTHENTICATION: (&str, &str, &str) = ("kube-system", "extension-apiserver-authentication", "client-ca-file");

/// The authority of the host's client certificates (PEM), which is also that of its API server's own.
pub async fn client_authority(host: &Host) -> Result<String> {
    let (namespace, name, key) = AUTHENTICATION;
    let map = Api::<ConfigMap>::namespaced(host.client.clone(), namespace).get(name).await;
    let map = map.map_err(|error| unread(&format!("get configmap {namespace}/{name}"), &error))?;
    let found = map.data.and_then(|mut data| data.remove(key));
    found.ok_or_else(|| Error::NotFound(format!("ConfigMap {namespace}/{name} of the host has no {key}")))
}

/// Whose token it is; nobody's, where the host does not take it.
pub async fn owner_of(host: &Host, token: &str) -> Result<Option<Caller>> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(host.client.clone()).create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| unread("create tokenreview", &error))?;
    let known = answer.status.filter(|status| status.authenticated == Some(true)).and_then(|status| status.user);
    Ok(known.and_then(|user| {
        let mut groups = user.groups.unwrap_or_default();
        groups.retain(|group| group != AUTHENTICATED);
        Some(Caller { user: user.username?, groups })
    }))
}

/// As a kubelet asks it, but for all nodes at once.
pub async fn lets_reach_kubelets(host: &Host, caller: &Caller, verb: &str, subresource: &str) -> Result<bool> {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some(subresource.to_owned()),
        ..ResourceAttributes::default()
    };
    let groups = caller.groups.iter().cloned().chain([AUTHENTICATED.to_owned()]).collect();
    let spec = SubjectAccessReviewSpec {
        user: Some(caller.user.clone()),
        groups: Some(groups),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = Api::<SubjectAccessReview>::all(host.client.clone()).create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| unread("create subjectaccessreview", &error))?;
    Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}
