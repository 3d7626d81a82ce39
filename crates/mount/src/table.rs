//! The kernel's table of mounts, the only witness of what is mounted where, and by what a mount of a volume is known. Pure.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use super::kernel::Number;
use domain::error::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    /// Of its filesystem.
    pub device: Number,
    /// What of its filesystem is shown.
    pub root: PathBuf,
    pub target: PathBuf,
    /// Of this mount alone.
    pub options: Vec<String>,
    /// What is mounted below it is mounted also where others see it.
    pub is_shared: bool,
    pub filesystem: String,
    pub source: String,
    /// Of the filesystem, wherever it is mounted.
    pub super_options: Vec<String>,
}

/// In the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(Vec<Mount>);

impl Mount {
    /// Whether another machine has the files, for which the kernel may wait without an end.
    pub fn is_of_a_server(&self) -> bool {
        self.filesystem.starts_with("nfs")
    }
}

impl Table {
    pub fn parse(text: &str) -> Result<Self> {
        let line = |line: &str| {
            mount(line).ok_or_else(|| {
                Error::Refused(format!("the kernel's table of mounts has a line that cannot be read: {line:?}"))
            })
        };
        text.lines().map(line).collect::<Result<_>>().map(Self)
    }

    /// The mount that is seen at a path, which is the last one made there.
    pub fn at(&self, target: &Path) -> Option<&Mount> {
        self.0.iter().rfind(|mount| mount.target == target)
    }

    pub fn all_at<'a>(&'a self, target: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.target == target)
    }

    /// What is mounted somewhere below a path.
    pub fn below<'a>(&'a self, target: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.target != target && mount.target.starts_with(target))
    }

    /// The mount that a path is on, links aside.
    pub fn over(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().filter(|mount| path.starts_with(&mount.target)).max_by_key(|mount| mount.target.iter().count())
    }

    /// The mounts of a filesystem that is on a device.
    pub fn of_device(&self, device: Number) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.device == device)
    }

    /// How a mount that shows this path elsewhere is known, by the mount that the path is on.
    pub fn origin_of(&self, path: &Path, mount: u64) -> Option<Origin> {
        let on = self.0.iter().find(|there| there.id == mount)?;
        let below = path.strip_prefix(&on.target).ok()?;
        // Joined to nothing, the root would get a slash. Of NFS the kernel tells the same root, whatever of it is shown.
        let is_told_so = below.as_os_str().is_empty() || on.is_of_a_server();
        let root = if is_told_so { on.root.clone() } else { on.root.join(below) };
        Some(Origin::Place { device: on.device, root })
    }
}

/// By what a mount is known as one of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Place { device: Number, root: PathBuf },
    Server(String),
}

impl Origin {
    pub fn of(mount: &Mount) -> Self {
        Self::Place { device: mount.device, root: mount.root.clone() }
    }

    pub fn is_of(&self, mount: &Mount) -> bool {
        match self {
            Self::Place { device, root } => (mount.device, &mount.root) == (*device, root),
            Self::Server(source) => {
                let plain = |source: &str| source.trim_end_matches('/').to_owned();
                mount.is_of_a_server() && plain(&mount.source) == plain(source)
            }
        }
    }
}

/// One line: id, parent, device, root, target, options, any number of fields up to a dash, filesystem, source, options.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let mut after = after.split(' ');
    let id = before.next()?.parse().ok()?;
    let (major, minor) = before.nth(1)?.split_once(':')?;
    let list = |options: &str| options.split(',').map(str::to_owned).collect();
    Some(Mount {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(before.next()?).into(),
        target: unescape(before.next()?).into(),
        options: list(before.next()?),
        is_shared: before.any(|field| field.starts_with("shared:")),
        filesystem: after.next()?.to_owned(),
        source: unescape(after.next()?).to_string_lossy().into_owned(),
        super_options: list(after.next()?),
    })
}

/// The kernel writes blanks, line ends and backslashes as a backslash and three octal digits.
fn unescape(field: &str) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(octal);
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(plain)
}

