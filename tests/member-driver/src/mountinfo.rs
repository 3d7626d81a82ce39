//! Reads `/proc/self/mountinfo`, the only witness of what is mounted where: device numbers do not tell a bind mount
//! from the filesystem it came from.

use std::path::{Path, PathBuf};

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) target: PathBuf,
    /// Of the mount itself, such as `ro` or `noexec`; the filesystem's own are not here.
    pub(crate) options: Vec<String>,
}

impl Mount {
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

/// All mounts, in the order in which they were made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MountTable(Vec<Mount>);

impl MountTable {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let line = |line: &str| {
            mount(line).ok_or_else(|| Error::Internal(format!("odd line in mountinfo: {line:?}")))
        };
        text.lines().map(line).collect::<Result<_, _>>().map(Self)
    }

    /// The mount that is seen at `target`, which is the last one made there.
    pub(crate) fn at(&self, target: &Path) -> Option<&Mount> {
        self.0.iter().rfind(|mount| mount.target == target)
    }
}

/// One line: three numbers, the root, the target, its options, more fields up to a dash, and the filesystem.
fn mount(line: &str) -> Option<Mount> {
    let (before, _filesystem) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(4);
    let target = PathBuf::from(unescape(fields.next()?));
    let options = fields.next()?.split(',').map(str::to_owned).collect();
    Some(Mount { target, options })
}

/// The kernel writes blanks, line ends and backslashes as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(octal);
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 7:3 / /stage rw,noatime - xfs /dev/loop3 rw,nouuid
37 22 253:0 /state/data/vol-1 /pods/a\\040b\\134c ro,relatime shared:1 master:2 - ext4 /dev/vda rw
38 22 7:4 / /stage ro - ext4 /dev/loop4 rw
";

    #[test]
    fn the_last_mount_at_a_path_is_the_one_seen() {
        let table = MountTable::parse(TABLE).unwrap();
        assert_eq!(table.at(Path::new("/stage")).unwrap().options, ["ro"]);
        assert!(!table.at(Path::new("/")).unwrap().is_read_only());
        assert_eq!(table.at(Path::new("/stag")), None);
    }

    #[test]
    fn escapes_are_read() {
        let table = MountTable::parse(TABLE).unwrap();
        assert_eq!(
            table.at(Path::new("/pods/a b\\c")).unwrap().options,
            ["ro", "relatime"]
        );
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error_and_not_an_absence() {
        for line in [
            "",
            "36 22 7:3 / /stage rw",
            "36 22 7:3 / - xfs /dev/loop3 rw",
        ] {
            assert!(MountTable::parse(&format!("{line}\n")).is_err(), "{line:?}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            MountTable::parse(&text)
                .unwrap()
                .at(Path::new("/"))
                .is_some()
        );
    }
}
