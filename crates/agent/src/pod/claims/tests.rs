use serde_json::json;

use super::*;

#[test]
fn claim_is_waited_for_until_it_is_bound_to_a_volume_of_its_own() {
    let pod = json!({"metadata": {"name": "p", "uid": "u"}});
    let claim = |phase: &str, owner: &str| {
        json!({"metadata": {"uid": "c", "ownerReferences": [{"uid": owner}]}, "spec": {"volumeName": "v"},
            "status": {"phase": phase}})
    };
    assert_eq!(bound(&pod, "a", Some(&claim("Bound", "x")), false), Ok("v"));
    assert_eq!(bound(&pod, "a", Some(&claim("Bound", "u")), true), Ok("v"));
    for (claim, for_pod, words) in [
        (None, false, "does not exist yet"),
        (Some(claim("Pending", "u")), false, "is not bound yet"),
        (Some(claim("Lost", "u")), false, "is not bound yet"),
        (Some(claim("Bound", "x")), true, "not created for this pod"),
    ] {
        let why = bound(&pod, "a", claim.as_ref(), for_pod).unwrap_err();
        assert!(why.message.contains(words), "{why:?}");
    }
    let volume = |driver: &str, uid: &str| json!({"spec": {"claimRef": {"uid": uid}, "csi": {"driver": driver, "volumeHandle": "h"}}});
    assert_eq!(handle_of("a", "c", Some(&volume(DRIVER, "c"))), Ok("h"));
    assert_eq!(handle_of("a", "c", Some(&volume(DRIVER, "other"))).unwrap_err().reason, "WaitsForClaim");
    assert_eq!(handle_of("a", "c", Some(&volume("nfs.csi.k8s.io", "c"))).unwrap_err().reason, "VolumeNotCopied");
}

#[test]
fn volume_is_mounted_only_in_its_own_member() {
    let named = "m/shop/data/0123456789abcdef";
    assert_eq!(volume_in("a", named, "m", &[]).unwrap().to_string(), named);
    assert_eq!(volume_in("a", named, "other", &["m".to_owned()]).unwrap().to_string(), named, "it has two names");
    for (handle, member, words) in [(named, "other", "in member m"), ("what is this", "m", "does not write")] {
        let why = volume_in("a", handle, member, &["second".to_owned()]).unwrap_err();
        assert!(why.message.contains(words), "{why:?}");
    }
}

#[test]
fn pod_that_was_sent_where_its_volume_is_no_more_is_told_so_unless_it_came_later() {
    let pod = json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}});
    let volume = |made: &str, replaces: &str| {
        json!({"metadata": {"creationTimestamp": made, "annotations": {REPLACES: replaces}},
            "spec": {"csi": {"volumeHandle": "b/shop/data/0123456789abcdef"}}})
    };
    let told = |volume: &Value| moved_since(&pod, "data", Some(volume));
    let why = told(&volume("2026-01-01T10:00:30Z", "uid")).unwrap();
    assert!(why.reason == MOVED && why.message.contains("moved to member b"), "{why:?}");
    assert_ne!(told(&volume("2026-01-01T10:00:00Z", "uid")), None, "in the same second");
    assert_eq!(told(&volume("2026-01-01T09:59:59Z", "uid")), None);
    assert_eq!(told(&volume("2026-01-01T10:00:30Z", "")), None, "it was made by other means");
}

#[test]
fn leaf_is_proved_by_what_it_carries_and_not_by_its_name() {
    let (host, hash) = (HostId("h".to_owned()), "0123456789abcdef0123456789abcdef");
    let (handle, other) = ("m/shop/data/0123456789abcdef", "fedcba9876543210fedcba9876543210");
    let of = |name: &str, hash: &str, notes: Value| -> ObjectMeta {
        let labels = json!({"app.kubernetes.io/managed-by": DRIVER, HOST: "h", VOLUME: hash});
        serde_json::from_value(json!({"name": name, "labels": labels, "annotations": notes})).unwrap()
    };
    let theirs =
        |notes: Value| -> ObjectMeta { serde_json::from_value(json!({"name": "data", "annotations": notes})).unwrap() };
    let moved = || of("again", hash, json!({HANDLE: handle}));
    let (readable, hashed) = (handle, format!("m///{hash}"));
    for (case, handle, namespace, found, leaves) in [
        ("ours", readable, "shop", vec![of("data", hash, json!(null))], &["data"][..]),
        ("ours, by its hash", &hashed, "shop", vec![of("x", hash, json!(null))], &["x"][..]),
        ("another volume's", readable, "shop", vec![of("data", other, json!(null))], &[]),
        ("somebody's", readable, "shop", vec![theirs(json!(null))], &[]),
        ("consent", readable, "shop", vec![theirs(json!({"kosmos.csi.io/consent": "h"}))], &["data"][..]),
        ("consent to another", readable, "shop", vec![theirs(json!({"kosmos.csi.io/consent": "x"}))], &[]),
        ("elsewhere", readable, "other", vec![of("data", hash, json!(null))], &[]),
        ("used again", readable, "shop", vec![of("data", other, json!(null)), moved()], &["again"][..]),
        ("used again in another namespace", readable, "other", vec![moved()], &["again"][..]),
        ("a copy where it was", readable, "shop", vec![of("data", hash, json!(null)), moved()], &["again"][..]),
        ("under another name", readable, "shop", vec![of("copy", hash, json!(null))], &[]),
        ("copied", &hashed, "shop", vec![of("x", hash, json!(null)), of("y", hash, json!(null))], &["x", "y"]),
        ("copied after it was used again", readable, "shop", vec![moved(), moved()], &["again", "again"]),
    ] {
        let id = VolumeId::parse(handle).unwrap();
        let among = leaves_among(&id, &host, namespace, &found);
        assert!(among.iter().filter_map(|leaf| leaf.name.as_deref()).eq(leaves.iter().copied()), "{case}: {among:?}");
        let only = only_leaf("c", &id, namespace, among);
        match leaves {
            [leaf] => assert_eq!(only.unwrap().name.as_deref(), Some(*leaf), "{case}"),
            several => assert_eq!(only.unwrap_err().message.contains("the copies"), !several.is_empty(), "{case}"),
        }
    }
}

/// Whoever may write claims there makes as many as he likes, and the host keeps what its pod is told.
#[test]
fn of_many_copies_of_a_leaf_some_are_named() {
    let id = VolumeId::parse("m/shop/data/0123456789abcdef").unwrap();
    let name = |number: u32| Some(format!("{number}-{}", "x".repeat(200)));
    let copies = (0..2000).map(|number| ObjectMeta { name: name(number), ..ObjectMeta::default() });
    let why = only_leaf("c", &id, "shop", copies.collect()).unwrap_err();
    assert!(why.message.contains("and 1995 more in namespace shop") && why.message.len() < 2000, "{}", why.message);
}

#[test]
fn claim_made_for_a_pod_is_called_after_it() {
    let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "b", "ephemeral": {}}, {"name": "c"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}});
    let told: Vec<String> =
        claims_of(&pod).into_iter().map(|(volume, claim, own)| format!("{volume} {claim} {own}")).collect();
    assert_eq!(told, ["a x false", "b p-b true"]);
}

#[test]
fn attachment_that_goes_is_none() {
    assert!(is_attached(&json!({"status": {"attached": true}})));
    assert!(!is_attached(&json!({"status": {"attached": false}})));
    assert!(!is_attached(&json!({"metadata": {"deletionTimestamp": "x"}, "status": {"attached": true}})));
}
