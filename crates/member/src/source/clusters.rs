//! Members from Kosmos `Cluster` objects (`kosmos.io/v1alpha1`): each but the host's own is a member of its name. Whether
//! the host has such objects at all may change at any time.

use std::time::Duration;

use k8s_openapi::ByteString;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use tokio::{sync::watch, time::sleep};

use super::{
    MemberDefinition, MemberDefinitions,
    objects::{self, Words},
};
use crate::{kubeconfig::KubeconfigSource, policy::Policy};
use cluster::with_causes;

const GROUP: &str = "kosmos.io";
const VERSION: &str = "v1alpha1";
const PLURAL: &str = "clusters";
/// The annotation of the one that stands for the host itself.
const ROLE: &str = "kosmos.io/cluster-role";
const ROOT: &str = "root";

/// Between two looks at whether the host serves the kind. Every user may ask that.
const LOOK: Duration = Duration::from_secs(10);

const WORDS: Words = Words {
    none_yet: "no Kosmos Cluster object but the host's own yet",
    unwatched: "Kosmos Cluster objects cannot be watched: they need the rights in deploy/host.yaml, or --kosmos-clusters off",
};

/// Follows the objects until nobody listens any more. While the host does not have their kind there are none; if they are
/// required, nothing is told before. `restored` changes when the host was restored from a backup.
pub async fn follow(
    client: Client,
    required: bool,
    mut restored: watch::Receiver<()>,
    news: watch::Sender<Option<MemberDefinitions>>,
) {
    let mut told = String::new();
    while !news.is_closed() {
        let obstacle = match is_served(&client).await {
            Ok(true) => {
                tracing::info!("Kosmos Cluster objects are members");
                let (clusters, all) = (clusters(client.clone()), watcher::Config::default());
                objects::follow(clusters, all, define, &WORDS, &mut restored, &news).await;
                // There is no such kind any more, or so it was said.
                told.clear();
                sleep(objects::PAUSE).await;
                continue;
            }
            Ok(false) if required => format!("--kosmos-clusters on waits for the CRD {PLURAL}.{GROUP}"),
            Ok(false) => {
                objects::tell(&news, MemberDefinitions::new());
                String::new()
            }
            Err(error) => {
                format!("whether the host has Kosmos Cluster objects cannot be told: {}", with_causes(&error))
            }
        };
        if obstacle != told {
            tracing::warn!("{obstacle}");
            told = obstacle;
        }
        sleep(LOOK).await;
    }
}

/// The members as the objects name them now, for who asks once.
pub async fn read(client: Client) -> Result<MemberDefinitions, kube::Error> {
    if !is_served(&client).await? {
        return Ok(MemberDefinitions::new());
    }
    let listed = clusters(client).list(&ListParams::default()).await?;
    Ok(objects::definitions(&listed.items, define))
}

/// By the host's own list of what it serves: what a proxy on the way does not find proves nothing.
async fn is_served(client: &Client) -> Result<bool, kube::Error> {
    let version = format!("{GROUP}/{VERSION}");
    let groups = client.list_api_groups().await?.groups;
    if !groups.iter().any(|group| group.versions.iter().any(|there| there.group_version == version)) {
        return Ok(false);
    }
    let kinds = client.list_api_group_resources(&version).await?.resources;
    Ok(kinds.iter().any(|kind| kind.name == PLURAL))
}

fn clusters(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, "Cluster");
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, PLURAL))
}

fn define(cluster: &DynamicObject) -> Option<(String, MemberDefinition)> {
    if cluster.annotations().get(ROLE).is_some_and(|role| role == ROOT) {
        return None;
    }
    let name = cluster.name_any();
    let definition = MemberDefinition {
        kubeconfig: kubeconfig(cluster),
        source: KubeconfigSource::Object,
        policy: Policy::annotated(cluster.annotations()),
        clustertree: true,
        secret: None,
        origin: format!("Cluster {name}"),
    };
    Some((name, definition))
}

/// Empty where there is none that could be read, which is refused later with the member's name.
fn kubeconfig(cluster: &DynamicObject) -> String {
    let field = cluster.data.pointer("/spec/kubeconfig").cloned().unwrap_or_default();
    let bytes = serde_json::from_value::<ByteString>(field).map(|bytes| bytes.0);
    String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn cluster(annotations: &Value, spec: &Value) -> DynamicObject {
        from_value(json!({
            "apiVersion": "kosmos.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "cluster38", "annotations": annotations}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn cluster_object_defines_the_member_of_its_name() {
        // "YQ==" is "a" in base64
        let object = cluster(&json!({"kosmos.csi.io/cordon": "true"}), &json!({"kubeconfig": "YQ=="}));
        let (member, definition) = define(&object).unwrap();
        assert_eq!((member.as_str(), definition.kubeconfig.as_str()), ("cluster38", "a"));
        assert_eq!(
            definition.source,
            KubeconfigSource::Object,
            "whoever may write it may not read this process's files"
        );
        assert!(definition.policy.cordoned && definition.clustertree);
        assert_eq!(definition.origin, "Cluster cluster38");
    }

    #[test]
    fn cluster_object_of_the_host_itself_is_no_member() {
        let spec = json!({"kubeconfig": "YQ=="});
        assert_eq!(define(&cluster(&json!({ROLE: "root"}), &spec)), None);
        assert!(define(&cluster(&json!({ROLE: "leaf"}), &spec)).is_some());
    }

    #[test]
    fn kubeconfig_that_is_missing_or_not_base64_is_an_empty_one() {
        for spec in [json!({}), json!({"kubeconfig": 5}), json!({"kubeconfig": "%%%"}), json!({"kubeconfig": "/w=="})] {
            let (_, definition) = define(&cluster(&json!({}), &spec)).unwrap();
            assert_eq!(definition.kubeconfig, "", "{spec}");
        }
    }
}
