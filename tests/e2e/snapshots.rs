//! Snapshots and copies through the real sidecars on both sides: what was written is what comes back, and nothing is left,
//! in whatever order things are deleted.

use anyhow::{Context, Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::wait_for,
    objects::{OURS, Place, handle, nothing_of_ours},
    pool::beside_others,
    rig::{LOCAL_PATH, NOW, PATIENCE, Rig, SNAPSHOT_CLASS},
};

const MEMBER: &str = "cluster38";
pub const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

pub fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// The snapshots, or the groups of them, of a namespace.
fn of(place: &Place<'_>, group: &str, name: &str) -> Api<DynamicObject> {
    Api::namespaced_with(place.client.clone(), &place.namespace, &kind(group, name))
}

pub fn snapshots(place: &Place<'_>) -> Api<DynamicObject> {
    of(place, SNAPSHOT_GROUP, "VolumeSnapshot")
}

pub async fn snapshot(host: &Place<'_>, name: &str, claim: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name},
        "spec": {"volumeSnapshotClassName": SNAPSHOT_CLASS, "source": {"persistentVolumeClaimName": claim}},
    });
    snapshots(host).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

pub fn groups(place: &Place<'_>) -> Api<DynamicObject> {
    of(place, "groupsnapshot.storage.k8s.io", "VolumeGroupSnapshot")
}

/// Of all the claims that a test makes in a namespace.
async fn group(host: &Place<'_>, name: &str) -> Result<Api<DynamicObject>> {
    cut_group(host, name, ["app", "mine"]).await?;
    Ok(groups(host))
}

/// Of the claims with a label.
pub async fn cut_group(host: &Place<'_>, name: &str, [key, value]: [&str; 2]) -> Result<()> {
    let object = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot", "metadata": {"name": name},
        "spec": {"volumeGroupSnapshotClassName": SNAPSHOT_CLASS, "source": {"selector": {"matchLabels": {key: value}}}},
    });
    groups(host).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Its content's name, once it can be used.
pub async fn ready(api: &Api<DynamicObject>, name: &str, content: &str) -> Result<String> {
    wait_for(&format!("{name} is ready"), PATIENCE, || async {
        let found = api.get(name).await?;
        let status = &found.data["status"];
        ensure!(status["error"].is_null() || status["readyToUse"] == true, "{}", status["error"]);
        let bound = status[content].as_str().filter(|_| status["readyToUse"] == true);
        Ok(bound.map(str::to_owned))
    })
    .await
}

async fn delete(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    api.delete(name, &DeleteParams::default()).await?;
    wait_for(&format!("{name} is gone"), PATIENCE, || async { Ok(api.get_opt(name).await?.is_none().then_some(())) })
        .await
}

/// A claim that is to be filled.
pub async fn filled(host: &Place<'_>, name: &str, class: &str, source: Value) -> Result<()> {
    let claim = json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"], "dataSource": source,
            "resources": {"requests": {"storage": "64Mi"}}},
    });
    host.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    Ok(())
}

pub fn from_snapshot(name: &str) -> Value {
    json!({"apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": name})
}

pub fn from_claim(name: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "name": name})
}

/// Neither snapshots nor contents nor groups of a namespace in a member, whoever made them.
pub async fn no_snapshots(leaf: &Place<'_>) -> Result<()> {
    for (group, name) in [
        (SNAPSHOT_GROUP, "VolumeSnapshot"),
        (SNAPSHOT_GROUP, "VolumeSnapshotContent"),
        ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshot"),
        ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent"),
    ] {
        let left = Api::<DynamicObject>::all_with(leaf.client.clone(), &kind(group, name));
        let left = left.list(&ListParams::default()).await?;
        let of = |object: &DynamicObject| {
            let content = ["volumeSnapshotRef", "volumeGroupSnapshotRef"];
            let named = content.iter().find_map(|field| object.data["spec"][field]["namespace"].as_str());
            object.namespace().as_deref().or(named) == Some(leaf.namespace.as_str())
        };
        let left: Vec<String> = left.iter().filter(|object| of(object)).map(ResourceExt::name_any).collect();
        ensure!(left.is_empty(), "{name} left in {}: {left:?}", leaf.cluster.name());
    }
    Ok(())
}

