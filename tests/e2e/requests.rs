//! What a volume costs its member, counted from the member's own audit log. One request more fails the test.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ServiceAccount};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    clusters::{AuditMark, Cluster, wait_for},
    objects::{Place, nothing_of_ours},
    pool::on_fleet,
    rig::{LATER, NOW, PATIENCE, Rig},
};

/// So long no news comes from a member that is at work, and then it is looked at.
const LOOK: Duration = Duration::from_secs(4);
const A_LOOK: [&str; 3] = ["get persistentvolumeclaims", "get pods", "list events"];

const PUBLISH: &str = "ControllerPublishVolume";
const DELETE: &str = "DeleteVolume";

const ACCOUNT: &str = "system:serviceaccount:kosmos-csi:kosmos-csi";

/// Verb and resource of every request of the driver since the mark, in order, standing watches left out.
async fn requests(member: &Cluster, mark: AuditMark) -> Result<Vec<String>> {
    let entries = member.audit_since(mark).await?;
    // The provisioner asks for capacity when it likes, and that is no part of a volume's cost.
    let of_volumes = |resource: &str| !["csistoragecapacities", "resourcequotas"].contains(&resource);
    let ours =
        entries.iter().filter(|entry| entry.user == ACCOUNT && entry.verb != "watch" && of_volumes(&entry.resource));
    Ok(ours.map(|entry| format!("{} {}", entry.verb, entry.resource)).collect())
}

/// Creates and deletes a volume and compares the requests for each. To those of CreateVolume comes one of ControllerPublishVolume, as a
/// pod uses it, which says as well that the host has a volume for the leaf; where the work in the background has said so before, that is one
/// more.
async fn costs(rig: &Rig, namespace: &str, leaf_class: &str, creation: &[&'static str]) -> Result<()> {
    let member = rig.fleet.member("cluster38");
    let leaf = Place::new(member, namespace).await?;
    // Without it a consumer is refused and made once more.
    let accounts: Api<ServiceAccount> = Api::namespaced(leaf.client, namespace);
    wait_for("the namespace takes pods", PATIENCE, || async { Ok(accounts.get_opt("default").await?) }).await?;
    let host = Place::new(rig.fleet.host(), namespace).await?;
    let class = format!("counted-{leaf_class}");
    host.class(&class, "WaitForFirstConsumer", json!({"leafStorageClass": leaf_class}), &["cluster38"]).await?;
    let (mark, published) = (member.audit_mark().await?, calls(rig, PUBLISH).await?.succeeded);
    let began = Instant::now();
    host.claim("data", &class).await?;
    host.tolerant_pod("web", &["data"], None).await?;
    let volume = host.bound("data").await?;
    let looks = began.elapsed().as_secs() / LOOK.as_secs();
    annotated(member, namespace, &["kosmos.csi.io/had-pv", "kosmos.csi.io/published"], true).await?;
    // The attacher likes to repeat a call too, and what is said to be so already was read.
    let ((mut spent, called), mut expected) = (spent(rig, member, mark, PUBLISH).await?, creation.to_vec());
    let repeated = called - published - 1;
    // Whoever waits for two seconds is told why, of a claim that was read.
    let told = host.told("LeafPending").await?;
    expected.extend(vec!["get persistentvolumeclaims"; repeated + told]);
    spent.sort_unstable();
    // A member that lets its volume wait is looked at, and no prompt one.
    let with_looks = |expected: &[&'static str], looks: u64| {
        let mut all = expected.to_vec();
        (0..looks).for_each(|_| all.extend(A_LOOK));
        all.sort_unstable();
        all
    };
    let marked_before = [&expected[..], &["patch persistentvolumeclaims"][..]].concat();
    ensure!(
        (0..=looks).any(|looks| spent == with_looks(&expected, looks) || spent == with_looks(&marked_before, looks)),
        "CreateVolume took {spent:#?}, there was time for {looks} looks, why it waits was told {told} times, and \
         ControllerPublishVolume was called {repeated} times more"
    );

    host.force_delete_pod("web").await?;
    annotated(member, namespace, &["kosmos.csi.io/published"], false).await?;
    let (mark, before) = (member.audit_mark().await?, calls(rig, DELETE).await?.succeeded);
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume.name_any()).await?;
    let (spent, called) = self::spent(rig, member, mark, DELETE).await?;
    let repeated = called - before - 1;
    ensure!(is_removal(&spent, repeated), "DeleteVolume took {spent:#?}, called {repeated} times more");
    nothing_of_ours(member, namespace).await
}

