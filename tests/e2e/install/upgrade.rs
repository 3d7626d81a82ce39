//! A release that is upgraded and rolled back while its volumes are written to: all its pods begin again, and nobody who uses a volume
//! notices.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    helm::{CHART, NAMESPACE, PODS_NAMESPACE, helm},
    release::{PATIENCE, kubeconfig, manifest, running},
    volumes::{self, GROWING, GROWTH, until},
};
use crate::clusters::{Cluster, Fleet, wait_for};

const MEMBER: &str = "cluster38";
const POD: &str = "steady";
/// Whose claims wait for no pod.
const CLASS: &str = "while-it-rolls";
const WRITER: &str = "n=0; while :; do n=$((n + 1)); echo $n >> /data/log && sync -d /data/log; sleep 0.1; done";

pub async fn nobody_notices_an_upgrade_and_a_rollback(fleet: &Fleet) -> Result<()> {
    volumes::begin(fleet).await?;
    let (host, member) = (fleet.host(), fleet.member(MEMBER));
    let mut writer = volumes::pod(POD, POD);
    writer["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "kosmos-cluster38"});
    writer["spec"]["containers"][0]["command"] = json!(["sh", "-c", WRITER]);
    let items = [volumes::claim(POD, "openebs-hostpath", &Value::Null), writer];
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    until(host, GROWTH, &format!("pod/{POD}"), "--for=condition=Ready").await?;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": "kosmos.csi.io",
        "volumeBindingMode": "Immediate", "parameters": {"leafStorageClass": GROWING, "member": MEMBER},
    });
    host.apply(&class.to_string()).await?;
    let before = manifest(host)?;
    let access = [&format!("--namespace={NAMESPACE}"), &kubeconfig(host)];
    members_do_not_stay_behind(&access.map(String::as_str))?;
    for (number, words) in [
        (1, &["upgrade", "kosmos-csi", CHART, "--reuse-values", "--set=logs.level=info"][..]),
        (2, &["rollback", "kosmos-csi", "1"][..]),
    ] {
        let (pods, written) = (of_release(host).await?, written(member).await?);
        let identity = identity(host, member).await?;
        helm(&[words, &access.map(String::as_str)].concat())?;
        let claim = format!("while-it-rolls-{number}");
        host.apply(&volumes::claim(&claim, CLASS, &Value::Null).to_string()).await?;
        running(host).await?;
        wait_for("all pods of the release have begun again", PATIENCE, || async {
            let now = of_release(host).await?;
            Ok(now.iter().all(|uid| !pods.contains(uid)).then_some(()))
        })
        .await?;
        until(host, GROWTH, &format!("pvc/{claim}"), "--for=jsonpath={.status.phase}=Bound").await?;
        ensure!(self::identity(host, member).await? == identity, "the pod began again, here or there");
        wait_for("it goes on writing", PATIENCE, || async {
            Ok((self::written(member).await? > written).then_some(()))
        })
        .await?;
        wait_for("the agent that leads now serves exec", PATIENCE, || async {
            Ok(host.kubectl(&["-n", GROWTH, "exec", POD, "--", "true"]).await.ok())
        })
        .await?;
    }
    ensure!(manifest(host)? == before, "rolled back, it is what it was");
    host.kubectl(&["-n", GROWTH, "delete", "pod,pvc", "--all", "--timeout=90s"]).await?;
    host.kubectl(&["delete", "storageclass", CLASS]).await.map(drop)
}

/// As they would where the agent gets another namespace than the one that has their Secrets.
fn members_do_not_stay_behind(access: &[&str]) -> Result<()> {
    let elsewhere = "--set=virtualNode.namespace=elsewhere";
    let upgrade = ["upgrade", "kosmos-csi", CHART, "--reuse-values", "--dry-run=server", elsewhere];
    let refused = helm(&[&upgrade[..], access].concat()).err().context("the agent's namespace is changed")?;
    let refused = format!("{refused:#}");
    ensure!(refused.contains(&format!("set virtualNode.namespace to {PODS_NAMESPACE}")), "{refused}");
    Ok(())
}

/// Of controller, agent and plugin.
async fn of_release(host: &Cluster) -> Result<Vec<String>> {
    // The pod of `helm test` stays for its log.
    let ours = "app.kubernetes.io/name=kosmos-csi,app.kubernetes.io/component!=test";
    let uids = host.kubectl(&["get", "pods", "-A", "-l", ours, "-o", "jsonpath={.items[*].metadata.uid}"]).await?;
    Ok(uids.split_whitespace().map(str::to_owned).collect())
}

async fn written(member: &Cluster) -> Result<u64> {
    let lines = member.kubectl(&["-n", GROWTH, "exec", POD, "--", "wc", "-l", "/data/log"]).await?;
    lines.split_whitespace().next().context("a number")?.parse().context("a number")
}

/// Which pod it is on either side, and how often its container began.
async fn identity(host: &Cluster, member: &Cluster) -> Result<[String; 2]> {
    let path = "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}";
    let get = ["-n", GROWTH, "get", "pod", POD, "-o", path];
    Ok([host.kubectl(&get).await?, member.kubectl(&get).await?])
}
