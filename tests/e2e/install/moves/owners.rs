//! A move onto storage that keeps no owners, whether that says so or not: it stalls and tells why, and nothing is switched. Called off,
//! the pod runs again where it ran, with all that it had, and nothing of the copy is left.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    CLAIM, MOVED, NAMESPACE, POD, PROGRAM, ask, begin, claim, end, nothing_is_lost, other_than, running, said, stops,
    waits_for_pods, writer,
};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    install::release::PATIENCE,
};

/// Two owners in one volume.
const GIVE: &str = "echo theirs >/data/theirs && chown 1000:1000 /data/theirs && sync";
const OWNERS: &str = "0:0 /data/log\n1000:1000 /data/theirs\n";
/// So many attempts have failed before it is called off.
const FAILED: u64 = 2;

struct Storage {
    does: &'static str,
    says: [&'static str; 2],
    called_off_by_command: bool,
}

const STORAGES: [Storage; 2] = [
    Storage {
        does: "ignores",
        says: ["CopyDiffers", r#""theirs" has owner 0, and had 1000"#],
        called_off_by_command: true,
    },
    Storage { does: "refuses", says: ["CopyFailed", "failed: Operation not permitted"], called_off_by_command: false },
];

pub async fn storage_without_owners_stalls_a_move(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    host.apply(&writer()).await?;
    let from = running(host, None).await?;
    let to = fleet.member(other_than(&from));
    in_pod(host, GIVE).await?;
    for storage in &STORAGES {
        let mounted = to.keep_no_owners(storage.does).await?;
        let tried = tried(fleet, &from, to, storage).await;
        let ended = mounted.end().await.context("end the storage");
        tried.with_context(|| format!("{from} to {}, which {}", to.name(), storage.does)).and(ended)?;
    }
    end(fleet, 0, None).await
}

async fn tried(fleet: &Fleet, from: &str, to: &Cluster, storage: &Storage) -> Result<()> {
    let (host, name) = (fleet.host(), storage.does);
    wait_for("it writes", PATIENCE, || async { Ok((said(host).await? > 0).then_some(())) }).await?;
    let (led_to, had) = (leads_to(host).await?, held(fleet).await?);
    ask(host, name, to.name()).await?;
    waits_for_pods(host, name).await?;
    let (acknowledged, _) = stops(host).await?;
    stalls(host, storage).await?;
    ensure!(leads_to(host).await? == led_to, "it was switched: {} and not {led_to}", leads_to(host).await?);
    call_off(fleet, storage).await?;
    running(host, Some(from)).await?;
    nothing_is_lost(host, acknowledged).await?;
    let owners = in_pod(host, "stat -c '%u:%g %n' /data/log /data/theirs").await?;
    ensure!(owners == OWNERS, "the files have other owners: {owners}");
    ensure!(leads_to(host).await? == led_to, "it leads to {} and not {led_to}", leads_to(host).await?);
    wait_for("nothing of the copy is left", MOVED, || async {
        let holds = held(fleet).await?;
        ensure!(holds == had, "there was {had:#?}, and is {holds:#?}");
        Ok(Some(()))
    })
    .await
}

async fn in_pod(host: &Cluster, command: &str) -> Result<String> {
    host.kubectl(&["-n", NAMESPACE, "exec", POD, "--", "sh", "-c", command]).await
}

/// The claim, its volume, and in which member that is.
async fn leads_to(host: &Cluster) -> Result<String> {
    let claim = claim(host).await?;
    let volume = claim.split_whitespace().nth(1).context("the claim has a volume")?;
    let path = "jsonpath={.metadata.uid} {.spec.csi.volumeHandle} {.status.phase}";
    Ok(format!("{claim} {}", host.kubectl(&["get", "pv", volume, "-o", path]).await?))
}

/// By condition and events, again and again.
async fn stalls(host: &Cluster, storage: &Storage) -> Result<()> {
    let get = ["-n", NAMESPACE, "get", "volumemove", storage.does, "-o", "jsonpath={.status}"];
    wait_for("it stalls, and says why", MOVED, || async {
        let status: Value = serde_json::from_str(&host.kubectl(&get).await?)?;
        let condition = &status["conditions"][0];
        let word = |key: &str| condition[key].as_str().unwrap_or_default();
        let is_stalled = [word("type"), word("status"), word("reason")] == ["Stalled", "True", "MoverFailed"];
        let is_told = storage.says.iter().all(|words| word("message").contains(words));
        let has_failed = status["attempt"].as_u64().is_some_and(|attempt| attempt >= FAILED);
        ensure!(status["phase"] == "Copying" && is_stalled && is_told && has_failed, "{status}");
        Ok(Some(()))
    })
    .await?;
    let path = r#"jsonpath={range .items[?(@.reason=="MoveStalled")]}{.involvedObject.kind} {.message}{"\n"}{end}"#;
    let events = host.kubectl(&["-n", NAMESPACE, "get", "events", "-o", path]).await?;
    for kind in ["VolumeMove ", "PersistentVolumeClaim "] {
        let is_told = events.lines().any(|event| event.starts_with(kind) && event.contains(storage.says[0]));
        ensure!(is_told, "no event of the {kind}says so: {events}");
    }
    Ok(())
}

/// It is undone when that has ended.
async fn call_off(fleet: &Fleet, storage: &Storage) -> Result<()> {
    let host = fleet.host();
    if storage.called_off_by_command {
        let admin = format!("--kubeconfig={}", host.kubeconfig_inside().display());
        let claim = format!("{NAMESPACE}/{CLAIM}");
        let words = ["volume", "cancel", &claim, &admin];
        timeout(MOVED, fleet.exec(PROGRAM, &words)).await.context("`volume cancel` does not end")??;
    } else {
        host.kubectl(&["-n", NAMESPACE, "delete", "volumemove", storage.does, "--timeout=300s"]).await?;
    }
    wait_for("the move is gone", PATIENCE, || async {
        let left = host.kubectl(&["-n", NAMESPACE, "get", "volumemoves", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(Some(()))
    })
    .await
}

/// What members have of volumes and movers: objects, and folders on their disks.
async fn held(fleet: &Fleet) -> Result<Vec<String>> {
    let named = r#"jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}"#;
    let mut held = Vec::new();
    for member in fleet.members() {
        let volumes = member.kubectl(&["get", "pv,pvc", "--all-namespaces", "-o", named]).await?;
        let movers = member.kubectl(&["-n", "kosmos-csi-movers", "get", "pods,secrets", "-o", named]).await?;
        let folders = fs::read_dir(member.local_path_folder()).into_iter().flatten().flatten();
        let folders = folders.map(|folder| folder.file_name().display().to_string());
        let objects = volumes.lines().chain(movers.lines()).map(str::to_owned);
        held.extend(objects.chain(folders).map(|what| format!("{}: {what}", member.name())));
    }
    held.sort();
    Ok(held)
}
