//! A host volume makes way for another one of its name while the host's own controllers and all sidecars watch: what a move to
//! another member rests upon.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use host::{
    Host,
    replacement::{Replacing, Target},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    clusters::wait_for,
    lost::{MOST, lost_while},
    objects::{Place, handle, nothing_of_ours},
    pool::{beside_others, on_fleet},
    rig::{DRIVER_NAMESPACE, NOW, PATIENCE, Rig},
};

const MEMBER: &str = "cluster38";
/// The host's controller looks at all claims this often by itself, so this would be its doing.
const RESYNC: Duration = Duration::from_secs(15);
/// Of those in which nobody is killed, as other work of the controller may come between.
const MOST_LATE: usize = 2;
const MANAGER: &str = "kube-controller-manager";

#[test]
fn claim_whose_volume_is_replaced_is_bound_again_and_nothing_is_removed() {
    beside_others("replacement", async |rig| {
        let claims = Api::namespaced(rig.fleet.host().client().await?, "replaced");
        let (took, lost) = lost_while(claims, "data", Box::pin(replaced(rig, "replaced", 12, |_| false))).await?;
        println!("12 replacements: the claim was lost {} times, at most for {:?}", lost.len(), lost.iter().max());
        let waited = took.iter().filter(|took| **took > RESYNC / 2).count();
        ensure!(waited <= 1, "claims are bound by the controller's own look: {took:?}");
        let late = lost.iter().filter(|time| **time > RESYNC / 2).count();
        ensure!(!lost.is_empty() && late <= waited, "the claim was lost for {lost:?}");
        Ok(())
    });
}

#[test]
#[ignore = "minutes: make faults-real"]
fn claim_whose_volume_is_replaced_200_times_is_bound_again_also_where_the_controller_is_killed() {
    on_fleet("replacement-for-long", async |rig| {
        let claims = Api::namespaced(rig.fleet.host().client().await?, "replaced-for-long");
        let is_killed = |round: usize| round % 20 == 19;
        let replaced = Box::pin(replaced(rig, "replaced-for-long", 200, is_killed));
        let (mut took, lost) = lost_while(claims, "data", replaced).await?;
        println!("the claim was lost {} times, at most for {:?}", lost.len(), lost.iter().max());
        ensure!(!lost.is_empty(), "nobody has seen that the claim was lost");
        let late: Vec<_> =
            took.iter().enumerate().filter(|(round, took)| **took > MOST && !is_killed(*round)).collect();
        ensure!(late.len() <= MOST_LATE, "replacements took long though no controller was killed: {late:?}");
        took.sort();
        println!(
            "figure: 200 replacements, ten with a killed controller: p50 {:?}, p99 {:?}, at most {:?}",
            took[99], took[197], took[199]
        );
        Ok(())
    });
}

/// How long the claim was without a volume, each time.
async fn replaced(
    rig: &Rig,
    namespace: &str,
    rounds: usize,
    is_killed: impl Fn(usize) -> bool,
) -> Result<Vec<Duration>> {
    let cluster = rig.fleet.host();
    let host = Place::new(cluster, namespace).await?;
    let mover = Host::connect(cluster.client().await?, DRIVER_NAMESPACE.to_owned()).await?;
    host.class(namespace, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
    let claim = host.claim("data", namespace).await?;
    let name = host.bound("data").await?.name_any();
    let mut took = Vec::new();
    for round in 0..rounds {
        // Half of the time a pod waits on the node, and the host attaches the volume for it.
        if round == rounds / 2 {
            host.tolerant_pod("web", &["data"], None).await?;
            host.node_of("web").await?;
        }
        let former = host.volumes().get(&name).await?;
        let replacing = same_leaf(&former)?;
        let began = Instant::now();
        replace(rig, &mover, &replacing, is_killed(round)).await.with_context(|| format!("round {round}"))?;
        took.push(began.elapsed());
        let (volume, now) = (host.volumes().get(&name).await?, host.claims().get("data").await?);
        ensure!(now.uid() == claim.uid(), "the claim is another one");
        ensure!(volume.uid() != former.uid(), "it is not the new one");
        ensure!(now.status.and_then(|status| status.phase).as_deref() == Some("Bound"), "it is lost again");
    }
    let member = Place::existing(rig.fleet.member(MEMBER), namespace).await?;
    ensure!(member.claims().get_opt("data").await?.is_some(), "the leaf has been removed");
    host.force_delete_pod("web").await?;
    nothing_is_attached(&host, &name).await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&name).await?;
    nothing_of_ours(member.cluster, namespace).await?;
    Ok(took)
}

fn same_leaf(volume: &PersistentVolume) -> Result<Replacing> {
    let (handle, spec) = (handle(volume), volume.spec.clone().context("a volume has a spec")?);
    let attributes = spec.csi.and_then(|source| source.volume_attributes).unwrap_or_default();
    Replacing::new(volume, Target { handle, attributes, affinity: spec.node_affinity }).context("it is for a claim")
}

async fn replace(rig: &Rig, mover: &Host, replacing: &Replacing, is_killed: bool) -> Result<()> {
    let until = tokio::time::Instant::now() + PATIENCE;
    if !is_killed {
        return Ok(replacing.replace(mover, until).await?);
    }
    // The volume goes, and its controller with it.
    replacing.step(mover).await?;
    rig.fleet.host().stop(MANAGER).await?;
    replacing.step(mover).await?;
    rig.fleet.host().start_again(MANAGER)?;
    Ok(replacing.replace(mover, until).await?)
}

async fn nothing_is_attached(host: &Place<'_>, volume: &str) -> Result<()> {
    let attachments = Api::<k8s_openapi::api::storage::v1::VolumeAttachment>::all(host.cluster.client().await?);
    wait_for("no attachment of the volume is left", 2 * PATIENCE, || async {
        let all = attachments.list(&ListParams::default()).await?;
        let left = all.iter().filter(|one| one.spec.source.persistent_volume_name.as_deref() == Some(volume)).count();
        Ok((left == 0).then_some(()))
    })
    .await
}
