//! `kubectl debug` of a pod on a virtual node: the container runs in the member, beside the copy's, or the pod says why not.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, NODE, gone, phase},
    clusters::{Cluster, images::BUSYBOX, wait_for},
    objects::{Place, tolerant},
    pool::on_fleet,
    rig::PATIENCE,
};

const NAMESPACE: &str = "pod-debug";

/// As a person types it.
async fn debug(host: &Place<'_>, container: &str, profile: &str) -> Result<()> {
    let image = format!("--image={BUSYBOX}");
    let profile = format!("--profile={profile}");
    let typed = ["debug", "-n", NAMESPACE, "web", "-c", container, &image, &profile, "--", "sleep", "1000"];
    host.cluster.kubectl(&typed).await.map(drop)
}

/// Waits until the host's pod says so of an ephemeral container.
async fn is(host: &Place<'_>, container: &str, state: &str, words: &str) -> Result<()> {
    wait_for(&format!("{container} is {state}"), PATIENCE, || async {
        let status = json!(host.pods().get("web").await?.status);
        let mut all = status["ephemeralContainerStatuses"].as_array().into_iter().flatten();
        let said: &Value = all.find(|one| one["name"] == container).map_or(&Value::Null, |one| &one["state"][state]);
        ensure!(!said.is_null() && said.to_string().contains(words), "{status}");
        Ok(Some(()))
    })
    .await
}

/// As somebody who rolls out an image that is not there, and takes that back.
async fn changes_reach_the_kubelet_that_runs_it(host: &Place<'_>, member: &Cluster) -> Result<()> {
    let set = async |image: &str| {
        let image = format!("*={image}");
        host.cluster.kubectl(&["set", "image", "pod/web", "-n", NAMESPACE, &image]).await.map(drop)
    };
    host.cluster.kubectl(&["label", "pod", "web", "-n", NAMESPACE, "role=primary"]).await?;
    set(&format!("{BUSYBOX}-of-tomorrow")).await?;
    host.warned("web", &["of-tomorrow", "not present"]).await?;
    set(BUSYBOX).await?;
    runs_again(host).await?;
    let role = ["-n", NAMESPACE, "get", "pod", "web", "-o", "jsonpath={.metadata.labels.role}"];
    let role = member.kubectl(&role).await?;
    ensure!(role == "primary", "the copy has the role {role:?}");
    Ok(())
}

/// Waits until the host's pod says so of its own container.
async fn runs_again(host: &Place<'_>) -> Result<()> {
    wait_for("it runs again", PATIENCE, || async {
        let status = json!(host.pods().get("web").await?.status);
        let main = &status["containerStatuses"][0];
        ensure!(!main["state"]["running"].is_null() && main["restartCount"].as_u64() > Some(0), "{main}");
        Ok(Some(()))
    })
    .await
}

#[test]
fn kubectl_debug_adds_a_container_to_the_copy_and_other_changes_reach_its_kubelet() {
    on_fleet("pod-debug", async |rig| {
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        let agent = Agent::start(rig).await?;
        let mut web = tolerant("web", &[]);
        web["spec"]["restartPolicy"] = json!("Always");
        web["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
        host.pods().create(&PostParams::default(), &serde_json::from_value(web)?).await?;
        phase(&host, "web", "Running").await?;
        debug(&host, "tracer", "general").await?;
        is(&host, "tracer", "waiting", "AboveBaseline").await?;
        host.warned("web", &["tracer is not added", "--profile=baseline"]).await?;
        debug(&host, "first", "baseline").await?;
        is(&host, "first", "running", "").await?;
        // The image has no user of its own.
        debug(&host, "second", "restricted").await?;
        is(&host, "second", "waiting", "runAsNonRoot").await?;
        // It is said on beside what the copy says.
        is(&host, "tracer", "waiting", "AboveBaseline").await?;
        let shown = host.cluster.kubectl(&["describe", "pod", "web", "-n", NAMESPACE]).await?;
        ensure!(shown.contains("AboveBaseline") && shown.contains("Ephemeral Containers"), "{shown}");
        changes_reach_the_kubelet_that_runs_it(&host, rig.fleet.member("cluster38")).await?;
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        agent.end().await
    });
}
