//! What kube-controller-manager does in any cluster, a file for each part. Each follows the objects it is about, and looks
//! at what a change touches as it is now.

mod accounts;
mod binder;
mod namespaces;
mod nodes;
mod owners;
mod protection;
mod quotas;

use std::time::Duration;

use super::Cluster;

/// Works until it is dropped.
pub async fn run(cluster: Cluster) {
    run_busy(cluster, Duration::ZERO).await;
}

/// So busy that a namespace gets its account only after a while.
pub async fn run_busy(cluster: Cluster, accounts_after: Duration) {
    tokio::join!(
        accounts::run(cluster.clone(), accounts_after),
        binder::run(cluster.clone()),
        namespaces::run(cluster.clone()),
        nodes::run(cluster.clone()),
        owners::run(cluster.clone()),
        protection::run(cluster.clone()),
        quotas::run(cluster),
    );
}

#[cfg(test)]
mod tests;
