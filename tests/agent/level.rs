//! Up to which Pod Security level pods are run, and in which namespaces of the member.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{NAMESPACE, NODE, SHOP, World, give_secrets, run_with_secret, standing, story, until, with_pod};

const LABEL: &str = "kosmos.csi.io/pods";

impl World {
    fn run_with(&self, name: &str, fields: &Value) {
        let mut spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}]});
        for (field, value) in fields.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec})).unwrap();
    }

    fn label(&self, level: &str) {
        let say = |there: &mut Value| there["metadata"]["labels"][LABEL] = json!(level);
        self.member.change("namespaces", "", SHOP, say).unwrap();
    }
}

#[test]
fn namespace_of_the_members_own_takes_no_pod_before_it_says_so() {
    story(1, async {
        let world = standing(1).await;
        world.member.create("namespaces", json!({"metadata": {"name": SHOP, "labels": {"a": "b"}}})).unwrap();
        let configuration = json!({"metadata": {"namespace": SHOP, "name": "settings"}, "data": {"a": "b"}});
        world.host.create("configmaps", configuration).unwrap();
        world.run_with("web", &json!({"volumes": [{"name": "v", "configMap": {"name": "settings"}}]}));
        until("it says why", || world.says("web", "NamespaceNotOpen", "kubectl label namespace shop")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none() && world.member.list("configmaps").is_empty(), "nothing is put there");
        world.label("baseline");
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// Also where the host's namespace gives its Secrets: an account of the member of the same name would be meant.
#[test]
fn secret_for_a_token_of_an_account_is_put_into_no_member_and_its_pod_says_so() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        run_with_secret(&world);
        let of_account = |secret: &mut Value| {
            secret["type"] = json!("kubernetes.io/service-account-token");
            secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
        };
        world.host.change("secrets", SHOP, "keys", of_account).unwrap();
        until("it says why", || world.says("web", "ObjectNotGiven", "kubernetes.io/service-account-token")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none() && world.member.get("secrets", SHOP, "keys").is_none());
    });
}

#[test]
fn namespace_that_is_made_for_a_pod_holds_all_pods_to_baseline() {
    story(1, async {
        let world = with_pod().await;
        let labels = world.member.get("namespaces", "", SHOP).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline", "{labels}");
        assert_eq!(labels["kosmos.csi.io/host"], world.host_id(), "{labels}");
    });
}

#[test]
fn pod_above_baseline_runs_only_where_host_and_member_allow_it() {
    story(1, async {
        let world = standing(1).await;
        world.run_with("web", &json!({"hostNetwork": true}));
        until("it says why", || world.says("web", "AboveBaseline", "annotation kosmos.csi.io/pods=privileged")).await;
        assert!(world.member.get("namespaces", "", SHOP).is_none(), "nothing is asked of the member");
        let allow = |secret: &mut Value| secret["metadata"]["annotations"] = json!({LABEL: "privileged"});
        world.host.change("secrets", NAMESPACE, "m", allow).unwrap();
        until("the member has to allow it", || {
            world.says("web", "AboveBaseline", "kubectl label namespace shop kosmos.csi.io/pods=privileged")
        })
        .await;
        assert!(world.copy("web").is_none());
        world.label("privileged");
        until("it runs", || world.phase("web") == "Running").await;
    });
}
