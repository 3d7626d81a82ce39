//! Members that go away, a driver that is killed, users who change their mind: one leaf at most, and none left behind.

use anyhow::{Context, Result, ensure};
use futures::{FutureExt, future::select_ok};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    clusters::{Cluster, wait_for},
    objects::{Place, handle, nothing_of_ours, ours},
    pool::{beside_others, on_fleet},
    rig::{DELAYED, LOCAL_PATH, MEMBERS, NOW, PATIENCE, RETURN, Rig, STUCK},
};

/// For those beside others: in the first member a hundred claims may wait, of which all is told that is told of one member in minutes.
const OTHER: &str = MEMBERS[1];

/// The leaf claim, as soon as it is there.
async fn leaf_claim(member: &Cluster, namespace: &str, name: &str) -> Result<PersistentVolumeClaim> {
    let leaf = Place::existing(member, namespace).await?;
    wait_for("the leaf claim is there", PATIENCE, || async { Ok(leaf.claims().get_opt(name).await?) }).await
}

/// How often CreateVolume has been answered with a code.
async fn answers(rig: &Rig, code: &str) -> Result<u64> {
    let line = format!("kosmos_csi_rpc_handled_total{{method=\"CreateVolume\",code=\"{code}\"}} ");
    let metrics = rig.driver.metrics().await?;
    let count = metrics.lines().find_map(|text| text.strip_prefix(&line));
    Ok(count.map_or(Ok(0), str::parse)?)
}

/// A claim that goes to one member, by class.
async fn claim_in(host: &Place<'_>, name: &str, member: &str, leaf_class: &str) -> Result<()> {
    let class = format!("{leaf_class}-in-{member}");
    host.class(&class, "Immediate", json!({"leafStorageClass": leaf_class, "member": member}), &[]).await?;
    host.claim(name, &class).await?;
    Ok(())
}

async fn delete_all(rig: &Rig, host: &Place<'_>, claims: &[&str]) -> Result<()> {
    for claim in claims {
        host.delete_claim(claim).await?;
        host.claim_is_gone(claim).await?;
    }
    for member in MEMBERS {
        nothing_of_ours(rig.fleet.member(member), &host.namespace).await?;
    }
    Ok(())
}

#[test]
fn volume_stays_with_its_member_when_that_goes_down_after_the_first_try() {
    on_fleet("stays_with_its_member", async |rig| {
        let host = Place::new(rig.fleet.host(), "stays").await?;
        host.class("stuck-anywhere", "Immediate", json!({"leafStorageClass": STUCK}), &[]).await?;
        host.claim("data", "stuck-anywhere").await?;
        let chosen = wait_for("a leaf is made", PATIENCE, || async {
            for member in MEMBERS {
                if !ours(rig.fleet.member(member), &host.namespace).await?.is_empty() {
                    return Ok(Some(member));
                }
            }
            Ok(None)
        })
        .await?;
        let other = MEMBERS.into_iter().find(|member| *member != chosen).context("there are two")?;
        rig.fleet.member(chosen).stop_api_server().await?;
        let before = answers(rig, "Unavailable").await?;
        wait_for("the provisioner has tried again, and again", PATIENCE, || async {
            Ok((answers(rig, "Unavailable").await? >= before + 3).then_some(()))
        })
        .await?;
        host.warned("data", &[chosen]).await?;
        ensure!(ours(rig.fleet.member(other), &host.namespace).await?.is_empty(), "a second leaf was made in {other}");
        rig.return_of(chosen).await?;
        delete_all(rig, &host, &["data"]).await
    });
}

#[test]
fn member_that_is_down_before_a_claim_gets_its_volume_when_it_returns() {
    on_fleet("down_before", async |rig| {
        let host = Place::new(rig.fleet.host(), "down-before").await?;
        rig.fleet.member("cluster38").stop_api_server().await?;
        claim_in(&host, "waiting", "cluster38", NOW).await?;
        claim_in(&host, "meanwhile", "cluster39", NOW).await?;
        host.bound("meanwhile").await?;
        host.warned("waiting", &["cluster38"]).await?;
        rig.return_of("cluster38").await?;
        ensure!(handle(&host.bound_within("waiting", RETURN).await?).starts_with("cluster38/"));
        delete_all(rig, &host, &["waiting", "meanwhile"]).await
    });
}

