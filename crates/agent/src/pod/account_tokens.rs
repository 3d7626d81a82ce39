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
    names::{Kind, LONGEST_TOKEN, Token, token_key, token_secret},
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
        Ok(Some(there)) if pods.is_ours(&there) => {}
        // No token is asked for that the member has no place for.
        Ok(_) => {
            let empty = secret(pods, pod, 0);
            if let Err(why) = pods.put(Kind::Secret, namespace, &name, empty, |_| true).await? {
                return Ok(Err(why));
            }
        }
        Err(error) => return denied(error, Kind::Secret, namespace, &pods.member.name),
    }
    if !pods.token_asks.is_left(uid) {
        return Ok(Err(too_often(&pods.member.name, namespace, &name)));
    }
    let (mut data, mut renewed_at) = (BTreeMap::new(), i64::MAX);
    for (number, one) in wanted.iter().enumerate() {
        match token(pods, pod, one).await {
            Ok((token, until)) => {
                renewed_at = renewed_at.min(renew_at(until, Timestamp::now().as_second()));
                data.insert(token_key(number), token);
            }
            Err(error) => return denied(error, Kind::Secret, namespace, "host"),
        }
    }
    pods.token_asks.take(uid);
    let mut full = secret(pods, pod, renewed_at);
    full["stringData"] = json!(data);
    pods.put(Kind::Secret, namespace, &name, full, |there| !is_due(there)).await
}

/// With no token in it.
fn secret(pods: &Pods<'_>, pod: &Value, renew_at: i64) -> Value {
    let notes = json!({RENEW_AT: renew_at.to_string(), ACCOUNT: account(pod)});
    pods.marked(&token_secret(text(pod, "/metadata/uid")), text(pod, "/metadata/namespace"), &notes)
}

/// Whoever writes Secrets there may remove it, or write on it that it is due, again and again.
fn too_often(member: &str, namespace: &str, name: &str) -> PodRejection {
    let message = format!(
        "member {member} does not keep the pod's tokens: something there deletes Secret {namespace}/{name}, changes its annotations, or refuses \
         its data. From now on the agent asks the host for tokens of the pod once in five minutes"
    );
    PodRejection::new("WaitsForObject", message)
}

fn account(pod: &Value) -> &str {
    match text(pod, "/spec/serviceAccountName") {
        "" => "default",
        name => name,
    }
}

/// None is used for longer than it was asked for, whatever the host's clock says.
fn renew_at(until: i64, now: i64) -> i64 {
    let left = (until - now).clamp(0, LONGEST_TOKEN);
    now + left - left / 5
}

/// A token of the pod's account in the host, for as long as the pod is there, and until when it holds.
async fn token(pods: &Pods<'_>, pod: &Value, wanted: &Token) -> kube::Result<(String, i64)> {
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
    let answer = accounts.create_token_request(account(pod), &PostParams::default(), &request).await?;
    let status = answer.status.ok_or_else(|| kube::Error::Service("the answer holds no token".into()))?;
    Ok((status.token, status.expiration_timestamp.0.as_second()))
}

/// Whoever writes Secrets in the member may write later than any token lasts.
pub(super) fn is_due(there: &Value) -> bool {
    let renew_at = mark(there, "annotations", RENEW_AT).parse::<i64>().unwrap_or_default();
    let now = Timestamp::now().as_second();
    renew_at <= now || renew_at > now + LONGEST_TOKEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_before_they_end() {
        let in_seconds = |seconds: i64| json!({"metadata": {"annotations": {RENEW_AT: (Timestamp::now().as_second() + seconds).to_string()}}});
        assert!(!is_due(&in_seconds(60)) && is_due(&in_seconds(-1)) && is_due(&json!({})));
        assert!(is_due(&in_seconds(LONGEST_TOKEN + 60)), "none lasts so long");
    }

    #[test]
    fn token_is_renewed_within_an_hour_whatever_the_hosts_clock_says() {
        let now = 1_800_000_000;
        for (lasts, after) in [(600, 480), (3600, 2880), (365 * 86_400, 2880), (-60, 0)] {
            assert_eq!(renew_at(now + lasts, now), now + after, "{lasts}");
        }
    }
}
