//! Members from Secrets in the namespace of who uses them, the driver or the agent: label `kosmos.csi.io/member: <name>`, key
//! `kubeconfig`.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::watcher};
use tokio::{sync::watch, time::sleep};

use super::{
    MemberDefinition, MemberDefinitions,
    objects::{self, Words},
};
use crate::{kubeconfig::KubeconfigSource, policy::Policy};

pub const LABEL: &str = "kosmos.csi.io/member";
pub const KEY: &str = "kubeconfig";

/// The members as the Secrets name them now, for who asks once.
pub async fn read(client: Client, namespace: &str) -> Result<MemberDefinitions, kube::Error> {
    let secrets = Api::<Secret>::namespaced(client, namespace).list(&ListParams::default().labels(LABEL)).await?;
    Ok(objects::definitions(&secrets.items, define))
}

const WORDS: Words = Words {
    none_yet: "no Secret with this label yet: kosmos.csi.io/member",
    unwatched: "the members' Secrets cannot be watched",
};

/// Follows the Secrets until nobody listens any more. `restored` changes when the host was restored from a backup.
pub async fn follow(
    client: Client,
    namespace: String,
    mut restored: watch::Receiver<()>,
    news: watch::Sender<Option<MemberDefinitions>>,
) {
    while !news.is_closed() {
        let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
        let labelled = watcher::Config::default().labels(LABEL);
        objects::follow(secrets, labelled, define, &WORDS, &mut restored, &news).await;
        sleep(objects::PAUSE).await;
    }
}

fn define(secret: &Secret) -> Option<(String, MemberDefinition)> {
    let member = secret.labels().get(LABEL)?.clone();
    let bytes = secret.data.as_ref().and_then(|data| data.get(KEY)).map(|bytes| bytes.0.clone());
    let definition = MemberDefinition {
        kubeconfig: String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default(),
        source: KubeconfigSource::Object,
        policy: Policy::annotated(secret.annotations()),
        clustertree: false,
        secret: Some(secret.name_any()),
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
        let (member, definition) = define(&secret(&json!({LABEL: "cluster38"}))).unwrap();
        assert_eq!((member.as_str(), definition.kubeconfig.as_str()), ("cluster38", "a"));
        assert_eq!((definition.source, definition.policy.cordoned), (KubeconfigSource::Object, true));
        assert_eq!(definition.origin, "Secret kosmos-csi/one");
        assert_eq!(define(&secret(&json!({}))), None);
    }

    #[test]
    fn debug_output_holds_no_credentials() {
        let (_, definition) = define(&secret(&json!({LABEL: "cluster38"}))).unwrap();
        assert!(!format!("{definition:?}").contains("kubeconfig"));
    }
}
