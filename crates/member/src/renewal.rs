//! Members' tokens are renewed by who uses them: each asks the member for its next one, with the one that it has, and writes it
//! into the Secret that it was read from. Every replica reads it there.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Arc, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{Identity, Member, Registry, kubeconfig, source::secrets::KEY, token::Token};
use cluster::with_causes;
use host::Host;

/// Looking costs no request.
const LOOK: Duration = Duration::from_secs(30);
/// From one try to the next, also where something puts the former token back again and again.
const BETWEEN: RangeInclusive<i64> = 60..=3600;
/// The others wait meanwhile. An answer that goes on fast enough would be read for an hour.
const ANSWERED_WITHIN: Duration = Duration::from_mins(2);

/// The time, in seconds. It goes on where the machine's clock is set back, and follows where that is set forward.
struct Clock {
    began: Instant,
    at: i64,
}

impl Clock {
    fn start() -> Self {
        Self { began: Instant::now(), at: Timestamp::now().as_second() }
    }

    fn now(&self) -> i64 {
        let passed = i64::try_from(self.began.elapsed().as_secs()).unwrap_or(i64::MAX);
        Timestamp::now().as_second().max(self.at.saturating_add(passed))
    }
}

/// Runs until it is dropped; of several replicas on one.
pub async fn run(host: Host, members: Registry) {
    let (clock, mut tried) = (Clock::start(), BTreeMap::new());
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Ok(all) = members.all() else { continue };
        tried.retain(|name, _| all.contains_key(name));
        for (name, member) in all.iter() {
            let Some((secret, token)) = member.renewable() else { continue };
            let waits = tried.get(name).is_some_and(|last: &Instant| last.elapsed() < between(&token));
            if waits || !is_due(&token, &clock) {
                continue;
            }
            tried.insert(name.clone(), Instant::now());
            match renew(&host, member, &secret, &clock).await {
                Ok(Some(ends)) => {
                    tracing::info!(member = name, secret, ends = said(ends), "the member's token is renewed");
                }
                Ok(None) => {}
                Err(reason) => tracing::warn!(
                    member = name,
                    ends = said(token.ends),
                    reason,
                    "the member's token cannot be renewed; `member add` does it by hand"
                ),
            }
        }
    }
}

/// A twentieth of its life, within bounds.
fn between(token: &Token) -> Duration {
    let seconds = (token.lifetime() / 20).clamp(*BETWEEN.start(), *BETWEEN.end());
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn is_due(token: &Token, clock: &Clock) -> bool {
    token.due().is_some_and(|due| due <= clock.now())
}

fn said(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Until when the new one is good; none where somebody else has renewed it, or it cannot be asked for now.
async fn renew(host: &Host, member: &Arc<Member>, name: &str, clock: &Clock) -> Result<Option<i64>, String> {
    let Some(client) = client_of(member) else { return Ok(None) };
    let secrets = Api::<Secret>::namespaced(host.client.clone(), &host.namespace);
    let read = cluster::read(secrets.get(name).await, name);
    let read = read.map_err(|error| format!("get Secret {}/{name}: {}", host.namespace, with_causes(&error)))?;
    let Some(secret) = read else { return Ok(None) };
    let text = secret.data.as_ref().and_then(|data| data.get(KEY)).map(|bytes| bytes.0.clone()).unwrap_or_default();
    let text = String::from_utf8(text).unwrap_or_default();
    let Some(old) = kubeconfig::token(&text) else { return Ok(None) };
    let Some(token) = Token::read(&old).filter(|token| is_due(token, clock)) else { return Ok(None) };
    let new = ask(client, &token).await?;
    // The member writes it into an object of the host: nothing but a token, and of nobody else.
    let read = Token::read(&new).filter(|read| Token::is_plain(&new) && read.is_the_next_of(&token));
    let Some(Token { ends, .. }) = read else {
        return Err("the member answers with something else than a token of the same account".to_owned());
    };
    // Written only over what was read: another replica, or a person, may have been quicker.
    let change = json!({
        "metadata": {"uid": secret.uid(), "resourceVersion": secret.resource_version()},
        "data": {KEY: ByteString(text.replace(&old, &new).into_bytes())},
    });
    match secrets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await {
        Ok(_) => Ok(Some(ends)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(format!("write Secret {}/{name}: {}", host.namespace, with_causes(&error))),
    }
}

/// Also of one that is another name of a member, and of one that is not used because it says too much or grants too little: that may last for
/// longer than a token, and what is to be mended then needs one that is good.
fn client_of(member: &Member) -> Option<&Client> {
    let link = member.link.as_ref().ok().filter(|link| link.line.breaker.open().is_none())?;
    let identity = link.identity.lock().unwrap_or_else(PoisonError::into_inner);
    matches!(*identity, Identity::Proven(_) | Identity::Alias(_)).then_some(&link.leaf.client)
}

/// The next token, of the same account, bound to the same Secret: it ends with that too.
async fn ask(client: &Client, token: &Token) -> Result<String, String> {
    let (namespace, account) = token.account().unwrap_or_default();
    let bound = token.bound().map(|bound| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        name: Some(bound.name.clone()),
        uid: Some(bound.uid.clone()),
    });
    let spec = TokenRequestSpec {
        expiration_seconds: Some(token.lifetime()),
        bound_object_ref: bound,
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let failed = |why: String| format!("ask for a token of {namespace}/{account}: {why}");
    let nothing_else = PostParams::default();
    let answer = timeout(ANSWERED_WITHIN, accounts.create_token_request(account, &nothing_else, &request)).await;
    let answer = answer.map_err(|_| failed("its answer does not end".to_owned()))?;
    let answer = answer.map_err(|error| failed(with_causes(&error)))?;
    Ok(answer.status.map(|status| status.token).unwrap_or_default())
}
