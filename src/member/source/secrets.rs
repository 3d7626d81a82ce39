//! Members from Secrets in the driver's own namespace: label `kosmos.csi.io/member: <name>`, key `kubeconfig`, and
//! `virtual-node` for the account that runs pods there.

use std::{collections::BTreeMap, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use tokio::sync::watch;

use super::{Account, Definition, Definitions};
use crate::{cluster::with_causes, member::kubeconfig::Trust, volume::id::is_member_name};

const LABEL: &str = "kosmos.csi.io/member";
const CORDON: &str = "kosmos.csi.io/cordon";
const KEY: &str = "kubeconfig";
const VIRTUAL_NODE_KEY: &str = "virtual-node";

/// Follows the Secrets until nobody listens any more.
pub async fn follow(client: Client, namespace: String, account: Account, news: watch::Sender<Option<Definitions>>) {
    let secrets = Api::<Secret>::namespaced(client, &namespace);
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times();
    let events = watcher(secrets, watcher::Config::default().labels(LABEL)).backoff(ExponentialBackoff::from(backoff));
    let mut events = std::pin::pin!(events);
    let mut found = Found::new(account);
    while let Some(event) = events.next().await {
        let complete = found.complete;
        match event {
            Ok(event) => found.take(event),
            Err(error) => {
                tracing::warn!(namespace, error = with_causes(&error), "the members' Secrets cannot be watched");
            }
        }
        if news.is_closed() {
            return;
        }
        if found.complete {
            let definitions = found.definitions();
            if definitions.is_empty() && !complete {
                tracing::info!(namespace, label = LABEL, "no Secret with this label yet");
            }
            news.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&definitions);
                *known = Some(definitions);
                changed
            });
        }
    }
}

/// The Secrets by name, and whether all have been seen once.
struct Found {
    account: Account,
    secrets: BTreeMap<String, (String, Definition)>,
    listing: BTreeMap<String, (String, Definition)>,
    complete: bool,
}

impl Found {
    fn new(account: Account) -> Self {
        Self { account, secrets: BTreeMap::new(), listing: BTreeMap::new(), complete: false }
    }

    fn take(&mut self, event: Event<Secret>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(secret) => {
                drop(define(&secret, self.account).map(|entry| self.listing.insert(secret.name_any(), entry)));
            }
            Event::InitDone => {
                self.secrets = std::mem::take(&mut self.listing);
                self.complete = true;
            }
            Event::Apply(secret) => {
                let name = secret.name_any();
                match define(&secret, self.account) {
                    Some(entry) => self.secrets.insert(name, entry),
                    None => self.secrets.remove(&name),
                };
            }
            Event::Delete(secret) => drop(self.secrets.remove(&secret.name_any())),
        }
    }

    /// Where two Secrets name one member, the first by name counts.
    fn definitions(&self) -> Definitions {
        let mut definitions = Definitions::new();
        for (member, definition) in self.secrets.values() {
            definitions.entry(member.clone()).or_insert_with(|| definition.clone());
        }
        definitions
    }
}

fn define(secret: &Secret, account: Account) -> Option<(String, Definition)> {
    let member = secret.labels().get(LABEL)?.clone();
    let origin = format!("Secret {}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
    if !is_member_name(&member) {
        tracing::warn!(origin, member, "ignored: a member's name is a DNS label of at most 40 characters");
        return None;
    }
    let value =
        |key: &str| secret.data.as_ref()?.get(key).map(|bytes| bytes.0.clone()).filter(|value| !value.is_empty());
    let own = if account == Account::VirtualNode { value(VIRTUAL_NODE_KEY) } else { None };
    let bytes = own.or_else(|| value(KEY));
    let definition = Definition {
        kubeconfig: String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default(),
        trust: Trust::Object,
        cordoned: secret.annotations().get(CORDON).is_some_and(|value| value == "true"),
        origin,
    };
    Some((member, definition))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    fn secret(name: &str, member: &str, kubeconfig: &str) -> Secret {
        // "YQ==" and "Yg==" are "a" and "b" in base64
        from_value(json!({
            "metadata": {"name": name, "namespace": "kosmos-csi", "labels": {LABEL: member}, "annotations": {CORDON: "true"}},
            "data": {KEY: kubeconfig},
        }))
        .unwrap()
    }

    #[test]
    fn secret_defines_the_member_its_label_names() {
        let mut found = Found::new(Account::Driver);
        found.take(Event::Init);
        found.take(Event::InitApply(secret("two", "cluster38", "Yg==")));
        found.take(Event::InitApply(secret("one", "cluster38", "YQ==")));
        assert!(!found.complete);
        found.take(Event::InitDone);
        let definitions = found.definitions();
        assert_eq!(definitions["cluster38"].kubeconfig, "a", "the first Secret by name counts");
        assert!(definitions["cluster38"].cordoned);
        found.take(Event::Delete(secret("one", "cluster38", "YQ==")));
        assert_eq!(found.definitions()["cluster38"].kubeconfig, "b");
        found.take(Event::Apply(secret("two", "Not A Name", "Yg==")));
        assert!(found.definitions().is_empty());
    }

    #[test]
    fn account_of_its_own_is_used_where_there_is_one() {
        let mut both = secret("one", "cluster38", "YQ==");
        let kubeconfig = |secret: &Secret, account| define(secret, account).unwrap().1.kubeconfig;
        assert_eq!(kubeconfig(&both, Account::VirtualNode), "a");
        let own = k8s_openapi::ByteString(b"own".to_vec());
        both.data.as_mut().unwrap().insert(VIRTUAL_NODE_KEY.to_owned(), own);
        assert_eq!(kubeconfig(&both, Account::VirtualNode), "own");
        assert_eq!(kubeconfig(&both, Account::Driver), "a");
    }

    #[test]
    fn debug_output_holds_no_credentials() {
        let (_, definition) = define(&secret("one", "cluster38", "YQ=="), Account::Driver).unwrap();
        assert!(!format!("{definition:?}").contains("kubeconfig"));
    }
}
