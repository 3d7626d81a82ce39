//! How full volumes are: a reader in the member asks its kubelet, and a virtual node of the host has it by the host's claims, as any
//! node's kubelet does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use leaf::stats;
use operator::objects::{PODS_ACCOUNT, STATS_ACCOUNT, Uses, own_name, word};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, NODE, gone, phase},
    clusters::{Cluster, namespaces::BRIDGE_ADDRESS, product::Flavour, tools::fed, wait_for},
    install::release,
    objects::{Place, nothing_of_ours, pod},
    policies::labels,
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, LATER, MEMBERS, Rig},
};

const NAMESPACE: &str = "volume-stats";
const PORT: u16 = 26600;
const POD: &str = "writer";
const CLAIM: &str = "data";
const WRITTEN: f64 = 50.0 * 1024.0 * 1024.0;
/// A kubelet measures every ten seconds here, and it is asked as often.
const TOLD: Duration = Duration::from_mins(2);

/// The reader of this host, as `member add --volume-stats` makes it; its name.
async fn install(rig: &Rig, member: &Cluster, host: &str) -> Result<String> {
    let folder = tempfile::tempdir_in(rig.fleet.folder())?;
    for archive in release::pack(folder.path(), &[Flavour::Small])? {
        release::import(member, &archive).await?;
    }
    let uses = Uses { volume_stats: true, ..Uses::default() };
    for object in uses.of(Some(host)).map_err(anyhow::Error::msg)? {
        if word(&object, "/metadata/name").starts_with(STATS_ACCOUNT) {
            member.apply(&object.to_string()).await?;
        }
    }
    let name = own_name(STATS_ACCOUNT, host);
    let deployment = format!("deployment/{name}");
    let rolled_out = member.kubectl(&["-n", DRIVER_NAMESPACE, "rollout", "status", &deployment, "--timeout=90s"]).await;
    if let Err(error) = rolled_out {
        return Err(error.context(member.kubectl(&["-n", DRIVER_NAMESPACE, "describe", "pods"]).await?));
    }
    Ok(name)
}

async fn uninstall(member: &Cluster) -> Result<()> {
    let own = "deployment,serviceaccount,networkpolicy";
    let names = member.kubectl(&["-n", DRIVER_NAMESPACE, "get", own, "-o", "name"]).await?;
    let names: Vec<&str> = names.lines().filter(|name| name.contains(STATS_ACCOUNT)).collect();
    member.kubectl(&[&["-n", DRIVER_NAMESPACE, "delete"][..], &names].concat()).await?;
    let bound = member.kubectl(&["get", "clusterrole,clusterrolebinding", "-o", "name"]).await?;
    let bound: Vec<&str> = bound.lines().filter(|name| name.contains(STATS_ACCOUNT)).collect();
    member.kubectl(&[&["delete"][..], &bound].concat()).await.map(drop)
}

/// A pod of another host's, with a claim, which the kubelet measures as well.
async fn another(member: &Place<'_>) -> Result<()> {
    member.claim("theirs", LATER).await?;
    let mut theirs = pod("theirs", &["theirs"], "sleep 1000");
    theirs["metadata"]["labels"] = labels();
    theirs["metadata"]["annotations"] = json!({"kosmos.csi.io/pod-uid": "of-another"});
    member.pods().create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
    let page = format!("/api/v1/nodes/{}/proxy/stats/summary", member.cluster.node_name());
    wait_for("the kubelet measures it", TOLD, || async {
        let summary: Value = serde_json::from_str(&member.cluster.kubectl(&["get", "--raw", &page]).await?)?;
        let pods = summary["pods"].as_array().into_iter().flatten();
        let mut volumes = pods.flat_map(|pod| pod["volume"].as_array().into_iter().flatten());
        Ok(volumes.any(|volume| volume["pvcRef"]["name"] == "theirs").then_some(()))
    })
    .await
}

async fn page(rig: &Rig, page: &str) -> Result<String> {
    rig.fleet.host().kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{page}")]).await
}