fn octal(digits: &[u8]) -> Option<u8> {
    let plain = digits.iter().all(u8::is_ascii_digit);
    plain.then(|| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
36 22 7:3 / /stage rw,noatime - xfs /dev/loop3 rw,nouuid
37 22 253:0 /state/data/vol-1 /pods/a\\040b\\134c ro,relatime shared:1 master:2 - ext4 /dev/vda rw
38 36 7:4 / /stage ro - ext4 /dev/loop4 ro
39 22 0:50 / /nfs rw - nfs4 10.0.0.1:/export rw,vers=4.2
40 22 0:6 / /dev rw - devtmpfs devtmpfs rw
";

    fn table() -> Table {
        Table::parse(TABLE).unwrap()
    }

    #[test]
    fn last_mount_at_a_path_is_the_one_seen() {
        let seen = table().at(Path::new("/stage")).cloned().unwrap();
        assert_eq!((seen.id, seen.device, seen.source.as_str()), (38, (7, 4), "/dev/loop4"));
        assert_eq!(seen.super_options, ["ro"]);
        assert_eq!(table().all_at(Path::new("/stage")).count(), 2);
        assert_eq!(table().at(Path::new("/stag")), None);
    }

    #[test]
    fn what_is_mounted_below_a_path_is_neither_at_it_nor_beside_it() {
        let ids = |path: &str| table().below(Path::new(path)).map(|mount| mount.id).collect::<Vec<_>>();
        assert_eq!((ids("/pods"), ids("/stage"), ids("/st")), (vec![37], vec![], vec![]));
    }

    #[test]
    fn path_is_on_the_mount_next_above_it() {
        let table = table();
        for (path, id) in [("/nfs/a/b", 39), ("/nfs", 39), ("/nfsroot", 22), ("/stage/a", 38)] {
            assert_eq!(table.over(Path::new(path)).map(|mount| mount.id), Some(id), "{path}");
        }
        assert_eq!(Table::default().over(Path::new("/a")), None);
    }

    #[test]
    fn escapes_and_optional_fields_are_read() {
        let seen = table().at(Path::new("/pods/a b\\c")).cloned().unwrap();
        assert!(seen.is_shared && table().at(Path::new("/stage")).is_some_and(|stage| !stage.is_shared));
        assert_eq!((seen.options, seen.root), (vec!["ro".into(), "relatime".into()], "/state/data/vol-1".into()));
    }

    #[test]
    fn what_a_path_shows_elsewhere_is_known_by_the_mount_it_is_on() {
        let place = |device, root: &str| Some(Origin::Place { device, root: root.into() });
        for (path, mount, origin) in [
            ("/srv/data", 22, place((253, 0), "/srv/data")),
            ("/stage", 38, place((7, 4), "/")),
            ("/stage/a", 36, place((7, 3), "/a")),
            ("/dev/loop3", 40, place((0, 6), "/loop3")),
            ("/nfs/a", 39, place((0, 50), "/")),
            ("/pods/a b\\c/d", 37, place((253, 0), "/state/data/vol-1/d")),
            ("/srv", 36, None),
            ("/srv", 99, None),
        ] {
            assert_eq!(table().origin_of(Path::new(path), mount), origin, "{path}");
        }
    }

    #[test]
    fn origin_tells_a_volumes_mounts_from_others() {
        let table = table();
        let at = |path: &str| table.at(Path::new(path)).unwrap();
        let server = Origin::Server("10.0.0.1:/export/".to_owned());
        assert!(server.is_of(at("/nfs")) && !server.is_of(at("/stage")));
        assert!(!Origin::Server("/dev/loop4".to_owned()).is_of(at("/stage")), "a source is a server's only with NFS");
        assert!(Origin::of(at("/stage")).is_of(at("/stage")) && !Origin::of(at("/")).is_of(at("/pods/a b\\c")));
    }

    #[test]
    fn line_that_cannot_be_read_is_an_error_and_not_an_absence() {
        for line in ["", "36 22 7:3 / /stage rw", "36 22 7:3 / - xfs /dev/loop3 rw", "36 22 7 / /a rw - xfs a rw"] {
            assert!(Table::parse(&format!("{line}\n")).is_err(), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(?s).{0,200}", field in "[\\\\0-9é ]{0,20}") {
            Table::parse(&text).ok();
            Table::parse(&format!("1 2 0:1 /{field} /{field} rw x:1 - ext4 {field} rw")).ok();
            unescape(&field);
        }

        #[test]
        fn every_path_is_read_as_it_was(path in "/[ -~é]{0,40}") {
            let escaped: Vec<String> = path.bytes().map(|byte| format!("\\{byte:03o}")).collect();
            let line = format!("1 2 0:1 / {} rw - ext4 x rw", escaped.concat());
            prop_assert!(Table::parse(&line).unwrap().at(Path::new(&path)).is_some());
        }
    }
}
