//! What users do while a fault goes on: they make claims, with pods and without, snapshots and what comes of them, let a claim grow, and
//! change their mind; and they remove. They ask until they are heard.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

use anyhow::{Error, Result, ensure};
use k8s_openapi::api::{core::v1::Event, storage::v1::VolumeAttachment};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    kept::{LINES, OF_OTHER, writes_lines},
    more::More,
    pods,
    promises::Promises,
    real_node,
    row::Done,
    way::Way,
    world::{KEPT, SINCE, Users, World},
};
use crate::{
    clusters::wait_for,
    objects::{FOR_EVER, pod},
    rig::{LATER, LOCAL_PATH, NOW, PATIENCE, SHARED},
    snapshots::{filled, from_snapshot, snapshot, snapshots},
};

/// An API server may be what is away.
const HEARD: Duration = Duration::from_mins(5);
const GROWN: &str = "128Mi";
/// Said of what was done before, where the answer was lost: it is there already, or gone.
pub const THERE: Option<u16> = Some(409);
pub const GONE: Option<u16> = Some(404);

pub const CLAIMS_MADE: &str = "claims made";
pub const CLAIMS_OF_SNAPSHOTS: &str = "claims made of snapshots";
pub const CLAIMS_REMOVED: &str = "claims removed";
const PODS_MADE: &str = "pods made";
pub const PODS_REMOVED: &str = "pods removed";

/// How often what was asked for was taken, by kind.
#[derive(Debug, Default)]
pub struct Counts(RefCell<BTreeMap<String, u64>>);

impl Counts {
    pub fn add(&self, kind: &str) {
        *self.0.borrow_mut().entry(kind.to_owned()).or_default() += 1;
    }
}

/// Of one fault, by whose number its objects are known.
pub struct Load {
    /// Bound at once, and with a pod.
    now: String,
    later: String,
    user: String,
    photo: String,
    /// Made of the snapshot.
    restored: String,
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
    /// Where there is time for it.
    pub more: Option<More>,
    counts: Counts,
}

impl Load {
    pub fn new(number: usize, users: Users) -> Self {
        let name = |what: &str| format!("{what}-{number}");
        Self {
            now: name("now"),
            later: name("later"),
            user: name("user"),
            photo: name("photo"),
            restored: name("restored"),
            called_off: name("called-off"),
            old: name("old"),
            grows: name("grows"),
            other: name(OF_OTHER),
            local: name("local"),
            near: name("near"),
            more: (users == Users::All).then(|| More::new(number)),
            counts: Counts::default(),
        }
    }

    /// Its objects, by their names and without its number.
    pub fn names(&self) -> Vec<(&str, &str)> {
        let claims = [&self.now, &self.later, &self.restored, &self.called_off, &self.old, &self.grows];
        let others = [&self.user, &self.photo, &self.other, &self.local, &self.near];
        let all = claims.into_iter().chain(others).chain(self.more.iter().flat_map(More::names));
        let guests = self.more.iter().flat_map(|more| more.guests.names()).map(|name| (name.as_str(), "guest"));
        all.filter_map(|name| Some((name.as_str(), name.rsplit_once('-')?.0))).chain(guests).collect()
    }

    /// What has been done of it, and how many bytes were acknowledged and read again.
    pub fn done(&self, acknowledged: u64) -> Done {
        Done { operations: self.counts.0.borrow().clone(), acknowledged }
    }

    /// The volume that is to be removed while the fault goes on.
    pub async fn before(&self, world: &World<'_>) -> Result<String> {
        for (name, class) in [(&self.old, NOW), (&self.grows, SHARED)] {
            world.host.claim(name, &world.class(class)).await?;
            self.counts.add(CLAIMS_MADE);
        }
        world.host.bound(&self.grows).await?;
        if let Some(more) = &self.more {
            world.leaf.run(&format!("packer-of-{}", self.grows), &[&self.grows], &writes_lines(&self.grows)).await?;
            more.before(world, &self.counts).await?;
        }
        Ok(world.host.bound(&self.old).await?.name_any())
    }