/// A bound claim with a file, in the host and in the member.
async fn written<'a>(rig: &'a Rig, namespace: &str, text: &str) -> Result<(Place<'a>, Place<'a>, String)> {
    let host = Place::new(rig.fleet.host(), namespace).await?;
    let class = format!("{namespace}-38");
    host.class(&class, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
    host.claim("data", &class).await?;
    host.bound("data").await?;
    let leaf = Place::existing(rig.fleet.member(MEMBER), namespace).await?;
    leaf.run("writer", &["data"], &format!("echo {text} > /data/file && sync")).await?;
    Ok((host, leaf, class))
}

#[test]
fn snapshot_is_restored_with_its_data_and_goes_before_or_after_its_volume() {
    beside_others("snapshot_restored", async |rig| {
        let (host, leaf, class) = written(rig, "photos", "first").await?;
        let member = rig.fleet.member(MEMBER);
        snapshot(&host, "photo", "data").await?;
        let content = ready(&snapshots(&host), "photo", "boundVolumeSnapshotContentName").await?;
        let contents: Api<DynamicObject> =
            Api::all_with(host.client.clone(), &kind(SNAPSHOT_GROUP, "VolumeSnapshotContent"));
        let given_out = contents.get(&content).await?.data["status"]["snapshotHandle"].clone();
        let ours = snapshots(&leaf).list(&ListParams::default().labels(OURS)).await?;
        let own = ours.items.first().context("there is a leaf snapshot")?;
        let expected = format!("{MEMBER}/photos/{}/{}", own.name_any(), &own.labels()["kosmos.csi.io/snapshot"][..16]);
        ensure!(given_out == json!(expected), "the handle is {given_out}, not {expected}");

        leaf.run("rewriter", &["data"], "echo second > /data/file && sync").await?;
        filled(&host, "restored", &class, from_snapshot("photo")).await?;
        filled(&host, "cloned", &class, from_claim("data")).await?;
        for (name, holds) in [("restored", "first"), ("cloned", "second")] {
            let volume = host.bound(name).await?;
            ensure!(handle(&volume).starts_with(&format!("{MEMBER}/photos/{name}/")));
            leaf.bound(name).await?;
            leaf.run(&format!("reader-{name}"), &[name], &format!("grep -qx {holds} /{name}/file")).await?;
        }
        // The snapshot first.
        delete(&snapshots(&host), "photo").await?;
        no_snapshots(&leaf).await?;
        // The volume first.
        snapshot(&host, "later", "data").await?;
        ready(&snapshots(&host), "later", "boundVolumeSnapshotContentName").await?;
        for name in ["data", "restored", "cloned"] {
            let volume = host.bound(name).await?.name_any();
            host.delete_claim(name).await?;
            host.volume_is_gone(&volume).await?;
        }
        filled(&host, "revived", &class, from_snapshot("later")).await?;
        let volume = host.bound("revived").await?.name_any();
        leaf.run("reader-revived", &["revived"], "grep -qx second /revived/file").await?;
        host.delete_claim("revived").await?;
        host.volume_is_gone(&volume).await?;
        delete(&snapshots(&host), "later").await?;
        no_snapshots(&leaf).await?;
        nothing_of_ours(member, "photos").await
    });
}

#[test]
fn leaf_snapshot_that_its_class_would_retain_goes_with_the_hosts() {
    beside_others("snapshot_retained", async |rig| {
        let (host, leaf, _) = written(rig, "retained", "text").await?;
        let class = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "leaf-retains"},
            "driver": crate::rig::DRIVER, "deletionPolicy": "Delete", "parameters": {"leafSnapshotClass": "kept"},
        });
        host.cluster.apply(&class.to_string()).await?;
        let object = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "photo"},
            "spec": {"volumeSnapshotClassName": "leaf-retains", "source": {"persistentVolumeClaimName": "data"}},
        });
        snapshots(&host).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        ready(&snapshots(&host), "photo", "boundVolumeSnapshotContentName").await?;
        delete(&snapshots(&host), "photo").await?;
        no_snapshots(&leaf).await?;
        let volume = host.bound("data").await?.name_any();
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(leaf.cluster, "retained").await
    });
}

