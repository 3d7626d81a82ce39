//! What a volume costs its member, counted from the member's own audit log. One request more fails the test.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    clusters::{AuditMark, Cluster},
    objects::{Place, nothing_of_ours},
    rig::{LATER, NOW, Rig, on_fleet},
};

const ACCOUNT: &str = "system:serviceaccount:kosmos-csi:kosmos-csi";

/// Verb and resource of every request of the driver since the mark, standing watches left out.
async fn requests(member: &Cluster, mark: AuditMark) -> Result<Vec<String>> {
    let entries = member.audit_since(mark).await?;
    let ours = entries.iter().filter(|entry| entry.user == ACCOUNT && entry.verb != "watch");
    let mut requests: Vec<String> = ours.map(|entry| format!("{} {}", entry.verb, entry.resource)).collect();
    requests.sort_unstable();
    Ok(requests)
}

/// Creates and deletes a volume and compares the requests for each.
async fn costs(rig: &Rig, namespace: &str, leaf_class: &str, creation: &[&str]) -> Result<()> {
    let member = rig.fleet.member("cluster38");
    Place::new(member, namespace).await?;
    let host = Place::new(rig.fleet.host(), namespace).await?;
    let class = format!("counted-{leaf_class}");
    host.class(&class, "WaitForFirstConsumer", json!({"leafStorageClass": leaf_class}), &["cluster38"]).await?;
    let mark = member.audit_mark().await?;
    host.claim("data", &class).await?;
    host.tolerant_pod("web", &["data"], None).await?;
    let volume = host.bound("data").await?;
    let spent = requests(member, mark).await?;
    ensure!(spent == creation, "CreateVolume took {spent:#?}");

    host.force_delete_pod("web").await?;
    let (mark, before) = (member.audit_mark().await?, deletions(rig).await?);
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume.name_any()).await?;
    let spent = requests(member, mark).await?;
    // Each repeated call, and the provisioner likes to call twice, reads that the claim is gone, and where the host still
    // has its volume, that the leaf volume is.
    let repeated = deletions(rig).await? - before - 1;
    let count = |request: &str| spent.iter().filter(|spent| *spent == request).count();
    let reads = (count("get persistentvolumeclaims"), count("get persistentvolumes"));
    let writes = count("delete persistentvolumeclaims") == 1 && count("patch persistentvolumeclaims") == 1;
    let expected = writes && reads.0 == repeated && (1..=1 + repeated).contains(&reads.1);
    ensure!(
        expected && spent.len() == 2 + reads.0 + reads.1,
        "DeleteVolume took {spent:#?}, called {repeated} times more"
    );
    nothing_of_ours(member, namespace).await
}

/// How many calls of DeleteVolume have succeeded.
async fn deletions(rig: &Rig) -> Result<usize> {
    let metrics = rig.driver.metrics().await?;
    let line = "kosmos_csi_rpc_handled_total{method=\"DeleteVolume\",code=\"Ok\"} ";
    Ok(metrics.lines().find_map(|text| text.strip_prefix(line)).map_or(Ok(0), str::parse)?)
}

#[test]
fn volume_of_an_immediate_class_takes_two_requests_and_three_to_remove() {
    on_fleet("requests_immediate", async |rig| {
        let creation = ["create persistentvolumeclaims", "patch persistentvolumes"];
        costs(rig, "counted-now", NOW, &creation).await
    });
}

#[test]
fn volume_of_a_class_that_waits_takes_four_requests_and_three_to_remove() {
    on_fleet("requests_consumer", async |rig| {
        let creation = ["create persistentvolumeclaims", "create pods", "delete pods", "patch persistentvolumes"];
        costs(rig, "counted-later", LATER, &creation).await
    });
}
