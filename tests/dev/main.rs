//! `kosmos-csi dev` as its user meets it: the demo from the first claim to nothing being left, what survives an end of
//! the process, and how it ends.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

mod demo;
mod moves;
mod process;

use std::{
    fs,
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use demo::{
    CLAIM, CLAIMS, DEPLOYMENT, DEPLOYMENTS, PODS, VOLUMES, apply, deployment, folder_of_the_leaf, is_available,
    is_bound, is_ready, running, template,
};
use nix::sys::signal::Signal;
use process::{Cluster, Dev, items};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Bad configuration, by the convention of `sysexits`.
const MISUSE: i32 = 64;
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("dev-").tempdir_in("/tmp").unwrap()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer}: {object:#}"))
}

/// The demo runs in it.
async fn with_demo(folder: &Path) -> (Dev, Cluster, Cluster) {
    let dev = Dev::start(folder).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    apply(&host).await;
    host.until(DEPLOYMENT, "available", is_available).await;
    (dev, host, member)
}

/// Deletes the demo, and waits until nothing of it is left anywhere.
async fn delete_all(host: &Cluster, member: &Cluster, leaf: &Path) {
    host.delete(DEPLOYMENT).await;
    host.delete(CLAIM).await;
    for cluster in [host, member] {
        cluster.until(PODS, "empty", |pods| items(pods).is_empty()).await;
        cluster.until_gone(CLAIM).await;
        cluster.until(VOLUMES, "empty", |volumes| items(volumes).is_empty()).await;
    }
    assert!(!leaf.exists(), "{}", leaf.display());
}

#[tokio::test]
async fn demo_runs_from_the_first_claim_to_nothing_being_left() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    apply(&host).await;
    let claim = host.until(CLAIM, "bound", is_bound).await;
    host.until(DEPLOYMENT, "available", is_available).await;
    let pods = host.until(PODS, "running", |pods| running(pods).is_some()).await;
    let pod = running(&pods).unwrap();
    assert_eq!(text(pod, "/spec/nodeName"), "kosmos-cluster38");
    let copies = member.until(PODS, "running", |pods| running(pods).is_some()).await;
    assert_eq!(copies["items"][0]["metadata"]["name"], pod["metadata"]["name"]);
    assert!(dev.cluster("cluster39").await.get(CLAIM).await.is_none());

    let volume = host.get(&format!("{VOLUMES}/{}", text(&claim, "/spec/volumeName"))).await.unwrap();
    assert!(text(&volume, "/spec/csi/volumeHandle").starts_with("cluster38/test-new/nginx-pvc/"), "{volume:#}");
    let leaf = folder_of_the_leaf(&member).await;
    assert!(leaf.starts_with(folder.path().join("volumes/cluster38")), "{}", leaf.display());
    fs::write(leaf.join("index.html"), "still here").unwrap();

    host.delete(&format!("{PODS}/{}", text(pod, "/metadata/name"))).await;
    let uid = text(pod, "/metadata/uid");
    let recreated = |pods: &Value| running(pods).is_some_and(|pod| pod["metadata"]["uid"] != *uid);
    host.until(PODS, "recreated", recreated).await;
    host.delete(DEPLOYMENT).await;
    for cluster in [&host, &member] {
        cluster.until(PODS, "empty", |pods| items(pods).is_empty()).await;
    }
    host.create(DEPLOYMENTS, &deployment("kosmos-cluster38")).await;
    host.until(DEPLOYMENT, "available", is_available).await;
    assert_eq!(folder_of_the_leaf(&member).await, leaf);
    assert_eq!(fs::read_to_string(leaf.join("index.html")).unwrap(), "still here");

    delete_all(&host, &member, &leaf).await;
}

#[tokio::test]
async fn what_was_there_is_there_again_after_a_kill() {
    let folder = folder();
    let (dev, host, member) = with_demo(folder.path()).await;
    let leaf = folder_of_the_leaf(&member).await;
    fs::write(leaf.join("index.html"), "still here").unwrap();
    let before = [host.get(CLAIM).await, member.get(CLAIM).await, host.get(VOLUMES).await];
    let report = dev.report.clone();
    dev.end(Signal::SIGKILL).await;

    let dev = Dev::start(folder.path()).await;
    assert_eq!(dev.report, report, "the ports as well");
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    let uid = |object: &Option<Value>| object.as_ref().map(|object| object["metadata"]["uid"].clone());
    assert_eq!(uid(&host.get(CLAIM).await), uid(&before[0]));
    assert_eq!(uid(&member.get(CLAIM).await), uid(&before[1]));
    assert_eq!(host.get(VOLUMES).await.unwrap()["items"], before[2].as_ref().unwrap()["items"]);
    assert_eq!(fs::read_to_string(leaf.join("index.html")).unwrap(), "still here");
    host.until(PODS, "running", |pods| running(pods).is_some()).await;
    delete_all(&host, &member, &leaf).await;
}

