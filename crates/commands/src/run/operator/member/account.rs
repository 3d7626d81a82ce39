//! The accounts that `member add` makes: a token of each, and whether it may do all that it must.

use std::time::Duration;

use anyhow::{Context, anyhow};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams};
use serde_json::{Value, json};

use super::rights;
use crate::{
    args::operator::Add,
    run::operator::{
        connect::{self, Admin},
        objects::read,
        print::patiently,
    },
};
use cluster::{Dial, with_causes};
use operator::{
    kubeconfig::{self, Reach},
    objects::{NAMESPACE, PODS_ACCOUNT, has_kubeconfig, title, word},
    rights::{Right, of},
};

/// Without a wish: what is renewed, and what is not.
const A_MONTH: Duration = Duration::from_hours(30 * 24);
const A_YEAR: Duration = Duration::from_hours(365 * 24);

/// An account as the host will use it.
pub(super) struct Account {
    pub(super) name: String,
    pub(super) for_pods: bool,
    pub(super) kubeconfig: String,
    /// When its token ends, in seconds.
    pub(super) ends: i64,
    pub(super) rights: Vec<(Right, bool)>,
}

/// Every account of a member that a host is given, each by the way that the administrator has come: the host's own way may not be open from here.
pub(super) async fn all(
    flags: &Add,
    admin: &Admin,
    reach: &Reach,
    objects: &[Value],
    dial: &Dial,
) -> anyhow::Result<Vec<Account>> {
    let bound = bound(&admin.client, objects).await?;
    let mut accounts = Vec::new();
    let is_account = |object: &&Value| word(object, "/kind") == "ServiceAccount" && has_kubeconfig(object);
    for account in objects.iter().filter(is_account) {
        let name = word(account, "/metadata/name").to_owned();
        let (token, ends) = token(flags, &name, &bound, &admin.client).await?;
        let client = as_account(flags, admin, &token, dial)?;
        let rights = of(objects, &name);
        let asking = rights::ask_until_granted(&client, &rights);
        let rights = patiently("checking every right of the account", asking).await?;
        let kubeconfig = kubeconfig::text(&flags.name, reach, &token);
        accounts.push(Account { for_pods: name.starts_with(PODS_ACCOUNT), name, kubeconfig, ends, rights });
    }
    Ok(accounts)
}

/// What the tokens end with, as it is now.
async fn bound(client: &Client, objects: &[Value]) -> anyhow::Result<BoundObjectReference> {
    let secret = objects.iter().find(|object| word(object, "/kind") == "Secret").context("no Secret for the tokens")?;
    let live = read(client, secret).await?.with_context(|| format!("{} has gone meanwhile", title(secret)))?;
    Ok(BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        name: Some(word(&live, "/metadata/name").to_owned()),
        uid: Some(word(&live, "/metadata/uid").to_owned()),
    })
}

/// A token, and when it ends.
async fn token(
    flags: &Add,
    account: &str,
    bound: &BoundObjectReference,
    client: &Client,
) -> anyhow::Result<(String, i64)> {
    let usual = if flags.kubeconfig_only.is_some() { A_YEAR } else { A_MONTH };
    let seconds = i64::try_from(flags.token_lifetime.unwrap_or(usual).as_secs()).unwrap_or(i64::MAX);
    let spec = TokenRequestSpec {
        expiration_seconds: Some(seconds),
        bound_object_ref: Some(bound.clone()),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let asked = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let asked = asked.map_err(|error| anyhow!("ask for a token of {NAMESPACE}/{account}: {}", with_causes(&error)))?;
    let status = asked.status.context("the member granted no token")?;
    Ok((status.token, status.expiration_timestamp.0.as_second()))
}

fn as_account(flags: &Add, admin: &Admin, token: &str, dial: &Dial) -> anyhow::Result<Client> {
    let mut config: Config = admin.config.clone();
    config.auth_info = serde_json::from_value(json!({"token": token}))?;
    connect::open(&flags.name, config, dial).map_err(anyhow::Error::msg)
}
