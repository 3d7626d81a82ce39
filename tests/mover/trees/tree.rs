//! Trees of all that a filesystem can hold. One seed gives one tree, wherever it grows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fastrand::Rng;

use super::{dress::dress, make, names};

/// No path is longer than the kernel takes, with the folder around the tree.
const LONGEST: usize = 2500;
const DEEP: usize = 30;

#[derive(Clone, Copy)]
enum Kind {
    Folder,
    File,
    Sparse,
    Link,
    Pipe,
    Socket,
    Device,
    HardLink,
}

/// Each of them is in every tree; hard links are where there may be some.
const EACH: [Kind; 8] =
    [Kind::Folder, Kind::File, Kind::Sparse, Kind::Link, Kind::Pipe, Kind::Socket, Kind::Device, Kind::HardLink];
const MOSTLY: [Kind; 6] = [Kind::Folder, Kind::Folder, Kind::File, Kind::File, Kind::File, Kind::HardLink];

pub struct Tree {
    root: PathBuf,
    rng: Rng,
    folders: Vec<PathBuf>,
    /// All others, each by its first name.
    things: Vec<PathBuf>,
    pub has_hard_links: bool,
}

impl Tree {
    /// At a path where nothing is yet.
    pub fn grow(root: &Path, seed: u64) -> Self {
        fs::create_dir(root).unwrap();
        let (folders, rng) = (vec![root.to_owned()], Rng::with_seed(seed));
        let has_hard_links = !seed.is_multiple_of(3);
        let mut tree = Self { root: root.to_owned(), rng, folders, things: Vec::new(), has_hard_links };
        for kind in EACH {
            tree.add(kind);
        }
        if tree.rng.u8(..4) == 0 {
            tree.dig();
        }
        for _ in 0..tree.rng.usize(50..115) {
            let kinds: &[Kind] = if tree.rng.bool() { &EACH } else { &MOSTLY };
            let kind = *tree.rng.choice(kinds).unwrap();
            tree.add(kind);
        }
        for path in tree.folders.iter().chain(&tree.things) {
            dress(&mut tree.rng, path);
        }
        tree
    }

    /// Folders within folders.
    fn dig(&mut self) {
        let mut folder = self.folders[0].clone();
        for depth in 0..DEEP {
            folder.push(depth.to_string());
            fs::create_dir(&folder).unwrap();
            self.folders.push(folder.clone());
        }
    }

    fn add(&mut self, kind: Kind) {
        let folder = self.rng.choice(&self.folders).unwrap().clone();
        let path = names::path(&mut self.rng, &folder);
        let below = path.strip_prefix(&self.root).unwrap();
        if below.as_os_str().len() > LONGEST || path.symlink_metadata().is_ok() {
            return;
        }
        match kind {
            Kind::Folder => {
                fs::create_dir(&path).unwrap();
                return self.folders.push(path);
            }
            Kind::HardLink if !self.has_hard_links => return,
            Kind::HardLink => return fs::hard_link(self.rng.choice(&self.things).unwrap(), &path).unwrap(),
            Kind::File => make::file(&mut self.rng, &path),
            Kind::Sparse => make::sparse(&mut self.rng, &path),
            Kind::Link => make::link(&mut self.rng, &path, self.folders.last().unwrap()),
            Kind::Pipe => make::pipe(&path),
            Kind::Socket => make::socket(&path),
            Kind::Device => make::device(&mut self.rng, &path),
        }
        self.things.push(path);
    }
}

/// All that is in a tree, and its root: each folder before what is in it, and names of one folder by their bytes.
pub fn entries(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (vec![root.to_owned()], vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
