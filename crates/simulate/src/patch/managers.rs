//! Who owns which fields of an object: its `managedFields`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    fields::{self, Set},
    schema::Place,
};

/// Who writes, through what, and when.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    pub manager: String,
    pub subresource: String,
    pub api_version: String,
    /// Whether the kind has its status written through a subresource of its own.
    pub status_apart: bool,
    pub now: String,
}

/// By what an entry of `managedFields` is told from the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub operation: String,
    pub manager: String,
    pub api_version: String,
    pub subresource: String,
}

impl Owner {
    pub(super) fn of(writer: &Writer, operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            manager: writer.manager.clone(),
            api_version: writer.api_version.clone(),
            subresource: writer.subresource.clone(),
        }
    }

    /// As conflicts name it.
    pub(super) fn print(&self) -> String {
        let through = if self.subresource.is_empty() {
            String::new()
        } else {
            format!(" with subresource {:?}", self.subresource)
        };
        let using = if self.operation == "Update" { format!(" using {}", self.api_version) } else { String::new() };
        format!("{:?}{through}{using}", self.manager)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub fields: Set,
    pub time: String,
}

pub(super) type Managers = BTreeMap<Owner, Owned>;

pub(super) fn read(object: &Value) -> Managers {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let entry = |entry: &Value| {
        let word = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let owner = Owner {
            operation: word("operation"),
            manager: word("manager"),
            api_version: word("apiVersion"),
            subresource: word("subresource"),
        };
        (owner, Owned { fields: fields::from_value(&entry["fieldsV1"]), time: word("time") })
    };
    entries.map(entry).filter(|(owner, _)| !owner.manager.is_empty()).collect()
}

pub(super) fn write(object: &mut Value, managers: &Managers) {
    let mut entries: Vec<(&Owner, &Owned)> = managers.iter().filter(|(_, owned)| !owned.fields.is_empty()).collect();
    entries.sort_by_key(|(owner, owned)| (&owner.operation, &owned.time, &owner.manager));
    let entry = |(owner, owned): (&Owner, &Owned)| {
        let mut entry = json!({
            "manager": owner.manager, "operation": owner.operation, "apiVersion": owner.api_version,
            "time": owned.time, "fieldsType": "FieldsV1", "fieldsV1": fields::to_value(&owned.fields),
        });
        if !owner.subresource.is_empty() {
            entry["subresource"] = json!(owner.subresource);
        }
        entry
    };
    let entries: Vec<Value> = entries.into_iter().map(entry).collect();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

/// Fields that belong to the server, whoever sends them.
const OF_THE_SERVER: [&str; 8] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];

/// Without what nobody owns, or what cannot be written this way.
pub(super) fn ownable(mut set: Set, writer: &Writer) -> Set {
    set.retain(|path| {
        let mut keys = path.iter().map(|key| key.strip_prefix("f:").unwrap_or_default());
        match (keys.next().unwrap_or_default(), keys.next()) {
            ("apiVersion" | "kind", _) | ("metadata", None) => false,
            ("metadata", Some(field)) if OF_THE_SERVER.contains(&field) => false,
            ("status", _) if writer.status_apart => writer.subresource == "status",
            _ => {
                writer.subresource != "status"
                    || !writer.status_apart
                    || path.first().is_some_and(|key| key == "f:status")
            }
        }
    });
    set
}

/// Keeps account of a write that is no apply: who changed a field owns it alone. `live` is null for a new object.
pub fn note(resource: &str, custom: bool, live: &Value, object: &mut Value, writer: &Writer) {
    let place = Place::root(resource, custom);
    let given = object.pointer("/metadata/managedFields").is_some_and(Value::is_array);
    let mut managers = read(if given { object } else { live });
    let nothing = json!({"metadata": {}});
    let difference = fields::compare(if live.is_null() { &nothing } else { live }, object, &place);
    let changed = ownable(difference.changed, writer);
    for owned in managers.values_mut() {
        owned.fields.retain(|path| !changed.contains(path) && !difference.removed.contains(path));
    }
    if !changed.is_empty() {
        let owned = managers.entry(Owner::of(writer, "Update")).or_default();
        owned.fields.extend(changed);
        owned.time.clone_from(&writer.now);
    }
    write(object, &managers);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(manager: &str) -> Writer {
        Writer { manager: manager.to_owned(), api_version: "v1".to_owned(), now: "now".to_owned(), ..Writer::default() }
    }

    #[test]
    fn who_changes_a_field_owns_it() {
        let mut first = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        note("configmaps", false, &Value::Null, &mut first, &writer("one"));
        let owned = |object: &Value, at: usize| object["metadata"]["managedFields"][at]["fieldsV1"].clone();
        assert_eq!(owned(&first, 0), json!({"f:data": {".": {}, "f:k": {}}}));
        let mut second = first.clone();
        second["data"]["k"] = json!("w");
        note("configmaps", false, &first, &mut second, &writer("two"));
        assert_eq!((owned(&second, 0), owned(&second, 1)), (json!({"f:data": {}}), json!({"f:data": {"f:k": {}}})));
        let mut same = second.clone();
        note("configmaps", false, &second, &mut same, &writer("three"));
        assert_eq!(same, second);
    }

    #[test]
    fn status_is_owned_through_its_subresource_alone() {
        let set: Set = [vec!["f:spec".to_owned()], vec!["f:status".to_owned()]].into();
        let mut writer = Writer { status_apart: true, ..Writer::default() };
        assert_eq!(fields::to_value(&ownable(set.clone(), &writer)), json!({"f:spec": {}}));
        writer.subresource = "status".to_owned();
        assert_eq!(fields::to_value(&ownable(set, &writer)), json!({"f:status": {}}));
    }
}
