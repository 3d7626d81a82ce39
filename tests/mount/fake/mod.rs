//! A machine in memory: files, mounts, disks and records, behind the calls that a kernel answers. It can die before, after
//! or in the middle of any call, and stays dead until it is told that a new process has begun.

mod calls;
mod disks;
mod tree;

use std::{
    cell::{Ref, RefCell, RefMut},
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    rc::Rc,
};

use mount::kernel::{Called, Failure, Number};

pub use self::disks::{Content, Disk, Unreadable};
pub use self::tree::{Mounted, Node, What};

pub const ROOT: Number = (253, 0);
pub const DEV: Number = (0, 6);
pub const NFS: Number = (0, 50);
/// The same server's filesystem, where it is mounted once more and shares nothing.
pub const NFS_AGAIN: Number = (0, 51);
pub const LEAF: Number = (0, 60);

/// When a process dies at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    Within,
    After,
}

#[derive(Debug, Default)]
pub struct Model {
    /// By bytes, which are compared faster than the parts of paths.
    pub trees: BTreeMap<Number, BTreeMap<OsString, Node>>,
    pub mounts: Vec<Mounted>,
    pub disks: BTreeMap<PathBuf, Disk>,
    /// What was written on these is on no disk yet, and somebody else keeps them mounted.
    pub unwritten: BTreeSet<Number>,
    /// Disks of which the kernel keeps a part for somebody.
    pub held: BTreeSet<PathBuf>,
    /// The records, which are no part of the trees.
    pub files: BTreeMap<PathBuf, String>,
    /// Why none of them can be written.
    pub unwritable: Option<&'static str>,
    pub has_mount_nfs: bool,
    /// What the kernel tells of the peers of each mount, with a blank after it. Without any, it is seen by nobody else.
    pub peers: &'static str,
    /// What is mounted of these no longer answers.
    pub dead_filesystems: Vec<Number>,
    /// What is mounted of these does not answer now: any call to it but a question hangs.
    pub silent_filesystems: Vec<Number>,
    pub busy: Vec<PathBuf>,
    /// What is mounted at one of these goes together, as copies do that the kernel has made of one mount.
    pub copied: Vec<PathBuf>,
    pub denies_growth: bool,
    /// After so many pauses all disks are larger.
    pub hears_after: Option<usize>,
    pub pauses: usize,
    /// So many formats are ended by the kernel, as where there is no memory left.
    pub ends_formats: usize,
    /// When this program has run, another disk has the place of sdb, and says that it is this.
    pub replaced_after: Option<(&'static str, Vec<String>)>,
    /// Whenever this program runs, it is killed.
    pub kills: Option<&'static str>,
    /// Whenever this program runs, it fails.
    pub fails: Option<&'static str>,
    pub programs_run: Vec<String>,
    /// The options of mounts that were remounted since, by their ids, as they were made.
    pub made_with: BTreeMap<u64, Vec<String>>,
    /// Filesystems that were asked for, in the words of the call.
    pub mounts_asked: Vec<String>,
    pub calls: usize,
    pub dies_at: Vec<(usize, Moment)>,
    pub is_dead: bool,
    pub next: u64,
}

/// Handed to each new process.
#[derive(Clone, Debug, Default)]
pub struct Fake(Rc<RefCell<Model>>);

impl Fake {
    /// A machine with a root, `/dev`, a kubelet's folder and a folder of data that nobody may touch.
    pub fn new() -> Self {
        let fake = Self::default();
        {
            let mut model = fake.change();
            model.peers = "shared:1 ";
            model.add_mount("/", ROOT, "/", "ext4", "/dev/vda");
            model.add_mount("/dev", DEV, "/", "devtmpfs", "devtmpfs");
            for folder in ["/dev/disk", "/etc", "/mnt/disks/a", "/kubelet/stage", "/kubelet/pods", "/canary/deep"] {
                model.folder(folder);
            }
            for file in ["/etc/shadow", "/canary/a", "/canary/deep/b", "/mnt/disks/a/data"] {
                model.file(file, 4);
            }
        }
        fake
    }

    pub fn see(&self) -> Ref<'_, Model> {
        self.0.borrow()
    }

    pub fn change(&self) -> RefMut<'_, Model> {
        self.0.borrow_mut()
    }

    /// A new process after the last one died.
    pub fn revive(&self) {
        self.change().is_dead = false;
    }

    /// The process begins in another container: that one has the machine's own mounts, which no remount in the one before has changed.
    pub fn begin_in_another_container(&self) {
        self.revive();
        let mut model = self.change();
        let made_with = std::mem::take(&mut model.made_with);
        for mounted in &mut model.mounts {
            if let Some(options) = made_with.get(&mounted.id) {
                mounted.options.clone_from(options);
            }
        }
    }

    /// The machine starts again: what was mounted since its start is gone.
    pub fn reboot(&self) {
        self.revive();
        let mut model = self.change();
        model.mounts.retain(|mounted| matches!(mounted.target.to_str(), Some("/" | "/dev")));
    }

    /// A call: it counts, and may be the last.
    fn call<T>(&self, act: impl FnOnce(&mut Model, bool) -> Called<T>) -> Called<T> {
        let died = || Err(Failure::Other("the process has died".to_owned()));
        let mut model = self.change();
        if model.is_dead {
            return died();
        }
        let number = model.calls;
        model.calls += 1;
        let moment = model.dies_at.iter().find(|(at, _)| *at == number).map(|(_, moment)| *moment);
        model.is_dead = moment.is_some();
        match moment {
            Some(Moment::Before) => died(),
            Some(Moment::Within) => {
                act(&mut model, true).ok();
                died()
            }
            Some(Moment::After) => {
                act(&mut model, false).ok();
                died()
            }
            None => act(&mut model, false),
        }
    }

    pub fn is_mounted(&self, path: &str) -> bool {
        self.see().mounts.iter().any(|mounted| mounted.target == Path::new(path))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.see().node(Path::new(path)).is_some()
    }

    /// What must survive whatever is asked for: every file that is neither a mount point nor a record.
    pub fn data(&self) -> Vec<(Number, PathBuf, u64)> {
        let model = self.see();
        let files = model.trees.iter().flat_map(|(tree, nodes)| {
            nodes.iter().filter_map(|(path, node)| match node.what {
                What::File(size) if size > 0 => Some((*tree, path.into(), size)),
                _ => None,
            })
        });
        files.collect()
    }
}
