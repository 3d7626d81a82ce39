//! What users do besides where there is time for it: a volume moves to the other member, a group of snapshots is cut and a claim made of
//! each, and a StatefulSet rolls, of which a pod is deleted as well.

use std::{cell::OnceCell, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams},
};

use super::{
    guests::Guests,
    kept::LINES,
    load::{CLAIMS_MADE, CLAIMS_OF_SNAPSHOTS, CLAIMS_REMOVED, Counts, GONE, PODS_REMOVED, THERE, asks},
    promises::Promises,
    rolling::Said,
    travels::{self, TRAVELS, moves},
    world::{ALBUM, KEPT, LEDGER, World},
};
use crate::{
    clusters::wait_for,
    objects::Place,
    rig::NOW,
    snapshots::{cut_group, filled, from_claim, from_snapshot, groups, snapshots},
};

/// Two snapshotters and two snapshot-controllers look at it one after the other.
const CUT: Duration = Duration::from_mins(4);

/// Of one fault.
pub struct More {
    number: usize,
    travels: String,
    /// Made of the claim that is written once.
    cloned: String,
    album: String,
    /// Made of what the group has of each claim.
    copies: [(&'static str, String); 2],
    pub guests: Guests,
    to: OnceCell<&'static str>,
    said: OnceCell<Said>,
}

impl More {
    pub fn new(number: usize) -> Self {
        let copies = [KEPT, LEDGER].map(|claim| (claim, format!("of-{claim}-{number}")));
        let [travels, cloned, album] = [TRAVELS, "cloned", "album"].map(|name| format!("{name}-{number}"));
        let (guests, to, said) = (Guests::new(number), OnceCell::new(), OnceCell::new());
        Self { number, travels, cloned, album, copies, guests, to, said }
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        [&self.travels, &self.cloned, &self.album].into_iter().chain(self.copies.iter().map(|(_, copy)| copy))
    }

    pub async fn before(&self, world: &World<'_>, counts: &Counts) -> Result<()> {
        let to = travels::packs(world, &self.travels).await?;
        counts.add(CLAIMS_MADE);
        self.to.set(to).ok().context("a claim begins once")?;
        if let Some(rolling) = &world.rolling {
            self.said.set(rolling.said()?).ok().context("a fault begins once")?;
        }
        Ok(())
    }

    pub async fn during(&self, world: &World<'_>, counts: &Counts) -> Result<()> {
        let (host, to) = (&world.host, self.to()?);
        asks(&self.travels, THERE, async || travels::leaves(host, &self.travels, to).await).await?;
        counts.add("volumes moved");
        asks(&self.album, THERE, async || cut_group(host, &self.album, ALBUM).await).await?;
        counts.add("groups of snapshots made");
        let (class, of) = (world.class(NOW), from_claim(LEDGER));
        asks(&self.cloned, THERE, async || filled(host, &self.cloned, &class, of.clone()).await).await?;
        counts.add("claims cloned");
        let Some(rolling) = &world.rolling else { return Ok(()) };
        asks("the StatefulSet", None, async || rolling.rolls(host, self.number).await).await?;
        counts.add("StatefulSets rolled");
        for pod in rolling.pods().take(1) {
            asks(pod, GONE, async || {
                host.pods().delete(pod, &DeleteParams::default()).await?;
                Ok(())
            })
            .await?;
            counts.add(PODS_REMOVED);
        }
        Ok(())
    }

    pub async fn converges(&self, world: &World<'_>, counts: &Counts, within: Duration) -> Result<()> {
        let rolls = async {
            let Some((rolling, said)) = world.rolling.as_ref().zip(self.said.get()) else { return Ok(()) };
            rolling.has_rolled(&world.host, said, within).await
        };
        let here = self.guests.here();
        let are_bound = here.iter().chain([&self.cloned]).map(|claim| world.host.bound_within(claim, within));
        let moves = Box::pin(travels::arrives(world, &self.travels, self.to()?, within));
        tokio::try_join!(
            moves,
            Box::pin(self.is_cut_and_restored(world, counts, within)),
            rolls,
            try_join_all(are_bound)
        )?;
        Ok(())
    }

    fn to(&self) -> Result<&'static str> {
        self.to.get().copied().context("it is known where the volume is to go")
    }

    async fn is_cut_and_restored(&self, world: &World<'_>, counts: &Counts, within: Duration) -> Result<()> {
        let (host, within) = (&world.host, within.max(CUT));
        let parts = wait_for(&format!("group {} is ready", self.album), within, || async {
            let status = groups(host).get(&self.album).await?.data["status"].clone();
            ensure!(status["readyToUse"] == true, "its status is {status}");
            let parts = self.parts(host).await?;
            let are_ready = parts.iter().all(|part| part.data["status"]["readyToUse"] == true);
            ensure!(parts.len() == self.copies.len() && are_ready, "{} snapshots are in it", parts.len());
            Ok(Some(parts))
        })
        .await?;
        for (claim, copy) in &self.copies {
            let is_of = |part: &&DynamicObject| part.data["spec"]["source"]["persistentVolumeClaimName"] == *claim;
            let part = parts.iter().find(is_of).with_context(|| format!("no snapshot is of {claim}"))?;
            let (class, of) = (world.class(NOW), from_snapshot(&part.name_any()));
            asks(copy, THERE, async || filled(host, copy, &class, of.clone()).await).await?;
            counts.add(CLAIMS_OF_SNAPSHOTS);
        }
        try_join_all(self.copies.iter().map(|(_, copy)| host.bound_within(copy, within))).await.map(drop)
    }

    /// The snapshots of the group.
    async fn parts(&self, host: &Place<'_>) -> Result<Vec<DynamicObject>> {
        let mut all = snapshots(host).list(&ListParams::default()).await?.items;
        all.retain(|part| part.owner_references().iter().any(|owner| owner.name == self.album));
        Ok(all)
    }

    /// All lines that were on the disks when the group was cut, and at most those of other volumes.
    pub async fn copies_have_all(&self, promises: &Promises<'_, '_>) -> Result<()> {
        let [(_, kept), (_, ledger)] = &self.copies;
        let of_ledger = [ledger, &self.cloned].map(|copy| promises.has_lines(copy, LEDGER, LINES));
        tokio::try_join!(promises.copy_has_all(kept), try_join_all(of_ledger))?;
        Ok(())
    }

    pub async fn clear(&self, world: &World<'_>, counts: &Counts) -> Result<()> {
        let host = &world.host;
        let travelled = async || {
            moves(host).delete(&self.travels, &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        asks(&self.travels, GONE, travelled).await?;
        let (copies, guests) = (self.copies.iter().map(|(_, copy)| copy), self.guests.here());
        for claim in copies.chain([&self.travels, &self.cloned]).chain(&guests) {
            if asks(claim, GONE, async || host.delete_claim(claim).await).await? {
                counts.add(CLAIMS_REMOVED);
            }
        }
        let album = async || {
            groups(host).delete(&self.album, &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        if asks(&self.album, GONE, album).await? {
            counts.add("groups of snapshots removed");
        }
        Ok(())
    }
}
