//! A tree that takes a while to be carried.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use fastrand::Rng;

/// Some MiB in files of all sizes, with holes, names of the same file and links.
pub fn grow(root: &Path, seed: u64) {
    let mut chance = Rng::with_seed(seed);
    for folder in 0..4 {
        let folder = root.join(format!("folder {folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..10 {
            let path = folder.join(format!("file-{file}"));
            let mut content = vec![0; chance.usize(..300_000)];
            let hole = chance.usize(..=content.len());
            chance.fill(&mut content[hole..]);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(chance.u32(..0o10000))).unwrap();
            std::os::unix::fs::chown(&path, Some(chance.u32(..70_000)), Some(chance.u32(..70_000))).unwrap();
        }
    }
    fs::hard_link(root.join("folder 0/file-1"), root.join("folder 3/same")).unwrap();
    symlink("/nowhere", root.join("link")).unwrap();
}
