//! Folders, files, links, and what is mounted over them.

use std::path::{Path, PathBuf};

use mount::kernel::{Called, Failure, Kind, Number, Seen};

use super::Model;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Folder,
    File(u64),
    Link(PathBuf),
    Device(Number),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub what: What,
    pub number: u64,
    pub group: u32,
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub id: u64,
    pub device: Number,
    pub root: PathBuf,
    pub target: PathBuf,
    pub options: Vec<String>,
    pub filesystem: String,
    pub source: String,
    pub super_options: String,
}

/// Where a path ends.
pub struct At {
    pub mount: usize,
    pub inner: PathBuf,
}

impl Model {
    pub fn add_mount(&mut self, target: &str, device: Number, root: &str, filesystem: &str, source: &str) {
        self.next += 1;
        let id = self.next;
        if target != "/" {
            self.folder(target);
        }
        self.new_node(device, Path::new("/"), What::Folder);
        self.mounts.push(Mounted {
            id,
            device,
            root: root.into(),
            target: target.into(),
            options: vec!["rw".to_owned()],
            filesystem: filesystem.to_owned(),
            source: source.to_owned(),
            super_options: "rw".to_owned(),
        });
    }

    /// Makes a node in a filesystem, unless it is there.
    pub fn new_node(&mut self, tree: Number, inner: &Path, what: What) {
        self.next += 1;
        let node = Node { what, number: self.next, group: 0, mode: 0o755 };
        self.trees.entry(tree).or_default().entry(inner.into()).or_insert(node);
    }

    /// Makes a node at a path, and the folders on the way.
    pub fn put(&mut self, path: &str, what: &What) {
        let path = Path::new(path);
        for part in path.ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            let at = self.walk(part.parent().unwrap()).ok().unwrap();
            let tree = self.mounts[at.mount].device;
            let what = if part == path { what.clone() } else { What::Folder };
            self.new_node(tree, &at.inner.join(part.file_name().unwrap()), what);
        }
    }

    pub fn folder(&mut self, path: &str) {
        self.put(path, &What::Folder);
    }

    pub fn file(&mut self, path: &str, size: u64) {
        self.put(path, &What::File(size));
    }

    pub fn link(&mut self, path: &str, to: &str) {
        self.put(path, &What::Link(to.into()));
    }

    pub fn node(&self, path: &Path) -> Option<&Node> {
        let at = self.walk(path).ok()?;
        self.trees[&self.mounts[at.mount].device].get(at.inner.as_os_str())
    }

    /// Follows a path through mounts, and never through a link.
    pub fn walk(&self, path: &Path) -> Called<At> {
        let mut at = At { mount: 0, inner: PathBuf::from("/") };
        let mut so_far = PathBuf::from("/");
        for part in path.iter().skip(1) {
            at.inner.push(part);
            so_far.push(part);
            let device = self.mounts[at.mount].device;
            match self.trees[&device].get(at.inner.as_os_str()).map(|node| &node.what) {
                None => return Err(Failure::Missing),
                Some(What::Link(_)) => return Err(Failure::Link),
                Some(_) => {}
            }
            if let Some(over) = self.mounts.iter().rposition(|mounted| mounted.target == so_far) {
                at = At { mount: over, inner: self.mounts[over].root.clone() };
            }
            let device = self.mounts[at.mount].device;
            assert!(!self.silent_filesystems.contains(&device), "a call at {} hangs", path.display());
            if self.dead_filesystems.contains(&device) {
                return Err(Failure::Dead);
            }
        }
        Ok(at)
    }

    pub fn seen(&self, path: &Path) -> Called<Seen> {
        let at = self.walk(path)?;
        let mount = &self.mounts[at.mount];
        let node = self.trees[&mount.device].get(at.inner.as_os_str()).ok_or(Failure::Missing)?;
        let (kind, size) = match &node.what {
            What::Folder => (Kind::Folder, 0),
            What::File(size) => (Kind::File, *size),
            What::Device(number) => (Kind::Device(*number), 0),
            What::Link(_) => return Err(Failure::Link),
        };
        Ok(Seen { kind, mount: mount.id, file: node.number, size, group: node.group, mode: node.mode })
    }

    /// Where a path leads, through links.
    pub fn resolved(&self, path: &Path) -> Called<PathBuf> {
        let mut real = PathBuf::from("/");
        for part in path.iter().skip(1) {
            real.push(part);
            let parent = self.walk(real.parent().unwrap())?;
            let tree = &self.trees[&self.mounts[parent.mount].device];
            match tree.get(parent.inner.join(part).as_os_str()).map(|node| &node.what) {
                None => return Err(Failure::Missing),
                Some(What::Link(to)) => real = self.resolved(to)?,
                Some(_) => {}
            }
        }
        Ok(real)
    }

    pub fn has_entries(&self, tree: Number, folder: &Path) -> bool {
        self.trees[&tree].keys().any(|path| Path::new(path) != folder && Path::new(path).starts_with(folder))
    }

    /// As the kernel writes it.
    pub fn mountinfo(&self) -> String {
        let peers = self.peers;
        let line = |mounted: &Mounted| {
            let Mounted { id, device: (major, minor), root, target, options, filesystem, source, super_options } =
                mounted;
            // NFS tells the same, whatever of it is shown.
            let root = if filesystem.starts_with("nfs") { Path::new("/") } else { root.as_path() };
            let (root, target, options) = (root.display(), target.display(), options.join(","));
            format!("{id} 1 {major}:{minor} {root} {target} {options} {peers}- {filesystem} {source} {super_options}\n")
        };
        self.mounts.iter().map(line).collect()
    }
}
