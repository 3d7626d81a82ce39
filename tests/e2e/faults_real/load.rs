//! What users do while a fault goes on: they make claims, with pods and without, snapshots, let a claim grow, and change their mind; and they
//! remove. They ask until they are heard.

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use k8s_openapi::api::{core::v1::Event, storage::v1::VolumeAttachment};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    kept::OF_OTHER,
    pods, real_node,
    world::{KEPT, SINCE, World},
};
use crate::{
    clusters::wait_for,
    objects::FOR_EVER,
    rig::{LATER, LOCAL_PATH, NOW, SHARED},
    snapshots::{snapshot, snapshots},
};

/// An API server may be what is away.
const HEARD: Duration = Duration::from_mins(5);
const GROWN: &str = "128Mi";
/// Said of what was done before, where the answer was lost: it is there already, or gone.
const THERE: Option<u16> = Some(409);
const GONE: Option<u16> = Some(404);

/// Of one fault, by whose number its objects are known.
pub struct Load {
    /// Bound at once, and with a pod.
    now: String,
    later: String,
    user: String,
    photo: String,
    /// Made and removed while the fault goes on.
    called_off: String,
    /// Made before it, to be removed, and to grow.
    old: String,
    grows: String,
    /// In the other member.
    other: String,
    /// Of a disk that can be full.
    local: String,
    /// Of a pod on the host's real node, and that pod.
    near: String,
}

impl Load {
    pub fn new(number: usize) -> Self {
        let name = |what: &str| format!("{what}-{number}");
        Self {
            now: name("now"),
            later: name("later"),
            user: name("user"),
            photo: name("photo"),
            called_off: name("called-off"),
            old: name("old"),
            grows: name("grows"),
            other: name(OF_OTHER),
            local: name("local"),
            near: name("near"),
        }
    }

    /// The volume that is to be removed while the fault goes on.
    pub async fn before(&self, world: &World<'_>) -> Result<String> {
        world.host.claim(&self.old, &world.class(NOW)).await?;
        world.host.claim(&self.grows, &world.class(SHARED)).await?;
        world.host.bound(&self.grows).await?;
        Ok(world.host.bound(&self.old).await?.name_any())
    }

    pub async fn during(&self, world: &World<'_>) -> Result<()> {
        let (host, claims) = (&world.host, world.host.claims());
        let makes = async |name: &str, class: &str| {
            asks(name, THERE, async || host.claim(name, &world.class(class)).await.map(drop)).await
        };
        let removes = async |name: &str| asks(name, GONE, async || host.delete_claim(name).await).await;
        makes(&self.now, NOW).await?;
        makes(&self.later, LATER).await?;
        asks(&self.user, THERE, async || host.tolerant_pod(&self.user, &[&self.later], None).await).await?;
        makes(&self.called_off, NOW).await?;
        asks(&self.photo, THERE, async || snapshot(host, &self.photo, KEPT).await).await?;
        removes(&self.old).await?;
        let bigger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": GROWN}}}}));
        asks(&self.grows, None, async || {
            claims.patch(&self.grows, &PatchParams::default(), &bigger).await?;
            Ok(())
        })
        .await?;
        if world.has_small_disks() {
            makes(&self.local, LOCAL_PATH).await?;
        }
        if world.real.is_some() {
            asks(&self.near, THERE, async || real_node::comes(host, &self.near, FOR_EVER).await).await?;
        }
        removes(&self.called_off).await
    }

    /// Whoever uses another member notices nothing.
    pub async fn other_is_served(&self, world: &World<'_>) -> Result<()> {
        world.host.claim(&self.other, &world.class(OF_OTHER)).await?;
        world.host.bound(&self.other).await.map(drop)
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
        let mut waiting =
            vec![(&self.now, is_told(&self.now)), (&self.later, is_told(&self.later) || is_told(&self.user))];
        if world.has_small_disks() {
            waiting.push((&self.local, is_told(&self.local)));
        }
        for (claim, told) in waiting {
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
        let called_off_is_gone = wait_for("the claim that was called off is gone", within, || async {
            Ok(claims.get_opt(&self.called_off).await?.is_none().then_some(()))
        });
        tokio::try_join!(
            host.bound_within(&self.now, within),
            self.is_used(world, within),
            self.is_cut(world, within),
            self.has_grown(world, within),
            self.is_elsewhere_too(world, within),
            old_is_gone,
            called_off_is_gone,
            world.is_served(within),
        )?;
        Ok(())
    }

    /// The claim with a pod is bound, and attached to the pod's node. Where an agent is, the pod runs.
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
        .await?;
        match &world.pods {
            Some(pods) => pods.runs(&world.host, &self.user, within).await,
            None => Ok(()),
        }
    }

    /// What only some parts of the matrix have.
    async fn is_elsewhere_too(&self, world: &World<'_>, within: Duration) -> Result<()> {
        if world.has_small_disks() {
            world.host.bound_within(&self.local, within).await?;
        }
        if world.real.is_some() {
            pods::runs(&world.host, &self.near, within).await?;
        }
        Ok(())
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

    async fn has_grown(&self, world: &World<'_>, within: Duration) -> Result<()> {
        let claims = world.host.claims();
        wait_for(&format!("{} has grown", self.grows), within, || async {
            let capacity = claims.get(&self.grows).await?.status.and_then(|status| status.capacity).unwrap_or_default();
            ensure!(capacity.get("storage").is_some_and(|size| size.0 == GROWN), "it has {capacity:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Its users remove the rest.
    pub async fn clear(&self, world: &World<'_>) -> Result<()> {
        let (host, snapshots) = (&world.host, snapshots(&world.host));
        asks(&self.user, GONE, async || world.remove_pod(&self.user).await).await?;
        asks(&self.near, GONE, async || {
            host.pods().delete(&self.near, &DeleteParams::default()).await?;
            Ok(())
        })
        .await?;
        for claim in [SINCE, &self.now, &self.later, &self.grows, &self.other, &self.local, &self.near] {
            asks(claim, GONE, async || host.delete_claim(claim).await).await?;
        }
        asks(&self.photo, GONE, async || {
            snapshots.delete(&self.photo, &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }
}

/// Until it is done, or was done before.
async fn asks(what: &str, done: Option<u16>, ask: impl AsyncFn() -> Result<()>) -> Result<()> {
    wait_for(&format!("somebody hears what is asked of {what}"), HEARD, || async {
        match ask().await {
            Err(error) if code(&error).is_some_and(|code| Some(code) == done) => Ok(Some(())),
            asked => asked.map(Some),
        }
    })
    .await
}

/// What an API server has answered.
fn code(error: &Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
