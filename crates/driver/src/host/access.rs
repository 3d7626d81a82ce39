//! What the host lets somebody do, asked of itself.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};

use super::{Host, unread};
use crate::error::Result;

/// Every user whose name is known is of this group.
const AUTHENTICATED: &str = "system:authenticated";

/// Somebody, as his certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    pub groups: Vec<String>,
}

impl Host {
    /// As a kubelet asks it, but for all nodes at once: this is the right of an API server.
    pub async fn lets_reach_kubelets(&self, caller: &Caller, verb: &str) -> Result<bool> {
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
        let answer = Api::<SubjectAccessReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| unread("create subjectaccessreview", &error))?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}
