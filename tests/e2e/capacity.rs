//! What the host's scheduler is told of the members' room, by the real provisioner, and what it does with it.

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::{core::v1::ResourceQuota, storage::v1::CSIStorageCapacity},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::{
    clusters::{Cluster, member_driver::storage_class, wait_for},
    objects::{Place, handle, nothing_of_ours},
    pool::{beside_others, on_fleet},
    rig::{LATER, MEMBER_KEY, MEMBERS, NOW, PATIENCE, Rig},
};

/// What the provisioner has published for a class: member, or whatever else its nodes are known by, capacity and largest volume.
async fn published(host: &Cluster, class: &str) -> Result<Vec<(String, String, Option<String>)>> {
    let all = Api::<CSIStorageCapacity>::all(host.client().await?).list(&ListParams::default()).await?;
    let of_class = all.items.into_iter().filter(|one| one.storage_class_name == class);
    let text = |size: Option<Quantity>| size.map(|size| size.0);
    let mut found: Vec<_> = of_class
        .map(|one| {
            let labels = one.node_topology.and_then(|topology| topology.match_labels).unwrap_or_default();
            let member = labels.get(MEMBER_KEY).filter(|_| labels.len() == 1).cloned();
            (
                member.unwrap_or_else(|| format!("{labels:?}")),
                text(one.capacity).unwrap_or_default(),
                text(one.maximum_volume_size),
            )
        })
        .collect();
    found.sort();
    Ok(found)
}

async fn published_is(host: &Cluster, class: &str, expected: &[(&str, &str)]) -> Result<()> {
    wait_for(&format!("the capacity for {class} is {expected:?}"), PATIENCE, || async {
        let found = published(host, class).await?;
        let told: Vec<(&str, &str)> =
            found.iter().map(|(member, capacity, _)| (member.as_str(), capacity.as_str())).collect();
        ensure!(told == expected, "it is {found:?}");
        Ok(Some(()))
    })
    .await
}

#[test]
fn capacity_is_published_once_for_each_member_and_class() {
    on_fleet("capacity_published", async |rig| {
        let host = Place::new(rig.fleet.host(), "published").await?;
        let parameters = json!({"leafStorageClass": LATER, "csi.storage.k8s.io/fstype": "ext4"});
        host.class("told", "WaitForFirstConsumer", parameters, &MEMBERS).await?;
        published_is(host.cluster, "told", &[("cluster38", "4Ei"), ("cluster39", "4Ei")]).await?;
        let parameters = json!({"leafStorageClass": LATER, "leafStorageClass.cluster39": "platinum"});
        host.class("half-told", "WaitForFirstConsumer", parameters, &MEMBERS).await?;
        published_is(host.cluster, "half-told", &[("cluster38", "4Ei"), ("cluster39", "0")]).await?;
        // What the member says itself is passed on.
        let capacity: CSIStorageCapacity = serde_json::from_value(json!({
            "metadata": {"name": "by-hand"}, "storageClassName": NOW, "capacity": "7Gi", "nodeTopology": {},
        }))?;
        let there = Api::<CSIStorageCapacity>::namespaced(rig.fleet.member("cluster38").client().await?, "kube-system");
        there.create(&PostParams::default(), &capacity).await?;
        host.class("limited", "WaitForFirstConsumer", json!({"leafStorageClass": NOW}), &MEMBERS).await?;
        let told = published_is(host.cluster, "limited", &[("cluster38", "7Gi"), ("cluster39", "4Ei")]).await;
        there.delete("by-hand", &DeleteParams::default()).await?;
        told
    });
}

