//! That nobody can tell from a tree that it was judged.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    dress::set_times,
    ground::{Filesystem, inside, judged},
    tree::{Tree, entries},
};

/// When it was last read, changed, and changed in any way.
fn times(path: &Path) -> [(i64, i64); 3] {
    let has = path.symlink_metadata().unwrap();
    [(has.atime(), has.atime_nsec()), (has.mtime(), has.mtime_nsec()), (has.ctime(), has.ctime_nsec())]
}

#[test]
fn files_and_folders_are_read_without_a_trace() {
    inside("trees::undisturbed::files_and_folders_are_read_without_a_trace", |ground| {
        for filesystem in Filesystem::ALL {
            let tree = ground.mounted(filesystem, &format!("{filesystem:?}")).join("tree");
            Tree::grow(&tree, 1);
            // Reading a link has no flag that leaves it alone.
            let paths: Vec<PathBuf> = entries(&tree).into_iter().filter(|path| !path.is_symlink()).collect();
            for path in &paths {
                // Read long ago; and looking for them has read the folders.
                set_times(path, times(path)[1]);
            }
            let before: Vec<_> = paths.iter().map(|path| (path, times(path))).collect();
            assert!(judged(&tree, &tree).is_equal());
            let after: Vec<_> = paths.iter().map(|path| (path, times(path))).collect();
            let disturbed: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
            assert!(disturbed.is_empty(), "{filesystem:?}: {disturbed:?}");
            let file = paths.iter().find(|path| path.is_file() && !fs::read(path).unwrap().is_empty()).unwrap();
            assert_ne!(times(file)[0], (1, 0), "{filesystem:?} tells of nobody who reads");
        }
    });
}