#[tokio::test]
async fn claim_that_waits_goes_on_with_its_class_once_that_is_made_again_without_the_slip() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let host = dev.cluster("host").await;
    let class = |leaf: &str| {
        json!({"metadata": {"name": "mended"}, "provisioner": "kosmos.csi.io", "volumeBindingMode": "Immediate",
            "parameters": {"member": "cluster38", "leafStorageClass": leaf}})
    };
    host.create(CLASSES, &class("no-such-class")).await;
    let mut claim = demo::claim();
    claim["spec"]["storageClassName"] = json!("mended");
    host.create(CLAIMS, &claim).await;
    let events = "/api/v1/namespaces/test-new/events";
    let told = |events: &Value| items(events).iter().any(|event| text(event, "/message").contains("no-such-class"));
    host.until(events, "told why it waits", told).await;
    host.delete(&format!("{CLASSES}/mended")).await;
    host.create(CLASSES, &class("openebs-hostpath")).await;
    host.until(CLAIM, "bound", is_bound).await;
}

#[tokio::test]
async fn class_without_parameters_means_the_members_default_class() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    let class = json!({"metadata": {"name": "plain"}, "provisioner": "kosmos.csi.io", "volumeBindingMode": "WaitForFirstConsumer"});
    host.create(CLASSES, &class).await;
    let mut claim = demo::claim();
    claim["spec"]["storageClassName"] = json!("plain");
    host.create(CLAIMS, &claim).await;
    host.create(DEPLOYMENTS, &deployment("kosmos-cluster38")).await;
    host.until(CLAIM, "bound", is_bound).await;
    let leaf = member.get(CLAIM).await.unwrap();
    assert_eq!(leaf["spec"]["storageClassName"], "openebs-hostpath");
}

/// A claim that asks for more gets it on both sides, and while a pod has it, it is attached to the pod's node.
#[tokio::test]
async fn volume_is_attached_while_it_is_used_and_grows_when_it_is_asked_to() {
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    let folder = folder();
    let (_dev, host, member) = with_demo(folder.path()).await;
    let attachments = host.get(ATTACHMENTS).await.unwrap();
    let [attachment] = items(&attachments) else { panic!("{attachments:#}") };
    assert_eq!(text(attachment, "/spec/nodeName"), "kosmos-cluster38");
    assert_eq!(attachment["status"]["attached"], true, "before the pod's copy was made");
    let leaf = member.get(CLAIM).await.unwrap();
    let published = leaf["metadata"]["annotations"]["kosmos.csi.io/published"].as_str().unwrap();
    assert!(published.contains("virtual/cluster38"), "{published}");

    let asked = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    host.merge(CLAIM, &asked).await;
    let grown = |claim: &Value| claim["status"]["capacity"]["storage"] == "3Gi";
    member.until(CLAIM, "larger", grown).await;
    host.until(CLAIM, "larger", grown).await;
    let volumes = host.get(VOLUMES).await.unwrap();
    assert_eq!(volumes["items"][0]["spec"]["capacity"]["storage"], "3Gi");

    let leaf = folder_of_the_leaf(&member).await;
    delete_all(&host, &member, &leaf).await;
    assert!(items(&host.get(ATTACHMENTS).await.unwrap()).is_empty());
}

/// Killed over and over while volumes are made and removed, it never contradicts itself: in the end the volume is there,
/// with what was written into it, and then it is gone.
#[tokio::test]
async fn kills_at_any_moment_leave_nothing_broken() {
    let folder = folder();
    for (round, after) in [0, 30, 60, 90, 120, 200].into_iter().enumerate() {
        let dev = Dev::start(folder.path()).await;
        let host = dev.cluster("host").await;
        if round == 0 {
            apply(&host).await;
        }
        tokio::time::sleep(Duration::from_millis(after)).await; // the moment of the kill, nothing is waited for
        dev.end(Signal::SIGKILL).await;
    }
    let dev = Dev::start(folder.path()).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    host.until(DEPLOYMENT, "available", is_available).await;
    let leaf = folder_of_the_leaf(&member).await;
    fs::write(leaf.join("index.html"), "still here").unwrap();
    host.delete(DEPLOYMENT).await;
    host.delete(CLAIM).await;
    dev.end(Signal::SIGKILL).await;
    let dev = Dev::start(folder.path()).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    delete_all(&host, &member, &leaf).await;
}

