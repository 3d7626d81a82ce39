//! What a thing of a tree has besides its content: an owner, permissions, attributes and a time.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, lchown},
    path::Path,
};

use fastrand::Rng;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};

use super::make::bytes;

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";
pub const CAPABILITY: &str = "security.capability";

const NAMED_USER: u16 = 0x02;
const NAMED_GROUP: u16 = 0x08;
const NOBODY: u32 = u32::MAX;

/// In an order in which nothing undoes what came before: a new owner takes capabilities and setuid away.
pub fn dress(rng: &mut Rng, path: &Path) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    let (owner, group) = (owner(rng), owner(rng));
    lchown(path, Some(owner), Some(group)).unwrap();
    if !kind.is_symlink() {
        permit(path, permissions(rng));
    }
    if !kind.is_symlink() && rng.u8(..5) == 0 {
        set(path, ACCESS.as_bytes(), &access_list(rng));
    }
    if kind.is_dir() && rng.u8(..4) == 0 {
        set(path, DEFAULT.as_bytes(), &access_list(rng));
    }
    if kind.is_dir() || kind.is_file() {
        for _ in 2..rng.u8(..6) {
            attribute(rng, path);
        }
    }
    if kind.is_file() && rng.u8(..5) == 0 {
        set(path, CAPABILITY.as_bytes(), &capability(rng));
    }
    set_times(path, time(rng));
}

fn owner(rng: &mut Rng) -> u32 {
    const USUAL: [u32; 7] = [0, 1, 1000, 65_534, 65_536, 1 << 31, 4_000_000_000];
    if rng.bool() { *rng.choice(&USUAL).unwrap() } else { rng.u32(..4_000_000_000) }
}

fn permissions(rng: &mut Rng) -> u32 {
    const USUAL: [u32; 14] =
        [0, 0o200, 0o400, 0o444, 0o555, 0o600, 0o644, 0o700, 0o755, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777];
    *rng.choice(&USUAL).unwrap()
}

pub fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

pub fn set(path: &Path, name: &[u8], value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// As the kernel reads it: a version, then kind, permissions and number of each entry, in order.
fn access_list(rng: &mut Rng) -> Vec<u8> {
    let mut entries = vec![(0x01, NOBODY), (0x04, NOBODY), (0x10, NOBODY), (0x20, NOBODY)];
    for kind in [NAMED_USER, NAMED_GROUP] {
        entries.extend((0..rng.u8(..3)).map(|_| (kind, rng.u32(..4_000_000_000))));
    }
    entries.sort_unstable();
    entries.dedup();
    let rows = entries.iter().flat_map(|(kind, number)| {
        let permissions = rng.u16(..8);
        [&kind.to_le_bytes()[..], &permissions.to_le_bytes(), &number.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(rows).collect()
}

/// All of what a file has stays within a block of ext4.
fn attribute(rng: &mut Rng, path: &Path) {
    const NAMES: [&[u8]; 6] = [b"user.mime", b"user.new\nline", b"user.bad\xff", b"user.a/b", b"user.=", b"user.Mime"];
    let size = *rng.choice(&[0, 1, 1, 30, 40, 500]).unwrap();
    set(path, rng.choice(NAMES).unwrap(), &bytes(rng, size));
    if rng.u8(..8) == 0 {
        set(path, b"user.large", &bytes(rng, 1 << 10));
    }
}

/// Of a machine's own root, or of a container's.
fn capability(rng: &mut Rng) -> Vec<u8> {
    let (permitted, inheritable) = (rng.u32(1..1 << 10), rng.u32(..1 << 10));
    let numbers = [permitted, inheritable, 0, 0].into_iter();
    let version = if rng.bool() { 0x0200_0001_u32 } else { 0x0300_0000 };
    let root = (version >> 24 == 3).then_some(100_000);
    [version].into_iter().chain(numbers).chain(root).flat_map(u32::to_le_bytes).collect()
}

/// What all of the filesystems can say: from 1903 to 2096.
fn time(rng: &mut Rng) -> (i64, i64) {
    const FIRST: i64 = -2_100_000_000;
    let seconds = match rng.u8(..6) {
        0 => *rng.choice(&[0, -1, 1, FIRST]).unwrap(),
        1 => rng.i64(FIRST..0),
        2 => rng.i64(1_700_000_000..4_000_000_000),
        _ => rng.i64(0..1_700_000_000),
    };
    let nanoseconds = if rng.bool() { *rng.choice(&[0, 1, 999_999_999]).unwrap() } else { rng.i64(0..1_000_000_000) };
    (seconds, nanoseconds)
}

/// Of modification; when it was last read is nobody's.
pub fn set_times(path: &Path, (seconds, nanoseconds): (i64, i64)) {
    let modified = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: Timespec { tv_sec: 1, tv_nsec: 0 }, last_modification: modified };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
