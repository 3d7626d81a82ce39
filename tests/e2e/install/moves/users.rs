//! Whoever keeps the volume is waited for and named: a pod that takes its time to stop, one of the member's own people, and one that
//! has ended. Its namespace lets nobody do more than `restricted`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use domain::volume::moving::Phase;
use serde_json::{Value, json};

use super::{
    CLAIM, LEVEL, MOVED, NAMESPACE, POD, WRITER, ask, begin, big::reached, claim, end, nothing_is_lost, other_than,
    running, said, waits_for_pods, writer,
};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    install::examples,
};

/// What the pod takes to stop.
const GRACE: Duration = Duration::from_secs(40);

pub async fn users_are_waited_for_and_named(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    for cluster in fleet.clusters() {
        cluster.apply(&namespace().to_string()).await?;
    }
    host.apply(&stubborn(&writer())?).await?;
    let from = running(host, None).await?;
    let (to, before) = (other_than(&from), claim(host).await?);
    let member = fleet.member(&from);
    for (name, command, phase) in [("theirs", "sleep 3600", "Running"), ("ended", "true", "Succeeded")] {
        member.apply(&stranger(name, command).to_string()).await?;
        let until = format!("--for=jsonpath={{.status.phase}}={phase}");
        member.kubectl(&["-n", NAMESPACE, "wait", &format!("pod/{name}"), &until, "--timeout=90s"]).await?;
    }
    ask(host, "there", to).await?;
    waits_for_pods(host, "there").await?;
    let pod = |name: &str, state: &str| format!("pod {NAMESPACE}/{name} of member {from}{state}");
    let ended = pod("ended", " (it has ended, and keeps the claim until it is deleted)");
    says(host, &[&ended, &pod("theirs", ","), &pod(POD, "")], "finalizer").await?;
    let began = Instant::now();
    host.kubectl(&["-n", NAMESPACE, "delete", "pod", POD, "--wait=false"]).await?;
    let wrote = said(host).await?;
    says(host, &[&pod(POD, " (it is being deleted)")], "finalizer").await?;
    let acknowledged = wait_for("the pod that is being deleted goes on", MOVED, || async {
        Ok(Some(said(host).await?).filter(|now| *now > wrote))
    })
    .await?;
    wait_for("the pod has ended in the member", MOVED, || async {
        let left = member.kubectl(&["-n", NAMESPACE, "get", "pod", POD, "--ignore-not-found", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(Some(()))
    })
    .await?;
    ensure!(began.elapsed() >= GRACE, "it was given {:?} to stop", began.elapsed());
    says(host, &["pods use the volume", &ended, &pod("theirs", "")], &pod(POD, "")).await?;
    member.kubectl(&["-n", NAMESPACE, "delete", "pod", "theirs", "ended", "--grace-period=1", "--timeout=60s"]).await?;
    running(host, Some(to)).await?;
    nothing_is_lost(host, acknowledged).await?;
    // Only then another move of the volume may begin.
    reached(host, "there", Phase::Succeeded).await?;
    ask(host, "back", &from).await?;
    waits_for_pods(host, "back").await?;
    let acknowledged = said(host).await?;
    host.kubectl(&["-n", NAMESPACE, "delete", "pod", POD, "--timeout=90s"]).await?;
    running(host, Some(&from)).await?;
    nothing_is_lost(host, acknowledged).await?;
    ensure!(claim(host).await? == before, "the claim was {before:?}");
    end(fleet, 2, None).await?;
    for member in fleet.members() {
        member.kubectl(&["label", "namespace", NAMESPACE, &format!("{LEVEL}-")]).await?;
    }
    Ok(())
}

/// What the user is told that he waits for, and for what not.
async fn says(host: &Cluster, parts: &[&str], no_more: &str) -> Result<()> {
    wait_for("it says whom it waits for", MOVED, || async {
        let path = "jsonpath={.status.phase} {.status.conditions[0].message}";
        let told = host.kubectl(&["-n", NAMESPACE, "get", "volumemove", "there", "-o", path]).await?;
        let is_told = parts.iter().all(|part| told.contains(part)) && !told.contains(no_more);
        ensure!(told.starts_with("Waiting ") && is_told, "{told}");
        Ok(Some(()))
    })
    .await
}

fn namespace() -> Value {
    let labels = json!({LEVEL: "restricted", "kosmos.csi.io/pods": "baseline"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// As `restricted` wants it.
fn restrict(container: &mut Value) {
    container["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
}

/// The writer, which does not stop before it has to.
fn stubborn(writer: &str) -> Result<String> {
    let mut list: Value = serde_json::from_str(writer)?;
    let items = list["items"].as_array_mut().into_iter().flatten();
    for item in items.filter(|item| item["kind"] == "StatefulSet") {
        let template = &mut item["spec"]["template"]["spec"];
        template["terminationGracePeriodSeconds"] = json!(GRACE.as_secs());
        template["containers"][0]["command"] = json!(["sh", "-c", WRITER.replace("trap exit TERM", "trap '' TERM")]);
        restrict(&mut template["containers"][0]);
    }
    // It is there already, with its labels.
    list["items"].as_array_mut().into_iter().for_each(|items| items.retain(|item| item["kind"] != "Namespace"));
    Ok(list.to_string())
}

/// A pod of the member's own people on the leaf claim.
fn stranger(name: &str, command: &str) -> Value {
    let mut container = json!({"name": "main", "image": examples::IMAGE, "command": ["sh", "-c", command],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    restrict(&mut container);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {
        "restartPolicy": "Never", "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]}})
}