#[test]
fn copy_that_a_member_cannot_make_is_refused_and_says_why() {
    beside_others("copy_refused", async |rig| {
        let (host, leaf, _) = written(rig, "refused", "text").await?;
        // local-path-provisioner would make an empty volume without a word.
        let local = json!({"leafStorageClass": LOCAL_PATH, "leafBinding": "consumer", "member": MEMBER});
        host.class("refused-local", "Immediate", local, &[]).await?;
        filled(&host, "copy", "refused-local", from_claim("data")).await?;
        host.warned("copy", &["cannot copy it", LOCAL_PATH]).await?;
        host.class("refused-39", "Immediate", json!({"leafStorageClass": NOW, "member": "cluster39"}), &[]).await?;
        filled(&host, "away", "refused-39", from_claim("data")).await?;
        host.warned("away", &["cluster38", "cluster39"]).await?;
        for name in ["copy", "away"] {
            host.delete_claim(name).await?;
            host.claim_is_gone(name).await?;
        }
        let volume = host.bound("data").await?.name_any();
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(leaf.cluster, "refused").await
    });
}

#[test]
fn group_is_cut_at_once_and_each_of_it_can_be_restored() {
    beside_others("group_snapshot", async |rig| {
        let (host, leaf, class) = written(rig, "groups", "first").await?;
        host.claim("log", &class).await?;
        host.bound("log").await?;
        leaf.run("logger", &["log"], "echo second > /log/file && sync").await?;
        let groups = group(&host, "both").await?;
        ready(&groups, "both", "boundVolumeGroupSnapshotContentName").await?;
        let parts = snapshots(&host).list(&ListParams::default()).await?.items;
        ensure!(parts.len() == 2, "{} snapshots are in the group", parts.len());
        for part in &parts {
            let of = part.data["spec"]["source"]["persistentVolumeClaimName"].as_str().context("a source")?;
            ready(&snapshots(&host), &part.name_any(), "boundVolumeSnapshotContentName").await?;
            let name = format!("restored-{of}");
            filled(&host, &name, &class, from_snapshot(&part.name_any())).await?;
            host.bound(&name).await?;
            let holds = if of == "data" { "first" } else { "second" };
            leaf.run(&format!("reader-{of}"), &[&name], &format!("grep -qx {holds} /{name}/file")).await?;
        }
        for claim in leaf.claims().list(&ListParams::default()).await? {
            let kept = claim.labels().keys().any(|key| key.starts_with("group.kosmos.csi.io/"));
            ensure!(!kept, "the label of the group is taken off {}", claim.name_any());
        }
        delete(&groups, "both").await?;
        no_snapshots(&leaf).await?;
        for name in ["data", "log", "restored-data", "restored-log"] {
            let volume = host.bound(name).await?.name_any();
            host.delete_claim(name).await?;
            host.volume_is_gone(&volume).await?;
        }
        nothing_of_ours(leaf.cluster, "groups").await
    });
}

#[test]
fn group_that_a_member_cannot_cut_is_refused_and_says_why() {
    beside_others("group_refused", async |rig| {
        let host = Place::new(rig.fleet.host(), "group-refused").await?;
        let local = json!({"leafStorageClass": LOCAL_PATH, "leafBinding": "consumer", "member": MEMBER});
        host.class("group-refused", "Immediate", local, &[]).await?;
        host.claim("data", "group-refused").await?;
        let volume = host.bound("data").await?.name_any();
        let groups = group(&host, "never").await?;
        wait_for("the group says why", PATIENCE, || async {
            let group = groups.get("never").await?;
            let said = group.data["status"]["error"]["message"].as_str().unwrap_or_default().to_owned();
            ensure!(said.contains("cluster38"), "it says {said:?}");
            Ok(Some(()))
        })
        .await?;
        delete(&groups, "never").await?;
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(rig.fleet.member(MEMBER), "group-refused").await
    });
}
