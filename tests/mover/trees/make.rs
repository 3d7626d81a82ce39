//! One thing of a tree, as it is made before it has owners, attributes and times.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::{FileExt, symlink},
    path::Path,
};

use fastrand::Rng;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

pub fn file(rng: &mut Rng, path: &Path) {
    let size = match rng.u8(..60) {
        0..6 => 0,
        6..12 => 1,
        59 => rng.usize(1 << 20..3 << 20),
        _ => rng.usize(2..20 << 10),
    };
    File::create_new(path).unwrap().write_all(&bytes(rng, size)).unwrap();
}

pub fn bytes(rng: &mut Rng, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}

/// Holes around some data, which lies at no round place.
pub fn sparse(rng: &mut Rng, path: &Path) {
    let file = File::create_new(path).unwrap();
    let most = 1_u64 << rng.u32(14..22);
    let size = most + rng.u64(..most);
    file.set_len(size).unwrap();
    for _ in 0..rng.u8(..4) {
        let length = rng.usize(1..5000);
        let data = if rng.u8(..4) == 0 { vec![0; length] } else { bytes(rng, length) };
        file.write_all_at(&data, rng.u64(..size - length as u64)).unwrap();
    }
}

pub fn link(rng: &mut Rng, path: &Path, folder: &Path) {
    let long = "to/".repeat(rng.usize(1..200));
    let targets = ["nothing there", "/etc/passwd", "..", ".", "/", "new\nline", "-n", &long];
    let target = *rng.choice(&targets).unwrap();
    let target = if rng.bool() { folder.file_name().unwrap() } else { target.as_ref() };
    symlink(target, path).unwrap();
}

pub fn pipe(path: &Path) {
    node(path, FileType::Fifo, (0, 0));
}

/// Bound to nobody: a path that a process could bind is much shorter than some here.
pub fn socket(path: &Path) {
    node(path, FileType::Socket, (0, 0));
}

pub fn device(rng: &mut Rng, path: &Path) {
    let kind = if rng.bool() { FileType::BlockDevice } else { FileType::CharacterDevice };
    let number = *rng.choice(&[(1, 3), (7, 200), (0, 0), (259, 70_000), (511, 200_000)]).unwrap();
    node(path, kind, number);
}

pub fn node(path: &Path, kind: FileType, (major, minor): (u32, u32)) {
    mknodat(CWD, path, kind, Mode::RUSR, makedev(major, minor)).unwrap();
}
