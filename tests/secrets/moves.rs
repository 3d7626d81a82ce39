//! A volume moves, so that there are keys of movers. Their pods are played here, and their Secrets read, which nobody else may.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use csi::{client::Client, v1::Volume};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::{Cluster, text};
use tokio::time::sleep;

use super::{
    PATIENCE, SHOP,
    provisioner::{creation, host_volume},
    told_by,
};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const MOVES: &str = "volumemoves.kosmos.csi.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const DEFINITION: &str = include_str!("../../deploy/chart/kosmos-csi/files/volumemoves.yaml");
const YARD: &str = "kosmos-csi-movers";
/// The claim that is moved, and its move.
const CLAIM: &str = "moving";
const CLASS: &str = "kosmos";
/// Between two looks.
const STEP: Duration = Duration::from_millis(20);
/// An empty volume moves in some seconds.
const MOVED: Duration = Duration::from_mins(2);

/// What a move needs before the driver starts.
pub fn prepare(host: &Cluster, members: [&Cluster; 2]) {
    host.create(DEFINITIONS, serde_saphyr::from_str(DEFINITION).unwrap()).unwrap();
    let class =
        json!({"metadata": {"name": CLASS}, "provisioner": "kosmos.csi.io", "parameters": {"leafStorageClass": "now"}});
    host.create("storageclasses.storage.k8s.io", class).unwrap();
    for member in members {
        member.create("namespaces", json!({"metadata": {"name": YARD}})).unwrap();
    }
}

/// All private keys that there were, in each form in which somebody could tell one; and what the objects of all clusters said while there
/// were both.
pub async fn keys(socket: &Path, host: &Cluster, members: [&Cluster; 2]) -> (Vec<String>, Vec<(String, String)>) {
    give_volume(socket, host, members[0].name()).await;
    let spec = json!({"claimName": CLAIM, "to": {"member": members[1].name()}});
    host.create(MOVES, json!({"metadata": {"name": CLAIM, "namespace": SHOP}, "spec": spec})).unwrap();
    let (began, mut keys, mut told) = (Instant::now(), BTreeSet::<String>::new(), Vec::new());
    let is_left = || members.iter().any(|member| !keys_in(member).is_empty());
    loop {
        let of = host.get(MOVES, SHOP, CLAIM).unwrap();
        if text(&of, "/status/phase") == "Succeeded" && !is_left() {
            break;
        }
        assert!(began.elapsed() < MOVED, "the volume does not move, or keys are left: {}", of["status"]);
        let now: BTreeSet<String> = members.into_iter().flat_map(keys_in).collect();
        if now.len() == 2 {
            told = [host, members[0], members[1]].into_iter().flat_map(told_by).collect();
        }
        keys.extend(now);
        play(members, &keys);
        sleep(STEP).await;
    }
    assert!(keys.len() >= 2 && !told.is_empty(), "the sender's and the receiver's: {}", keys.len());
    (keys.iter().flat_map(|key| forms(key)).collect(), told)
}

/// As a Secret has it, and the first line within its PEM.
fn forms(key: &str) -> [String; 2] {
    let bytes: ByteString = serde_json::from_value(json!(key)).unwrap();
    let pem = String::from_utf8(bytes.0).unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----"), "it is no private key");
    [key.trim_end_matches('=').to_owned(), pem.lines().nth(1).unwrap().to_owned()]
}

fn keys_in(member: &Cluster) -> Vec<String> {
    let secrets = member.list("secrets").into_iter().filter(|secret| text(secret, "/metadata/namespace") == YARD);
    secrets.map(|secret| text(&secret, "/data/tls.key").to_owned()).collect()
}

/// A volume in that member, bound to the claim: what is done beside the driver by external-provisioner.
async fn give_volume(socket: &Path, host: &Cluster, member: &str) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": {"requests": {"storage": "1Gi"}}});
    let claim = host.create(CLAIMS, json!({"metadata": {"name": CLAIM, "namespace": SHOP}, "spec": spec})).unwrap();
    let uid = text(&claim, "/metadata/uid");
    let name = format!("pvc-{uid}");
    let volume = create(socket, &name, member).await;
    host.create(VOLUMES, host_volume(&name, CLAIM, uid, &volume)).unwrap();
    let began = Instant::now();
    let is_bound = || host.get(CLAIMS, SHOP, CLAIM).is_some_and(|claim| text(&claim, "/status/phase") == "Bound");
    while !is_bound() {
        assert!(began.elapsed() < PATIENCE, "the claim is not bound");
        sleep(STEP).await;
    }
}

async fn create(socket: &Path, name: &str, member: &str) -> Volume {
    let request = creation(name, CLAIM, member);
    let (client, began) = (Client::new(socket).unwrap(), Instant::now());
    loop {
        match client.create_volume(request.clone(), PATIENCE).await {
            Ok(volume) => return volume,
            Err(refusal) => assert!(began.elapsed() < PATIENCE, "{refusal}"),
        }
        sleep(STEP).await;
    }
}

/// A pod begins once it has its key, and where both run, both come to the same end.
fn play(members: [&Cluster; 2], known: &BTreeSet<String>) {
    let both = members.map(|member| pods(member, known));
    let runs = |pod: &Value| text(pod, "/status/phase") == "Running";
    let is_one = |pods: &Vec<Value>| matches!(pods.as_slice(), [pod] if runs(pod));
    let copied = json!({"copied": {"digest": "sha256:0", "entries": 1, "files": 1, "bytes": 1}}).to_string();
    let end = json!({"terminated": {"exitCode": 0, "reason": "Completed", "message": copied}});
    let are_done = both.iter().all(is_one);
    let status = if are_done {
        json!({"phase": "Succeeded", "containerStatuses": [{"name": "mover", "state": end}]})
    } else {
        json!({"phase": "Running"})
    };
    for (member, pods) in members.into_iter().zip(&both) {
        for pod in pods.iter().filter(|pod| are_done || !runs(pod)) {
            let _ = member.change("pods", YARD, text(pod, "/metadata/name"), |pod| pod["status"] = status.clone());
        }
    }
}

/// Those of movers that have their key and have not ended.
fn pods(member: &Cluster, known: &BTreeSet<String>) -> Vec<Value> {
    let pods = member.list("pods").into_iter().filter(|pod| text(pod, "/metadata/namespace") == YARD);
    let has_key = |pod: &Value| {
        let secret = member.get("secrets", YARD, text(pod, "/metadata/name"));
        secret.is_some_and(|secret| known.contains(text(&secret, "/data/tls.key")))
    };
    let works = |pod: &Value| {
        text(pod, "/metadata/deletionTimestamp").is_empty()
            && !["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
    };
    pods.map(|pod| Value::clone(&pod)).filter(|pod| works(pod) && has_key(pod)).collect()
}
