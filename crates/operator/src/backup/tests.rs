use leaf::ownership::POLICY_BEFORE;
use serde_json::json;

use super::*;

const HOST: &str = "7e0d7d4c-2a1f-4d0e-9c55-0a4f6c1b2d3e";

fn claim(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "db", "namespace": "shop", "uid": uid, "resourceVersion": "7", "finalizers": ["kubernetes.io/pvc-protection"],
            "ownerReferences": [{"uid": "of-then"}]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "kosmos", "volumeName": "pvc-1",
            "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    })
}

fn volume(policy: &str, claim_uid: Option<&str>) -> Value {
    let of = claim_uid.map(|uid| json!({"namespace": "shop", "name": "db", "uid": uid, "resourceVersion": "6"}));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pvc-1", "uid": "v", "finalizers": ["kubernetes.io/pv-protection"], "annotations": {
            "pv.kubernetes.io/provisioned-by": DRIVER, "pv.kubernetes.io/bound-by-controller": "yes",
            "kosmos.csi.io/replaces": "a-former-one", "volume.kubernetes.io/provisioner-deletion-secret-name": "s"}},
        "spec": {"capacity": {"storage": "1Gi"}, "claimRef": of, "persistentVolumeReclaimPolicy": policy,
            "csi": {"driver": DRIVER, "volumeHandle": "m0/shop/db/0123456789abcdef"}},
        "status": {"phase": "Bound"},
    })
}

fn content(spec: &Value, status: &Value) -> Value {
    let mut content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "snapcontent-1", "uid": "c"},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": "m0/shop/db/0123456789abcdef"},
            "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "namespace": "shop", "name": "s", "uid": "u"}},
        "status": status,
    });
    content["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    content
}

fn snapshot() -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s", "namespace": "shop", "uid": "u"},
        "spec": {"source": {"persistentVolumeClaimName": "db"}, "volumeSnapshotClassName": "k"},
        "status": {"boundVolumeSnapshotContentName": "snapcontent-1", "readyToUse": true},
    })
}

fn backup(seen: &Seen) -> (Backup, Vec<String>) {
    let members = BTreeMap::from([("m0".to_owned(), "i".to_owned())]);
    Backup::new("2026-01-01T00:00:00Z".to_owned(), HOST.to_owned(), members, seen)
}

fn of_volume(volume: Value, claims: Vec<Value>) -> (Vec<KeptVolume>, Vec<String>) {
    let (backup, left_out) = backup(&Seen { volumes: vec![volume], claims, ..Seen::default() });
    (backup.volumes, left_out)
}

#[test]
fn what_was_of_the_former_cluster_alone_is_not_kept() {
    let (kept, left_out) = of_volume(volume("Delete", Some("u")), vec![claim("u")]);
    let [KeptVolume { volume, claim: Some(claim) }] = &kept[..] else { panic!("{kept:?} {left_out:?}") };
    let notes = json!({"pv.kubernetes.io/provisioned-by": DRIVER, "volume.kubernetes.io/provisioner-deletion-secret-name": "s"});
    assert_eq!(volume["metadata"], json!({"name": "pvc-1", "annotations": notes}));
    assert_eq!(claim["metadata"], json!({"name": "db", "namespace": "shop"}));
    assert!(volume.get("status").is_none() && claim.get("status").is_none());
    let bound = kept[0].bound_to("new");
    assert_eq!(bound["spec"]["claimRef"], json!({"namespace": "shop", "name": "db", "uid": "new"}));
    assert_eq!(bound["spec"]["persistentVolumeReclaimPolicy"], "Retain", "until it is seen that this is its claim");
    assert_eq!(bound["metadata"]["annotations"][POLICY_BEFORE], "Delete");
    let (retained, _) = of_volume(self::volume("Retain", Some("u")), vec![self::claim("u")]);
    assert!(retained[0].bound_to("new")["metadata"]["annotations"].get(POLICY_BEFORE).is_none());
}

#[test]
fn volume_of_a_member_that_nobody_knows_or_of_another_host_is_left_out_and_keeps_no_other_one_back() {
    let named = |name: &str, handle: &str, attributes: Value| {
        let mut one = volume("Retain", None);
        (one["metadata"]["name"], one["spec"]["csi"]["volumeHandle"]) = (json!(name), json!(handle));
        one["spec"]["csi"]["volumeAttributes"] = attributes;
        one
    };
    let made = json!({"leafClaimUID": "u"});
    let ours = VolumeHash::new(&HostId(HOST.to_owned()), "ours").to_string();
    let volumes = vec![
        named("of-nobody", "m9/shop/db/0123456789abcdef", Value::Null),
        named("of-another", "m0/shop/db/0123456789abcdef", made.clone()),
        named("ours", &format!("m0/shop/db/{}", &ours[..16]), made),
        named("imported", "m0/shop/db/0123456789abcdef", Value::Null),
    ];
    let (backup, left_out) = backup(&Seen { volumes, ..Seen::default() });
    let kept: Vec<&str> = backup.volumes.iter().map(|kept| word(&kept.volume, "/metadata/name")).collect();
    assert_eq!(kept, ["ours", "imported"]);
    assert!(
        left_out[0].contains("which cluster its member is") && left_out[1].contains("another host"),
        "{left_out:?}"
    );
}