    pub async fn during(&self, world: &World<'_>) -> Result<()> {
        let (host, claims) = (&world.host, world.host.claims());
        let makes = async |name: &str, class: &str| {
            asks(name, THERE, async || host.claim(name, &world.class(class)).await.map(drop)).await?;
            self.counts.add(CLAIMS_MADE);
            anyhow::Ok(())
        };
        let removes = async |name: &str| {
            asks(name, GONE, async || host.delete_claim(name).await).await?;
            self.counts.add(CLAIMS_REMOVED);
            anyhow::Ok(())
        };
        makes(&self.now, NOW).await?;
        makes(&self.later, LATER).await?;
        asks(&self.user, THERE, async || host.tolerant_pod(&self.user, &[&self.later], None).await).await?;
        self.counts.add(PODS_MADE);
        makes(&self.called_off, NOW).await?;
        asks(&self.photo, THERE, async || snapshot(host, &self.photo, KEPT).await).await?;
        self.counts.add("snapshots made");
        let (class, of) = (world.class(NOW), from_snapshot(&self.photo));
        asks(&self.restored, THERE, async || filled(host, &self.restored, &class, of.clone()).await).await?;
        self.counts.add(CLAIMS_OF_SNAPSHOTS);
        removes(&self.old).await?;
        let bigger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": GROWN}}}}));
        asks(&self.grows, None, async || {
            claims.patch(&self.grows, &PatchParams::default(), &bigger).await?;
            Ok(())
        })
        .await?;
        self.counts.add("claims grown");
        if world.has_small_disks() {
            makes(&self.local, LOCAL_PATH).await?;
        }
        if world.real.is_some() {
            let near = pod(&self.near, &[&self.near], FOR_EVER);
            asks(&self.near, THERE, async || real_node::comes(host, &self.near, near.clone()).await).await?;
            self.counts.add(CLAIMS_MADE);
            self.counts.add(PODS_MADE);
        }
        if let Some(more) = &self.more {
            more.during(world, &self.counts).await?;
        }
        removes(&self.called_off).await
    }

    /// What users do again and again until it is over.
    pub async fn goes_on(&self, world: &World<'_>, is_over: &Cell<bool>) -> Result<()> {
        match &self.more {
            Some(more) => more.guests.come_and_go(world, &self.counts, is_over).await,
            None => Ok(()),
        }
    }

    /// Whoever uses another member notices nothing.
    pub async fn other_is_served(&self, world: &World<'_>) -> Result<()> {
        world.host.claim(&self.other, &world.class(OF_OTHER)).await?;
        self.counts.add(CLAIMS_MADE);
        world.host.bound(&self.other).await.map(drop)
    }

    /// Whether an event says why, of each claim that waits or of its pod, of one that does not grow, and of a volume that does not go; of a
    /// pod that waits for the agent perhaps its node.
    pub async fn says_why(&self, world: &World<'_>, old: &str) -> Result<()> {
        let host = &world.host;
        let events: Api<Event> = Api::all(host.client.clone());
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
        let has_grown = is_told(&self.grows) || self.is_grown(world).await.is_ok();
        ensure!(has_grown, "claim {} does not grow, and no event says why", self.grows);
        let has_gone = is_told(old) || host.volumes().get_opt(old).await?.is_none();
        ensure!(has_gone, "volume {old} of claim {} does not go, and no event says why", self.old);
        let photo = snapshots(host).get(&self.photo).await?;
        let is_cut_or_says_why = ["creationTime", "error"].iter().any(|field| !photo.data["status"][*field].is_null());
        ensure!(is_cut_or_says_why || is_told(&self.photo), "snapshot {} waits, and says nothing", self.photo);
        if world.way().is_ok_and(|way| way == Way::OfAgent) {
            let phase = host.pods().get(&self.user).await?.status.and_then(|status| status.phase);
            let is_told = is_told(&self.user) || pods::are_away(host).await?;
            ensure!(is_told || phase.as_deref() == Some("Running"), "pod {} waits, and nothing says why", self.user);
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
            self.is_cut_and_restored(world, within),
            self.has_grown(world, within),
            self.is_elsewhere_too(world, within),
            self.does_more(world, within),
            old_is_gone,
            called_off_is_gone,
            world.is_served(within),
        )?;
        self.is_so_in_the_member(world).await
    }

