//! Why a claim waits stands on it in the host within two seconds, with member, leaf and cause, whatever the cause is; and many
//! that wait make no storm.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    clusters::wait_for,
    objects::{Place, nothing_of_ours},
    pool::{beside_others, in_quiet, on_fleet},
    rig::{LATER, NOW, PATIENCE, Rig, STUCK},
};

const MEMBER: &str = "cluster38";
const NAMESPACE: &str = "reasons";
/// From the claim in the host to the words on it, where the cause is there at once.
const PROMPT: Duration = Duration::from_secs(2);
const MANY: usize = 100;

/// A cause: the member's class, and what must be said of it.
const CAUSES: [(&str, &[&str]); 4] = [
    ("missing", &["member cluster38", "StorageClass \"missing\""]),
    ("abandoned", &["member cluster38", "reasons/abandoned", "waits for provisioner nobody.example.com"]),
    (STUCK, &["member cluster38", "reasons/stuck", "ProvisioningFailed"]),
    (LATER, &["member cluster38", "reasons/later", "FailedScheduling"]),
];

async fn class(host: &Place<'_>, leaf_class: &str) -> Result<String> {
    let name = format!("{NAMESPACE}-{leaf_class}");
    host.class(&name, "Immediate", json!({"leafStorageClass": leaf_class, "member": MEMBER}), &[]).await?;
    Ok(name)
}

/// How long it took until an event on the claim said all of this.
async fn told(host: &Place<'_>, claim: &str, class: &str, words: &[&str]) -> Result<Duration> {
    let events: Api<Event> = Api::namespaced(host.client.clone(), &host.namespace);
    let made = host.claim(claim, class).await?;
    // One of that name may have been there before.
    let about = ListParams::default().fields(&format!("involvedObject.uid={}", made.uid().unwrap_or_default()));
    let began = Instant::now();
    wait_for(&format!("an event of {claim} says {words:?}"), PATIENCE, || async {
        let said: Vec<String> =
            events.list(&about).await?.items.into_iter().filter_map(|event| event.message).collect();
        let all = |message: &&String| words.iter().all(|word| message.contains(word));
        ensure!(said.iter().any(|message| all(&message)), "{said:?}");
        Ok(Some(()))
    })
    .await?;
    Ok(began.elapsed())
}

async fn go(rig: &Rig, host: &Place<'_>, claims: &[&str]) -> Result<()> {
    for claim in claims {
        host.delete_claim(claim).await?;
    }
    for claim in claims {
        host.claim_is_gone(claim).await?;
    }
    nothing_of_ours(rig.fleet.member(MEMBER), &host.namespace).await
}

/// Nobody provisions for this class.
pub async fn abandoned(rig: &Rig) -> Result<()> {
    let lonely = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "abandoned"},
        "provisioner": "nobody.example.com", "volumeBindingMode": "Immediate",
    });
    rig.fleet.member(MEMBER).apply(&lonely.to_string()).await
}

/// Tells where it came too late.
async fn told_promptly(host: &Place<'_>, cause: &str, leaf_class: &str, words: &[&str]) -> Result<()> {
    let took = told(host, cause, &class(host, leaf_class).await?, words).await?;
    eprintln!("{cause}: told after {took:.2?}");
    ensure!(took <= PROMPT, "{cause}: told after {took:?}");
    Ok(())
}

#[test]
fn every_cause_is_told_on_the_claim_within_two_seconds() {
    in_quiet("reasons", async |rig| {
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        let member = Place::new(rig.fleet.member(MEMBER), NAMESPACE).await?;
        abandoned(rig).await?;
        rig.leads().await?;
        let node = member.cluster.node_name();
        member.cluster.kubectl(&["taint", "node", &node, "full=yes:NoSchedule"]).await?;
        let mut late = Vec::new();
        for (leaf_class, words) in CAUSES {
            late.extend(told_promptly(&host, leaf_class, leaf_class, words).await.err());
        }
        member.cluster.kubectl(&["taint", "node", &node, "full-"]).await?;
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": NAMESPACE},
            "spec": {"hard": {"requests.storage": "1Mi"}},
        });
        member.cluster.apply(&quota.to_string()).await?;
        let words = ["member cluster38", "reasons/quota", "exceeded quota"];
        late.extend(told_promptly(&host, "quota", NOW, &words).await.err());
        member.cluster.kubectl(&["-n", NAMESPACE, "delete", "resourcequota", "full"]).await?;
        go(rig, &host, &["missing", "abandoned", STUCK, LATER, "quota"]).await?;
        ensure!(late.is_empty(), "{late:#?}");
        Ok(())
    });
}

#[test]
fn a_hundred_claims_that_wait_make_no_storm_of_events() {
    beside_others("reasons-many", async |rig| {
        let host = Place::new(rig.fleet.host(), "reasons-many").await?;
        abandoned(rig).await?;
        let class = class(&host, "abandoned").await?;
        let names: Vec<String> = (0..MANY).map(|number| format!("data-{number}")).collect();
        try_join_all(names.iter().map(|name| host.claim(name, &class))).await?;
        let events: Api<Event> = Api::namespaced(host.client.clone(), &host.namespace);
        let ours = async || -> Result<Vec<Event>> {
            let all = events.list(&ListParams::default().fields("reason=LeafPending")).await?;
            Ok(all.items)
        };
        wait_for("each is told of", PATIENCE, || async {
            let told = ours().await?;
            let about = |name: &String| told.iter().any(|event| event.involved_object.name.as_ref() == Some(name));
            ensure!(names.iter().all(about), "{} events", told.len());
            Ok(Some(()))
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let told = ours().await?.len();
        ensure!(told <= 2 * MANY, "{told} events for {MANY} claims: once at once, once as a warning");
        go(rig, &host, &names.iter().map(String::as_str).collect::<Vec<_>>()).await
    });
}

/// By another process, which knows nothing of the first telling.
#[test]
fn what_still_is_so_is_counted_in_the_event_that_said_it() {
    on_fleet("told-again", async |rig| {
        let host = Place::new(rig.fleet.host(), "told-again").await?;
        abandoned(rig).await?;
        let class = class(&host, "abandoned").await?;
        told(&host, "lasting", &class, &["has said nothing of it yet"]).await?;
        let events: Api<Event> = Api::namespaced(host.client.clone(), &host.namespace);
        let about = ListParams::default().fields("involvedObject.name=lasting,reason=LeafPending");
        let before = events.list(&about).await?.items.len();
        rig.driver.kill().await?;
        rig.driver.ensure(&rig.fleet).await?;
        wait_for("it is told again", PATIENCE, || async {
            let told = events.list(&about).await?.items;
            let counted =
                told.iter().any(|event| event.count > Some(1) && event.last_timestamp > event.first_timestamp);
            ensure!(told.len() == before, "{} events where there were {before}", told.len());
            Ok(counted.then_some(()))
        })
        .await?;
        go(rig, &host, &["lasting"]).await
    });
}
