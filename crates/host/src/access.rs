//! What the host lets somebody do, asked of itself.

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ConfigMap,
};
use kube::{Api, api::PostParams};

use super::{Host, unread};
use domain::error::{Error, Result};

/// Every user whose name is known is of this group.
const AUTHENTICATED: &str = "system:authenticated";

/// Somebody, as his certificate says.
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

/// As a kubelet asks it, but for all nodes at once: this is the right of an API server.
pub async fn lets_reach_kubelets(host: &Host, caller: &Caller, verb: &str) -> Result<bool> {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some("proxy".to_owned()),
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
