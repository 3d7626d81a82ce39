//! What users do while a fault goes on: they make claims, with pods and without, snapshots, and change their mind; they write, and
//! remove.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::Event, storage::v1::VolumeAttachment};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};

use super::world::{KEPT, World};
use crate::{
    clusters::wait_for,
    rig::{LATER, NOW},
    snapshots::{snapshot, snapshots},
};

/// Of one fault, by whose number its objects are known.
pub struct Load {
    number: usize,
    /// Bound at once, and with a pod.
    now: String,
    later: String,
    user: String,
    photo: String,
    /// Made and removed while the fault goes on.
    gone: String,
    /// Made before it.
    old: String,
}

impl Load {
    pub fn new(number: usize) -> Self {
        let name = |what: &str| format!("{what}-{number}");
        Self {
            number,
            now: name("now"),
            later: name("later"),
            user: name("user"),
            photo: name("photo"),
            gone: name("gone"),
            old: name("old"),
        }
    }

    /// The volume that is to be removed while the fault goes on.
    pub async fn before(&self, world: &World<'_>) -> Result<String> {
        world.host.claim(&self.old, &world.class(NOW)).await?;
        Ok(world.host.bound(&self.old).await?.name_any())
    }

    pub async fn during(&self, world: &World<'_>) -> Result<()> {
        let host = &world.host;
        host.claim(&self.now, &world.class(NOW)).await?;
        host.claim(&self.later, &world.class(LATER)).await?;
        host.tolerant_pod(&self.user, &[&self.later], None).await?;
        host.claim(&self.gone, &world.class(NOW)).await?;
        snapshot(host, &self.photo, KEPT).await?;
        host.delete_claim(&self.old).await?;
        let write = format!("echo {} >> /{KEPT}/log && sync", self.number);
        world.leaf.run(&format!("writer-{}", self.number), &[KEPT], &write).await?;
        host.delete_claim(&self.gone).await
    }

    /// Whether an event says why, of each claim that waits or of its pod.
    pub async fn says_why(&self, world: &World<'_>) -> Result<()> {
        let host = &world.host;
        let events: Api<Event> = Api::namespaced(host.client.clone(), &host.namespace);
        let events = events.list(&ListParams::default()).await?.items;
        let says_why =
            |event: &Event| event.type_.as_deref() == Some("Warning") || event.reason.as_deref() == Some("LeafPending");
        let is_told = |name: &str| {
            events.iter().any(|event| event.involved_object.name.as_deref() == Some(name) && says_why(event))
        };
        for (claim, told) in
            [(&self.now, is_told(&self.now)), (&self.later, is_told(&self.later) || is_told(&self.user))]
        {
            let phase = host.claims().get(claim).await?.status.and_then(|status| status.phase);
            ensure!(told || phase.as_deref() == Some("Bound"), "claim {claim} waits, and no event says why");
        }
        Ok(())
    }

    /// All that was asked for is there, and what was removed is gone.
    pub async fn converges(&self, world: &World<'_>, old: &str, within: Duration) -> Result<()> {
        let host = &world.host;
        let (volumes, claims) = (host.volumes(), host.claims());
        let old_is_gone = wait_for("the volume that was removed is gone", within, || async {
            Ok(volumes.get_opt(old).await?.is_none().then_some(()))
        });
        let gone_is_gone = wait_for("the claim that was called off is gone", within, || async {
            Ok(claims.get_opt(&self.gone).await?.is_none().then_some(()))
        });
        tokio::try_join!(
            host.bound_within(&self.now, within),
            self.is_used(world, within),
            self.is_cut(world, within),
            old_is_gone,
            gone_is_gone,
            world.is_served(within),
        )?;
        Ok(())
    }

    /// The claim with a pod is bound, and attached to the pod's node.
    async fn is_used(&self, world: &World<'_>, within: Duration) -> Result<()> {
        let volume = world.host.bound_within(&self.later, within).await?.name_any();
        let attachments: Api<VolumeAttachment> = Api::all(world.host.client.clone());
        wait_for(&format!("{} is attached", self.later), within, || async {
            let all = attachments.list(&ListParams::default()).await?;
            let is_attached = all.iter().any(|one| {
                one.spec.source.persistent_volume_name.as_deref() == Some(volume.as_str())
                    && one.status.as_ref().is_some_and(|status| status.attached)
            });
            Ok(is_attached.then_some(()))
        })
        .await
    }

    async fn is_cut(&self, world: &World<'_>, within: Duration) -> Result<()> {
        let snapshots = snapshots(&world.host);
        wait_for(&format!("snapshot {} is ready", self.photo), within, || async {
            let status = snapshots.get(&self.photo).await?.data["status"].clone();
            ensure!(status["readyToUse"] == true, "its status is {status}");
            Ok(Some(()))
        })
        .await
    }

    /// Its users remove the rest.
    pub async fn clear(&self, world: &World<'_>) -> Result<()> {
        world.host.force_delete_pod(&self.user).await?;
        for claim in [&self.now, &self.later] {
            world.host.delete_claim(claim).await?;
        }
        snapshots(&world.host).delete(&self.photo, &DeleteParams::default()).await?;
        Ok(())
    }
}
