//! Groups of snapshots, where a cluster has their kinds: the claims that a label selects are cut together, and each gets a
//! snapshot of its own, which goes with the group.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Member,
    names::{CLAIMS, CONTENTS, GROUP_CLASSES, GROUP_CONTENTS, GROUPS, SNAPSHOTS, VOLUMES, handle, is_bound},
    snapshots::objects,
};
use crate::object::{add_finalizer, annotation, at, drop_finalizer, is_terminating, name, namespace, set, text, uid};

const FINALIZER: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
const DEFAULT_CLASS: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";
const AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[GROUPS, SNAPSHOTS, CONTENTS]);
    loop {
        let groups = member.cluster.list(GROUPS);
        let waits = groups.iter().map(|group| look(member, group)).filter(|done| !done).count() > 0;
        if waits {
            let _ = tokio::time::timeout(AGAIN, changes.next()).await;
        } else {
            changes.next().await;
        }
        while changes.try_next().is_some() {}
    }
}

/// Whether nothing has to be tried again.
fn look(member: &Member, group: &Value) -> bool {
    if is_terminating(group) {
        end(member, group);
        return true;
    }
    if !text(group, "/status/boundVolumeGroupSnapshotContentName").is_empty() {
        tell(member, group);
        return true;
    }
    let begun = begin(member, group);
    if let Err(problem) = &begun {
        let now = member.cluster.stamp();
        edit(member, group, |group| objects::tell_error(group, problem, &now));
    }
    begun.is_ok()
}

fn edit(member: &Member, group: &Value, change: impl FnOnce(&mut Value)) {
    drop(member.cluster.change(GROUPS, namespace(group), name(group), change));
}

fn class_of(member: &Member, group: &Value) -> Result<Arc<Value>, String> {
    let named = text(group, "/spec/volumeGroupSnapshotClassName");
    let wanted = |class: &Value| {
        if named.is_empty() { annotation(class, DEFAULT_CLASS) == "true" } else { name(class) == named }
    };
    let ours = |class: &Value| text(class, "/driver") == member.settings.provisioner;
    let mut classes = member.cluster.list(GROUP_CLASSES).into_iter();
    classes.find(|class| ours(class) && wanted(class)).ok_or_else(|| "there is no class for this group".to_owned())
}

/// The claims of a group and the handles of their volumes.
fn sources(member: &Member, group: &Value) -> Result<Vec<(String, String)>, String> {
    let labels = at(group, "/spec/source/selector/matchLabels").and_then(Value::as_object).cloned().unwrap_or_default();
    let selected = |claim: &&Arc<Value>| {
        namespace(claim) == namespace(group)
            && labels.iter().all(|(key, value)| claim["metadata"]["labels"].get(key) == Some(value))
    };
    let claims = member.cluster.list(CLAIMS);
    let mut found = Vec::new();
    for claim in claims.iter().filter(selected) {
        let volume = member.cluster.get(VOLUMES, "", text(claim, "/spec/volumeName")).filter(|_| is_bound(claim));
        let volume = volume.ok_or_else(|| format!("claim {} is not bound", name(claim)))?;
        found.push((name(claim).to_owned(), handle(&volume).to_owned()));
    }
    if found.is_empty() { Err("the selector finds no claim".to_owned()) } else { Ok(found) }
}

fn begin(member: &Member, group: &Value) -> Result<(), String> {
    let class = class_of(member, group)?;
    let sources = sources(member, group)?;
    let content_name = format!("groupsnapcontent-{}", uid(group));
    let handles: Vec<&String> = sources.iter().map(|(_, handle)| handle).collect();
    let content = json!({
        "metadata": {"name": content_name},
        "spec": {
            "deletionPolicy": text(&class, "/deletionPolicy"), "driver": text(&class, "/driver"),
            "source": {"volumeHandles": handles}, "volumeGroupSnapshotClassName": name(&class),
            "volumeGroupSnapshotRef": {"namespace": namespace(group), "name": name(group), "uid": uid(group)},
        },
    });
    drop(member.cluster.create(GROUP_CONTENTS, content));
    for (number, (claim, handle)) in sources.iter().enumerate() {
        part(member, group, &class, number, claim, handle).map_err(|refusal| refusal.message)?;
    }
    edit(member, group, |group| {
        add_finalizer(group, FINALIZER);
        set(group, &["status", "boundVolumeGroupSnapshotContentName"], json!(content_name));
    });
    Ok(())
}

