//! A volume moves to another member: its user types the command and deletes the pod, and that is all.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{
    demo::{self, CLAIM, CLAIMS, PODS, VOLUMES, folder_of, folder_of_the_leaf, is_bound, is_ready, running, template},
    folder,
    process::{Cluster, Dev, PATIENCE, items},
    text,
};

const MOVES: &str = "/apis/kosmos.csi.io/v1alpha1/namespaces/test-new/volumemoves";

/// Types the command; it follows the move to its end.
fn move_to_cluster39(dev: &Dev, claim: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"));
    command.args(["volume", "move", &format!("test-new/{claim}"), "--to", "cluster39"]);
    command.env_clear().env("KUBECONFIG", dev.folder.join("host.kubeconfig"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

/// All that it has printed by its end, which is a good one.
async fn told(command: Child) -> String {
    let output = timeout(PATIENCE, command.wait_with_output()).await.expect("it does not end").unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
    printed
}

async fn comes_to(host: &Cluster, phase: &str) -> Value {
    let is_there = |moves: &Value| matches!(items(moves), [of] if of["status"]["phase"] == *phase);
    host.until(MOVES, phase, is_there).await["items"][0].take()
}

/// For a node of any member; of two that are empty it is that of cluster38.
fn anywhere(volumes: &Value) -> Value {
    let mut template = template("", volumes);
    template["spec"]["affinity"] = Value::Null;
    template
}

#[tokio::test]
async fn volume_moves_with_its_files_once_its_pod_is_deleted_and_the_source_is_kept() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (host, from, to) = (dev.cluster("host").await, dev.cluster("cluster38").await, dev.cluster("cluster39").await);
    let mut pod = anywhere(&json!([{"name": "data", "persistentVolumeClaim": {"claimName": "nginx-pvc"}}]));
    pod["metadata"]["name"] = json!("web");
    host.create(CLAIMS, &demo::claim()).await;
    host.create(PODS, &pod).await;
    host.until(PODS, "running", |pods| running(pods).is_some()).await;
    let before = host.get(CLAIM).await.unwrap();
    let source = folder_of_the_leaf(&from).await;
    fs::write(source.join("index.html"), "carried along").unwrap();

    let command = move_to_cluster39(&dev, "nginx-pvc");
    comes_to(&host, "Waiting").await;
    host.delete(&format!("{PODS}/web")).await;
    let of = comes_to(&host, "Succeeded").await;
    let verified = &of["status"]["verified"];
    assert_eq!((&verified["files"], &verified["bytes"]), (&json!(1), &json!(13)), "{of:#}");
    let printed = told(command).await;
    assert!(printed.contains("is in member cluster39"), "{printed}");

    let after = host.until(CLAIM, "bound", is_bound).await;
    for same in ["/metadata/uid", "/spec/volumeName"] {
        assert_eq!(text(&after, same), text(&before, same));
    }
    let copy = folder_of_the_leaf(&to).await;
    assert!(copy.starts_with(folder.path().join("volumes/cluster39")), "{}", copy.display());
    for place in [&copy, &source] {
        assert_eq!(fs::read_to_string(place.join("index.html")).unwrap(), "carried along");
    }
    let kept = from.get(&format!("{VOLUMES}?labelSelector=kosmos.csi.io/moved")).await.unwrap();
    let [kept] = items(&kept) else { panic!("not one is kept: {kept:#}") };
    assert_eq!(kept["spec"]["csi"]["volumeAttributes"]["directory"], json!(source));
    assert_eq!(text(kept, "/spec/persistentVolumeReclaimPolicy"), "Retain");

    host.create(PODS, &pod).await;
    let pods = host.until(PODS, "running", |pods| running(pods).is_some()).await;
    assert_eq!(text(&pods, "/items/0/spec/nodeName"), "kosmos-cluster39");
    to.until(PODS, "running", |pods| running(pods).is_some()).await;
}

/// Its pod comes back at once, to the member where the volume was, waits there, and makes way for one where the volume is.
#[tokio::test]
async fn pod_of_a_stateful_set_runs_where_its_volume_has_moved_to_after_one_deletion() {
    let folder = folder();
    let dev = Dev::start(folder.path()).await;
    let (host, from, to) = (dev.cluster("host").await, dev.cluster("cluster38").await, dev.cluster("cluster39").await);
    let mut claim = demo::claim();
    claim["metadata"]["name"] = json!("data");
    let spec = json!({"replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "nginx"}},
        "template": anywhere(&Value::Null), "volumeClaimTemplates": [claim]});
    let set = json!({"metadata": {"name": "db"}, "spec": spec});
    host.create("/apis/apps/v1/namespaces/test-new/statefulsets", &set).await;
    let (pod, claim) = (format!("{PODS}/db-0"), format!("{CLAIMS}/data-db-0"));
    host.until(&pod, "ready", is_ready).await;
    fs::write(folder_of(&from, &claim).await.join("ledger"), "one line").unwrap();

    let command = move_to_cluster39(&dev, "data-db-0");
    comes_to(&host, "Waiting").await;
    host.delete(&pod).await;
    told(command).await;
    let runs_there = |pod: &Value| is_ready(pod) && pod["spec"]["nodeName"] == "kosmos-cluster39";
    host.until(&pod, "ready in the other member", runs_there).await;
    assert_eq!(fs::read_to_string(folder_of(&to, &claim).await.join("ledger")).unwrap(), "one line");
}