#[test]
fn member_that_goes_down_during_a_creation_finishes_it_when_it_returns() {
    on_fleet("down_during", async |rig| {
        let host = Place::new(rig.fleet.host(), "down-during").await?;
        claim_in(&host, "waiting", "cluster38", DELAYED).await?;
        let member = rig.fleet.member("cluster38");
        let leaf = leaf_claim(member, "down-during", "waiting").await?;
        member.stop_api_server().await?;
        claim_in(&host, "meanwhile", "cluster39", NOW).await?;
        host.bound("meanwhile").await?;
        rig.return_of("cluster38").await?;
        host.bound_within("waiting", RETURN).await?;
        let same = leaf_claim(member, "down-during", "waiting").await?;
        ensure!(same.uid() == leaf.uid(), "the leaf was made twice");
        delete_all(rig, &host, &["waiting", "meanwhile"]).await
    });
}

#[test]
fn member_that_goes_down_after_a_creation_is_cleaned_when_it_returns() {
    on_fleet("down_after", async |rig| {
        let host = Place::new(rig.fleet.host(), "down-after").await?;
        claim_in(&host, "old", "cluster38", NOW).await?;
        let volume = host.bound("old").await?;
        rig.fleet.member("cluster38").stop_api_server().await?;
        host.delete_claim("old").await?;
        claim_in(&host, "meanwhile", "cluster39", NOW).await?;
        host.bound("meanwhile").await?;
        ensure!(
            host.volumes().get_opt(&volume.name_any()).await?.is_some(),
            "the volume is kept until it can be deleted"
        );
        rig.return_of("cluster38").await?;
        rig.own_controllers_return("cluster38").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        delete_all(rig, &host, &["meanwhile"]).await
    });
}

#[test]
fn driver_killed_between_leaf_and_answer_gives_the_same_handle_and_one_leaf() {
    on_fleet("killed_between", async |rig| {
        let host = Place::new(rig.fleet.host(), "killed").await?;
        for round in ["first", "second"] {
            claim_in(&host, round, "cluster38", DELAYED).await?;
            let member = rig.fleet.member("cluster38");
            let leaf = leaf_claim(member, "killed", round).await?;
            rig.driver.kill().await?;
            rig.driver.ensure(&rig.fleet).await?;
            let volume = host.bound(round).await?;
            let same = leaf_claim(member, "killed", round).await?;
            ensure!(same.uid() == leaf.uid(), "the leaf was made twice");
            let hash = &leaf.labels()["kosmos.csi.io/volume"];
            ensure!(handle(&volume) == format!("cluster38/killed/{round}/{}", &hash[..16]), "{}", handle(&volume));
            let claims = ours(member, &host.namespace).await?.iter().filter(|name| name.starts_with("claim")).count();
            ensure!(claims == 1, "{claims} leaf claims");
            delete_all(rig, &host, &[round]).await?;
        }
        Ok(())
    });
}

#[test]
fn claim_deleted_while_its_leaf_is_pending_leaves_nothing() {
    beside_others("deleted_while_pending", async |rig| {
        let host = Place::new(rig.fleet.host(), "pending").await?;
        claim_in(&host, "data", OTHER, STUCK).await?;
        leaf_claim(rig.fleet.member(OTHER), "pending", "data").await?;
        let said = |words| host.warned("data", words).boxed_local();
        select_ok([said(&[OTHER, "createError"]), said(&[OTHER, "not bound"])]).await?;
        delete_all(rig, &host, &["data"]).await
    });
}

#[test]
fn claim_deleted_while_its_consumer_finds_no_node_leaves_nothing() {
    beside_others("deleted_while_unschedulable", async |rig| {
        let host = Place::new(rig.fleet.host(), "unschedulable").await?;
        host.class("wait-39", "WaitForFirstConsumer", json!({"leafStorageClass": LOCAL_PATH}), &[OTHER]).await?;
        host.claim("data", "wait-39").await?;
        // It fits the virtual node, and no node of the member.
        host.greedy_pod("web", &["data"], "6").await?;
        let said = host.warned("data", &[OTHER, "FailedScheduling"]).await?;
        ensure!(said.contains("Insufficient cpu"), "the member's scheduler says why: {said}");
        host.force_delete_pod("web").await?;
        delete_all(rig, &host, &["data"]).await
    });
}
