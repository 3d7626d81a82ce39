//! What has to be there before anything works: classes, the driver, the node; and what an earlier run has left.

use serde_json::{Value, json};

use super::{
    Member,
    backing::Kind,
    names::{CLASSES, CONTENTS, NODES, PROVISIONED_BY, VOLUMES, class_of, handle},
    node,
    settings::{Binding, Class, Growth, Reclaim},
};
use crate::{
    object::{annotation, text},
    quantity,
};

pub(super) fn prepare(member: &Member) {
    for class in &member.settings.classes {
        ensure(member, CLASSES, storage_class(class, &member.settings.provisioner));
    }
    for name in node::names(member) {
        ensure(member, NODES, node::object(&name, &member.cluster.stamp()));
    }
    for volume in member.cluster.list(VOLUMES) {
        if annotation(&volume, PROVISIONED_BY) == member.settings.provisioner {
            let bytes = quantity::parse(text(&volume, "/spec/capacity/storage")).unwrap_or(0);
            member.backing.adopt(Kind::Volume, handle(&volume), class_of(&volume), bytes);
        }
    }
    for content in member.cluster.list(CONTENTS) {
        let handle = text(&content, "/status/snapshotHandle");
        if text(&content, "/spec/driver") == member.settings.provisioner && !handle.is_empty() {
            member.backing.adopt(Kind::Snapshot, handle, "", 0);
        }
    }
}

/// What is there already stays as somebody has made it.
pub(super) fn ensure(member: &Member, resource: &str, object: Value) {
    if let Err(refusal) = member.cluster.create(resource, object)
        && refusal.reason != "AlreadyExists"
    {
        tracing::warn!(resource, message = refusal.message, "an object cannot be created");
    }
}

fn storage_class(class: &Class, provisioner: &str) -> Value {
    let mut object = json!({
        "metadata": {"name": class.name},
        "provisioner": provisioner,
        "volumeBindingMode": match class.binding {
            Binding::Immediate => "Immediate",
            Binding::WaitForFirstConsumer => "WaitForFirstConsumer",
        },
        "reclaimPolicy": match class.reclaim {
            Reclaim::Delete => "Delete",
            Reclaim::Retain => "Retain",
        },
        "allowVolumeExpansion": class.growth != Growth::Never,
    });
    if class.is_default {
        object["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    }
    object
}
