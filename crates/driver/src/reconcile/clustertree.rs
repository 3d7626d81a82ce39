//! The host's claims whose volumes are in members that clustertree knows too are kept out of its hands: those that
//! CreateVolume has not seen, because they were bound by hand or before, and those where somebody undoes it.

use std::{collections::BTreeSet, time::Duration};

use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep, sleep_until},
};

use super::{PAUSE, Reconciler};
use domain::volume::VolumeId;
use host::owners::OwnedClaim;
use member::registry::{names, serving};

/// From a claim that cannot be written to another look at all of them.
const AGAIN: Duration = Duration::from_mins(1);

/// Works until it is dropped. Hosts without Kosmos are asked nothing.
pub(super) async fn shield_claims(reconciler: &Reconciler) {
    loop {
        let beside = beside_clustertree(reconciler);
        if !beside.is_empty() && reconciler.volumes.synced() {
            tokio::select! {
                biased;
                () = shield_all(reconciler, &beside) => {}
                () = changes_from(reconciler, &beside) => {}
            }
        }
        sleep(PAUSE).await;
    }
}

/// Until a while after one could not be written: then all are looked at again.
async fn shield_all(reconciler: &Reconciler, beside: &BTreeSet<String>) {
    let (sender, exposed) = unbounded_channel();
    let tell = |claim: OwnedClaim| {
        if claim.is_exposed && member_of(reconciler, &claim).is_some_and(|member| beside.contains(&member)) {
            // The receiver is here as well.
            let _ = sender.send(claim);
        }
    };
    tokio::select! {
        biased;
        () = shield(reconciler, exposed) => {}
        () = host::owners::follow_claims(&reconciler.host, tell) => {}
    }
}

/// Whoever may write a claim may have it take nothing more, and keeps no other one from being written by that.
async fn shield(reconciler: &Reconciler, mut exposed: UnboundedReceiver<OwnedClaim>) {
    let mut again: Option<Instant> = None;
    loop {
        let claim = tokio::select! {
            biased;
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => return,
            Some(claim) = exposed.recv() => claim,
            else => return,
        };
        if let Err(error) = host::owners::protect(&reconciler.host, &claim).await {
            tracing::warn!(%error, "the driver could not keep a claim from clustertree yet");
            again.get_or_insert_with(|| Instant::now() + AGAIN);
        }
    }
}

/// Where its volume is. What a claim that is not bound says of itself may have been copied with it.
fn member_of(reconciler: &Reconciler, claim: &OwnedClaim) -> Option<String> {
    let handle = reconciler.volumes.handle_of(claim.volume.as_deref()?)?;
    VolumeId::parse(&handle).map(|id| id.member)
}

/// All names of the members into which clustertree copies pods.
fn beside_clustertree(reconciler: &Reconciler) -> BTreeSet<String> {
    let members = reconciler.members.all().unwrap_or_default();
    let known_as = names(&members);
    let is_beside = |name: &&String| known_as.get(&serving(&members, name)).is_some_and(|one| one.beside_clustertree);
    members.keys().filter(is_beside).cloned().collect()
}

async fn changes_from(reconciler: &Reconciler, known: &BTreeSet<String>) {
    while beside_clustertree(reconciler) == *known {
        sleep(PAUSE).await;
    }
}
