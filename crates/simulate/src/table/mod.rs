//! Objects as the rows that `kubectl get` prints. A table is a list in another form: the server, not the client, knows
//! what is worth showing of a kind.

mod age;
mod basic;
mod custom;
mod pod;
mod storage;
mod view;
mod workload;

use std::time::SystemTime;

use serde_json::{Value, json};

use super::{call::Call, read::Page, resources::Kind, store::text};
use view::View;

/// How the objects of a kind are shown. Columns are told in a line, in which a name may follow a sign: `+` for what is
/// shown only on `-o wide`, `#` for numbers, `?` for yes or no, `@` for times.
struct Shown {
    resource: &'static str,
    columns: &'static str,
    cells: fn(&View<'_>) -> Vec<Value>,
}

const OTHERS: Shown = Shown {
    resource: "",
    columns: "Name,@Created At",
    cells: |view| vec![view.name(), json!(view.word("/metadata/creationTimestamp"))],
};

pub fn is_wanted(accept: &str) -> bool {
    accept.split(',').any(|form| {
        let has = |wanted: &str| form.split(';').any(|parameter| parameter.trim() == wanted);
        has("as=Table") && has("v=v1") && has("g=meta.k8s.io")
    })
}

pub fn of_list(call: &Call, page: &Page, now: SystemTime) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    table(call, &metadata, page.objects.iter().map(|object| row(call, object, now)).collect())
}

pub fn of_one(call: &Call, object: &Value, now: SystemTime) -> Value {
    let metadata = json!({"resourceVersion": text(object, "/metadata/resourceVersion")});
    table(call, &metadata, vec![row(call, object, now)])
}

fn table(call: &Call, metadata: &Value, rows: Vec<Value>) -> Value {
    let columns =
        if call.kind.custom { custom::columns(&call.kind, &call.version) } else { columns(shown(&call.kind)) };
    let mut table =
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns});
    // As the API server has it, no rows are not a list of none.
    table["rows"] = if rows.is_empty() { Value::Null } else { Value::Array(rows) };
    table
}

fn shown(kind: &Kind) -> &'static Shown {
    let resource = kind.resource();
    let known = [pod::SHOWN, storage::SHOWN, workload::SHOWN, basic::SHOWN];
    known.into_iter().flatten().find(|shown| shown.resource == resource).unwrap_or(&OTHERS)
}

fn columns(shown: &Shown) -> Vec<Value> {
    let column = |told: &str| {
        let (wide, told) = told.strip_prefix('+').map_or((0, told), |rest| (1, rest));
        let (data, name) = match told.split_at_checked(1) {
            Some(("#", name)) => ("integer", name),
            Some(("?", name)) => ("boolean", name),
            Some(("@", name)) => ("date", name),
            _ => ("string", told),
        };
        let format = if ["Name", "Attacher"].contains(&name) { "name" } else { "" };
        definition(name, data, format, "", wide)
    };
    shown.columns.split(',').map(column).collect()
}

fn definition(name: &str, data: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": data, "format": format, "description": description, "priority": priority})
}

fn row(call: &Call, object: &Value, now: SystemTime) -> Value {
    let view = View { object, now };
    let cells = if call.kind.custom {
        custom::cells(&call.kind, &call.version, &view)
    } else {
        (shown(&call.kind).cells)(&view)
    };
    let included = match call.query.get("includeObject") {
        "None" => Value::Null,
        "Object" => object.clone(),
        _ => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}),
    };
    let mut row = json!({"cells": cells, "object": included});
    if call.kind.resource() == "pods"
        && let Some(condition) = pod::condition(&view)
    {
        row["conditions"] = json!([condition]);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_as_many_cells_as_columns() {
        let object = json!({"metadata": {"name": "a"}});
        let view = View { object: &object, now: SystemTime::now() };
        for kind in super::super::resources::builtin() {
            let shown = shown(&kind);
            assert_eq!((shown.cells)(&view).len(), columns(shown).len(), "{}", kind.resource());
        }
    }

    #[test]
    fn every_table_is_of_a_kind_that_exists() {
        let kinds: Vec<String> = super::super::resources::builtin().map(|kind| kind.resource()).collect();
        for shown in [pod::SHOWN, storage::SHOWN, workload::SHOWN, basic::SHOWN].into_iter().flatten() {
            assert!(kinds.iter().any(|kind| kind == shown.resource), "{}", shown.resource);
        }
    }

    #[test]
    fn columns_are_read_from_their_line() {
        let told = columns(&Shown { resource: "", columns: "Name,+#Count,?On", cells: |_| Vec::new() });
        let expected = [
            definition("Name", "string", "name", "", 0),
            definition("Count", "integer", "", "", 1),
            definition("On", "boolean", "", "", 0),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn only_tables_of_this_version_are_given() {
        assert!(is_wanted("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"));
        assert!(!is_wanted("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"));
        assert!(!is_wanted("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io") && !is_wanted("*/*"));
    }
}
