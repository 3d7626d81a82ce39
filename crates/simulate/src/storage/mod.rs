//! The storage of a simulated member: classes, a provisioner, and a node that runs pods. It does what external
//! provisioners, resizers, snapshotters, the scheduler and a kubelet do, at the pace that [`Settings`] tell.

mod backing;
mod capacity;
pub mod definitions;
mod groups;
mod modify;
mod names;
mod node;
mod pods;
mod provision;
mod reclaim;
mod resize;
mod restore;
mod settings;
mod setup;
pub mod snapshots;

use std::sync::Arc;

use backing::{Backing, Kind};
pub use names::DIRECTORY;
pub use settings::{Binding, Class, Growth, Pods, Reclaim, Settings, Work};

use super::Cluster;

/// The storage of one member. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Storage(Arc<Member>);

#[derive(Debug)]
struct Member {
    cluster: Cluster,
    settings: Settings,
    backing: Backing,
}

impl Storage {
    pub fn new(cluster: Cluster, settings: Settings) -> Self {
        let backing = Backing::new(&settings);
        Self(Arc::new(Member { cluster, settings, backing }))
    }

    /// Every volume that takes up room, whether an object still tells of it or not.
    pub fn volumes(&self) -> Vec<String> {
        self.0.backing.names(Kind::Volume)
    }

    /// Every snapshot that is kept, likewise.
    pub fn snapshots(&self) -> Vec<String> {
        self.0.backing.names(Kind::Snapshot)
    }

    /// Works until it is dropped.
    pub async fn run(&self) {
        let member = &*self.0;
        setup::prepare(member);
        tokio::join!(
            provision::run(member),
            reclaim::run(member),
            pods::run(member),
            resize::run(member),
            capacity::run(member),
            modify::run(member),
            snapshots::run(member),
            groups::run(member)
        );
    }
}

pub async fn run(cluster: Cluster, settings: Settings) {
    Storage::new(cluster, settings).run().await;
}

#[cfg(test)]
mod soak;
#[cfg(test)]
mod tests;
