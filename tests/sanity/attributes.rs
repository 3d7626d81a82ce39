//! What volumes are changed to.

use serde_json::{Value, json};

/// A VolumeAttributesClass of the member.
pub fn attributes_class(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
        "driverName": driver, "parameters": {"iops": "3000"},
    })
}

/// The class that the suite's volumes are changed to.
pub const CLASS: &str = "sanity";
/// What the suite passes as mutable parameters, as YAML.
pub const ATTRIBUTES: &str = "leafVolumeAttributesClass: sanity\n";
