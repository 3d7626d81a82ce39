//! Tokens of a pod's account in the host, in a Secret of the member for as long as the pod runs there. They leave the host only where the
//! pod's namespace gives its Secrets.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
    jiff::Timestamp,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::{
    super::object::{mark, read, text},
    Pods,
    names::{Kind, Token, token_key, token_secret},
    rejection::{PodRejection, denied},
};

/// On a Secret with tokens: when they are to be renewed, in seconds.
pub(super) const RENEW_AT: &str = "kosmos.csi.io/renew-at";
/// On the same: whose tokens they are.
const ACCOUNT: &str = "kosmos.csi.io/account";

/// Brings them there, or says what is in the way.
pub(super) async fn sync(pods: &Pods<'_>, pod: &Value, wanted: &[Token]) -> kube::Result<Result<(), PodRejection>> {
    let uid = text(pod, "/metadata/uid");
    let (namespace, name) = (text(pod, "/metadata/namespace"), token_secret(uid));
    let there = read(&pods.of_kind(Kind::Secret, namespace, false), &name).await;
    match there {
        Ok(Some(there)) if pods.is_ours(&there) && !is_due(&there) => return Ok(Ok(())),
        Err(error) => return denied(error, Kind::Secret, namespace, &pods.member.name),
        Ok(_) => {}
    }
    let account = match text(pod, "/spec/serviceAccountName") {
        "" => "default",
        name => name,
    };
    let (mut data, mut renew_at) = (BTreeMap::new(), i64::MAX);
    for (number, one) in wanted.iter().enumerate() {
        match token(pods, account, pod, one).await {
            Ok((token, until)) => {
                let left = until - Timestamp::now().as_second();
                renew_at = renew_at.min(until - left / 5);
                data.insert(token_key(number), token);
            }
            Err(error) => return denied(error, Kind::Secret, namespace, "host"),
        }
    }
    let notes = json!({RENEW_AT: renew_at.to_string(), ACCOUNT: account});
    let mut secret = pods.marked(&name, namespace, &notes);
    secret["stringData"] = json!(data);
    pods.put(Kind::Secret, namespace, &name, secret, |there| !is_due(there)).await
}

/// A token of the pod's account in the host, for as long as the pod is there, and until when it holds.
async fn token(pods: &Pods<'_>, account: &str, pod: &Value, wanted: &Token) -> kube::Result<(String, i64)> {
    let word = |pointer| Some(text(pod, pointer).to_owned());
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: word("/metadata/name"),
        uid: word("/metadata/uid"),
    };
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Some(wanted.audience.clone()).filter(|audience| !audience.is_empty()).into_iter().collect(),
            bound_object_ref: Some(bound),
            expiration_seconds: Some(wanted.seconds),
        },
        ..TokenRequest::default()
    };
    let namespace = text(pod, "/metadata/namespace");
    let accounts = Api::<ServiceAccount>::namespaced(pods.host.client.clone(), namespace);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    let status = answer.status.ok_or_else(|| kube::Error::Service("the answer holds no token".into()))?;
    Ok((status.token, status.expiration_timestamp.0.as_second()))
}

pub(super) fn is_due(there: &Value) -> bool {
    let renew_at = mark(there, "annotations", RENEW_AT).parse::<i64>().unwrap_or_default();
    renew_at <= Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_before_they_end() {
        let renew_at = |seconds: i64| json!({"metadata": {"annotations": {RENEW_AT: (Timestamp::now().as_second() + seconds).to_string()}}});
        assert!(!is_due(&renew_at(60)) && is_due(&renew_at(-1)) && is_due(&json!({})));
    }
}
