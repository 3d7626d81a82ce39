//! Nodes of this cluster that are called as those of the former one were.

use serde_json::{Value, json};

use super::{ATTACHMENTS, DRIVER, taken_over};
use crate::clusters::CLAIMS;

const ADOPT: &str = "host adopt $backup --former-cluster-is-off";

/// Its attach controller comes after the pod. What is detached then would be taken off the record of the node that has it.
#[tokio::test]
async fn volume_is_not_taken_off_a_node_to_which_a_pod_of_this_cluster_was_sent_that_is_to_have_it() {
    for node in ["real/n1", "virtual/m0/n1"] {
        let (clusters, _) = taken_over("db").await;
        let published = json!({node: {"access": "ReadWriteOnce"}}).to_string();
        let is_there =
            |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/published"] = json!(published);
        clusters.members[0].change(CLAIMS, "shop", "db", is_there).unwrap();
        let registered = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": node}]}});
        clusters.host.create("csinodes.storage.k8s.io", registered).unwrap();
        for (name, sent_to) in [("db-0", "n1"), ("db-1", "n2")] {
            let pod = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {
                "nodeName": sent_to, "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "db"}}]}});
            clusters.host.create("pods", pod).unwrap();
        }
        let told = clusters.does(ADOPT).await;
        assert!(told.contains(node) && told.contains("was sent there"), "{told}");
        assert!(clusters.host.list(ATTACHMENTS).is_empty(), "{node}");
        clusters.host.change("pods", "shop", "db-0", |pod| pod["status"]["phase"] = json!("Succeeded")).unwrap();
        assert!(clusters.does(ADOPT).await.contains("is being detached"));
        assert_eq!(clusters.host.list(ATTACHMENTS).len(), 1, "{node}: the other one waits on another node");
    }
}
