//! Disks, and the programs that know them.

use std::path::Path;

use mount::kernel::{Ended, Number};

use super::{DEV, Model, What};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Blank,
    /// Bytes that nobody recognises.
    Bytes,
    Filesystem {
        name: String,
        size: u64,
    },
    Partitions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    All,
    /// A block far from its beginning.
    Block,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub number: Number,
    pub size: u64,
    pub content: Content,
    pub formats: usize,
    /// How often, since it was formatted.
    pub mounted: usize,
    pub has_errors: bool,
    pub unreadable: Option<Unreadable>,
    pub is_locked: bool,
    /// What it says that it is.
    pub ids: Vec<String>,
}

impl Disk {
    fn format(&mut self, filesystem: &str) {
        self.formats += 1;
        (self.mounted, self.has_errors) = (0, false);
        self.content = Content::Filesystem { name: filesystem.to_owned(), size: self.size };
    }

    fn check(&mut self, arguments: &[&str], begun: bool) -> Ended {
        let repairs = arguments.contains(&"-y");
        if self.unreadable.is_some() {
            assert!(!repairs, "it writes over what it cannot read");
            return ended(8, "Error reading block 275 (Input/output error).\n", "");
        }
        if repairs && self.has_errors && !begun {
            self.has_errors = false;
            return ended(1, "", "");
        }
        ended(if self.has_errors { 4 } else { 0 }, "", "")
    }

    pub fn head(&self) -> Vec<u8> {
        if self.size == 0 {
            return Vec::new();
        }
        let mut head = vec![0; 4096];
        match &self.content {
            Content::Filesystem { name, size } if name == "ext4" => {
                head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
                head[1024 + 4..1024 + 8].copy_from_slice(&u32::try_from(size / 4096).unwrap().to_le_bytes());
                head[1024 + 24] = 2;
                head[1024 + 44] = u8::try_from(self.mounted).unwrap_or(u8::MAX);
            }
            Content::Filesystem { name, .. } if name == "xfs" => {
                head[..4].copy_from_slice(b"XFSB");
                // Nobody can mount one whose format was cut short.
                head[126] = u8::from(self.has_errors && self.mounted == 0);
            }
            Content::Blank => {}
            _ => head[0] = 1,
        }
        head
    }
}

impl Model {
    /// A disk, with a name in `/dev/disk` as udev gives it.
    pub fn add_disk(&mut self, name: &str, number: Number, content: Content) {
        self.put(&format!("/dev/{name}"), &What::Device(number));
        self.link(&format!("/dev/disk/id-{name}"), &format!("/dev/{name}"));
        let disk = Disk {
            number,
            size: 1 << 30,
            content,
            formats: 0,
            mounted: 0,
            has_errors: false,
            unreadable: None,
            is_locked: false,
            ids: Vec::new(),
        };
        self.disks.insert(format!("/dev/{name}").into(), disk);
        assert!(self.trees[&DEV].contains_key(Path::new("/").join(name).as_os_str()));
    }

    pub fn disk(&mut self, name: &str) -> &mut Disk {
        self.disks.get_mut(Path::new("/dev").join(name).as_path()).unwrap()
    }

    /// Another disk, with data, has come in the place of one, under its name and its number.
    pub fn replace_disk(&mut self, name: &str, ids: Vec<String>) {
        self.next += 1;
        let (number, path) = (self.next, Path::new("/").join(name));
        self.trees.get_mut(&DEV).unwrap().get_mut(path.as_os_str()).unwrap().number = number;
        let disk = self.disk(name);
        (disk.content, disk.ids) = (Content::Bytes, ids);
    }

    fn grow_xfs(&mut self, place: &Path) -> Ended {
        let mounted = self.mounts.iter().rfind(|mount| mount.target == place).unwrap();
        if mounted.options.iter().any(|option| option == "ro") {
            return ended(1, "", "xfs_growfs: XFS_IOC_FSGROWFSDATA xfsctl failed: Read-only file system");
        }
        let number = mounted.device;
        let disk = self.disks.values_mut().find(|disk| disk.number == number).unwrap();
        disk.content = Content::Filesystem { name: "xfs".to_owned(), size: disk.size };
        ended(0, "", "")
    }

    /// Runs a program, whole or only begun.
    pub fn run(&mut self, program: &str, arguments: &[&str], begun: bool) -> Ended {
        self.programs_run.push(format!("{program} {}", arguments.join(" ")));
        if self.fails == Some(program) {
            return ended(1, "", "Input/output error");
        }
        let last = Path::new(arguments.last().unwrap());
        let mounted =
            self.disks.get(last).is_some_and(|disk| self.mounts.iter().any(|mount| mount.device == disk.number));
        let denies = self.denies_growth && mounted;
        let is_ended = program.starts_with("mkfs") && self.ends_formats > 0;
        self.ends_formats -= usize::from(is_ended);
        let begun = begun || is_ended;
        if program == "xfs_growfs" {
            return self.grow_xfs(last);
        }
        let (is_killed, is_held) = (self.kills == Some(program), self.held.contains(last));
        let disk = self.disks.get_mut(last).unwrap();
        match (program, disk.content.clone()) {
            ("mkfs.ext4" | "mkfs.xfs", _) if is_held => ended(1, "", "is apparently in use by the system"),
            ("mkfs.ext4" | "mkfs.xfs", _) if is_killed => {
                disk.content = Content::Bytes;
                Ended::default()
            }
            ("resize2fs", _) if denies => ended(1, "", "resize2fs: Permission denied to resize filesystem"),
            // As `e2fsck -p` finds it then.
            ("resize2fs", _) if (begun || is_killed) && !mounted => {
                disk.has_errors = true;
                Ended::default()
            }
            _ if is_killed => Ended::default(),
            ("blkid", _) if disk.unreadable == Some(Unreadable::All) => ended(2, "", "error: Input/output error"),
            ("blkid", _) if disk.size == 0 => ended(2, "", ""),
            ("blkid", Content::Blank | Content::Bytes) => ended(2, "", ""),
            ("blkid", Content::Partitions) => ended(0, "PTTYPE=gpt\n", ""),
            ("blkid", Content::Filesystem { name, .. }) => ended(0, &format!("TYPE={name}\nUSAGE=filesystem\n"), ""),
            ("mkfs.ext4" | "mkfs.xfs", _) if begun => {
                disk.content = Content::Bytes;
                ended(1, "", "killed")
            }
            ("mkfs.ext4" | "mkfs.xfs", _) => {
                disk.format(program.trim_start_matches("mkfs."));
                ended(0, "", "")
            }
            ("e2fsck", _) if is_held => ended(8, "", "e2fsck: Cannot continue, aborting."),
            ("e2fsck", _) => disk.check(arguments, begun),
            ("resize2fs", Content::Filesystem { name, .. }) => {
                disk.content = Content::Filesystem { name, size: disk.size };
                ended(0, "", "")
            }
            ("blockdev", _) if arguments[0] == "--flushbufs" => {
                self.unwritten.remove(&disk.number);
                ended(0, "", "")
            }
            ("blockdev", _) => {
                disk.is_locked = arguments[0] == "--setro";
                ended(0, "", "")
            }
            _ => ended(1, "", "no such program"),
        }
    }
}

fn ended(code: i32, stdout: &str, stderr: &str) -> Ended {
    Ended { code: Some(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() }
}
