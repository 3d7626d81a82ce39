use super::*;
use crate::resources::builtin;

fn kind(resource: &str) -> Kind {
    builtin().find(|kind| kind.resource() == resource).unwrap()
}

fn claim() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}})
}

fn with_classes<T>(resource: &str, judge: impl FnOnce(&mut Making<'_>) -> T) -> T {
    let class = |name: &str, default: bool, grows: bool| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": default.to_string()});
        Arc::new(json!({"metadata": {"name": name, "annotations": annotations}, "allowVolumeExpansion": grows}))
    };
    let classes = [class("slow", false, false), class("fast", true, true)];
    let view = |wanted: &str| if wanted.starts_with("storageclasses") { classes.to_vec() } else { Vec::new() };
    let kind = kind(resource);
    judge(&mut Making { kind: &kind, view: &view, random: &mut || 7, now: "now", inside: false })
}

#[test]
fn claim_is_given_what_it_does_not_say() {
    let mut object = claim();
    decode(&kind("persistentvolumeclaims"), &mut object).unwrap();
    with_classes("persistentvolumeclaims", |making| prepare_create(&mut object, making)).unwrap();
    let expected = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast", "volumeMode": "Filesystem"});
    assert_eq!(object["spec"], expected);
    assert_eq!(object["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(object["status"], json!({"phase": "Pending"}));
}

#[test]
fn bound_claim_may_grow_where_its_class_lets_it_and_change_in_no_other_way() {
    let bound = |class: &str, size: &str| {
        let mut object = claim();
        object["spec"]["storageClassName"] = json!(class);
        object["spec"]["volumeName"] = json!("volume");
        object["spec"]["volumeMode"] = json!("Filesystem");
        object["spec"]["resources"]["requests"]["storage"] = json!(size);
        object["status"] = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
        object
    };
    let change = |old: &Value, mut new: Value| {
        with_classes("persistentvolumeclaims", |making| prepare_update(old, &mut new, "", making)).map_err(|no| no.code)
    };
    assert_eq!(change(&bound("fast", "2Gi"), bound("fast", "3Gi")), Ok(()));
    assert_eq!(change(&bound("slow", "2Gi"), bound("slow", "3Gi")), Err(403));
    assert_eq!(change(&bound("fast", "2Gi"), bound("fast", "1Gi")), Err(422));
    assert_eq!(change(&bound("fast", "2Gi"), bound("slow", "2Gi")), Err(422));
}

#[test]
fn what_a_kind_does_not_have_is_dropped_and_told() {
    let mut object =
        json!({"kind": "ConfigMap", "metadata": {"name": "a", "labels": {}, "odd": 1}, "odd": 1, "data": {}});
    let noticed = decode(&kind("configmaps"), &mut object).unwrap();
    assert_eq!(noticed.unknown, ["odd", "metadata.odd"]);
    assert_eq!(object, json!({"kind": "ConfigMap", "metadata": {"name": "a"}}));
    let mut labelled = json!({"spec": {"template": {"metadata": {"labels": {"a": 30}}}}});
    let problem = decode(&kind("deployments.apps"), &mut labelled).unwrap_err();
    let told = "cannot unmarshal number into Go struct field ObjectMeta.spec.template.metadata.labels of type string";
    assert_eq!(problem, format!("json: {told}"));
}

#[test]
fn status_is_written_apart_from_all_else() {
    let mut old = claim();
    old["status"] = json!({"phase": "Pending"});
    let mut new = old.clone();
    new["spec"]["volumeName"] = json!("x");
    new["status"] = json!({"phase": "Bound"});
    let mut status = new.clone();
    with_classes("persistentvolumeclaims", |making| {
        prepare_update(&old, &mut new, "", making).unwrap();
        prepare_update(&old, &mut status, "status", making).unwrap();
    });
    assert_eq!((&new["spec"]["volumeName"], &new["status"]["phase"]), (&json!("x"), &json!("Pending")));
    assert_eq!((status["spec"].get("volumeName"), &status["status"]["phase"]), (None, &json!("Bound")));
}
