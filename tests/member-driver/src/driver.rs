//! Everything a call may need, made once at the start; and what a crash left half done, finished there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::{info, warn};

use crate::args::{Args, Switch};
use crate::capacity::Capacity;
use crate::data::Data;
use crate::device;
use crate::error::Error;
use crate::faults::Faults;
use crate::inflight::InFlight;
use crate::mounts;
use crate::parameters::Kind;
use crate::staging::{has_live_stage, live_mount};
use crate::table::Table;
use crate::volume::{Group, Map, Snapshot, Volume};

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) topology_key: String,
    pub(crate) attach: bool,
    pub(crate) max_volumes: u32,
    pub(crate) volumes: Table<Volume>,
    pub(crate) snapshots: Table<Snapshot>,
    pub(crate) groups: Table<Group>,
    pub(crate) data: Data,
    pub(crate) capacity: Capacity,
    pub(crate) in_flight: InFlight,
    pub(crate) faults: Faults,
    /// Held while the attached volumes are counted and one more is added.
    pub(crate) attaching: Mutex<()>,
}

impl Driver {
    pub(crate) fn open(args: &Args) -> io::Result<Self> {
        fs::create_dir_all(&args.state)?;
        Ok(Self {
            name: args.driver_name.clone(),
            node: args.node_name.clone(),
            topology_key: format!("{}/node", args.driver_name),
            attach: args.attach == Switch::On,
            max_volumes: args.max_volumes,
            volumes: Table::open(args.state.join("volumes"))?,
            snapshots: Table::open(args.state.join("snapshots"))?,
            groups: Table::open(args.state.join("groups"))?,
            data: Data::open(&args.state.join("data"))?,
            capacity: Capacity::new(args.capacity.0),
            in_flight: InFlight::default(),
            faults: Faults::new(args.state.join("held")),
            attaching: Mutex::new(()),
        })
    }

    /// The one place from which the volumes of this driver are reachable.
    pub(crate) fn place(&self) -> Map {
        Map::from([(self.topology_key.clone(), self.node.clone())])
    }

    /// Finishes what a crash interrupted, before the first call.
    pub(crate) async fn recover(&self) -> Result<(), Error> {
        for snapshot in self.snapshots.all() {
            if snapshot.group.as_ref().is_some_and(|group| self.groups.find(group).is_none()) {
                warn!(snapshot = snapshot.id, "removing a snapshot whose group is gone");
                self.snapshots.remove(&snapshot.id)?;
            }
        }
        for volume in self.volumes.all().iter().filter(|volume| volume.kind == Kind::Loop) {
            self.recover_device(volume).await?;
        }
        let volumes = self.volumes.all().into_iter().map(|volume| volume.id);
        let snapshots = self.snapshots.all().into_iter().map(|snapshot| snapshot.id);
        let known: BTreeSet<String> = volumes.chain(snapshots).collect();
        info!(volumes = self.volumes.all().len(), snapshots = self.snapshots.all().len(), "state read");
        self.data.keep_only(&known).map_err(Error::during("removing data that no record names"))
    }

    /// A mounted filesystem may have been left frozen, and a device without its mount.
    async fn recover_device(&self, volume: &Volume) -> Result<(), Error> {
        let file = self.data.path(&volume.id);
        if let Some(target) = live_mount(volume, &mounts::table()?) {
            // Fails unless it was frozen, which is the usual case.
            let _ = device::thaw(target).await;
        } else if !has_live_stage(self, volume).await? {
            device::detach(&file).await?;
        }
        Ok(())
    }
}

/// The present, as the records keep it.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
