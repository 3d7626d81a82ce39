//! The accounts that `member add` makes: a token of each, and whether it may do all that it must.

use anyhow::{Context, anyhow};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams};
use serde_json::{Value, json};

use super::rights;
use crate::{
    args::operator::Add,
    cluster::{Dial, with_causes},
    operator::{
        kubeconfig::{self, Reach},
        objects::{ACCOUNT, NAMESPACE, PODS_ACCOUNT},
        rights::{Right, of},
    },
    run::operator::{
        connect::{self, Admin},
        print::patiently,
    },
};

/// An account as the host will use it.
pub(super) struct Account {
    pub(super) name: &'static str,
    pub(super) kubeconfig: String,
    /// When its token ends, in seconds.
    pub(super) ends: i64,
    pub(super) rights: Vec<(Right, bool)>,
}

/// Every account of a member, each by the way that the administrator has come: the host's own way may not be open from here.
pub(super) async fn all(
    flags: &Add,
    admin: &Admin,
    reach: &Reach,
    objects: &[Value],
    dial: &Dial,
) -> anyhow::Result<Vec<Account>> {
    let pods = (!flags.volumes_only).then_some(PODS_ACCOUNT);
    let mut accounts = Vec::new();
    for name in [ACCOUNT].into_iter().chain(pods) {
        let (token, ends) = token(flags, name, &admin.client).await?;
        let client = as_account(flags, admin, &token, dial)?;
        let rights = of(objects, name);
        let asking = rights::ask_until_granted(&client, &rights);
        let rights = patiently("checking every right of the account", asking).await?;
        accounts.push(Account { name, kubeconfig: kubeconfig::text(&flags.name, reach, &token), ends, rights });
    }
    Ok(accounts)
}

/// A token, and when it ends.
async fn token(flags: &Add, account: &str, client: &Client) -> anyhow::Result<(String, i64)> {
    let seconds = i64::try_from(flags.token_lifetime.as_secs()).unwrap_or(i64::MAX);
    let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
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