/// A figure of the host's claim, once it is there and as it is wanted.
async fn figure(rig: &Rig, name: &str, wanted: impl Fn(f64) -> bool) -> Result<f64> {
    let series = format!("kubelet_volume_stats_{name}{{namespace=\"{NAMESPACE}\",persistentvolumeclaim=\"{CLAIM}\"}} ");
    wait_for(&format!("{name} of the claim is told"), TOLD, || async {
        let text = page(rig, "metrics").await?;
        let told = text.lines().find_map(|line| line.strip_prefix(series.as_str()));
        let told: Option<f64> = told.map(str::parse).transpose()?;
        ensure!(told.is_some_and(&wanted), "it is {told:?}");
        Ok(told)
    })
    .await
}

async fn disk_fills_up(rig: &Rig, member: &Cluster) -> Result<()> {
    let (capacity, before) =
        (figure(rig, "capacity_bytes", |bytes| bytes > WRITTEN).await?, figure(rig, "used_bytes", |_| true).await?);
    let fill = "dd if=/dev/urandom of=/data/fill bs=1M count=50 && sync";
    member.kubectl(&["exec", POD, "-n", NAMESPACE, "--", "sh", "-c", fill]).await?;
    let after = figure(rig, "used_bytes", |bytes| bytes - before >= WRITTEN).await?;
    ensure!(after - before < WRITTEN * 1.1 && after < capacity, "{before} and then {after} of {capacity}");
    let available = figure(rig, "available_bytes", |_| true).await?;
    ensure!(available <= capacity - after, "{available} and {after} of {capacity}");
    let inodes = try_join_all(["inodes", "inodes_free", "inodes_used"].map(|name| figure(rig, name, |_| true))).await?;
    ensure!((inodes[0] - inodes[1] - inodes[2]).abs() < 1.0 && inodes[2] > 0.0, "{inodes:?}");
    Ok(())
}

/// Prometheus' own parser reads the page, and `/stats/summary` names the claim with its pod.
async fn pages(rig: &Rig) -> Result<()> {
    let text = page(rig, "metrics").await?;
    let names = fed(&rig.fleet.tools().path("scrape"), "text/plain; version=0.0.4", text.as_bytes())?;
    for name in ["capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"] {
        let name = format!("kubelet_volume_stats_{name}");
        ensure!(names.lines().any(|there| there == name), "{name}: {text}");
    }
    let summary: Value = serde_json::from_str(&page(rig, "stats/summary").await?)?;
    let pods = summary["pods"].as_array().into_iter().flatten();
    let of_pod = pods.filter(|pod| pod["podRef"]["name"] == POD).filter_map(|pod| pod["volume"].as_array());
    let told = of_pod.flatten().any(|volume| volume["pvcRef"] == json!({"name": CLAIM, "namespace": NAMESPACE}));
    ensure!(told, "{summary}");
    ensure!(!text.contains("theirs") && !summary.to_string().contains("theirs"), "another host's: {text}");
    Ok(())
}

/// By Prometheus' own code, a rule of the form that the ordinary alerts on full disks have finds the claim.
async fn alert_fires(rig: &Rig) -> Result<()> {
    let full = "kubelet_volume_stats_available_bytes / kubelet_volume_stats_capacity_bytes < 0.75";
    let rule =
        json!({"alert": "FillsUp", "expr": format!("{full} and kubelet_volume_stats_used_bytes > 0"), "for": "1m"});
    let file = tempfile::NamedTempFile::new_in(rig.fleet.folder())?;
    std::fs::write(file.path(), json!({"groups": [{"name": "disks", "rules": [rule]}]}).to_string())?;
    let text = page(rig, "metrics").await?;
    let told = text.lines().filter(|line| line.starts_with("kubelet_volume_stats_"));
    let told = told.filter_map(|line| {
        let (of, value) = line.rsplit_once(' ')?;
        Some(format!("{of} {}+0x5", value.parse::<f64>().ok()?))
    });
    let situation = json!([{"name": "now", "series": told.collect::<Vec<_>>(), "minutes": 4}]);
    let path = file.path().display().to_string();
    let firing = fed(&rig.fleet.tools().path("alerts"), &path, situation.to_string().as_bytes())?;
    let firing: Value = serde_json::from_str(&firing)?;
    let claim = format!("persistentvolumeclaim=\"{CLAIM}\"");
    let mut alerts = firing["now"].as_array().into_iter().flatten().filter_map(Value::as_str);
    ensure!(alerts.any(|alert| alert.contains(&claim)), "{firing} by {situation}");
    Ok(())
}

