//! Members that join, leave, come back, or are not what they seem, while the driver runs.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    clusters::wait_for,
    objects::{Place, handle, nothing_of_ours},
    pool::on_fleet,
    rig::{NOW, PATIENCE, Rig},
};

const AT_ONCE: Duration = Duration::from_secs(5);

/// A claim in a class that names one member.
async fn claim_for(host: &Place<'_>, member: &str) -> Result<()> {
    let parameters = json!({"leafStorageClass": NOW, "member": member});
    host.class(&format!("only-{member}"), "Immediate", parameters, &[member]).await?;
    host.claim(member, &format!("only-{member}")).await?;
    Ok(())
}

async fn remove(rig: &Rig, host: &Place<'_>, member: &str, volume: &str) -> Result<()> {
    host.delete_claim(member).await?;
    host.volume_is_gone(volume).await?;
    nothing_of_ours(rig.fleet.member(member), &host.namespace).await
}

#[test]
fn member_that_joins_serves_a_volume_within_five_seconds_also_the_second_time() {
    on_fleet("joins", async |rig| {
        let host = Place::new(rig.fleet.host(), "joins").await?;
        for _ in 0..2 {
            rig.leave("cluster39").await?;
            wait_for("the driver has noticed", PATIENCE, || async {
                let line = "kosmos_csi_member_up{member=\"cluster39\"} 1";
                Ok((!rig.driver.metrics().await?.contains(line)).then_some(()))
            })
            .await?;
            rig.join("cluster39").await?;
            claim_for(&host, "cluster39").await?;
            let volume = host.bound_within("cluster39", AT_ONCE).await?;
            remove(rig, &host, "cluster39", &volume.name_any()).await?;
        }
        Ok(())
    });
}

#[test]
fn volume_of_a_member_that_has_left_is_kept_until_it_is_back() {
    on_fleet("has_left", async |rig| {
        let host = Place::new(rig.fleet.host(), "has-left").await?;
        claim_for(&host, "cluster39").await?;
        let volume = host.bound("cluster39").await?.name_any();
        rig.leave("cluster39").await?;
        host.delete_claim("cluster39").await?;
        let said = rig.event_of_volume(&volume, "cluster39").await?;
        ensure!(said.contains("give its kubeconfig back"), "the volume's events say what to do: {said}");
        rig.join("cluster39").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(rig.fleet.member("cluster39"), &host.namespace).await
    });
}

#[test]
fn kubeconfig_that_would_run_a_program_is_refused_by_the_name_of_its_field() {
    on_fleet("refused_kubeconfig", async |rig| {
        let host = Place::new(rig.fleet.host(), "refused").await?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "m", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "id"}}}],
            "contexts": [{"name": "c", "context": {"cluster": "m", "user": "u"}}],
        });
        rig.join_with("cluster50", &kubeconfig.to_string()).await?;
        claim_for(&host, "cluster50").await?;
        host.warned("cluster50", &["users[u].user.exec", "refused"]).await?;
        rig.leave("cluster50").await?;
        host.delete_claim("cluster50").await
    });
}

#[test]
fn credentials_that_are_refused_or_lack_a_right_are_named() {
    on_fleet("lacking_rights", async |rig| {
        let host = Place::new(rig.fleet.host(), "rights").await?;
        let powerless = rig.fleet.member("cluster38").kubeconfig_for("default", "default").await?;
        rig.join_with("cluster51", &powerless).await?;
        claim_for(&host, "cluster51").await?;
        host.warned("cluster51", &["cannot get resource", "namespaces"]).await?;
        let mut forged: serde_json::Value = serde_json::from_str(&powerless)?;
        forged["users"][0]["user"]["token"] = json!("nonsense");
        rig.join_with("cluster51", &forged.to_string()).await?;
        host.warned("cluster51", &["refuses the credentials"]).await?;
        rig.leave("cluster51").await?;
        host.delete_claim("cluster51").await
    });
}

#[test]
fn second_name_for_one_cluster_gets_no_volume_and_says_which_name_serves() {
    on_fleet("twin", async |rig| {
        let host = Place::new(rig.fleet.host(), "twin").await?;
        rig.join_as("twin", rig.fleet.member("cluster38")).await?;
        claim_for(&host, "twin").await?;
        host.warned("twin", &["twin is another name of member cluster38"]).await?;
        rig.leave("twin").await?;
        host.delete_claim("twin").await?;
        nothing_of_ours(rig.fleet.member("cluster38"), &host.namespace).await
    });
}

#[test]
fn kubeconfig_that_suddenly_leads_elsewhere_touches_nothing_there() {
    on_fleet("leads_elsewhere", async |rig| {
        let host = Place::new(rig.fleet.host(), "elsewhere").await?;
        claim_for(&host, "cluster39").await?;
        let volume = host.bound("cluster39").await?;
        ensure!(handle(&volume).starts_with("cluster39/"));
        rig.join_as("cluster39", rig.fleet.member("cluster38")).await?;
        wait_for("the member is quarantined", PATIENCE, || async {
            Ok(rig.driver.log().await?.contains("this name has always meant").then_some(()))
        })
        .await?;
        host.delete_claim("cluster39").await?;
        rig.event_of_volume(&volume.name_any(), "has always meant").await?;
        rig.join("cluster39").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(rig.fleet.member("cluster39"), &host.namespace).await
    });
}