#[tokio::test]
async fn ctrl_c_ends_all_of_it_at_once() {
    let folder = folder();
    let mut took = Vec::new();
    let dev = loop {
        let begun = Instant::now();
        let dev = Dev::start(folder.path()).await;
        took.push(begun.elapsed());
        if begun.elapsed() < Duration::from_secs(3) {
            break dev;
        }
        assert!(took.len() < 3, "up after {took:?}"); // the machine may have been busy with other tests
        dev.end(Signal::SIGINT).await;
    };
    let addresses: Vec<String> =
        dev.report.split_whitespace().filter_map(|word| word.strip_prefix("http://")).map(str::to_owned).collect();
    // Of host, members, and page.
    assert_eq!(addresses.len(), 4, "{}", dev.report);
    apply(&dev.cluster("host").await).await;
    let begun = Instant::now();
    let (status, log) = dev.end(Signal::SIGINT).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "ended after {:?}: {log}", begun.elapsed());
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!folder.path().join("csi.sock").exists());
    for address in addresses {
        assert!(TcpStream::connect(&address).is_err(), "{address} is still served");
    }
}

#[tokio::test]
async fn second_one_in_the_same_folder_is_refused() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (code, printed) = Dev::run(folder.path(), &[]).await;
    assert_eq!(code, MISUSE, "{printed}");
    assert!(printed.contains("another kosmos-csi dev uses --dir"), "{printed}");
    dev.cluster("host").await.until("/api/v1/namespaces/test-new", "there", Value::is_object).await;
}

#[tokio::test]
async fn folder_that_cannot_be_used_is_named() {
    let folder = folder();
    fs::write(folder.path().join("file"), "").unwrap();
    for (path, words) in [("file/below".to_owned(), "file/below"), ("x".repeat(100), "at most 107")] {
        let (code, printed) = Dev::run(&folder.path().join(path), &[]).await;
        assert_eq!(code, MISUSE, "{printed}");
        assert!(printed.contains("--dir") && printed.contains(words), "{printed}");
    }
    let (code, printed) = Dev::run(folder.path(), &["--members=0"]).await;
    assert!(code == MISUSE && printed.contains("--members"), "{printed}");
}

/// The names of the nodes, if all of them are ready.
fn ready(nodes: &Value) -> Vec<&str> {
    let name = |node| if is_ready(node) { text(node, "/metadata/name") } else { "not ready" };
    items(nodes).iter().map(name).collect()
}

#[tokio::test]
async fn member_that_is_left_out_keeps_its_volumes_and_comes_back() {
    let folder = folder();
    let dev = Dev::start_with(folder.path(), &["--members=2"]).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    apply(&host).await;
    host.until(DEPLOYMENT, "available", is_available).await;
    let leaf = folder_of_the_leaf(&member).await;
    dev.end(Signal::SIGINT).await;

    let dev = Dev::start_with(folder.path(), &["--members=1"]).await;
    assert!(dev.report.contains("cluster39  is kept and not started"), "{}", dev.report);
    let host = dev.cluster("host").await;
    host.until("/api/v1/nodes", "only that of the member that is there", |nodes| ready(nodes) == ["kosmos-cluster38"])
        .await;
    assert!(leaf.is_dir());
    dev.end(Signal::SIGINT).await;

    let dev = Dev::start_with(folder.path(), &["--members=3"]).await;
    let host = dev.cluster("host").await;
    host.until("/api/v1/nodes", "one for each member", |nodes| ready(nodes).len() == 3).await;
    delete_all(&host, &dev.cluster("cluster38").await, &leaf).await;
}

#[tokio::test]
async fn user_is_told_why_his_pod_waits() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let host = dev.cluster("host").await;
    host.create(DEPLOYMENTS, &deployment("kosmos-nowhere")).await;
    let waits = |pods: &Value| {
        let conditions = items(pods).first().map(|pod| pod["status"]["conditions"].to_string()).unwrap_or_default();
        conditions.contains("claim nginx-pvc does not exist")
    };
    host.until(PODS, "told that its claim is missing", waits).await;
    host.create(CLAIMS, &demo::claim()).await;
    let told = |events: &Value| {
        items(events).iter().any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "FailedScheduling" && message.contains("none of 2 nodes will do")
        })
    };
    host.until("/api/v1/namespaces/test-new/events", "told that no node will do", told).await;
}

#[tokio::test]
async fn copy_that_is_deleted_in_the_member_fails_its_pod_and_another_one_runs() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    apply(&host).await;
    let pods = host.until(PODS, "running", |pods| running(pods).is_some()).await;
    let name = text(&pods, "/items/0/metadata/name");
    member.delete(&format!("{PODS}/{name}")).await;
    let is_told = |pod: &Value| pod["metadata"]["name"] == *name && pod["status"]["reason"] == "DeletedInMember";
    host.until(PODS, "failed with the reason", |pods| items(pods).iter().any(is_told)).await;
    let another = |pods: &Value| running(pods).is_some_and(|pod| pod["metadata"]["name"] != *name);
    member.until(PODS, "replaced", another).await;
    host.until(PODS, "replaced", |pods| items(pods).iter().any(|pod| another(&json!({"items": [pod]})))).await;
}

