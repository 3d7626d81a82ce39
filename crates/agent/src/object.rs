//! Objects as they come, whole: what this program does not know of a pod must reach the member as well.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
    storage::v1::{CSIDriver, CSINode, VolumeAttachment},
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
    core::Request,
};
use serde_json::Value;

use super::HOST;
use cluster::{items::Items, read_list, unmanaged::Unmanaged};
pub(super) use domain::printable::short;
use domain::volume::id::is_subdomain;

/// Of a list that is taken as it comes, in bytes, what is not whole yet; and how many things are kept of one.
const LONGEST: usize = 10 << 20;
const MOST: usize = 100_000;

/// In bytes of memory, of a pod that takes much: very many are worked on at a time that take less.
pub(super) const MUCH: usize = 2 << 20;
/// What an object takes for eleven fields, however few it has.
const FIELDS: usize = 11;
const OBJECT: usize = 600;

/// Namespace and name; no namespace where the kind has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Place {
    pub(super) fn of(object: &Value) -> Self {
        let word = |pointer| text(object, pointer).to_owned();
        Self { namespace: word("/metadata/namespace"), name: word("/metadata/name") }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, name } = self;
        if namespace.is_empty() { out.write_str(name) } else { write!(out, "{namespace}/{name}") }
    }
}

/// A text in an object; empty where there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What a list in an object holds.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// An annotation or label; empty where there is none. Its key holds slashes, so that it is no pointer.
pub(super) fn mark<'a>(object: &'a Value, kind: &str, key: &str) -> &'a str {
    object["metadata"][kind].get(key).and_then(Value::as_str).unwrap_or_default()
}

/// What a user can do whose object cannot have its name in a member, because of what is there. Nobody is told to remove what is
/// another host's.
pub(super) fn way_out(there: &Value, host: &str) -> String {
    match mark(there, "labels", HOST) {
        other if !other.is_empty() && other != host => {
            format!("it belongs to another host cluster ({other}), so give yours another name")
        }
        _ => "the agent leaves it untouched. Remove it there, or give yours another name".to_owned(),
    }
}

pub(super) fn is_leaving(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// What one takes in memory, in bytes.
pub(super) fn room(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(room).sum(),
        Value::Object(fields) => {
            let within: usize = fields.iter().map(|(name, value)| name.len() + room(value)).sum();
            within + fields.len().div_ceil(FIELDS) * OBJECT
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inside
}

/// A pod whose containers have all ended for good.
pub(super) fn is_over(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// A pod or a node.
pub(super) fn is_ready(object: &Value) -> bool {
    items(object, "/status/conditions").any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// In host and members anybody may write some of them.
pub(super) type Object = Unmanaged<DynamicObject>;
pub(super) type Objects = Api<Object>;

fn everywhere<K: Resource<DynamicType = ()>>(client: &Client) -> Objects {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

fn within<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Objects {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()))
}

pub(super) fn nodes(client: &Client) -> Objects {
    everywhere::<Node>(client)
}

pub(super) fn csi_nodes(client: &Client) -> Objects {
    everywhere::<CSINode>(client)
}

pub(super) fn csi_drivers(client: &Client) -> Objects {
    everywhere::<CSIDriver>(client)
}

pub(super) fn attachments(client: &Client) -> Objects {
    everywhere::<VolumeAttachment>(client)
}

pub(super) fn volumes(client: &Client) -> Objects {
    everywhere::<PersistentVolume>(client)
}

pub(super) fn claims(client: &Client, namespace: &str) -> Objects {
    within::<PersistentVolumeClaim>(client, namespace)
}

pub(super) fn namespaces(client: &Client) -> Objects {
    everywhere::<Namespace>(client)
}

/// Of all namespaces, where none is given.
pub(super) fn config_maps(client: &Client, namespace: &str) -> Objects {
    if namespace.is_empty() { everywhere::<ConfigMap>(client) } else { within::<ConfigMap>(client, namespace) }
}

pub(super) fn secrets(client: &Client, namespace: &str) -> Objects {
    within::<Secret>(client, namespace)
}

pub(super) fn all_pods(client: &Client) -> Objects {
    everywhere::<Pod>(client)
}

pub(super) fn pods(client: &Client, namespace: &str) -> Objects {
    within::<Pod>(client, namespace)
}

/// A quorum read; none where the cluster itself says that there is none of this name. What a pod names may be any text, which is not to lead
/// elsewhere as a part of a path.
pub(super) async fn read(objects: &Objects, name: &str) -> kube::Result<Option<Value>> {
    if !is_subdomain(name) {
        return Ok(None);
    }
    Ok(cluster::read(objects.get(name).await, name)?.map(whole))
}

/// What there is, by its metadata, as far as it is kept. It is taken one by one as it comes: whoever may write some of it decides how long that
/// is, and closes no member by it.
pub(super) async fn listed(
    client: &Client,
    objects: &Objects,
    which: &ListParams,
    keep: impl Fn(Value) -> Option<Value>,
) -> kube::Result<Vec<Value>> {
    let request = Request::new(objects.resource_url()).list_metadata(which).map_err(kube::Error::BuildRequest)?;
    let mut kept = Vec::new();
    let head = read_list(client, request, Items::of_list(), |items, piece| {
        let mut take = |item: &[u8]| serde_json::from_slice(item).map(|object| kept.extend(keep(whole(object))));
        items.feed(piece, &mut take).map_err(kube::Error::SerdeError)?;
        if items.unfinished() > LONGEST || kept.len() > MOST {
            return Err(kube::Error::Service("more is listed than is read".into()));
        }
        Ok(())
    });
    head.await?;
    Ok(kept)
}

/// With its kind left out: it is known.
pub(super) fn whole(object: Object) -> Value {
    let object = object.into_object();
    let mut whole = object.data;
    if !whole.is_object() {
        whole = Value::Object(serde_json::Map::new());
    }
    whole["metadata"] = serde_json::to_value(object.metadata).unwrap_or_default();
    whole
}

/// An object that was kept as text.
pub(super) fn unpacked(text: &str) -> Arc<Value> {
    Arc::new(serde_json::from_str(text).unwrap_or_default())
}

pub(super) fn parsed(object: Value) -> kube::Result<Object> {
    serde_json::from_value(object).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_is_whole_but_for_who_has_written_what() {
        let metadata = json!({"namespace": "shop", "name": "p", "annotations": {"a": "b"}});
        let mut told = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"unheard": [1]}});
        told["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {"f:unheard": {}}}}]);
        assert_eq!(whole(parsed(told).unwrap()), json!({"metadata": metadata, "spec": {"unheard": [1]}}));
    }
}