/// Most of a member's room is taken by somebody there, and the host is not told.
async fn moved(rig: &Rig, namespace: &str, leaf_class: &str) -> Result<()> {
    let full = Place::new(rig.fleet.member("cluster38"), &format!("{namespace}-other")).await?;
    full.sized_claim("filler", NOW, "15Gi").await?;
    full.bound("filler").await?;

    let host = Place::new(rig.fleet.host(), namespace).await?;
    let class = format!("roomy-{leaf_class}");
    host.class(&class, "WaitForFirstConsumer", json!({"leafStorageClass": leaf_class}), &MEMBERS).await?;
    published_is(host.cluster, &class, &[("cluster38", "4Ei"), ("cluster39", "4Ei")]).await?;
    host.sized_claim("data", &class, "10Gi").await?;
    let begun = std::time::Instant::now();
    host.preferring_pod("web", &["data"], "kosmos-cluster38").await?;
    let said = host.warned("data", &["cluster38", "no room", "ResourceExhausted"]).await?;
    eprintln!("refused after {:.1} s: {said}", begun.elapsed().as_secs_f64());
    let volume = host.bound("data").await?;
    eprintln!("bound in the other member after {:.1} s", begun.elapsed().as_secs_f64());
    ensure!(handle(&volume).starts_with("cluster39/"), "handle {}", handle(&volume));
    ensure!(host.node_of("web").await? == "kosmos-cluster39", "the pod follows");
    nothing_of_ours(rig.fleet.member("cluster38"), namespace).await?;
    let told = published(host.cluster, &class).await?;
    let largest = told.iter().find(|(member, ..)| member == "cluster38").and_then(|(_, _, largest)| largest.clone());
    ensure!(largest.as_deref() == Some("10737418239"), "one byte less than 10Gi is told: {told:?}");

    host.force_delete_pod("web").await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume.name_any()).await?;
    nothing_of_ours(rig.fleet.member("cluster39"), namespace).await?;
    full.delete_claim("filler").await?;
    full.claim_is_gone("filler").await
}

#[test]
fn pod_whose_member_ran_out_since_the_scheduler_looked_is_moved_to_the_next() {
    on_fleet("moved_now", async |rig| moved(rig, "moved-now", NOW).await);
}

#[test]
fn pod_whose_member_ran_out_is_moved_also_where_the_class_waits() {
    on_fleet("moved_later", async |rig| moved(rig, "moved-later", LATER).await);
}

#[test]
fn claim_without_a_pod_goes_on_to_the_member_that_has_room() {
    beside_others("immediate_refused", async |rig| {
        let refusing = storage_class("full", "Immediate", &json!({"createError": "RESOURCE_EXHAUSTED"}));
        rig.fleet.member("cluster38").apply(&refusing.to_string()).await?;
        let host = Place::new(rig.fleet.host(), "immediate-refused").await?;
        let parameters = json!({"leafStorageClass.cluster38": "full", "leafStorageClass.cluster39": NOW});
        host.class("somewhere", "Immediate", parameters, &MEMBERS).await?;
        // The provisioner spreads claims by their names: some begin in the member that is full.
        for name in ["data-0", "data-1", "data-2", "data-3"] {
            host.claim(name, "somewhere").await?;
        }
        for name in ["data-0", "data-1", "data-2", "data-3"] {
            let volume = host.bound(name).await?;
            ensure!(handle(&volume).starts_with("cluster39/"), "handle {}", handle(&volume));
            host.delete_claim(name).await?;
            host.volume_is_gone(&volume.name_any()).await?;
        }
        for member in MEMBERS {
            nothing_of_ours(rig.fleet.member(member), "immediate-refused").await?;
        }
        Ok(())
    });
}

#[test]
fn quota_of_one_namespace_stops_no_other() {
    beside_others("quota", async |rig| {
        let member = rig.fleet.member("cluster38");
        let tight = Place::new(member, "quota-tight").await?;
        let hard = json!({"metadata": {"name": "tight"}, "spec": {"hard": {"requests.storage": "32Mi"}}});
        let quotas = Api::<ResourceQuota>::namespaced(tight.client.clone(), "quota-tight");
        quotas.create(&PostParams::default(), &serde_json::from_value(hard)?).await?;
        wait_for("the quota is counted", PATIENCE, || async {
            Ok(quotas.get("tight").await?.status.and_then(|status| status.used).map(drop))
        })
        .await?;
        let (poor, rich) =
            (Place::new(rig.fleet.host(), "quota-tight").await?, Place::new(rig.fleet.host(), "quota-free").await?);
        poor.class("by-quota", "WaitForFirstConsumer", json!({"leafStorageClass": NOW}), &["cluster38"]).await?;
        poor.claim("data", "by-quota").await?;
        poor.tolerant_pod("web", &["data"], None).await?;
        poor.warned("data", &["cluster38", "exceeded quota"]).await?;
        let begun = std::time::Instant::now();
        rich.claim("data", "by-quota").await?;
        rich.tolerant_pod("web", &["data"], None).await?;
        let volume = rich.bound("data").await?;
        eprintln!("the other namespace had its volume after {:.1} s", begun.elapsed().as_secs_f64());
        quotas.delete("tight", &DeleteParams::default()).await?;
        let late = poor.bound("data").await?;
        for (place, volume) in [(&poor, late), (&rich, volume)] {
            place.force_delete_pod("web").await?;
            place.delete_claim("data").await?;
            place.volume_is_gone(&volume.name_any()).await?;
            nothing_of_ours(member, &place.namespace).await?;
        }
        Ok(())
    });
}
