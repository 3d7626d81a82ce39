//! What is particular to a kind: defaults, what may be written, what must hold.

use std::sync::Arc;

use serde_json::{Value, json};

use super::refusal::Refusal;

type View<'a> = &'a dyn Fn(&str) -> Vec<Arc<Value>>;

pub fn prepare_create(
    resource: &str,
    object: &mut Value,
    _: View<'_>,
    _: &mut dyn FnMut() -> u64,
) -> Result<(), Refusal> {
    match resource {
        "namespaces" => {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"].clone();
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        "persistentvolumeclaims" => {
            if object["metadata"]["finalizers"].is_null() {
                object["metadata"]["finalizers"] = json!([]);
            }
            if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
                all.push(json!("kubernetes.io/pvc-protection"));
            }
            object["status"] = json!({"phase": "Pending"});
        }
        "persistentvolumes" => object["status"] = json!({"phase": "Pending"}),
        _ => {}
    }
    Ok(())
}

pub fn prepare_update(_: &str, _: &Value, _: &mut Value, _: &str) -> Result<(), Refusal> {
    Ok(())
}
