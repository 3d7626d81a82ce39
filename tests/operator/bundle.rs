//! The archive for who helps: what is in it, and what is not.

use std::{collections::BTreeMap, fs::File, io::Read, os::unix::fs::MetadataExt};

use flate2::read::GzDecoder;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::{Cluster, storage::definitions};
use tar::Archive;

use crate::{
    clusters::{CLAIMS, Clusters, SECRETS, VOLUMES, identity},
    orphans::{host_volume, leaf},
};

const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
/// What must not be told, in every place that could tell it.
const CANARY: &str = "canary-of-a-kubeconfig";

/// Its files by their paths, below the one folder.
fn unpacked(path: &str) -> BTreeMap<String, String> {
    let mut archive = Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (path.strip_prefix("all/").unwrap().to_owned(), text)
    });
    files.collect()
}

fn names(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn base64(text: &str) -> String {
    let encoded = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
    encoded.as_str().unwrap().to_owned()
}

/// A driver with one volume, and much besides that is none of its business.
async fn busy() -> Clusters {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let host = &clusters.host;
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {"token": CANARY}}]});
    let labels = json!({"kosmos.csi.io/member": "m9"});
    let metadata = json!({"name": "m9", "namespace": "kosmos-csi", "labels": labels});
    let data = json!({"kubeconfig": base64(&kubeconfig.to_string())});
    host.create(SECRETS, json!({"metadata": metadata, "data": data})).unwrap();
    host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    leaf(&clusters, "db", "pvc-1");
    let healing = |volume: &mut Value| volume["metadata"]["annotations"] = json!({"kosmos.csi.io/healing": CANARY});
    clusters.members[0].change(VOLUMES, "", "pv-db", healing).unwrap();
    host_volume(&clusters, "db", "pvc-1");
    for (name, volume) in [("db", "pvc-1"), ("theirs", "pv-of-another")] {
        claim(host, name, volume);
    }
    let uid = host.get(CLAIMS, "shop", "db").unwrap()["metadata"]["uid"].clone();
    let about = json!({"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "db", "uid": uid});
    let message = format!("m0 says {CANARY}, and {}", base64(CANARY));
    let metadata = json!({"name": "db.1", "namespace": "shop"});
    host.create("events", json!({"metadata": metadata, "message": message, "involvedObject": about})).unwrap();
    let spec = json!({"attacher": "kosmos.csi.io", "nodeName": "n", "source": {"persistentVolumeName": "pvc-1"}});
    let attachment = json!({"metadata": {"name": "va"}, "spec": spec});
    host.create(ATTACHMENTS, attachment).unwrap();
    let attached = json!({"attached": true, "attachmentMetadata": {"options": CANARY}});
    host.change(ATTACHMENTS, "", "va", |attachment| attachment["status"] = attached).unwrap();
    for (namespace, name) in [("kosmos-csi", "controller-1"), ("shop", "of-a-tenant")] {
        pod(host, namespace, name);
    }
    groups(host);
    let said = json!({
        "kosmos.csi.io/forgotten": "m7,m8", "kosmos.csi.io/adopted": "2026-01-01T00:00:00Z",
        "kosmos.csi.io/cluster": identity(host), "notes": CANARY,
    });
    host.change("configmaps", "kosmos-csi", "kosmos-csi-members", |map| map["metadata"]["annotations"] = said).unwrap();
    clusters
}

/// A group of snapshots, its class and its content, and those of another driver.
fn groups(host: &Cluster) {
    let of = |kind: &str| format!("volumegroupsnapshot{kind}.groupsnapshot.storage.k8s.io");
    definitions::install(host).unwrap();
    for (name, content, driver) in [("all", "both", "kosmos.csi.io"), ("theirs", "their-both", "x.io")] {
        let parameters = json!({"leafGroupSnapshotClass": "of-a-member", "secret": CANARY});
        let class =
            json!({"metadata": {"name": name}, "driver": driver, "deletionPolicy": "Delete", "parameters": parameters});
        host.create(&of("classes"), class).unwrap();
        let spec = json!({"driver": driver, "deletionPolicy": "Delete", "source": {"volumeHandles": []}});
        host.create(&of("contents"), json!({"metadata": {"name": content}, "spec": spec})).unwrap();
        let metadata = json!({"name": name, "namespace": "shop", "annotations": {"notes": CANARY}});
        host.create(&of("s"), json!({"metadata": metadata, "spec": {"source": {}}})).unwrap();
        let status = json!({"boundVolumeGroupSnapshotContentName": content});
        host.change(&of("s"), "shop", name, |group| group["status"] = status).unwrap();
    }
}

fn claim(host: &Cluster, name: &str, volume: &str) {
    let annotations = json!({"notes": CANARY, "kubectl.kubernetes.io/last-applied-configuration": CANARY});
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume,
        "volumeMode": "Filesystem", "storageClassName": "",
    });
    let metadata = json!({"name": name, "namespace": "shop", "annotations": annotations});
    host.create(CLAIMS, json!({"metadata": metadata, "spec": spec})).unwrap();
}

/// With the label of the chart, which anybody may give to his pods.
fn pod(host: &Cluster, namespace: &str, name: &str) {
    let labels = json!({"app.kubernetes.io/name": "kosmos-csi"});
    let container = json!({
        "name": "driver", "image": "kosmos-csi", "env": [{"name": "HTTPS_PROXY", "value": format!("http://{CANARY}@proxy")}],
        "ports": [{"name": "admin", "containerPort": 9808}],
    });
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    host.create("pods", json!({"metadata": metadata, "spec": {"containers": [container]}})).unwrap();
}

