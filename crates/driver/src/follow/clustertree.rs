//! The host's claims whose volumes are in members that clustertree knows too are kept out of its hands: those that
//! CreateVolume has not seen, because they were bound by hand or before, and those where somebody undoes it.

use std::{collections::BTreeSet, pin::pin};

use futures::StreamExt;
use tokio::time::sleep;

use super::{Follower, PAUSE};
use domain::volume::VolumeId;
use host::owners::OwnedClaim;
use member::registry::{is_beside_clustertree, serving};

impl Follower {
    /// Works until it is dropped. Hosts without Kosmos are asked nothing.
    pub(super) async fn shield_claims(&self) {
        loop {
            let beside = self.beside_clustertree();
            if !beside.is_empty() && self.volumes.synced() {
                tokio::select! {
                    biased;
                    () = self.shield_all(&beside) => {}
                    () = self.changes_from(&beside) => {}
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Until one cannot be written: then all are looked at again.
    async fn shield_all(&self, beside: &BTreeSet<String>) {
        let mut claims = pin!(self.host.owned_claims());
        while let Some(claim) = claims.next().await {
            let meant = claim.is_exposed() && self.member_of(&claim).is_some_and(|member| beside.contains(&member));
            if !meant {
                continue;
            }
            if let Err(error) = self.host.shield(&claim).await {
                tracing::warn!(%error, "a claim is not kept from clustertree yet");
                return;
            }
        }
    }

    /// Where its volume is. What a claim that is not bound says of itself may have been copied with it.
    fn member_of(&self, claim: &OwnedClaim) -> Option<String> {
        let handle = self.volumes.handle_of(claim.volume.as_deref()?)?;
        VolumeId::parse(&handle).map(|id| id.member)
    }

    /// All names of the members into which clustertree copies pods.
    fn beside_clustertree(&self) -> BTreeSet<String> {
        let members = self.members.all().unwrap_or_default();
        let beside = |name: &&String| is_beside_clustertree(&members, &serving(&members, name));
        members.keys().filter(beside).cloned().collect()
    }

    async fn changes_from(&self, known: &BTreeSet<String>) {
        while self.beside_clustertree() == *known {
            sleep(PAUSE).await;
        }
    }
}