/// Kubernetes lets no pod have a claim of such a name that was not made for it.
#[test]
fn claim_of_a_pod_goes_with_the_pod_and_is_not_kept() {
    let mut of_pod = claim("u");
    for (kind, is_controller, is_kept) in [("Pod", true, false), ("Pod", false, true), ("StatefulSet", true, true)] {
        of_pod["metadata"]["ownerReferences"] =
            json!([{"kind": kind, "controller": is_controller, "name": "o", "uid": "o"}]);
        let (kept, left_out) = of_volume(volume("Delete", Some("u")), vec![of_pod.clone()]);
        assert_eq!((kept.len() == 1, left_out.is_empty()), (is_kept, is_kept), "{kind}: {left_out:?}");
    }
}

#[test]
fn namespaces_are_kept_with_what_is_said_on_them_where_a_claim_is_in_them() {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": "n", "labels": {"kosmos.csi.io/secrets": "true"}}});
    let seen = Seen {
        namespaces: vec![namespace("shop"), namespace("other")],
        volumes: vec![volume("Delete", Some("u"))],
        claims: vec![claim("u")],
        ..Seen::default()
    };
    let (backup, _) = backup(&seen);
    assert_eq!(backup.namespaces.len(), 1);
    assert_eq!(backup.namespaces[0]["metadata"], json!({"name": "shop", "labels": {"kosmos.csi.io/secrets": "true"}}));
}

/// Whoever takes a claim out of the file by hand would have its volume removed, with its data.
#[test]
fn file_that_has_a_volume_removed_or_that_leads_astray_is_refused_and_what_is_of_then_is_dropped_again() {
    let seen = Seen { volumes: vec![volume("Delete", Some("u"))], claims: vec![claim("u")], ..Seen::default() };
    let text = backup(&seen).0.text().unwrap();
    let read: Value = serde_json::from_str(&text).unwrap();
    let with = |path: &str, value: Value| {
        let (mut spoilt, (parent, key)) = (read.clone(), path.rsplit_once('/').unwrap());
        let parent = spoilt.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => drop(parent.remove(key)),
            value => drop(parent.insert(key.to_owned(), value)),
        }
        Backup::parse(&spoilt.to_string())
    };
    for (path, value) in [
        ("/volumes/0/claim", Value::Null),
        ("/volumes/0/volume/apiVersion", json!("apps/v1")),
        ("/volumes/0/volume/metadata/name", json!("x/../y")),
        ("/volumes/0/claim/metadata/namespace", json!("x/services/y/proxy")),
        ("/host", json!("h\nTyped: rm")),
        ("/host", json!(format!("x-host-{HOST}"))),
        ("/members", json!({"m0": "i", "a/b": "i"})),
        ("/members", json!({"m1": "i"})),
        ("/volumes/0/volume/spec/csi/volumeAttributes", json!({"leafClaimUID": "u"})),
        ("/namespaces", json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}])),
    ] {
        assert!(with(path, value).is_err(), "{path}");
    }
    for path in ["/volumes/0/claim/metadata/finalizers", "/volumes/0/volume/metadata/ownerReferences"] {
        assert_eq!(with(path, json!(["of-somebody"])), Backup::parse(&text), "{path}");
    }
}

