//! Volumes that a move has, where this driver moves none any more, as after an upgrade that does not say again what was switched on: nobody
//! leads them on, and whoever waits for one is told.

use std::time::Duration;

use tokio::time::sleep;

use super::{Reconciler, repair::repairs};
use domain::volume::{Claim, VolumeHash, moving::MoveMark};
use host::{events::News, volume::HostVolume};
use leaf::MemberClient;

/// Between two looks, at what is in memory alone.
const ROUND: Duration = Duration::from_mins(1);

/// Works until it is dropped.
pub(super) async fn tell(reconciler: &Reconciler) {
    loop {
        sleep(ROUND).await;
        let Ok(members) = reconciler.members.all() else { continue };
        for leaf in members.values().filter_map(|member| member.leaf().ok()) {
            for hash in leaf.rows.moving() {
                tell_of(reconciler, leaf, hash).await;
            }
        }
    }
}

/// On the volumes of the host that lead to it, and on their claims.
async fn tell_of(reconciler: &Reconciler, leaf: &MemberClient, hash: VolumeHash) {
    for repair in repairs(reconciler, leaf, hash) {
        let row = repair.row();
        // Whoever may write claims there may copy what a leaf says.
        let Some(claim) = row.claim.as_ref().filter(|_| row.is_moving() && repair.is_the_leaf(&row)) else { continue };
        let by = claim.moving.as_deref().map_or_else(|| "a move".to_owned(), MoveMark::object);
        let what = format!(
            "is being moved to another member by {by}, but moves are switched off. No pod gets the volume until you \
             switch them on again (moves.enabled of the chart, flag --mover-image)"
        );
        let News { reason, message, warning } = repair.told("LeafStuck", &claim.place, &what, true);
        for volume in reconciler.volumes.with(repair.handle()) {
            let news = News { reason, message: message.clone(), warning };
            if reconciler.tell_of_leaf(&leaf.member, &volume, &news).await {
                tell_claim(reconciler, &volume, &news).await;
            }
        }
    }
}

/// Whoever waits for the volume looks at his claim, and may see no volumes.
async fn tell_claim(reconciler: &Reconciler, volume: &HostVolume, news: &News) {
    let place = volume.claim.as_deref().and_then(|claim| claim.split_once('/')).filter(|_| !volume.released);
    let Some((namespace, name)) = place else { return };
    let claim = Claim { namespace: namespace.to_owned(), name: name.to_owned() };
    host::events::tell_claim(&reconciler.host, &claim, &volume.claim_uid, news).await;
}
