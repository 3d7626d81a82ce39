//! Everything around the driver that makes a host alive, played in one process: who turns Deployments into pods, the
//! scheduler, the provisioner, the resizer and the attacher. It is labelled as what it is: events name `dev-scheduler` and the
//! like.
//!
//! Each part looks at all it goes by, decides in a pure function, acts, and looks again when something has changed. It
//! works on the simulated clusters from inside; only the driver is called as its real callers call it, over its socket.

mod attacher;
pub(super) mod capacity;
mod conditions;
mod events;
mod fit;
mod provisioner;
mod resizer;
mod scheduler;
mod snapshotter;
mod workloads;

use std::sync::Arc;

use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;

use csi::client::Client;
use simulate::{
    Cluster, StatusError,
    events::{About, tell},
};

/// Plays all parts, until one fails or this is dropped.
pub(super) async fn run(host: Cluster, driver: Client) -> anyhow::Result<()> {
    let mut parts = JoinSet::new();
    parts.spawn(workloads::run(host.clone()));
    parts.spawn(scheduler::run(host.clone()));
    parts.spawn(provisioner::run(host.clone(), driver.clone()));
    parts.spawn(capacity::run(host.clone(), driver.clone()));
    parts.spawn(snapshotter::run(host.clone(), driver.clone()));
    parts.spawn(resizer::run(host.clone(), driver.clone()));
    parts.spawn(attacher::run(host.clone(), driver));
    match parts.join_next().await {
        Some(Err(error)) => anyhow::bail!("a part of the simulated host has failed: {error}"),
        _ => anyhow::bail!("a part of the simulated host has ended"),
    }
}

/// Calls `act` at first, and whenever something of these resources has changed.
async fn whenever_changed(cluster: &Cluster, resources: &[&str], mut act: impl FnMut()) {
    let mut changes = simulate::follow::follow(cluster, resources);
    loop {
        while changes.try_next().is_some() {}
        act();
        changes.next().await;
    }
}

/// All objects of a kind, in its own type. The user is told of one that cannot be read, and it is left alone.
fn all<T: DeserializeOwned>(cluster: &Cluster, resource: &str) -> Vec<T> {
    let objects = cluster.list(resource);
    let read = |object: &Value| match T::deserialize(object) {
        Ok(read) => Some(read),
        Err(error) => {
            let message = format!("it cannot be read, so nothing is done about it: {error}");
            tell(cluster, &About::any(object), "dev", "Warning", "Unreadable", &message);
            None
        }
    };
    objects.iter().filter_map(|object| read(object)).collect()
}

/// Makes an object; what was left open in it is left out, as a client does.
fn create(cluster: &Cluster, resource: &str, mut object: Value) -> Result<Arc<Value>, StatusError> {
    drop_nulls(&mut object);
    cluster.create(resource, object)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// What was decided may be overtaken by another hand: then the next look decides again.
pub(super) fn ignore_conflict<T, E: std::fmt::Display>(doing: &str, done: Result<T, E>) -> Option<T> {
    done.inspect_err(|error| tracing::debug!(%error, "{doing} was refused")).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn user_is_told_of_what_cannot_be_read() {
        let host = Cluster::new("host", 1);
        let metadata = json!({"namespace": "default", "name": "odd"});
        let template = json!({"metadata": {"labels": {"a": "b"}, "deletionGracePeriodSeconds": "30"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        host.create("deployments.apps", json!({"metadata": metadata, "spec": spec})).unwrap();
        assert!(all::<Deployment>(&host, "deployments.apps").is_empty());
        let events = host.list("events");
        assert_eq!(events[0]["involvedObject"]["kind"], "Deployment");
        assert!(events[0]["message"].as_str().unwrap().contains("cannot be read"));
    }

    #[test]
    fn what_was_left_open_is_left_out() {
        let mut object = json!({"a": null, "b": [{"c": null, "d": 0}], "e": {"f": null}});
        drop_nulls(&mut object);
        assert_eq!(object, json!({"b": [{"d": 0}], "e": {}}));
    }
}
