//! Namespaces: one that ends is emptied and then let go. What is held by finalizers is asked after again, less and less
//! often.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    Cluster, What,
    object::{is_terminating, name, texts, uid},
    store::{Key, Table},
    timers::Timers,
};

const NAMESPACES: &str = "namespaces";
const FINALIZER: &str = "kubernetes";
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn run(cluster: Cluster) {
    let mut changes = crate::follow::follow(&cluster, &[NAMESPACES]);
    let mut emptied = HashSet::new();
    let mut timers = Timers::new();
    loop {
        tokio::select! {
            biased;
            change = changes.next() => {
                let object = &change.object;
                if change.what == What::Deleted {
                    emptied.remove(uid(object));
                } else if is_terminating(object) && emptied.insert(uid(object).to_owned()) {
                    timers.add(Duration::ZERO, (name(object).to_owned(), FIRST_PAUSE));
                }
            }
            (namespace, pause) = timers.next() => {
                if !end(&cluster, &namespace) {
                    timers.add(pause, (namespace, LONGEST_PAUSE.min(pause * 2)));
                }
            }
        }
    }
}

/// Deletes what is in a namespace, and the namespace once nothing is; true when there is nothing more to do.
fn end(cluster: &Cluster, namespace: &str) -> bool {
    let terminating = cluster.get(NAMESPACES, "", namespace).is_some_and(|object| is_terminating(&object));
    if !terminating {
        return true;
    }
    let content = content_of(cluster, namespace);
    for (resource, (namespace, name)) in due(&content) {
        // Gone already is what is wanted.
        drop(cluster.delete(resource, namespace, name));
    }
    let empty = content_of(cluster, namespace).is_empty();
    if empty {
        drop(cluster.change(NAMESPACES, "", namespace, let_go));
    }
    empty
}

/// Pods go first: everything else waits for them.
fn due(content: &BTreeMap<String, Vec<Key>>) -> impl Iterator<Item = (&str, &Key)> {
    let pods = content.contains_key("pods");
    let chosen = content.iter().filter(move |(resource, _)| !pods || *resource == "pods");
    chosen.flat_map(|(resource, keys)| keys.iter().map(move |key| (resource.as_str(), key)))
}

fn let_go(namespace: &mut Value) {
    let others: Vec<Value> =
        texts(namespace, "/spec/finalizers").filter(|finalizer| *finalizer != FINALIZER).map(Value::from).collect();
    namespace["spec"]["finalizers"] = json!(others);
}

/// The names of everything in a namespace, by resource.
fn content_of(cluster: &Cluster, namespace: &str) -> BTreeMap<String, Vec<Key>> {
    let store = cluster.store();
    let within = |table: &Table| -> Vec<Key> {
        let first: Key = (namespace.to_owned(), String::new());
        table.objects().range(first..).map(|(key, _)| key).take_while(|key| key.0 == namespace).cloned().collect()
    };
    let namespaced = store.tables().filter(|table| table.kind.namespaced);
    namespaced.map(|table| (table.kind.resource(), within(table))).filter(|(_, keys)| !keys.is_empty()).collect()
}
