//! Volumes on this node: staged once, published to pods, and taken away again.
//!
//! All of it blocks, and one volume is worked on by one call at a time: the caller sees to both. The kernel's mounts
//! decide what is there and the record only names it, so every call can be repeated after a crash at any point.
//!
//! Its page: `docs/design/nodes.md`.

pub mod decide;
mod device;
pub mod disk;
pub mod kernel;
#[cfg(target_os = "linux")]
mod linux;
pub mod measure;
pub mod options;
pub mod paths;
mod permitted;
mod points;
pub mod publish;
pub mod records;
pub mod source;
pub mod stage;
pub mod table;
pub mod undo;
mod volume_use;

use std::{collections::BTreeSet, path::PathBuf};

#[cfg(target_os = "linux")]
pub use self::linux::Linux;
use self::records::Records;
pub use self::{
    kernel::Kernel,
    permitted::Permitted,
    records::{Record, Target},
    volume_use::{Access, VolumeUse},
};
use domain::{
    error::Result,
    volume::backing::{Backing, CsiLeaf},
};

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// Done, but for so many files that may not be changed: the pod's group does not have them.
    Kept(u64),
    /// The leaf driver on this node has to do the same.
    Ask(CsiLeaf),
}

/// How far a volume grew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expanded {
    /// It has so many bytes now.
    To(u64),
    /// The leaf driver on this node has to do it.
    Ask(CsiLeaf),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of a raw volume only the total is known.
    pub bytes: Option<Amounts>,
    pub inodes: Option<Amounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub total: u64,
    pub available: u64,
    pub used: u64,
}

/// What is wrong with a volume where it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The record says it is there, and nothing is mounted.
    NotMounted(PathBuf),
    /// What is mounted there no longer answers.
    Dead(PathBuf),
    /// Its filesystem has gone read-only, which it does after an error.
    ReadOnly(PathBuf),
}

/// The volumes of one machine.
#[derive(Debug)]
pub struct Machine<K> {
    kernel: K,
    records: Records,
    device_dir: PathBuf,
    kubelet_dir: PathBuf,
    permitted: Permitted,
}

impl<K: Kernel> Machine<K> {
    /// `state` is the folder of the records.
    pub fn new(kernel: K, state: PathBuf, device_dir: PathBuf, kubelet_dir: PathBuf, permitted: Permitted) -> Self {
        Self { kernel, records: Records::new(state), device_dir, kubelet_dir, permitted }
    }

    /// What is known of a volume on this node.
    pub fn record(&self, volume: &str) -> Result<Option<Record>> {
        self.records.find(&self.kernel, volume)
    }

    /// The drivers whose volumes are here.
    pub fn leaf_drivers(&self) -> Result<BTreeSet<String>> {
        let records = self.records.all(&self.kernel)?;
        let drivers = records.into_iter().filter_map(|record| match record.attached.backing {
            Backing::Csi(leaf) => Some(leaf.driver),
            _ => None,
        });
        Ok(drivers.collect())
    }
}
