//! Members from Secrets in the driver's own namespace: label `kosmos.csi.io/member: <name>`, key `kubeconfig`, and
//! `virtual-node` for the account that runs pods there.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::watcher};
use tokio::{sync::watch, time::sleep};

use super::{
    Account, Definition, Definitions,
    objects::{self, Words},
};
use crate::member::kubeconfig::Trust;

pub const LABEL: &str = "kosmos.csi.io/member";
pub const KEY: &str = "kubeconfig";
/// The same for who runs pods there.
pub const VIRTUAL_NODE_KEY: &str = "virtual-node";

/// The members as the Secrets name them now, for who asks once.
pub async fn read(client: Client, namespace: &str, account: Account) -> Result<Definitions, kube::Error> {
    let secrets = Api::<Secret>::namespaced(client, namespace).list(&ListParams::default().labels(LABEL)).await?;
    Ok(objects::definitions(&secrets.items, |secret| define(secret, account)))
}

const WORDS: Words = Words {
    none_yet: "no Secret with this label yet: kosmos.csi.io/member",
    unwatched: "the members' Secrets cannot be watched",
};

/// Follows the Secrets until nobody listens any more.
pub async fn follow(client: Client, namespace: String, account: Account, news: watch::Sender<Option<Definitions>>) {
    while !news.is_closed() {
        let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
        let labelled = watcher::Config::default().labels(LABEL);
        objects::follow(secrets, labelled, |secret| define(secret, account), &WORDS, &news).await;
        sleep(objects::PAUSE).await;
    }
}

fn define(secret: &Secret, account: Account) -> Option<(String, Definition)> {
    let member = secret.labels().get(LABEL)?.clone();
    let value =
        |key: &str| secret.data.as_ref()?.get(key).map(|bytes| bytes.0.clone()).filter(|value| !value.is_empty());
    let own = if account == Account::VirtualNode { value(VIRTUAL_NODE_KEY) } else { None };
    let bytes = own.or_else(|| value(KEY));
    let definition = Definition {
        kubeconfig: String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default(),
        trust: Trust::Object,
        cordoned: objects::is_cordoned(secret),
        privileged_pods: objects::has_privileged_pods(secret),
        clustertree: false,
        origin: format!("Secret {}/{}", secret.namespace().unwrap_or_default(), secret.name_any()),
    };
    Some((member, definition))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    fn secret(labels: &serde_json::Value) -> Secret {
        // "YQ==" is "a" in base64
        from_value(json!({
            "metadata": {
                "name": "one", "namespace": "kosmos-csi", "labels": labels,
                "annotations": {"kosmos.csi.io/cordon": "true"},
            },
            "data": {KEY: "YQ=="},
        }))
        .unwrap()
    }

    #[test]
    fn secret_defines_the_member_its_label_names() {
        let (member, definition) = define(&secret(&json!({LABEL: "cluster38"})), Account::Driver).unwrap();
        assert_eq!((member.as_str(), definition.kubeconfig.as_str()), ("cluster38", "a"));
        assert_eq!((definition.trust, definition.cordoned), (Trust::Object, true));
        assert_eq!(definition.origin, "Secret kosmos-csi/one");
        assert_eq!(define(&secret(&json!({})), Account::Driver), None);
    }

    #[test]
    fn account_of_its_own_is_used_where_there_is_one() {
        let mut both = secret(&json!({LABEL: "cluster38"}));
        let kubeconfig = |secret: &Secret, account| define(secret, account).unwrap().1.kubeconfig;
        assert_eq!(kubeconfig(&both, Account::VirtualNode), "a");
        let own = k8s_openapi::ByteString(b"own".to_vec());
        both.data.as_mut().unwrap().insert(VIRTUAL_NODE_KEY.to_owned(), own);
        assert_eq!(kubeconfig(&both, Account::VirtualNode), "own");
        assert_eq!(kubeconfig(&both, Account::Driver), "a");
    }

    #[test]
    fn debug_output_holds_no_credentials() {
        let (_, definition) = define(&secret(&json!({LABEL: "cluster38"})), Account::Driver).unwrap();
        assert!(!format!("{definition:?}").contains("kubeconfig"));
    }
}