#[tokio::test]
async fn support_bundle_has_what_helps_and_no_credential() {
    let clusters = busy().await;
    let path = clusters.folder.path().join("all.tgz").display().to_string();
    let told = clusters.does(&format!("support-bundle --output={path} --claim=shop/db")).await;
    let unserved = "volumemoves are not served there in version v1alpha1";
    for said in [path.as_str(), "KiB", "README.txt", "host/volumemoves.json", unserved, "members/m9 "] {
        assert!(told.contains(said), "{said}: {told}");
    }
    let files = unpacked(&path);
    for (path, text) in &files {
        assert!(!text.contains("canary") && !text.contains(&base64(CANARY)[..12]), "{path} tells it: {text}");
    }
    assert_eq!(names(&files["host/persistentvolumeclaims.json"]), ["db"]);
    assert_eq!(names(&files["host/persistentvolumes.json"]), ["pvc-1"]);
    assert_eq!(names(&files["host/events.json"]), ["db.1"]);
    assert_eq!(names(&files["host/pods.json"]), ["controller-1"]);
    assert_eq!(names(&files["host/volumeattachments.json"]), ["va"]);
    assert_eq!(names(&files["host/volumegroupsnapshotclasses.json"]), ["all"]);
    assert_eq!(names(&files["host/volumegroupsnapshotcontents.json"]), ["both"]);
    assert_eq!(names(&files["host/volumegroupsnapshots.json"]), ["all"]);
    let record: Value = serde_json::from_str(&files["host/record.json"]).unwrap();
    assert_eq!(record["forgotten"], json!(["m7", "m8"]));
    assert_eq!(record["adopted"], "2026-01-01T00:00:00Z");
    assert_eq!(names(&files["members/m0/persistentvolumeclaims.json"]), ["db"]);
    assert_eq!(names(&files["members/m0/persistentvolumes.json"]), ["pv-db"]);
    assert!(files.keys().all(|path| !path.contains("of-a-tenant")), "{:?}", files.keys());
    for (path, said) in [
        ("README.txt", "members/m9 "),
        ("status.txt", "WHAT"),
        ("trace.txt", "leaf claim"),
        ("doctor.json", "\"items\""),
        ("members.json", "\"m0\""),
        ("volumes.json", "\"pvc-1\""),
        ("members/m0/check.txt", "identity"),
        ("members/m0/cluster.json", "\"version\": \"v1."),
        ("logs/kosmos-csi/controller-1/driver.log", "container=driver&sinceSeconds=7200&tailLines=50000"),
        ("metrics/kosmos-csi/controller-1/admin.txt", "the metrics of"),
        ("host/pods.json", "HTTPS_PROXY"),
        ("host/volumegroupsnapshotclasses.json", "of-a-member"),
    ] {
        assert!(files[path].contains(said), "{path} has no {said}: {}", files[path]);
    }
    assert_eq!(File::open(&path).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
}

#[tokio::test(start_paused = true)]
async fn support_bundle_comes_to_an_end_where_a_member_does_not_and_keeps_the_rest() {
    let clusters = busy().await;
    let path = clusters.folder.path().join("all.tgz").display().to_string();
    for resource in ["storage.k8s.io/v1/storageclasses", "v1/events", "v1/persistentvolumes"] {
        clusters.denied.lock().unwrap().insert(format!("the end of m0 {resource}"));
    }
    let told = clusters.does(&format!("support-bundle --output={path}")).await;
    for said in ["members/m0/check.txt", "did not end in time", "members/m0/events.json", "the list does not end"] {
        assert!(told.contains(said), "{said}: {told}");
    }
    let files = unpacked(&path);
    assert_eq!(names(&files["members/m0/persistentvolumeclaims.json"]), ["db"]);
    assert!(files.contains_key("logs/kosmos-csi/controller-1/driver.log"), "{:?}", files.keys());
}

#[tokio::test]
async fn support_bundle_goes_on_where_the_host_does_not_say_who_its_members_are() {
    let clusters = busy().await;
    let path = clusters.folder.path().join("all.tgz").display().to_string();
    clusters.host.change(SECRETS, "kosmos-csi", "m0", |secret| secret["data"] = json!({})).unwrap();
    let told = clusters.does(&format!("support-bundle --output={path}")).await;
    assert!(told.contains("members/m0 "), "{told}");
    assert_eq!(names(&unpacked(&path)["host/persistentvolumes.json"]), ["pvc-1"]);
}

#[tokio::test]
async fn support_bundle_writes_over_no_file_and_asks_nobody_before_it_has_one() {
    let clusters = Clusters::new(0);
    for (path, said) in
        [(clusters.file("host"), "exists"), (format!("{}/none/x.tgz", clusters.folder.path().display()), "No such")]
    {
        clusters.refuses(&format!("support-bundle --output={path}"), &["--output", &path, said]).await;
    }
    let path = format!("{}/x.tgz", clusters.folder.path().display());
    clusters.refuses(&format!("support-bundle --output={path} --context=none"), &["none"]).await;
    assert!(!std::path::Path::new(&path).exists());
}
