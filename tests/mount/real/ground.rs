//! A piece of a machine for one test: a tmpfs with a kubelet's folder, loop devices, and a mount namespace around it.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::PathBuf,
    process::Command,
};

use mount::{Linux, Machine, Permitted};

use crate::namespace;

/// All of it lies in one folder, in a namespace that ends with its process.
pub struct Ground(PathBuf);

/// Runs a test in a namespace of its own.
pub fn inside(name: &str, test: impl FnOnce(&Ground)) {
    namespace::inside(name, |folder| {
        let ground = Ground(folder);
        ground.folder("kubelet");
        ground.folder("by-id");
        test(&ground);
    });
}

impl Ground {
    pub fn of_this_process() -> Self {
        Self(namespace::ground())
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    pub fn folder(&self, below: &str) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn machine(&self) -> Machine<Linux> {
        let kubelet = self.path("kubelet");
        let state = kubelet.join("plugins/kosmos.csi.io/volumes");
        Machine::new(Linux, state, self.path("by-id"), kubelet, self.permitted())
    }

    pub fn permitted(&self) -> Permitted {
        Permitted { local_folders: vec![self.0.clone()], ..Permitted::default() }
    }

    pub fn staging(&self) -> PathBuf {
        self.folder("kubelet/plugins/kubernetes.io/csi/kosmos.csi.io/abc/globalmount")
    }

    pub fn target(&self, number: usize) -> PathBuf {
        self.folder(&format!("kubelet/pods/u{number}/volumes/kubernetes.io~csi/pv")).join("mount")
    }

    /// What is mounted below the ground.
    pub fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let targets = table.lines().filter_map(|line| line.split(' ').nth(4).map(str::to_owned));
        let below = format!("{}/", self.0.display());
        targets.filter(|target| target.starts_with(&below)).collect()
    }

    pub fn assert_nothing_is_left(&self) {
        assert_eq!(self.mounts(), Vec::<String>::new());
        let records = fs::read_dir(self.path("kubelet/plugins/kosmos.csi.io/volumes")).unwrap();
        assert_eq!(records.count(), 0, "a record is left");
    }
}

/// A disk that is a file. It is the machine's, not the namespace's, and goes when the test does.
pub struct Loop {
    file: PathBuf,
    device: String,
}

impl Loop {
    /// A blank one.
    pub fn new(ground: &Ground, name: &str, size: u64) -> Self {
        let file = ground.path(name);
        File::create(&file).unwrap().set_len(size).unwrap();
        Self::of(ground, name, file)
    }

    fn of(ground: &Ground, name: &str, file: PathBuf) -> Self {
        // Another process may take a free device before we do.
        let mut found =
            (0..20).map(|_| Command::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap());
        let found = found.find(|output| output.status.success()).unwrap();
        let device = String::from_utf8(found.stdout).unwrap().trim().to_owned();
        symlink(&device, ground.path("by-id").join(name)).unwrap();
        Self { file, device }
    }

    pub fn copy(&self, ground: &Ground, name: &str) -> Self {
        let file = ground.path(name);
        fs::copy(&self.file, &file).unwrap();
        Self::of(ground, name, file)
    }

    pub fn keep(&self) -> File {
        let exclusively = nix::fcntl::OFlag::O_EXCL.bits();
        OpenOptions::new().read(true).custom_flags(exclusively).open(&self.device).unwrap()
    }

    pub fn resize(&self, size: u64) {
        OpenOptions::new().write(true).open(&self.file).unwrap().set_len(size).unwrap();
        let told = Command::new("losetup").args(["--set-capacity", &self.device]).status().unwrap();
        assert!(told.success());
    }

    pub fn spoil(&self, from: u64, bytes: usize) {
        let mut device = OpenOptions::new().write(true).open(&self.device).unwrap();
        device.seek(SeekFrom::Start(from)).unwrap();
        device.write_all(&vec![0xa5; bytes]).unwrap();
        device.sync_all().unwrap();
    }

    /// Changes its ext4 by a command of debugfs.
    pub fn change(&self, command: &str) {
        let changed = Command::new("debugfs").args(["-w", "-R", command, &self.device]).output().unwrap();
        assert!(changed.status.success(), "{changed:?}");
    }

    pub fn begins_with(&self, expected: &[u8]) -> bool {
        let mut found = vec![0; expected.len()];
        File::open(&self.device).unwrap().read_exact(&mut found).unwrap();
        found == expected
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // What is still mounted keeps it until the namespace ends.
        Command::new("losetup").args(["--detach", &self.device]).status().ok();
    }
}
