//! `kubectl debug` of a pod on a virtual node: the container runs in the member, beside the copy's, or the pod says why not.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::{
    agent::{Agent, NODE, gone, phase},
    clusters::{images::BUSYBOX, wait_for},
    objects::Place,
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

#[test]
fn kubectl_debug_adds_a_container_to_the_copy_up_to_the_members_level() {
    on_fleet("pod-debug", async |rig| {
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        let agent = Agent::start(rig).await?;
        host.tolerant_pod("web", &[], Some(NODE)).await?;
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
        host.pods().delete("web", &DeleteParams::default()).await?;
        gone(&host, "web").await?;
        agent.end().await
    });
}