/// Waits until the leaf claim has all of the annotations, or none.
async fn annotated(member: &Cluster, namespace: &str, keys: &[&str], all: bool) -> Result<()> {
    wait_for(&format!("the leaf claim has {keys:?}: {all}"), PATIENCE, || async {
        let leaf = Api::<PersistentVolumeClaim>::namespaced(member.client().await?, namespace).get("data").await?;
        Ok(keys.iter().all(|key| leaf.annotations().contains_key(*key) == all).then_some(()))
    })
    .await
}

/// The requests since the mark, and how many calls of the method have succeeded in all, once none is under way: one that is
/// repeated has asked the member before it is answered.
async fn spent(rig: &Rig, member: &Cluster, mark: AuditMark, method: &str) -> Result<(Vec<String>, usize)> {
    wait_for(&format!("no {method} is under way"), PATIENCE, || async {
        let (before, spent) = (calls(rig, method).await?, requests(member, mark).await?);
        let is_quiet = before.begun == before.answered && calls(rig, method).await? == before;
        Ok(is_quiet.then_some((spent, before.succeeded)))
    })
    .await
}

#[derive(Debug, PartialEq, Eq)]
struct Calls {
    begun: usize,
    answered: usize,
    succeeded: usize,
}

async fn calls(rig: &Rig, method: &str) -> Result<Calls> {
    let metrics = rig.driver.metrics().await?;
    let sum = |start: String| -> Result<usize> {
        let lines = metrics.lines().filter(|line| line.starts_with(&start));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(_, count)| Ok(count.parse::<usize>()?)).sum()
    };
    Ok(Calls {
        begun: sum(format!("kosmos_csi_rpc_started_total{{method=\"{method}\"}}"))?,
        answered: sum(format!("kosmos_csi_rpc_handled_total{{method=\"{method}\",code="))?,
        succeeded: sum(format!("kosmos_csi_rpc_handled_total{{method=\"{method}\",code=\"Ok\"}}"))?,
    })
}

/// The three requests of a removal, and then for each repeated call, as the provisioner likes to make one, a read that the
/// claim is gone and, while the host still has its volume, one that the leaf volume is.
fn is_removal(spent: &[String], repeated: usize) -> bool {
    let removal = ["delete persistentvolumeclaims", "patch persistentvolumeclaims", "get persistentvolumes"];
    let Some((first, mut rest)) = spent.split_at_checked(removal.len()) else { return false };
    for _ in 0..repeated {
        rest = match rest {
            [claim, volume, after @ ..] if claim == "get persistentvolumeclaims" && volume == removal[2] => after,
            [claim, after @ ..] if claim == "get persistentvolumeclaims" => after,
            _ => return false,
        };
    }
    first == removal && rest.is_empty()
}

#[test]
fn volume_of_an_immediate_class_takes_two_requests_and_three_to_remove() {
    on_fleet("requests_immediate", async |rig| {
        let creation = ["create persistentvolumeclaims", "patch persistentvolumeclaims", "patch persistentvolumes"];
        costs(rig, "counted-now", NOW, &creation).await
    });
}

#[test]
fn volume_of_a_class_that_waits_takes_four_requests_and_three_to_remove() {
    on_fleet("requests_consumer", async |rig| {
        let creation = [
            "create persistentvolumeclaims",
            "create pods",
            "delete pods",
            "patch persistentvolumeclaims",
            "patch persistentvolumes",
        ];
        costs(rig, "counted-later", LATER, &creation).await
    });
}
