//! What pods on virtual nodes use, by the host's real metrics-server: `kubectl top`, and an autoscaler that goes by it. The member's
//! own metrics-server says it to the agent.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, NODE},
    clusters::{namespaces::BRIDGE_ADDRESS, tools::fed, wait_for},
    objects::{Place, tolerant},
    pool::on_fleet,
    rig::{MEMBERS, Rig},
};

const NAMESPACE: &str = "usage";
const PORT: u16 = 26500;
/// Two metrics-servers after one another, each every ten seconds and with two looks, and then the autoscaler.
const TOLD: Duration = Duration::from_mins(2);

/// Pods that use what they are given, a twelfth of a processor, and ask for half as much; and some memory.
fn busy() -> Value {
    let mut template = tolerant("busy", &[]);
    template["metadata"] = json!({"labels": {"app": "busy"}});
    template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    template["spec"]["restartPolicy"] = json!("Always");
    let work = "held=$(head -c 8000000 /dev/zero | tr '\\0' x); while :; do :; done";
    template["spec"]["containers"][0]["command"] = json!(["sh", "-c", work]);
    template["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "40m", "memory": "16Mi"}, "limits": {"cpu": "80m", "memory": "64Mi"}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy", "namespace": NAMESPACE},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "busy"}}, "template": template}})
}

fn autoscaler() -> Value {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "busy", "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
            "minReplicas": 1, "maxReplicas": 2, "metrics": [cpu]}})
}

/// Thousandths of a processor and MiB, as `kubectl top` prints them: `184m`, `3Mi`.
fn top(printed: &str, name: &str) -> Option<(u64, u64)> {
    let line = printed.lines().find(|line| line.starts_with(name))?;
    let mut figures = line.split_whitespace().skip(1).filter(|word| !word.ends_with('%'));
    Some((figures.next()?.strip_suffix('m')?.parse().ok()?, figures.next()?.strip_suffix("Mi")?.parse().ok()?))
}

async fn told(rig: &Rig) -> Result<()> {
    let host = rig.fleet.host();
    let of_pods = wait_for("kubectl top pod shows what the pod uses", TOLD, || async {
        let printed = host.kubectl(&["top", "pod", "-n", NAMESPACE, "--no-headers"]).await.unwrap_or_default();
        Ok(top(&printed, "busy-").filter(|(cpu, memory)| *cpu > 20 && *memory > 4))
    })
    .await?;
    ensure!(of_pods.0 <= 120, "it may use 80m: {of_pods:?}");
    let printed = host.kubectl(&["top", "node", NODE, "--no-headers"]).await?;
    let (cpu, memory) = top(&printed, NODE).with_context(|| format!("no figures: {printed}"))?;
    ensure!(cpu > 20 && memory > 4, "{printed}");
    wait_for("the autoscaler asks for a second pod", TOLD, || async {
        let path = "jsonpath={.status.replicas}";
        let replicas = host.kubectl(&["get", "deployment", "busy", "-n", NAMESPACE, "-o", path]).await?;
        Ok((replicas == "2").then_some(()))
    })
    .await
}

/// The pages are read by Prometheus' own parser, and have what they should.
async fn pages(rig: &Rig) -> Result<()> {
    for (page, name) in [
        ("metrics/resource", "container_cpu_usage_seconds_total"),
        ("metrics/cadvisor", "container_memory_working_set_bytes"),
        ("metrics", "kubelet_node_name"),
    ] {
        let path = format!("/api/v1/nodes/{NODE}/proxy/{page}");
        let text = rig.fleet.host().kubectl(&["get", "--raw", &path]).await?;
        let names = fed(&rig.fleet.tools().path("scrape"), "text/plain; version=0.0.4", text.as_bytes())?;
        ensure!(names.lines().any(|there| there == name), "{page}: {text}");
    }
    Ok(())
}

/// Who shows no token, or one of somebody who may not, is told nothing; nor is who may read usage anything else.
async fn refusals(rig: &Rig, host: &Place<'_>) -> Result<()> {
    let port = wait_for("the node has a port of its own", TOLD, || async {
        let path = "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}";
        let port = host.cluster.kubectl(&["get", "node", NODE, "-o", path]).await?;
        Ok((port != PORT.to_string()).then_some(port))
    })
    .await?;
    let nobody = host.cluster.kubectl(&["create", "token", "default", "-n", NAMESPACE]).await?;
    let scraper = host.cluster.kubectl(&["create", "token", "metrics-server", "-n", "kube-system"]).await?;
    for (token, page, code) in [
        (None, "metrics/resource", "401"),
        (Some("made.up.token"), "metrics/resource", "401"),
        (Some(nobody.as_str()), "metrics/resource", "403"),
        (Some(scraper.as_str()), "metrics/resource", "200"),
        (Some(scraper.as_str()), "stats/summary", "403"),
        (Some(scraper.as_str()), "containerLogs/usage/busy/main", "401"),
    ] {
        let url = format!("https://{BRIDGE_ADDRESS}:{port}/{page}");
        let header = token.map(|token| format!("Authorization: Bearer {token}"));
        let usual = ["-sk", "-o", "/dev/null", "-w", "%{http_code}", &url];
        let with = header.as_deref().map(|header| ["-H", header]);
        let arguments: Vec<&str> = usual.into_iter().chain(with.into_iter().flatten()).collect();
        let answered = rig.fleet.exec("curl", &arguments).await?;
        ensure!(answered.trim() == code, "{page}: {answered}, and not {code}");
    }
    Ok(())
}

#[test]
fn kubectl_top_and_an_autoscaler_see_what_pods_on_a_virtual_node_use() {
    on_fleet("usage", async |rig| {
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        let (member, cluster) = (rig.fleet.member(MEMBERS[0]), rig.fleet.host());
        let flags = [format!("--kubelet-address={BRIDGE_ADDRESS}:{PORT}"), "--kubelet-node-ports=8".to_owned()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let agent = Agent::start_with(rig, &flags, &MEMBERS.map(|member| format!("kosmos-{member}"))).await?;
        tokio::try_join!(member.install_metrics_server(), cluster.install_metrics_server())?;
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [busy(), autoscaler()]});
        cluster.apply(&objects.to_string()).await?;
        let result = async {
            told(rig).await?;
            pages(rig).await?;
            refusals(rig, &host).await
        }
        .await;
        cluster.remove_metrics_server().await?;
        member.remove_metrics_server().await?;
        result?;
        cluster.kubectl(&["delete", "deployment,hpa", "busy", "-n", NAMESPACE]).await?;
        wait_for("its pods are gone", TOLD, || async {
            let left = cluster.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "name"]).await?;
            Ok(left.trim().is_empty().then_some(()))
        })
        .await?;
        agent.end().await
    });
}
