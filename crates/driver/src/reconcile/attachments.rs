//! Volumes whose claim has gone and that are attached to a virtual node still. The attach controller forgets an attachment that has failed
//! where the pod goes before it tries again; external-attacher goes on meanwhile, and attaches it in the end. Nobody takes it away
//! then, and external-provisioner deletes no volume that is attached.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::Reconciler;
use domain::{
    error::Result,
    volume::{MEMBER_KEY, NodeId, VolumeId},
};
use host::{attachments, volume::HostVolume};

/// Between two looks. What has no claim at both, nobody detaches.
const ROUND: Duration = Duration::from_mins(1);
/// Until a volume is looked at again.
const AGAIN: Duration = Duration::from_mins(10);

/// Works until it is dropped.
pub(super) async fn take_away(reconciler: &Reconciler) {
    let mut looks: HashMap<Box<str>, Instant> = HashMap::new();
    loop {
        sleep(ROUND).await;
        let waiting = reconciler.volumes.wait_for_their_end();
        looks.retain(|uid, _| waiting.iter().any(|volume| volume.uid == *uid));
        let mut nodes = BTreeMap::new();
        for volume in waiting {
            let next = looks.entry(volume.uid.clone()).or_insert_with(|| Instant::now() + ROUND);
            if *next > Instant::now() {
                continue;
            }
            *next = Instant::now() + AGAIN;
            if let Err(error) = detach(reconciler, &volume, &mut nodes).await {
                tracing::debug!(volume = &*volume.name, %error, "whether a volume without a claim is attached is not known");
            }
        }
    }
}

/// From the virtual nodes of its member, whose names are asked for once in a round.
async fn detach(reconciler: &Reconciler, volume: &HostVolume, nodes: &mut BTreeMap<String, Vec<String>>) -> Result<()> {
    let host = &reconciler.host;
    let Some(id) = VolumeId::parse(&volume.handle) else { return Ok(()) };
    if !nodes.contains_key(&id.member) {
        nodes.insert(id.member.clone(), host::node::all_with(host, MEMBER_KEY, &id.member).await?);
    }
    for node in nodes.get(&id.member).into_iter().flatten() {
        let Some(attached) = attachments::read(host, &volume.handle, node).await? else { continue };
        // On a real node it may be mounted still, which only its kubelet and the attach controller know.
        let is_virtual = NodeId::parse(&attached.node_id).is_some_and(|node| !node.is_real());
        if *attached.volume != *volume.name || !is_virtual {
            continue;
        }
        let live = host::volume::read(host, &volume.name).await?.map(|live| live.volume);
        if !live.is_some_and(|live| live.uid == volume.uid && live.waits_for_its_end()) {
            return Ok(());
        }
        tracing::info!(
            attachment = attached.name,
            volume = &*volume.name,
            node = attached.node,
            "an attachment to a virtual node is deleted, as the claim has gone and nobody else takes it away"
        );
        attachments::delete(host, &attached).await?;
    }
    Ok(())
}
