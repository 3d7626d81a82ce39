//! Volumes on this node: staged once, published to pods, and taken away again.
//!
//! All of it blocks, and one volume is worked on by one call at a time: the caller sees to both. The kernel's mounts
//! decide what is there and the record only names it, so every call can be repeated after a crash at any point.

pub mod kernel;
pub mod options;
pub mod paths;
pub mod records;
pub mod way;

use std::path::{Path, PathBuf};

use self::records::Records;
pub use self::{
    kernel::Kernel,
    records::{Record, Target},
    way::{Access, Way},
};
use crate::{
    error::{Error, Result},
    volume::backing::{Attached, CsiLeaf},
};

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Done,
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
}

impl<K: Kernel> Machine<K> {
    /// `state` is the folder of the records.
    pub fn new(kernel: K, state: PathBuf, device_dir: PathBuf, kubelet_dir: PathBuf) -> Self {
        Self { kernel, records: Records::new(state), device_dir, kubelet_dir }
    }

    /// Makes a volume ready on this node. `Ask`: the leaf driver stages it at the same path.
    pub fn stage(&self, attached: &Attached, staging: &Path, way: &Way) -> Result<Step> {
        let _ = (&self.kernel, &self.device_dir, &self.kubelet_dir, attached, staging, way);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Shows a staged volume at a pod's path. `Ask`: the leaf driver publishes it there, and then [`Self::own`].
    pub fn publish(
        &self,
        attached: &Attached,
        staging: &Path,
        target: &Path,
        way: &Way,
        readonly: bool,
    ) -> Result<Step> {
        let _ = (attached, staging, target, way, readonly);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Gives the files of a published CSI leaf volume to the pod's group, where its driver leaves that to the node. Not
    /// to be called where the leaf driver does it itself (VOLUME_MOUNT_GROUP).
    pub fn own(&self, volume: &str, target: &Path) -> Result<()> {
        let _ = (volume, target);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Takes a volume from a pod's path. `Ask`: the leaf driver unpublishes it first, and then [`Self::unpublished`].
    pub fn unpublish(&self, volume: &str, target: &Path) -> Result<Step> {
        let _ = (volume, target);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Clears what is left at a pod's path: mounts, the mount point, the record's entry.
    pub fn unpublished(&self, volume: &str, target: &Path) -> Result<()> {
        let _ = (volume, target);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Takes a volume from this node. `Ask`: the leaf driver unstages it first, and then [`Self::unstaged`].
    pub fn unstage(&self, volume: &str, staging: &Path) -> Result<Step> {
        let _ = (volume, staging);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Clears what is left at the staging path, and the record.
    pub fn unstaged(&self, volume: &str, staging: &Path) -> Result<()> {
        let _ = (volume, staging);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// What is known of a volume on this node.
    pub fn record(&self, volume: &str) -> Result<Option<Record>> {
        self.records.find(&self.kernel, volume)
    }

    /// How full a volume is. A dead server may keep it from ever answering.
    pub fn usage(&self, volume: &str, path: &Path) -> Result<Usage> {
        let _ = (volume, path);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// Lets a volume's filesystem fill the size that its disk has now.
    pub fn expand(&self, volume: &str, path: &Path) -> Result<Expanded> {
        let _ = (volume, path);
        Err(Error::Refused("not built yet".to_owned()))
    }

    /// What is wrong with a volume; nothing, if all is well. A dead server may keep it from ever answering.
    pub fn health(&self, volume: &str) -> Result<Vec<Trouble>> {
        let _ = volume;
        Err(Error::Refused("not built yet".to_owned()))
    }
}
