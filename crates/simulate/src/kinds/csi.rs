//! What drivers and nodes say of themselves.

use serde_json::{Value, json};

use super::{causes::Causes, fill, storage::add_finalizer};
use crate::store::text;

pub(super) fn driver(object: &mut Value) {
    let spec = &mut object["spec"];
    fill(spec, "attachRequired", json!(true));
    fill(spec, "fsGroupPolicy", json!("ReadWriteOnceWithFSType"));
    for field in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
        fill(spec, field, json!(false));
    }
    fill(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

pub(super) fn check_driver_change(old: &Value, new: &Value, causes: &mut Causes) {
    let (old, new) = (&old["spec"], &new["spec"]);
    causes.immutable("spec.attachedRequired", old.get("attachRequired"), new.get("attachRequired"));
    let modes = "volumeLifecycleModes";
    causes.immutable("spec.volumeLifecycleModes", old.get(modes), new.get(modes));
}

pub(super) fn node(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["drivers"].as_array().is_none_or(Vec::is_empty) {
        spec["drivers"] = Value::Null;
    }
    for driver in spec["drivers"].as_array_mut().into_iter().flatten() {
        if driver["topologyKeys"].as_array().is_none_or(Vec::is_empty) {
            driver["topologyKeys"] = Value::Null;
        }
    }
}

pub(super) fn check_node(object: &Value, causes: &mut Causes) {
    for (index, driver) in object["spec"]["drivers"].as_array().into_iter().flatten().enumerate() {
        for field in ["name", "nodeID"] {
            if text(driver, &format!("/{field}")).is_empty() {
                causes.required(&format!("spec.drivers[{index}].{field}"), "");
            }
        }
    }
}

pub(super) fn check_node_change(old: &Value, new: &Value, causes: &mut Causes) {
    let drivers = |object: &Value| object["spec"]["drivers"].as_array().cloned().unwrap_or_default();
    for driver in drivers(new) {
        let same = |other: &&Value| other["name"] == driver["name"];
        let before = drivers(old);
        let allocatable = |driver: &Value| driver.get("allocatable").cloned();
        let changed = before.iter().find(same).is_some_and(|before| {
            ["nodeID", "topologyKeys"].iter().any(|field| before[*field] != driver[*field])
                || allocatable(before) != allocatable(&driver)
        });
        if changed {
            let told = format!(
                "{{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":{}}}",
                driver["name"], driver["nodeID"], driver["topologyKeys"], driver["allocatable"]
            );
            causes.invalid_text("spec.drivers", &told, "field is immutable");
        }
    }
}

pub(super) fn attachment(object: &mut Value) {
    object["status"] = json!({"attached": false});
}

pub(super) fn check_attachment(object: &Value, causes: &mut Causes) {
    let spec = &object["spec"];
    for field in ["attacher", "nodeName"] {
        if text(spec, &format!("/{field}")).is_empty() {
            causes.required(&format!("spec.{field}"), "");
        }
    }
    if text(spec, "/source/persistentVolumeName").is_empty() && !spec["source"]["inlineVolumeSpec"].is_object() {
        causes.required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
    }
}

pub(super) fn check_attachment_change(old: &Value, new: &Value, causes: &mut Causes) {
    let spec = &new["spec"];
    if old["spec"] != *spec {
        let source = &spec["source"];
        let told = format!(
            "{{\"Attacher\":{},\"Source\":{{\"PersistentVolumeName\":{},\"InlineVolumeSpec\":{}}},\"NodeName\":{}}}",
            spec["attacher"], source["persistentVolumeName"], source["inlineVolumeSpec"], spec["nodeName"]
        );
        causes.invalid_text("spec", &told, "field is immutable");
    }
}

pub(super) fn check_capacity_change(old: &Value, new: &Value, causes: &mut Causes) {
    for field in ["nodeTopology", "storageClassName"] {
        causes.immutable(field, old.get(field), new.get(field));
    }
}

pub(super) fn attributes(object: &mut Value) {
    add_finalizer(object, "kubernetes.io/vac-protection");
}

pub(super) fn check_attributes_change(old: &Value, new: &Value, causes: &mut Causes) {
    for field in ["driverName", "parameters"] {
        if old.get(field) != new.get(field) {
            causes.forbidden(field, &format!("updates to {field} are forbidden."));
        }
    }
}
