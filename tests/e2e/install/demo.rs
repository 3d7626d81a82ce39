//! The demo of the sources, from one file in the host to a pod in the member: its claim is bound on both sides, its data
//! outlives it, and a pod that may not go where its volume is, says so, and its claim too.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{examples::example, release::PATIENCE};
use crate::clusters::{Cluster, Fleet, wait_for};

/// What the demo runs. A stand-in has its name here.
pub const IMAGE: &str = "registry.paas/cnp/nginx:1.14-alpine";
const NAMESPACE: &str = "test-new";
const CLAIM: &str = "nginx-pvc";
const MEMBER: &str = "cluster38";
const AFFINITY: &str = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
/// What is told of a thing that waits.
const PROMPT: Duration = Duration::from_secs(20);

/// The example as it stands, with the image and the label that the sources have. They write the label's value as a number,
/// which no API server takes.
fn file() -> Result<String> {
    let label = "        app: nginx\n        deletionGracePeriodSeconds: \"30\"\n    spec:";
    let text = example("nginx.yaml")?.replace("nginx:alpine", IMAGE);
    let text = text.replace("        app: nginx\n    spec:", label);
    ensure!(text.contains(IMAGE) && text.contains(label), "the example has changed: {text}");
    Ok(text)
}

pub async fn runs_in_its_member(fleet: &Fleet) -> Result<()> {
    let (host, member) = (fleet.host(), fleet.member(MEMBER));
    host.kubectl(&["create", "namespace", NAMESPACE]).await?;
    host.apply(&file()?).await?;
    let first = running(host, None).await?;
    is_bound_on_both_sides(host, member).await?;
    let copy = get(member, &format!("pod/{first}"), "{.status.phase}").await?;
    ensure!(copy == "Running", "the pod of the same name in the member is {copy:?}");
    let said = host.kubectl(&["-n", NAMESPACE, "logs", &first]).await.context("logs through the host")?;
    ensure!(said.contains("serves"), "it said {said:?}");
    inside(host, &first, "echo kept > /data/file && sync").await?;
    host.kubectl(&["-n", NAMESPACE, "delete", "pod", &first, "--timeout=90s"]).await?;
    let second = running(host, Some(&first)).await?;
    let found = inside(host, &second, "cat /data/file").await?;
    ensure!(found.trim() == "kept", "the next pod finds {found:?}");
    waits_where_its_volume_is_not(fleet).await?;
    goes(fleet).await
}

/// The one pod that runs on the member's virtual node, if it is not this one.
async fn running(host: &Cluster, other_than: Option<&str>) -> Result<String> {
    let path =
        "{range .items[*]}{.metadata.name} {.spec.nodeName} {.status.phase} {.metadata.deletionTimestamp}\n{end}";
    wait_for("the demo's pod runs on the member's virtual node", PATIENCE, || async {
        let pods = get(host, "pods", path).await?;
        let runs = pods.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, "kosmos-cluster38", "Running"] if Some(name) != other_than => Some(name.to_owned()),
            _ => None,
        });
        ensure!(runs.is_some(), "{pods}");
        Ok(runs)
    })
    .await
}

async fn is_bound_on_both_sides(host: &Cluster, member: &Cluster) -> Result<()> {
    let claim = format!("pvc/{CLAIM}");
    let path = "{.status.phase} {.status.capacity.storage}";
    let (here, there) = (get(host, &claim, path).await?, get(member, &claim, path).await?);
    ensure!(here == "Bound 1Gi" && here == there, "in the host {here:?}, in the member {there:?}");
    Ok(())
}

/// The Deployment is sent to the other member: its next pod waits, and pod and claim say what for.
async fn waits_where_its_volume_is_not(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    let value = "nodeSelectorTerms/0/matchExpressions/0/values";
    let moved = format!(r#"[{{"op": "replace", "path": "{AFFINITY}/{value}", "value": ["kosmos-cluster39"]}}]"#);
    host.kubectl(&["-n", NAMESPACE, "patch", "deployment", "nginx-new", "--type=json", "-p", &moved]).await?;
    told(host, "involvedObject.kind=Pod,reason=FailedScheduling", "node affinity").await?;
    told(host, &format!("involvedObject.name={CLAIM},reason=VolumeElsewhere"), "in member cluster38").await?;
    let pods = get(host, "pods", "{.items[*].status.phase}").await?;
    ensure!(pods.contains("Pending"), "its pods are {pods}");
    let there = fleet.member("cluster39").kubectl(&["get", "pods,pvc", "-n", NAMESPACE, "-o", "name"]).await?;
    ensure!(there.is_empty(), "in the other member: {there}");
    Ok(())
}

async fn told(host: &Cluster, fields: &str, words: &str) -> Result<()> {
    wait_for(&format!("an event says {words}"), PROMPT, || async {
        let events =
            ["-n", NAMESPACE, "get", "events", "--field-selector", fields, "-o", "jsonpath={.items[*].message}"];
        let said = host.kubectl(&events).await?;
        ensure!(said.contains(words), "{said:?}");
        Ok(Some(()))
    })
    .await
}

async fn goes(fleet: &Fleet) -> Result<()> {
    let (host, member) = (fleet.host(), fleet.member(MEMBER));
    host.kubectl(&["-n", NAMESPACE, "delete", "deployment", "nginx-new", "--timeout=90s"]).await?;
    wait_for("its pods are gone from both", PATIENCE, || async {
        let left = [
            get(host, "pods", "{.items[*].metadata.name}").await?,
            get(member, "pods", "{.items[*].metadata.name}").await?,
        ];
        ensure!(left.iter().all(String::is_empty), "{left:?}");
        Ok(Some(()))
    })
    .await?;
    host.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=90s"]).await.map(drop)
}

async fn get(cluster: &Cluster, what: &str, path: &str) -> Result<String> {
    cluster.kubectl(&["-n", NAMESPACE, "get", what, "-o", &format!("jsonpath={path}")]).await
}

/// A shell in a pod, through the host.
async fn inside(host: &Cluster, pod: &str, script: &str) -> Result<String> {
    let exec = ["-n", NAMESPACE, "exec", pod, "--", "sh", "-c", script];
    host.kubectl(&exec).await.with_context(|| format!("exec in {pod} through the host"))
}