    /// What the host says of claims is never more than what is so.
    async fn is_so_in_the_member(&self, world: &World<'_>) -> Result<()> {
        for claim in [&self.now, &self.later, &self.restored, &self.grows] {
            let leaf = wait_for("somebody looks at a leaf claim", PATIENCE, || async {
                Ok(Some(world.leaf.claims().get(claim).await?))
            });
            let status = leaf.await?.status.unwrap_or_default();
            ensure!(
                status.phase.as_deref() == Some("Bound"),
                "claim {claim} is bound, and its leaf {:?}",
                status.phase
            );
            let size = status.capacity.and_then(|mut capacity| capacity.remove("storage"));
            let is_large = *claim != self.grows || size.as_ref().is_some_and(|size| size.0 == GROWN);
            ensure!(is_large, "claim {claim} has grown to {GROWN}, and its leaf to {size:?}");
        }
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

    async fn does_more(&self, world: &World<'_>, within: Duration) -> Result<()> {
        match &self.more {
            Some(more) => more.converges(world, &self.counts, within).await,
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

    /// What is made of the snapshot can begin once that is ready.
    async fn is_cut_and_restored(&self, world: &World<'_>, within: Duration) -> Result<()> {
        let snapshots = snapshots(&world.host);
        wait_for(&format!("snapshot {} is ready", self.photo), within, || async {
            let status = snapshots.get(&self.photo).await?.data["status"].clone();
            ensure!(status["readyToUse"] == true, "its status is {status}");
            Ok(Some(()))
        })
        .await?;
        world.host.bound_within(&self.restored, within).await.map(drop)
    }

    async fn has_grown(&self, world: &World<'_>, within: Duration) -> Result<()> {
        wait_for(&format!("{} has grown", self.grows), within, || async { self.is_grown(world).await.map(Some) }).await
    }

    async fn is_grown(&self, world: &World<'_>) -> Result<()> {
        let claim = world.host.claims().get(&self.grows).await?;
        let capacity = claim.status.and_then(|status| status.capacity).unwrap_or_default();
        ensure!(capacity.get("storage").is_some_and(|size| size.0 == GROWN), "it has {capacity:?}");
        Ok(())
    }

    /// What was made of snapshots has what was on the disk before these were cut, and what has grown has what it had.
    pub async fn copies_have_all(&self, promises: &Promises<'_, '_>) -> Result<()> {
        let more = async {
            match &self.more {
                Some(more) => {
                    let grown = promises.has_lines(&self.grows, &self.grows, LINES);
                    tokio::try_join!(more.copies_have_all(promises), grown).map(drop)
                }
                None => Ok(()),
            }
        };
        tokio::try_join!(promises.copy_has_all(&self.restored), more)?;
        Ok(())
    }

    /// Its users remove the rest.
    pub async fn clear(&self, world: &World<'_>) -> Result<()> {
        let (host, snapshots) = (&world.host, snapshots(&world.host));
        let counted = |kind: &str, is_done: bool| {
            if is_done {
                self.counts.add(kind);
            }
        };
        counted(PODS_REMOVED, asks(&self.user, GONE, async || world.remove_pod(&self.user).await).await?);
        counted(PODS_REMOVED, asks(SINCE, GONE, async || world.remove_pod(SINCE).await).await?);
        let near = async || {
            host.pods().delete(&self.near, &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        counted(PODS_REMOVED, asks(&self.near, GONE, near).await?);
        let bound = [&self.now, &self.later, &self.grows, &self.restored, &self.other, &self.local, &self.near];
        for claim in bound.into_iter().map(String::as_str).chain([SINCE]) {
            counted(CLAIMS_REMOVED, asks(claim, GONE, async || host.delete_claim(claim).await).await?);
        }
        let photo = async || {
            snapshots.delete(&self.photo, &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        counted("snapshots removed", asks(&self.photo, GONE, photo).await?);
        if let Some(more) = &self.more {
            more.clear(world, &self.counts).await?;
        }
        Ok(())
    }
}

/// Until it is done, or was done before: then it is not done by this.
pub async fn asks(what: &str, done: Option<u16>, ask: impl AsyncFn() -> Result<()>) -> Result<bool> {
    wait_for(&format!("somebody hears what is asked of {what}"), HEARD, || async {
        match ask().await {
            Err(error) if code(&error).is_some_and(|code| Some(code) == done) => Ok(Some(false)),
            asked => asked.map(|()| Some(true)),
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