#[test]
fn volume_without_its_claim_is_kept_where_its_data_was_to_outlive_that() {
    let leaving = json!("2026-01-01T00:00:00Z");
    let another = json!("pvc-2");
    for (policy, uid, claims, is_kept, has_claim) in [
        ("Delete", Some("u"), vec![claim("u")], true, true),
        ("Retain", Some("u"), vec![], true, false),
        ("Retain", None, vec![], true, false),
        ("Delete", None, vec![], true, false),
        ("Delete", Some("u"), vec![], false, false),
        ("Delete", Some("u"), vec![claim("recreated")], false, false),
        ("Retain", Some("u"), vec![claim("recreated")], true, false),
    ] {
        let (kept, left_out) = of_volume(volume(policy, uid), claims);
        assert_eq!((kept.len() == 1, left_out.is_empty()), (is_kept, is_kept), "{policy} {uid:?}: {left_out:?}");
        assert_eq!(kept.first().is_some_and(|kept| kept.claim.is_some()), has_claim, "{policy} {uid:?}");
    }
    let mut elsewhere = claim("u");
    elsewhere["spec"]["volumeName"] = another;
    assert_eq!(of_volume(volume("Delete", Some("u")), vec![elsewhere]).0, []);
    // Somebody has deleted it, and its claim holds it.
    let mut terminating = volume("Delete", Some("u"));
    terminating["metadata"]["deletionTimestamp"] = leaving;
    assert_eq!(of_volume(terminating.clone(), vec![claim("u")]).0.len(), 1);
    terminating["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    assert_eq!(of_volume(terminating, vec![]).0, []);
}

/// Kubernetes binds a claim to no volume that is smaller, or of another class of attributes.
#[test]
fn claim_asks_for_what_its_volume_has() {
    let mut growing = claim("u");
    growing["spec"]["resources"]["requests"]["storage"] = json!("5Gi");
    growing["spec"]["volumeAttributesClassName"] = json!("gold");
    let mut has = volume("Delete", Some("u"));
    for class in [Value::Null, json!("silver")] {
        has["spec"]["volumeAttributesClassName"] = class.clone();
        let (kept, _) = of_volume(has.clone(), vec![growing.clone()]);
        let spec = &kept[0].claim.as_ref().unwrap()["spec"];
        assert_eq!(spec["resources"]["requests"]["storage"], "1Gi");
        assert_eq!(spec["volumeAttributesClassName"], class);
    }
}

#[test]
fn snapshots_are_kept_as_such_that_are_there_already() {
    let ready = json!({"snapshotHandle": "m0/shop/s/0123456789abcdef", "readyToUse": true});
    let grouped = json!({"snapshotHandle": "x", "volumeGroupSnapshotHandle": "g"});
    let retained = json!({"deletionPolicy": "Retain"});
    let mut another = snapshot();
    another["metadata"]["uid"] = json!("recreated");
    for (spec, status, snapshots, is_kept) in [
        (json!({}), ready.clone(), vec![snapshot()], true),
        (json!({}), ready.clone(), vec![another], false),
        (json!({}), ready.clone(), vec![], false),
        (retained.clone(), ready, vec![], true),
        (json!({}), json!({}), vec![snapshot()], false),
        (retained, grouped, vec![snapshot()], false),
    ] {
        let seen = Seen { contents: vec![content(&spec, &status)], snapshots, ..Seen::default() };
        let (backup, left_out) = backup(&seen);
        assert_eq!(
            (backup.snapshots.len() == 1, left_out.is_empty()),
            (is_kept, is_kept),
            "{spec} {status}: {left_out:?}"
        );
        let Some(kept) = backup.snapshots.first() else { continue };
        assert_eq!(kept.content["spec"]["source"], json!({"snapshotHandle": "m0/shop/s/0123456789abcdef"}));
        assert!(kept.content["spec"]["volumeSnapshotRef"].get("uid").is_none());
        if let Some(snapshot) = &kept.snapshot {
            assert_eq!(snapshot["spec"]["source"], json!({"volumeSnapshotContentName": "snapcontent-1"}));
        }
        assert_eq!(Backup::parse(&backup.text().unwrap()), Ok(backup));
    }
}

#[test]
fn what_a_new_host_has_under_these_names_stays() {
    let (kept, _) = of_volume(volume("Delete", Some("u")), vec![claim("u")]);
    let kept = &kept[0];
    let with = |mut object: Value, path: &str, value: Value| {
        *object.pointer_mut(path).unwrap() = value;
        object
    };
    let there = volume("Delete", Some("new"));
    for (claim_there, volume_there, expected) in [
        (None, None, Ok((true, true))),
        (Some(claim("new")), None, Ok((false, true))),
        (Some(claim("new")), Some(there.clone()), Ok((false, false))),
        (None, Some(volume("Delete", None)), Ok((true, false))),
        (None, Some(there.clone()), Err("has been deleted since")),
        (Some(claim("another")), Some(there.clone()), Err("has been deleted since")),
        (Some(with(claim("new"), "/spec/volumeName", json!(""))), None, Err("delete it, and type this again")),
        (Some(with(claim("new"), "/spec/volumeName", json!("pvc-2"))), None, Err("with another volume")),
        (Some(with(claim("new"), "/metadata/resourceVersion", json!("8"))), None, Ok((false, true))),
        (
            Some(claim("new")),
            Some(with(there, "/spec/csi/volumeHandle", json!("m1/a/b/0"))),
            Err("has another volumeHandle"),
        ),
    ] {
        let missing = kept.missing(claim_there.as_ref(), volume_there.as_ref());
        match (missing, expected) {
            (Ok(MissingVolume { claim, volume }), Ok(expected)) => assert_eq!((claim, volume), expected),
            (Err(why), Err(said)) => assert!(why.contains(said), "{why}"),
            (missing, expected) => panic!("{missing:?}, and not {expected:?}"),
        }
    }
    let mut leaving = claim("new");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(kept.missing(Some(&leaving), None).unwrap_err().contains("once it has gone"));
}
