//! What volumes are changed to.

use serde_json::{Value, json};

/// A VolumeAttributesClass of the member, which [`ATTRIBUTES`] names.
pub fn attributes_class(driver: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "gold"},
        "driverName": driver, "parameters": {"iops": "3000"},
    })
}

/// What the suite passes as mutable parameters, as YAML.
pub const ATTRIBUTES: &str = "leafVolumeAttributesClass: gold\n";
