//! The consumer pod of a leaf claim takes along the other claims of the same host pod that live in the member: else the
//! member's scheduler puts node-local volumes of one pod on different nodes, and the pod can run on none.
//!
//! The provisioner asks for the claims of a pod one by one, all at about the same time. So those that are on their way are
//! waited for, but not for long: nothing promises that they come.

use std::time::Duration;

use tokio::time::Instant;

use super::{Provisioner, volume_creation::VolumeCreation};
use domain::{
    error::Result,
    volume::{Claim, DRIVER, VolumeHash, VolumeId},
};
use host::pod::HostPod;
use leaf::{
    consumer::{Constraints, Consumed},
    row::{ClaimRow, Consumer},
};
use member::registry::serving;

/// For claims that are on their way, and no longer than half of what is left of the call.
const LONGEST: Duration = Duration::from_secs(5);
/// Between two looks at the host's claims; the leaves are seen on the watch.
const PAUSE: Duration = Duration::from_millis(300);

/// Another claim of the same host pod.
enum Sibling {
    Here(Consumed),
    /// On its way, as this volume.
    Coming(VolumeHash),
    /// It lives elsewhere, or nobody is about to make it.
    Apart,
}

/// Makes the consumer pod once.
pub(super) async fn consume(provisioner: &Provisioner, job: &VolumeCreation<'_>, row: &ClaimRow) -> Result<()> {
    if matches!(job.leaf.rows.consumer(job.hash), Consumer::Made(_)) {
        return Ok(());
    }
    let pod = match &job.spec.claim {
        Some(claim) => host::pod::of(&provisioner.host, claim).await?,
        None => None,
    };
    let wishes = wishes(provisioner, job, pod.as_ref())?;
    let mut claims = vec![consumed(row)];
    if let (Some(pod), Some(claim)) = (&pod, &job.spec.claim) {
        claims.extend(siblings(provisioner, job, claim, pod, row).await?);
    }
    let until = job.deadline.next();
    leaf::consumer::ensure(job.leaf, &row.place.namespace, job.hash, &claims, &wishes, until).await
}

/// By the copy that there will be of the pod: ours, or clustertree's where that runs the member's pods.
fn wishes(provisioner: &Provisioner, job: &VolumeCreation<'_>, pod: Option<&HostPod>) -> Result<Constraints> {
    let (nodes, members) = (job.wanted_nodes(), provisioner.members.all()?);
    let by_clustertree = provisioner.members.is_beside_clustertree(&members, &job.leaf.member);
    Ok(match pod {
        Some(HostPod { spec, cluster_selector, .. }) if by_clustertree => {
            Constraints::of_clustertree(spec, cluster_selector.as_deref(), &nodes)
        }
        _ => Constraints::of(pod.map(|pod| &pod.spec), &nodes),
    })
}

async fn siblings(
    provisioner: &Provisioner,
    job: &VolumeCreation<'_>,
    claim: &Claim,
    pod: &HostPod,
    row: &ClaimRow,
) -> Result<Vec<Consumed>> {
    let now = Instant::now();
    let until = now + (job.deadline.next().saturating_duration_since(now) / 2).min(LONGEST);
    let mut open: Vec<&String> = pod.claims.iter().filter(|name| **name != claim.name).collect();
    let mut here = Vec::new();
    loop {
        let (mut still_open, mut hashes) = (Vec::new(), Vec::new());
        for name in open {
            let other = Claim { namespace: claim.namespace.clone(), name: name.clone() };
            match sibling(provisioner, job, &other, &row.place.namespace).await? {
                Sibling::Here(consumed) => here.push(consumed),
                Sibling::Apart => {}
                Sibling::Coming(hash) => {
                    still_open.push(name);
                    hashes.push(hash);
                }
            }
        }
        let now = Instant::now();
        if still_open.is_empty() || now >= until {
            return Ok(here);
        }
        open = still_open;
        let pause = until.min(now + PAUSE);
        let one = |hash: VolumeHash| Box::pin(job.leaf.rows.until(hash, pause, move |rows| is_there(rows, hash)));
        futures::future::select_all(hashes.into_iter().map(one)).await;
    }
}

async fn sibling(
    provisioner: &Provisioner,
    job: &VolumeCreation<'_>,
    claim: &Claim,
    namespace: &str,
) -> Result<Sibling> {
    let Some(found) = host::claim::read(&provisioner.host, claim, "").await? else { return Ok(Sibling::Apart) };
    let hash = VolumeHash::new(&provisioner.host.id, &format!("pvc-{}", found.uid));
    let mut leaf = job.leaf.rows.row(hash).and_then(|row| row.claim);
    if let (None, Some(volume)) = (&leaf, &found.volume) {
        // A volume that was made by hand, or for another claim before.
        let handle = host::volume::handle_of(&provisioner.host, volume).await?;
        let members = provisioner.members.all()?;
        let is_here = |id: &VolumeId| serving(&members, &id.member) == job.leaf.member;
        let id = handle.and_then(|handle| VolumeId::parse(&handle)).filter(is_here);
        leaf = id.and_then(|id| job.leaf.rows.find(&id)?.1.claim);
    }
    if let Some(leaf) = leaf {
        let mountable = leaf.place.namespace == namespace && !leaf.observed().terminating;
        return Ok(if mountable { Sibling::Here(consumed(&leaf)) } else { Sibling::Apart });
    }
    let ours = match found.provisioner.as_deref() {
        Some(provisioner) => provisioner == DRIVER,
        // Nobody has said yet whose it is.
        None => job.node_selected(),
    };
    let elsewhere = found.member.as_ref().is_some_and(|member| *member != job.leaf.member);
    let coming = ours && found.volume.is_none() && (job.node_selected() || !elsewhere);
    Ok(if coming { Sibling::Coming(hash) } else { Sibling::Apart })
}

fn is_there(rows: &leaf::Rows, hash: VolumeHash) -> bool {
    rows.row(hash).is_some_and(|row| row.claim.is_some())
}

fn consumed(row: &ClaimRow) -> Consumed {
    Consumed { claim: row.place.claim.clone(), uid: row.uid.to_string(), block: row.mode.is_block() }
}
