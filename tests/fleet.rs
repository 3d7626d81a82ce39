//! What a fleet promises to the tests that stand on it.

#[path = "clusters/mod.rs"]
mod clusters;

use clusters::{Fleet, Spec};

#[tokio::test]
async fn a_fleet_serves_its_clusters() {
    let begin = std::time::Instant::now();
    let fleet = Fleet::start(Spec {
        members: 2,
        nodes: true,
    })
    .await
    .unwrap();
    eprintln!("fleet after {:?}", begin.elapsed());
    for cluster in fleet.clusters() {
        eprintln!("{}", cluster.kubectl(&["get", "namespaces"]).await.unwrap());
    }
}