/// A claim that a pod brings along is made for it and goes with it.
#[tokio::test]
async fn claim_of_a_single_pod_comes_and_goes_with_it() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    let volumes = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": demo::claim()["spec"]}}}]);
    let mut pod = template("kosmos-cluster38", &volumes);
    pod["metadata"]["name"] = json!("single");
    host.create(PODS, &pod).await;
    host.until(PODS, "running", |pods| running(pods).is_some()).await;
    for cluster in [&host, &member] {
        cluster.until(&format!("{CLAIMS}/single-data"), "bound", is_bound).await;
    }
    host.delete(&format!("{PODS}/single")).await;
    for cluster in [&host, &member] {
        cluster.until(VOLUMES, "empty", |volumes| items(volumes).is_empty()).await;
    }
}

/// Pods with a name of their own, each with its claim: on both members, scaled down and up again on the same data.
#[tokio::test]
async fn stateful_set_finds_its_volumes_again() {
    const SETS: &str = "/apis/apps/v1/namespaces/test-new/statefulsets";
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let host = dev.cluster("host").await;
    let mut template = template("", &Value::Null);
    template["spec"]["affinity"] = Value::Null;
    let mut claim = demo::claim();
    claim["metadata"]["name"] = json!("data");
    let spec = json!({"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "nginx"}},
        "template": template, "volumeClaimTemplates": [claim]});
    host.create(SETS, &json!({"metadata": {"name": "db"}, "spec": spec})).await;
    let set = format!("{SETS}/db");
    let ready = |count: u64| move |set: &Value| set["status"]["readyReplicas"].as_u64().unwrap_or(0) == count;
    host.until(&set, "ready", ready(2)).await;
    let claims = host.get(CLAIMS).await.unwrap();
    let volumes: Vec<&str> = items(&claims).iter().map(|claim| text(claim, "/spec/volumeName")).collect();
    let pods = host.get(PODS).await.unwrap();
    let nodes: Vec<&str> = items(&pods).iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    assert_eq!(nodes, ["kosmos-cluster38", "kosmos-cluster39"], "one on each");

    host.merge(&set, &json!({"spec": {"replicas": 0}})).await;
    host.until(PODS, "empty", |pods| items(pods).is_empty()).await;
    host.merge(&set, &json!({"spec": {"replicas": 2}})).await;
    host.until(&set, "ready again", ready(2)).await;
    let again = host.get(CLAIMS).await.unwrap();
    assert_eq!(items(&again).iter().map(|claim| text(claim, "/spec/volumeName")).collect::<Vec<_>>(), volumes);
}

/// A file is written, a snapshot taken, the file changed: what is restored holds the first text, what is cloned the second.
#[tokio::test]
async fn snapshot_and_clone_hold_what_the_volume_held() {
    const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/test-new/volumesnapshots";
    let folder = folder();
    let (_dev, host, member) = with_demo(folder.path()).await;
    let leaf = folder_of_the_leaf(&member).await;
    fs::write(leaf.join("index.html"), "before").unwrap();

    let source = json!({"persistentVolumeClaimName": "nginx-pvc"});
    host.create(
        SNAPSHOTS,
        &json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "photo"}, "spec": {"source": source}}),
    )
    .await;
    let photo = format!("{SNAPSHOTS}/photo");
    host.until(&photo, "ready", |snapshot| snapshot["status"]["readyToUse"] == true).await;
    fs::write(leaf.join("index.html"), "after").unwrap();

    let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "photo"});
    let clone = json!({"kind": "PersistentVolumeClaim", "name": "nginx-pvc"});
    for (name, source, holds) in [("restored", snapshot, "before"), ("cloned", clone, "after")] {
        let mut claim = demo::claim();
        claim["metadata"]["name"] = json!(name);
        claim["spec"]["dataSource"] = source;
        host.create(CLAIMS, &claim).await;
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        let mut pod = template("kosmos-cluster38", &volumes);
        pod["metadata"]["name"] = json!(name);
        host.create(PODS, &pod).await;
        let leaf = demo::folder_of(&member, &format!("{CLAIMS}/{name}")).await;
        assert_eq!(fs::read_to_string(leaf.join("index.html")).unwrap(), holds, "{name}");
        host.delete(&format!("{PODS}/{name}")).await;
        host.delete(&format!("{CLAIMS}/{name}")).await;
    }
    host.delete(&photo).await;
    host.until_gone(&photo).await;
    let kept = member.get(SNAPSHOTS).await.unwrap();
    assert!(items(&kept).is_empty(), "{kept:#}");
    delete_all(&host, &member, &leaf).await;
}
