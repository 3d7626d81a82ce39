//! Tables of what storage is made of.

use serde_json::{Value, json};

use super::{
    super::store::text,
    Shown,
    view::{NONE, UNSET, View, words},
};

pub(super) const SHOWN: &[Shown] = &[
    Shown {
        resource: "persistentvolumeclaims",
        columns: "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,+VolumeMode",
        cells: claim,
    },
    Shown {
        resource: "persistentvolumes",
        columns: "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,+VolumeMode",
        cells: volume,
    },
    Shown {
        resource: "storageclasses.storage.k8s.io",
        columns: "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
        cells: |view| {
            vec![
                default_name(view, "storageclass"),
                view.cell("/provisioner"),
                view.or("/reclaimPolicy", "Delete"),
                view.or("/volumeBindingMode", "Immediate"),
                view.is("/allowVolumeExpansion", false),
                view.age(),
            ]
        },
    },
    Shown {
        resource: "volumeattributesclasses.storage.k8s.io",
        columns: "Name,DriverName,Age",
        cells: |view| vec![default_name(view, "volumeattributesclass"), view.cell("/driverName"), view.age()],
    },
    Shown {
        resource: "volumeattachments.storage.k8s.io",
        columns: "Name,Attacher,PV,Node,?Attached,Age",
        cells: |view| {
            vec![
                view.name(),
                view.cell("/spec/attacher"),
                view.cell("/spec/source/persistentVolumeName"),
                view.cell("/spec/nodeName"),
                view.is("/status/attached", false),
                view.age(),
            ]
        },
    },
    Shown {
        resource: "csinodes.storage.k8s.io",
        columns: "Name,#Drivers,Age",
        cells: |view| vec![view.name(), json!(view.len("/spec/drivers")), view.age()],
    },
    Shown {
        resource: "csidrivers.storage.k8s.io",
        columns: "Name,?AttachRequired,?PodInfoOnMount,?StorageCapacity,TokenRequests,?RequiresRepublish,Modes,Age",
        cells: driver,
    },
];

fn claim(view: &View<'_>) -> Vec<Value> {
    let bound = !view.word("/spec/volumeName").is_empty();
    let of_bound = |word: String| json!(if bound { word } else { String::new() });
    vec![
        view.name(),
        view.phase(),
        view.cell("/spec/volumeName"),
        of_bound(view.word("/status/capacity/storage").to_owned()),
        of_bound(modes(view, "/status/accessModes")),
        class(view),
        view.or("/spec/volumeAttributesClassName", UNSET),
        view.age(),
        view.or("/spec/volumeMode", UNSET),
    ]
}

fn volume(view: &View<'_>) -> Vec<Value> {
    let claim = match view.word("/spec/claimRef/name") {
        "" => String::new(),
        name => format!("{}/{name}", view.word("/spec/claimRef/namespace")),
    };
    vec![
        view.name(),
        view.cell("/spec/capacity/storage"),
        json!(modes(view, "/spec/accessModes")),
        view.cell("/spec/persistentVolumeReclaimPolicy"),
        view.phase(),
        json!(claim),
        class(view),
        view.or("/spec/volumeAttributesClassName", UNSET),
        view.cell("/status/reason"),
        view.age(),
        view.or("/spec/volumeMode", UNSET),
    ]
}

fn driver(view: &View<'_>) -> Vec<Value> {
    let audiences: Vec<&str> =
        view.list("/spec/tokenRequests").iter().map(|request| text(request, "/audience")).collect();
    let modes = words(&view.object["spec"]["volumeLifecycleModes"]).join(",");
    vec![
        view.name(),
        view.is("/spec/attachRequired", true),
        view.is("/spec/podInfoOnMount", false),
        view.is("/spec/storageCapacity", false),
        json!(if audiences.is_empty() { UNSET.to_owned() } else { audiences.join(",") }),
        view.is("/spec/requiresRepublish", false),
        json!(if modes.is_empty() { NONE.to_owned() } else { modes }),
        view.age(),
    ]
}

fn class(view: &View<'_>) -> Value {
    let old = view.word("/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    if old.is_empty() { view.cell("/spec/storageClassName") } else { json!(old) }
}

/// A name, and whether it is the one that claims without a class get.
fn default_name(view: &View<'_>, kind: &str) -> Value {
    let is_default = ["", "beta."].iter().any(|stage| {
        view.word(&format!("/metadata/annotations/{kind}.{stage}kubernetes.io~1is-default-class")) == "true"
    });
    let name = view.word("/metadata/name");
    if is_default { json!(format!("{name} (default)")) } else { json!(name) }
}

fn modes(view: &View<'_>, pointer: &str) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let given = view.list(pointer);
    let shorts: Vec<&str> =
        SHORT.iter().filter(|(long, _)| given.iter().any(|mode| mode == long)).map(|(_, short)| *short).collect();
    shorts.join(",")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn claim_shows_what_it_has_only_once_it_has_it() {
        let mut claim = json!({
            "metadata": {"name": "c"}, "spec": {"storageClassName": "fast"},
            "status": {"phase": "Pending", "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
        });
        let row = |claim: &Value| json!(super::claim(&View { object: claim, now: SystemTime::now() }));
        assert_eq!(row(&claim), json!(["c", "Pending", "", "", "", "fast", "<unset>", "<unknown>", "<unset>"]));
        claim["spec"]["volumeName"] = json!("v");
        claim["metadata"]["deletionTimestamp"] = json!("x");
        assert_eq!(
            row(&claim),
            json!(["c", "Terminating", "v", "1Gi", "RWO,RWX", "fast", "<unset>", "<unknown>", "<unset>"])
        );
    }

    #[test]
    fn default_class_is_marked() {
        let class = json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
        assert_eq!(
            default_name(&View { object: &class, now: SystemTime::now() }, "storageclass"),
            json!("fast (default)")
        );
    }
}
