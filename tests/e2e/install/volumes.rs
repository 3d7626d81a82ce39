//! Volumes of an installed driver: made, attached, grown, photographed, and gone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    bundle,
    examples::{self, applied},
    release::PATIENCE,
    ui,
};
use crate::clusters::{Cluster, Fleet, member_driver, wait_for};

/// A class of volumes that grow without being mounted, in the host and in cluster38.
pub const GROWING: &str = "growing";
pub const GROWTH: &str = "growth";

/// The member's own classes of snapshots and groups of them.
pub fn leaf_snapshot_classes() -> String {
    let class = |group: &str, kind: &str| {
        let default = format!("{group}.storage.kubernetes.io/is-default-class");
        json!({
            "apiVersion": format!("{group}.storage.k8s.io/v1"), "kind": kind,
            "metadata": {"name": "usual", "annotations": {default: "true"}},
            "driver": member_driver::DRIVER, "deletionPolicy": "Delete",
        })
    };
    let items = [class("snapshot", "VolumeSnapshotClass"), class("groupsnapshot", "VolumeGroupSnapshotClass")];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

pub async fn begin(fleet: &Fleet) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GROWTH}});
    fleet.host().apply(&namespace.to_string()).await
}

pub async fn end(fleet: &Fleet) -> Result<()> {
    let delete = ["delete", "namespace", GROWTH, "--ignore-not-found", "--timeout=90s"];
    fleet.host().kubectl(&delete).await?;
    for cluster in [fleet.host(), fleet.member("cluster38")] {
        cluster.kubectl(&["delete", "volumeattributesclass", "gold", "--ignore-not-found", "--timeout=90s"]).await?;
    }
    Ok(())
}

pub async fn until(cluster: &Cluster, namespace: &str, object: &str, condition: &str) -> Result<()> {
    let waited = cluster.kubectl(&["-n", namespace, "wait", object, condition, "--timeout=90s"]).await;
    if let Err(error) = waited {
        let told = cluster.kubectl(&["-n", namespace, "describe", object]).await.unwrap_or_default();
        return Err(error.context(told));
    }
    Ok(())
}

/// At once, with the first pod, and where an administrator says: each with a pod that writes and reads.
pub async fn every_way_of_binding(fleet: &Fleet) -> Result<()> {
    begin(fleet).await?;
    let host = fleet.host();
    let ways = [
        ("at-once", "Immediate", json!({})),
        ("with-a-pod", "WaitForFirstConsumer", json!({})),
        ("as-told", "Immediate", json!({"member": "cluster39"})),
    ];
    for (way, mode, mut parameters) in ways {
        parameters["leafStorageClass"] = json!("openebs-hostpath");
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": way},
            "provisioner": "kosmos.csi.io", "volumeBindingMode": mode, "parameters": parameters,
        });
        host.apply(&class.to_string()).await?;
        let mut writer = pod(way, way);
        writer["spec"]["restartPolicy"] = json!("Never");
        writer["spec"]["containers"][0]["command"] = json!(["sh", "-c", "echo written > /data/file && cat /data/file"]);
        let items = [claim(way, way, &Value::Null), writer];
        host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
        until(host, GROWTH, &format!("pod/{way}"), "--for=jsonpath={.status.phase}=Succeeded").await?;
        // A runtime may write what a container said after that has ended.
        wait_for("its log says what it read", PATIENCE, || async {
            let said = host.kubectl(&["-n", GROWTH, "logs", way]).await?;
            ensure!(said.trim() == "written", "{way}: {said:?}");
            Ok(Some(()))
        })
        .await?;
    }
    let node = host.kubectl(&["-n", GROWTH, "get", "pod", "as-told", "-o", "jsonpath={.spec.nodeName}"]).await?;
    ensure!(node == "kosmos-cluster39", "the pod of the administrator's member is on {node:?}");
    host.kubectl(&["-n", GROWTH, "delete", "pods,pvc", "--all", "--timeout=90s"]).await?;
    host.kubectl(&["delete", "storageclass", "at-once", "with-a-pod", "as-told"]).await.map(drop)
}

