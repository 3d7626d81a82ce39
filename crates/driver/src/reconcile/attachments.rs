//! Volumes whose claim has gone and that are attached to a virtual node still. The attach controller forgets an attachment that has failed
//! where the pod goes before it tries again; external-attacher goes on meanwhile, and attaches it in the end. Nobody takes it away
//! then, and external-provisioner deletes no volume that is attached.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::Reconciler;
use domain::error::Result;
use host::{
    Host,
    attachments::{self, Attached},
    volume::HostVolume,
};

/// Between two looks. What has no claim at both, nobody detaches.
const ROUND: Duration = Duration::from_mins(1);
/// Until a volume is looked at again.
const AGAIN: Duration = Duration::from_mins(10);

/// Works until it is dropped.
pub(super) async fn take_away(reconciler: &Reconciler) {
    let mut looks: HashMap<Box<str>, Instant> = HashMap::new();
    loop {
        sleep(ROUND).await;
        let waiting = reconciler.volumes.to_be_reclaimed();
        let now = Instant::now();
        let mut next: HashMap<Box<str>, Instant> = HashMap::new();
        let mut due = BTreeMap::new();
        for volume in waiting {
            let look = looks.get(&volume.uid).copied().unwrap_or(now + ROUND);
            let is_due = look <= now;
            next.insert(volume.uid.clone(), if is_due { now + AGAIN } else { look });
            if is_due {
                due.insert(volume.name.clone(), volume);
            }
        }
        looks = next;
        if !due.is_empty()
            && let Err(error) = detach(reconciler, &due).await
        {
            tracing::warn!(
                volumes = due.len(), %error,
                "attachments of volumes whose claims have gone are not looked for"
            );
        }
    }
}

/// On a real node it may be mounted still, which only its kubelet and the attach controller know. Which volumes have the handles is not asked
/// of the watch: it may have died unnoticed, and another volume may have been made since.
async fn detach(reconciler: &Reconciler, due: &BTreeMap<Box<str>, HostVolume>) -> Result<()> {
    let host = &reconciler.host;
    let listed = attachments::list(host).await?.into_iter().filter(Attached::is_to_virtual_node);
    let found: Vec<_> = listed.filter_map(|attached| Some((due.get(&*attached.volume)?, attached))).collect();
    if found.is_empty() {
        return Ok(());
    }
    let all = host::volume::all_with_any(host, &found.iter().map(|(volume, _)| &*volume.handle).collect()).await?;
    for (volume, attached) in found {
        if is_wanted(host, volume, &all).await? {
            continue;
        }
        tracing::info!(
            attachment = attached.name,
            volume = attached.volume,
            node = attached.node,
            "the driver deletes an attachment to a virtual node, because the claim is gone and nobody else deletes it"
        );
        attachments::delete(host, &attached).await?;
    }
    Ok(())
}

/// One attachment stands for all volumes with one handle: the pod of another may be there.
async fn is_wanted(host: &Host, volume: &HostVolume, all: &[HostVolume]) -> Result<bool> {
    let of_handle: Vec<&HostVolume> = all.iter().filter(|one| one.handle == volume.handle).collect();
    if !of_handle.iter().any(|one| one.uid == volume.uid) || !of_handle.iter().all(|one| one.is_to_be_reclaimed()) {
        return Ok(true);
    }
    for one in of_handle {
        let live = host::volume::read(host, &one.name).await?.map(|live| live.volume);
        if !live.is_some_and(|live| live.uid == one.uid && live.is_to_be_reclaimed()) {
            return Ok(true);
        }
    }
    Ok(false)
}
