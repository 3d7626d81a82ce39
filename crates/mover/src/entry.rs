//! One thing of a tree, as it is compared and as it goes over the line. Pure.

use std::{cmp::Ordering, ffi::OsStr, os::unix::ffi::OsStrExt};

use prost::Message;

/// The bits of a mode that say what kind of thing it is.
const KIND: u32 = 0o170_000;
pub const FOLDER: u32 = 0o040_000;
pub const FILE: u32 = 0o100_000;
pub const LINK: u32 = 0o120_000;
pub const CHARACTER_DEVICE: u32 = 0o020_000;
pub const BLOCK_DEVICE: u32 = 0o060_000;

/// What of a file, folder, link, device, pipe or socket has to be the same in the copy.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Entry {
    /// Below the volume's root, with `/` between the names; the root's own is empty.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Kind and permissions, as the kernel puts them into one number.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    #[prost(uint32, tag = "3")]
    pub owner: u32,
    #[prost(uint32, tag = "4")]
    pub group: u32,
    /// Of a file; what folders and links take is the filesystem's own affair.
    #[prost(uint64, tag = "5")]
    pub size: u64,
    /// In nanoseconds since 1970.
    #[prost(message, required, tag = "6")]
    pub modified: Time,
    #[prost(bytes = "vec", tag = "7")]
    pub link_target: Vec<u8>,
    #[prost(uint64, tag = "8")]
    pub device: u64,
    /// The path at which the same file was met before, if it was.
    #[prost(bytes = "vec", tag = "9")]
    pub same_file_as: Vec<u8>,
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<Attribute>,
    /// Of a file's content.
    #[prost(bytes = "vec", tag = "11")]
    pub digest: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(uint32, tag = "2")]
    pub nanoseconds: u32,
}

/// An extended attribute; an access control list is one as well.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Attribute {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

pub fn kind_of(mode: u32) -> u32 {
    mode & KIND
}

impl Entry {
    pub fn kind(&self) -> u32 {
        kind_of(self.mode)
    }

    pub fn kind_name(&self) -> &'static str {
        match self.kind() {
            FOLDER => "folder",
            FILE => "file",
            LINK => "symbolic link",
            CHARACTER_DEVICE => "character device",
            BLOCK_DEVICE => "block device",
            0o010_000 => "pipe",
            0o140_000 => "socket",
            _ => "thing of an unknown kind",
        }
    }

    /// Content is looked at once, however many names a file has.
    pub fn is_first_name(&self) -> bool {
        self.same_file_as.is_empty()
    }

    pub fn permissions(&self) -> u32 {
        self.mode & !KIND
    }

    /// A walk meets a folder before what is in it, and names of one folder by their bytes.
    pub fn compare_places(&self, other: &Self) -> Ordering {
        let names = |path: &'_ Vec<u8>| path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
        if self.path == other.path { Ordering::Equal } else { names(&self.path).cmp(&names(&other.path)) }
    }
}

/// As a message shows it: whatever is in a name, it stays on its line and steers no terminal.
pub fn shown(path: &[u8]) -> String {
    if path.is_empty() { "the volume's root folder".to_owned() } else { escaped(OsStr::from_bytes(path)) }
}

#[expect(clippy::unnecessary_debug_formatting, reason = "it escapes")]
fn escaped(text: &OsStr) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Entry {
        Entry { path: path.into(), ..Entry::default() }
    }

    #[test]
    fn folder_comes_before_what_is_in_it_and_that_before_the_next_name() {
        let paths = ["", "a", "a/z", "a/z/b", "a-b", "b"];
        for (index, path) in paths.iter().enumerate() {
            for (other_index, other) in paths.iter().enumerate() {
                assert_eq!(at(path).compare_places(&at(other)), index.cmp(&other_index), "{path} and {other}");
            }
        }
    }

    #[test]
    fn name_that_steers_a_terminal_is_shown_escaped() {
        assert_eq!(shown(b"a/\x1b[2K\xff\n"), r#""a/\u{1b}[2K\xFF\n""#);
        assert_eq!(shown(b""), "the volume's root folder");
    }
}
