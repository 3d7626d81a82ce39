//! ResourceQuotas: what a namespace may still get, and what it has.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Cluster,
    quantity::{parse, print},
    status_error::StatusError,
    store::{Store, Table, text},
};

const QUOTAS: &str = "resourcequotas";

/// What one object takes of each counted resource.
fn taken(resource: &str, object: &Value) -> BTreeMap<String, u64> {
    let mut taken = BTreeMap::from([(format!("count/{resource}"), 1)]);
    if matches!(resource, "pods" | "persistentvolumeclaims" | "secrets" | "configmaps" | "services") {
        taken.insert(resource.to_owned(), 1);
    }
    if resource == "persistentvolumeclaims" {
        let size = parse(text(object, "/spec/resources/requests/storage")).unwrap_or(0);
        taken.insert("requests.storage".to_owned(), size);
        let class = text(object, "/spec/storageClassName");
        if !class.is_empty() {
            taken.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), size);
            taken.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), 1);
        }
    }
    taken
}

fn used(store: &Store, namespace: &str, hard: &Value) -> BTreeMap<String, u64> {
    let mut used: BTreeMap<String, u64> = limits(hard).map(|(name, _)| (name, 0)).collect();
    for table in store.tables().filter(|table| table.kind.namespaced) {
        let resource = table.kind.resource();
        for object in table.objects().iter().filter(|(key, _)| key.0 == namespace).map(|(_, object)| object) {
            for (name, amount) in taken(&resource, object) {
                used.entry(name).and_modify(|sum| *sum += amount);
            }
        }
    }
    used
}

fn limits(hard: &Value) -> impl Iterator<Item = (String, u64)> {
    let fields = hard.as_object().into_iter().flatten();
    fields.filter_map(|(name, limit)| Some((name.clone(), parse(limit.as_str()?)?)))
}

fn quotas<'a>(store: &'a Store, namespace: &'a str) -> impl Iterator<Item = &'a std::sync::Arc<Value>> {
    let all = store.table(QUOTAS).into_iter().flat_map(Table::objects);
    all.filter(move |(key, _)| key.0 == namespace).map(|(_, quota)| quota)
}

/// Refuses what would take more than a quota of its namespace leaves.
pub fn admit(store: &Store, resource: &str, object: &Value, live: Option<&Value>) -> Result<(), StatusError> {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if resource == QUOTAS || namespace.is_empty() {
        return Ok(());
    }
    for quota in quotas(store, namespace) {
        let hard = &quota["spec"]["hard"];
        let used = used(store, namespace, hard);
        let before = live.map(|live| taken(resource, live)).unwrap_or_default();
        let more: BTreeMap<String, u64> = taken(resource, object)
            .into_iter()
            .map(|(name, amount)| (name.clone(), amount.saturating_sub(before.get(&name).copied().unwrap_or(0))))
            .collect();
        let over = |(name, limit): &(String, u64)| {
            let more = more.get(name).copied().unwrap_or(0);
            more > 0 && used.get(name).copied().unwrap_or(0) + more > *limit
        };
        let exceeded: Vec<(String, u64)> = limits(hard).filter(over).collect();
        if !exceeded.is_empty() {
            let say = |amount: &dyn Fn(&str, u64) -> u64| {
                let parts = exceeded.iter().map(|(name, limit)| format!("{name}={}", print(amount(name, *limit))));
                parts.collect::<Vec<_>>().join(",")
            };
            let problem = format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                text(quota, "/metadata/name"),
                say(&|name, _| more.get(name).copied().unwrap_or(0)),
                say(&|name, _| used.get(name).copied().unwrap_or(0)),
                say(&|_, limit| limit),
            );
            return Err(StatusError::forbidden(resource, name, &problem));
        }
    }
    Ok(())
}

/// Writes down what is used now, where it was counted before: a controller counts first.
pub fn count(store: &mut Store, namespace: &str) {
    tally(store, namespace, |quota| quota["status"].get("hard").is_some());
}

/// Counts what has not been counted yet, or under other limits.
pub fn begin(cluster: &Cluster, namespace: &str) {
    tally(&mut cluster.store(), namespace, |quota| quota["status"]["hard"] != quota["spec"]["hard"]);
}

fn tally(store: &mut Store, namespace: &str, wanted: impl Fn(&Value) -> bool) {
    let there: Vec<_> = quotas(store, namespace).filter(|quota| wanted(quota)).cloned().collect();
    for quota in there {
        let hard = &quota["spec"]["hard"];
        let used: BTreeMap<String, String> =
            used(store, namespace, hard).into_iter().map(|(name, amount)| (name, print(amount))).collect();
        let status = json!({"hard": hard, "used": used});
        if quota["status"] != status {
            let mut counted = Value::clone(&quota);
            counted["status"] = status;
            store.put(QUOTAS, counted);
        }
    }
}
