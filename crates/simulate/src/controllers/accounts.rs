//! Every namespace has a default account, without which it takes no pods. It comes after the namespace.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::{
    Cluster, What,
    object::{is_terminating, name, namespace},
};

const ACCOUNTS: &str = "serviceaccounts";
const NAMESPACES: &str = "namespaces";
const DEFAULT: &str = "default";

pub(super) async fn run(cluster: Cluster, after: Duration) {
    let mut changes = crate::follow::follow(&cluster, &[NAMESPACES, ACCOUNTS]);
    loop {
        let change = changes.next().await;
        let gone = change.what == What::Deleted;
        match change.resource.as_str() {
            NAMESPACES if !gone => make(&cluster, name(&change.object), after).await,
            ACCOUNTS if gone && name(&change.object) == DEFAULT => {
                make(&cluster, namespace(&change.object), after).await;
            }
            _ => {}
        }
    }
}

async fn make(cluster: &Cluster, namespace: &str, after: Duration) {
    let ends = cluster.get(NAMESPACES, "", namespace).is_none_or(|namespace| is_terminating(&namespace));
    if !ends && cluster.get(ACCOUNTS, namespace, DEFAULT).is_none() {
        if !after.is_zero() {
            sleep(after).await;
        }
        // A namespace that ends meanwhile takes no account.
        drop(cluster.create(ACCOUNTS, json!({"metadata": {"namespace": namespace, "name": DEFAULT}})));
    }
}