/// Not even the reader says anything of another host's pod, whoever asks it.
async fn of_this_host_alone(host: &Place<'_>, member: &Place<'_>, name: &str) -> Result<()> {
    let ours = host.pods().get(POD).await?.uid().context("it has a UID")?;
    let pods = Place::existing(member.cluster, stats::NAMESPACE).await?.pods();
    let names = pods.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let reader = names.into_iter().find(|pod| pod.starts_with(name));
    let reader = [reader.context("a pod of the reader")?];
    let told = stats::ask(&member.client, &reader, TOLD, |_| ()).await;
    let (_, told) = told.map_err(anyhow::Error::msg)?;
    ensure!(told.volumes.iter().all(|volume| volume.pod_uid == ours) && told.volumes.len() == 1, "{told:?}");
    ensure!(told.unread.is_empty(), "{told:?}");
    Ok(())
}

/// Who may what of the member's nodes.
async fn rights(member: &Place<'_>, reader: &str) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(member.client.clone());
    for (account, subresource, expected) in [
        (PODS_ACCOUNT, "proxy", false),
        (PODS_ACCOUNT, "stats", false),
        (reader, "proxy", false),
        (reader, "stats", true),
    ] {
        let user = format!("system:serviceaccount:{DRIVER_NAMESPACE}:{account}");
        let asked = json!({"resource": "nodes", "subresource": subresource, "verb": "get"});
        let review = json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": asked}});
        let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        ensure!(allowed == expected, "{account} may get nodes/{subresource}: {allowed}");
    }
    Ok(())
}

#[test]
fn how_full_a_claim_is_in_the_member_is_told_at_the_hosts_node() {
    on_fleet("volume-stats", async |rig| {
        let (host, member) = (
            Place::new(rig.fleet.host(), NAMESPACE).await?,
            Place::open(rig.fleet.member(MEMBERS[0]), NAMESPACE).await?,
        );
        let flags = [format!("--kubelet-address={BRIDGE_ADDRESS}:{PORT}"), "--kubelet-node-ports=8".to_owned()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let agent = Agent::start_with(rig, &flags, &MEMBERS.map(|member| format!("kosmos-{member}"))).await?;
        host.class(NAMESPACE, "WaitForFirstConsumer", json!({"leafStorageClass": LATER}), &MEMBERS).await?;
        host.sized_claim(CLAIM, NAMESPACE, "128Mi").await?;
        host.tolerant_pod(POD, &[CLAIM], Some(NODE)).await?;
        phase(&host, POD, "Running").await?;
        ensure!(!page(rig, "metrics").await?.contains("kubelet_volume_stats"), "told without a reader");
        let result = async {
            let reader = install(rig, member.cluster, &host.host_id().await?).await?;
            another(&member).await?;
            disk_fills_up(rig, member.cluster).await?;
            pages(rig).await?;
            alert_fires(rig).await?;
            of_this_host_alone(&host, &member, &reader).await?;
            rights(&member, &reader).await
        }
        .await;
        let removed = uninstall(member.cluster).await;
        result?;
        removed?;
        member.pods().delete("theirs", &DeleteParams::default()).await?;
        gone(&member, "theirs").await?;
        member.delete_claim("theirs").await?;
        host.pods().delete(POD, &DeleteParams::default()).await?;
        gone(&host, POD).await?;
        host.delete_claim(CLAIM).await?;
        nothing_of_ours(member.cluster, NAMESPACE).await?;
        agent.end().await
    });
}