/// By a label and a role in each cluster: a Secret, and a token of the pod's account.
pub async fn secrets_cross_where_the_namespace_says_so(fleet: &Fleet) -> Result<()> {
    begin(fleet).await?;
    let host = fleet.host();
    host.kubectl(&["label", "namespace", GROWTH, "kosmos.csi.io/secrets=true"]).await?;
    let role = "kosmos-csi-virtual-node-secrets";
    let metadata = json!({"name": GROWTH, "labels": {"kosmos.csi.io/pods": "baseline"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    let id = host.identity().await?;
    for cluster in fleet.clusters() {
        cluster.apply(&namespace.to_string()).await?;
        let of = if cluster.name() == host.name() { "kosmos-csi-pods" } else { "kosmos-csi" };
        let own = if cluster.name() == host.name() { String::new() } else { format!("-host-{id}") };
        let account = &format!("{of}:kosmos-csi-virtual-node{own}");
        let bind = ["create", "rolebinding", "secrets-of-the-host", "--clusterrole", role, "--serviceaccount", account];
        cluster.kubectl(&[&["-n", GROWTH], &bind[..]].concat()).await?;
    }
    host.kubectl(&["-n", GROWTH, "create", "secret", "generic", "keys", "--from-literal=word=swordfish"]).await?;
    let mut keeper = pod("keeper", "none");
    keeper["spec"]["volumes"] = json!([{"name": "data", "secret": {"secretName": "keys"}}]);
    host.apply(&keeper.to_string()).await?;
    until(host, GROWTH, "pod/keeper", "--for=condition=Ready").await?;
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let read = host.kubectl(&["-n", GROWTH, "exec", "keeper", "--", "cat", "/data/word", token]).await?;
    ensure!(read.starts_with("swordfish") && read.matches('.').count() == 2, "it reads no Secret or no token");
    // An API server gives one of a year to whoever asks for 3607 seconds, as its admission has written into the pod.
    let said = format!("cut -d. -f2 {token} | tr _- /+ | base64 -d 2>/dev/null; true");
    let said = host.kubectl(&["-n", GROWTH, "exec", "keeper", "--", "sh", "-c", &said]).await?;
    let second = |key: &str| -> Option<u64> {
        let (_, rest) = said.split_once(&format!("\"{key}\":"))?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    };
    let (from, to) = second("iat").zip(second("exp")).with_context(|| format!("no times in {said}"))?;
    ensure!(to - from <= 3600, "its token lives for {} seconds", to - from);
    host.kubectl(&["label", "namespace", GROWTH, "kosmos.csi.io/secrets-"]).await?;
    for member in fleet.members() {
        wait_for("what was given is taken back from the pod that runs", PATIENCE, || async {
            let left = member.kubectl(&["-n", GROWTH, "get", "secrets", "-o", "name"]).await?;
            ensure!(left.is_empty(), "{left}");
            Ok(Some(()))
        })
        .await?;
    }
    until(host, GROWTH, "pod/keeper", "--for=condition=Ready").await?;
    host.kubectl(&["-n", GROWTH, "delete", "pod", "keeper", "--timeout=90s"]).await.map(drop)
}

/// They go two minutes after the last pod that named them.
pub async fn no_secret_is_left(fleet: &Fleet) -> Result<()> {
    for member in fleet.members() {
        wait_for(&format!("no Secret is left in {}", member.name()), Duration::from_mins(4), || async {
            let ours = "app.kubernetes.io/managed-by=kosmos.csi.io";
            let left = member.kubectl(&["get", "secrets,configmaps", "-A", "-l", ours, "-o", "name"]).await?;
            ensure!(left.is_empty(), "{left}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

pub async fn damaged_csi_node_is_repaired(fleet: &Fleet) -> Result<()> {
    begin(fleet).await?;
    let (host, node) = (fleet.host(), "csinode/kosmos-cluster39");
    host.kubectl(&["patch", node, "--type=merge", "-p", r#"{"spec": {"drivers": []}}"#]).await?;
    until(host, GROWTH, node, "--for=jsonpath={.spec.drivers[0].nodeID}=virtual/cluster39").await
}

/// A ConfigMap that comes later.
pub async fn pod_says_what_it_lacks(fleet: &Fleet) -> Result<()> {
    begin(fleet).await?;
    let host = fleet.host();
    let mut lacking = pod("lacking", "none");
    lacking["spec"]["volumes"] = json!([{"name": "data", "configMap": {"name": "settings"}}]);
    host.apply(&lacking.to_string()).await?;
    wait_for("an event says what it lacks", PATIENCE, || async {
        let fields = "involvedObject.kind=Pod,involvedObject.name=lacking,type=Warning";
        let said = ["-n", GROWTH, "get", "events", "--field-selector", fields, "-o", "jsonpath={.items[*].message}"];
        let said = host.kubectl(&said).await?;
        ensure!(said.contains("settings"), "{said:?}");
        Ok(Some(()))
    })
    .await?;
    host.kubectl(&["-n", GROWTH, "create", "configmap", "settings", "--from-literal=a=b"]).await?;
    until(host, GROWTH, "pod/lacking", "--for=condition=Ready").await?;
    let read = host.kubectl(&["-n", GROWTH, "exec", "lacking", "--", "cat", "/data/a"]).await?;
    ensure!(read == "b", "it reads {read:?}");
    host.kubectl(&["-n", GROWTH, "delete", "pod", "lacking", "--timeout=90s"]).await.map(drop)
}

/// The examples of one claim: it grows, is photographed and copied, and gets other attributes.
pub async fn growth_and_snapshots(fleet: &Fleet) -> Result<()> {
    begin(fleet).await?;
    let (host, class) = (fleet.host(), [("openebs-hostpath", GROWING)]);
    applied(host, GROWTH, "claim-and-pod.yaml", &class).await?;
    until(host, GROWTH, "pvc/nginx-pvc", "--for=jsonpath={.status.phase}=Bound").await?;
    applied(host, GROWTH, "growth.yaml", &class).await?;
    until(host, GROWTH, "pvc/nginx-pvc", "--for=jsonpath={.status.capacity.storage}=2Gi").await?;
    host.kubectl(&["-n", GROWTH, "label", "pvc", "nginx-pvc", "app=data"]).await?;
    let named = ("  source:\n", "  volumeSnapshotClassName: photos\n  source:\n");
    applied(host, GROWTH, "snapshot.yaml", &[class[0], named]).await?;
    host.apply(&album()).await?;
    for object in ["volumesnapshot/nginx-before", "volumegroupsnapshot/album"] {
        until(host, GROWTH, object, "--for=jsonpath={.status.readyToUse}=true").await?;
    }
    applied(host, GROWTH, "clone.yaml", &class).await?;
    let bound = async {
        for claim in ["pvc/nginx-restored", "pvc/nginx-copy"] {
            until(host, GROWTH, claim, "--for=jsonpath={.status.phase}=Bound").await?;
        }
        ui::is_shown_on_this_machine(fleet).await?;
        attributes(fleet).await
    };
    tokio::try_join!(bound, bundle::has_all_that_helps_and_no_token(fleet))?;
    for object in ["volumegroupsnapshot/album", "volumesnapshot/nginx-before"] {
        host.kubectl(&["-n", GROWTH, "delete", object, "--timeout=90s"]).await?;
    }
    host.kubectl(&["-n", GROWTH, "delete", "pods,pvc", "--all", "--timeout=90s"]).await.map(drop)
}

/// Those that the tests' member driver has.
async fn attributes(fleet: &Fleet) -> Result<()> {
    let (host, member) = (fleet.host(), fleet.member("cluster38"));
    let of_driver = [("ebs.csi.aws.com", member_driver::DRIVER), ("  type: gp3\n", "")];
    applied(member, "default", "attributes-member.yaml", &of_driver).await?;
    applied(host, GROWTH, "attributes.yaml", &[("openebs-hostpath", GROWING)]).await?;
    until(host, GROWTH, "pvc/nginx-pvc", "--for=jsonpath={.status.currentVolumeAttributesClassName}=gold").await?;
    let leaf = ["-n", GROWTH, "get", "pvc", "nginx-pvc", "-o", "jsonpath={.status.currentVolumeAttributesClassName}"];
    let leaf = member.kubectl(&leaf).await?;
    ensure!(leaf == "gold", "the leaf claim has {leaf:?}");
    Ok(())
}

pub fn claim(name: &str, class: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": GROWTH},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"], "dataSource": source,
            "resources": {"requests": {"storage": "64Mi"}}},
    })
}

pub fn pod(name: &str, claim: &str) -> Value {
    let container = json!({"name": "main", "image": examples::IMAGE,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": GROWTH},
        "spec": {"tolerations": [{"key": "kosmos.io/node", "operator": "Exists"}], "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]},
    })
}

/// A group of one claim.
fn album() -> String {
    let class = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotClass", "metadata": {"name": "albums"},
        "driver": "kosmos.csi.io", "deletionPolicy": "Delete",
    });
    let album = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
        "metadata": {"name": "album", "namespace": GROWTH},
        "spec": {"volumeGroupSnapshotClassName": "albums", "source": {"selector": {"matchLabels": {"app": "data"}}}},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [class, album]}).to_string()
}

/// Neither in the host nor in a member.
pub async fn nothing_left(fleet: &Fleet) -> Result<()> {
    for cluster in fleet.clusters() {
        wait_for(&format!("nothing is left in {}", cluster.name()), PATIENCE, || async {
            let kinds = "pv,pvc,volumeattachments,volumesnapshots,volumesnapshotcontents,volumegroupsnapshots,volumegroupsnapshotcontents";
            let kinds = if cluster.name() == "cluster39" { "pv,pvc,volumeattachments" } else { kinds };
            let left = cluster.kubectl(&["get", kinds, "--all-namespaces", "-o", "name"]).await?;
            ensure!(left.is_empty(), "{left}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