/// A snapshot that is bound from its beginning; what is behind it is cut as that of any other.
fn part(
    member: &Member,
    group: &Value,
    class: &Value,
    number: usize,
    claim: &str,
    handle: &str,
) -> Result<(), crate::StatusError> {
    let snapshot_name = format!("snapshot-{}-{number}", uid(group));
    if member.cluster.get(SNAPSHOTS, namespace(group), &snapshot_name).is_some() {
        return Ok(());
    }
    let owner = json!({"apiVersion": text(group, "/apiVersion"), "kind": "VolumeGroupSnapshot", "name": name(group), "uid": uid(group)});
    let made = member.cluster.create(
        SNAPSHOTS,
        json!({
            "metadata": {"namespace": namespace(group), "name": snapshot_name, "ownerReferences": [owner]},
            "spec": {"source": {"persistentVolumeClaimName": claim}},
            "status": {"readyToUse": false},
        }),
    )?;
    let content = objects::content(&made, class, handle);
    let content_name = name(&content).to_owned();
    member.cluster.create(CONTENTS, content)?;
    drop(member.cluster.change(SNAPSHOTS, namespace(group), &snapshot_name, |snapshot| {
        objects::begin(snapshot, "");
        objects::bind(snapshot, &content_name);
    }));
    Ok(())
}

fn parts(member: &Member, group: &Value) -> Vec<Arc<Value>> {
    let owned = |snapshot: &Value| {
        let owners = snapshot["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.into_iter().any(|owner| owner["uid"] == *uid(group))
    };
    member.cluster.list(SNAPSHOTS).into_iter().filter(|snapshot| owned(snapshot)).collect()
}

/// A group is cut once all that is in it is, and can be used in the same way.
fn tell(member: &Member, group: &Value) {
    if objects::is_ready(group) {
        return;
    }
    let parts = parts(member, group);
    let ready = parts.iter().all(|part| objects::is_ready(part));
    let cut = !objects::is_cut(group) && parts.iter().all(|part| objects::is_cut(part));
    if ready || cut {
        let now = member.cluster.stamp();
        edit(member, group, |group| {
            if cut {
                set(group, &["status", "creationTime"], json!(now));
            }
            set(group, &["status", "readyToUse"], json!(ready));
        });
    }
}

fn end(member: &Member, group: &Value) {
    let left = parts(member, group);
    for part in left.iter().filter(|part| !is_terminating(part)) {
        drop(member.cluster.delete(SNAPSHOTS, namespace(part), name(part)));
    }
    if !parts(member, group).is_empty() {
        return;
    }
    let content = text(group, "/status/boundVolumeGroupSnapshotContentName");
    let content = member.cluster.get(GROUP_CONTENTS, "", content).filter(|content| objects::deletes(content));
    if let Some(content) = content {
        drop(member.cluster.delete(GROUP_CONTENTS, "", name(&content)));
    }
    edit(member, group, |group| drop_finalizer(group, FINALIZER));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cluster,
        storage::{Settings, Storage, definitions},
        testing::{add_snapshots, claim, live},
    };

    #[tokio::test(start_paused = true)]
    async fn claims_that_are_selected_are_cut_together_and_all_goes_with_the_group() {
        let cluster = Cluster::new("a", 1);
        let storage = Storage::new(cluster.clone(), Settings::default());
        for name in ["data", "log", "other"] {
            let mut claim = claim(name, "now");
            claim["metadata"]["labels"] = json!({"group": if name == "other" { "no" } else { "yes" }});
            cluster.create(CLAIMS, claim).unwrap();
        }
        live(&cluster, &storage, 1).await;
        add_snapshots(&cluster);
        let class = definitions::class("all", "storage.simulated", "Delete", Some(DEFAULT_CLASS));
        cluster.create(GROUP_CLASSES, class).unwrap();
        let selector = json!({"matchLabels": {"group": "yes"}});
        let group =
            json!({"metadata": {"namespace": "default", "name": "both"}, "spec": {"source": {"selector": selector}}});
        cluster.create(GROUPS, group).unwrap();
        live(&cluster, &storage, 3).await;
        let group = cluster.get(GROUPS, "default", "both").unwrap();
        assert!(objects::is_ready(&group), "{group:#}");
        let mut claims: Vec<String> = parts_of(&cluster);
        claims.sort();
        assert_eq!((claims, storage.snapshots().len()), (vec!["data".to_owned(), "log".to_owned()], 2));
        cluster.delete(GROUPS, "default", "both").unwrap();
        live(&cluster, &storage, 3).await;
        let left = [GROUPS, GROUP_CONTENTS, SNAPSHOTS, CONTENTS].map(|kind| cluster.list(kind).len());
        assert_eq!((left, storage.snapshots().len()), ([0; 4], 0));
    }

    fn parts_of(cluster: &Cluster) -> Vec<String> {
        let all = cluster.list(SNAPSHOTS);
        all.iter().map(|part| text(part, "/spec/source/persistentVolumeClaimName").to_owned()).collect()
    }
}
