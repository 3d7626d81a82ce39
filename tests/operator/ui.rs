//! `ui` before there is anything to show: it says what is missing.

use serde_json::json;

use crate::clusters::{Clusters, NAMESPACE};

const UI: &str = "ui --port=0";

fn lease(clusters: &Clusters, holder: &str) {
    let lease =
        json!({"metadata": {"name": "kosmos-csi-leader", "namespace": NAMESPACE}, "spec": {"holderIdentity": holder}});
    clusters.host.create("leases.coordination.k8s.io", lease).unwrap();
}

#[tokio::test]
async fn page_of_a_host_without_a_leader_in_a_pod_says_where_it_looked() {
    let clusters = Clusters::new(0);
    clusters.refuses(UI, &["no controller in a pod leads in namespace kosmos-csi", "--members-namespace"]).await;
    lease(&clusters, "_00ff00ff00ff00ff");
    clusters.refuses(UI, &["no controller in a pod leads"]).await;
}

#[tokio::test]
async fn page_of_a_host_whose_leader_was_stopped_just_now_is_to_be_asked_for_again() {
    let clusters = Clusters::new(0);
    lease(&clusters, "");
    clusters.refuses(UI, &["no controller leads in namespace kosmos-csi just now", "try again"]).await;
}

/// Whoever may write the lease would have an administrator run a program in a pod.
#[tokio::test]
async fn lease_that_names_no_pod_leads_nowhere() {
    for holder in ["pod/exec?command=id&x=_0", "../secrets_0", "pod%2Fexec_0", "POD_0"] {
        let clusters = Clusters::new(0);
        lease(&clusters, holder);
        clusters.refuses(UI, &["no controller in a pod leads"]).await;
    }
}

#[tokio::test]
async fn page_of_a_pod_that_has_gone_names_the_pod() {
    let clusters = Clusters::new(0);
    lease(&clusters, "kosmos-csi-controller-7f9c_00ff00ff00ff00ff");
    clusters.refuses(UI, &["controller kosmos-csi-controller-7f9c"]).await;
    clusters.refuses(&format!("{UI} --pod=another"), &["controller another"]).await;
}

#[tokio::test]
async fn port_that_is_taken_is_named_with_the_way_out() {
    let clusters = Clusters::new(0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    clusters.refuses(&format!("ui --port={port}"), &[&format!("port {port} of this machine"), "--port"]).await;
}
