//! A piece of a machine for one test: filesystems in a folder, and a mount namespace around it.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use mover::{
    compare::{Judgement, compare},
    walk::{Depth, Walk},
};

use crate::namespace;

/// The smallest that mkfs.xfs makes is a third less.
const DISK: u64 = 512 << 20;

/// All of it lies in one folder, in a namespace that ends with its process.
pub struct Ground(PathBuf);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    Ext4,
    /// With inodes so small that they hold whole seconds alone.
    OldExt4,
    Xfs,
    Tmpfs,
}

impl Filesystem {
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Tmpfs];
}

/// Runs a test in a namespace of its own.
pub fn inside(name: &str, test: impl FnOnce(&Ground)) {
    namespace::inside(name, |folder| test(&Ground(folder)));
}

impl Ground {
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// An empty filesystem, at a folder of that name.
    pub fn mounted(&self, filesystem: Filesystem, name: &str) -> PathBuf {
        let (target, file) = (self.folder(name), self.0.join(format!("{name}.disk")));
        let make: &[&str] = match filesystem {
            Filesystem::Ext4 => &["mkfs.ext4", "-q", "-b", "4096", "-N", "131072"],
            Filesystem::OldExt4 => &["mkfs.ext4", "-q", "-b", "4096", "-I", "128"],
            Filesystem::Xfs => &["mkfs.xfs", "-q"],
            Filesystem::Tmpfs => {
                mount("tmpfs", "rw", Path::new("tmpfs"), &target);
                return target;
            }
        };
        File::create(&file).unwrap().set_len(DISK).unwrap();
        run(Command::new(make[0]).args(&make[1..]).arg(&file));
        // Its loop device goes with the last mount of it, however this process ends.
        mount(if filesystem == Filesystem::Xfs { "xfs" } else { "ext4" }, "loop", &file, &target);
        target
    }
}

pub fn mount(kind: &str, options: &str, source: &Path, target: &Path) {
    run(Command::new("mount").args(["-t", kind, "-o", options]).arg(source).arg(target));
}

/// What a command that must not fail has printed.
pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// As the two ends judge, with times as exact as that.
pub fn judged_to(granularity: u32, source: &Path, copy: &Path) -> std::io::Result<Judgement> {
    let walk = |root: &Path| Walk::new(root, Depth::Whole, Arc::default()).map(|walk| walk.agreed(false, granularity));
    compare(walk(source)?, walk(copy)?)
}

pub fn judged(source: &Path, copy: &Path) -> Judgement {
    judged_to(1, source, copy).unwrap()
}

/// What the environment asks for.
pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

/// Whether there is time.
pub fn is_thorough() -> bool {
    env::var_os("KOSMOS_CSI_THOROUGH").is_some()
}

/// The seeds of so many trees, or of as many as the environment asks for.
pub fn seeds(usual: u64) -> Vec<u64> {
    let first = number("KOSMOS_CSI_SEED").unwrap_or(1);
    let count = number("KOSMOS_CSI_TREES").unwrap_or(usual);
    eprintln!("{count} trees from KOSMOS_CSI_SEED={first} on");
    (first..first + count).collect()
}
