//! What the judge does not judge: a tree that it has not seen whole is never told to be the same.

use std::{fs, path::Path, sync::Arc};

use mover::walk::{Depth, Survey, Walk};

use super::{
    ground::{Filesystem, Ground, inside, judged, judged_to, mount, run},
    rsync,
};

/// Two trees that are the same, each with a folder on which something may be mounted.
fn pair(ground: &Ground, filesystem: Filesystem) -> [std::path::PathBuf; 2] {
    let [source, copy] = ["source", "copy"].map(|name| ground.mounted(filesystem, &format!("{filesystem:?}-{name}")));
    fs::create_dir_all(source.join("folder/inner")).unwrap();
    fs::write(source.join("last"), "after it").unwrap();
    rsync::copy(&source, &copy, false);
    let judgement = judged(&source, &copy);
    assert!(judgement.is_equal(), "{judgement}");
    [source, copy]
}

fn unmount(target: &Path) {
    run(std::process::Command::new("umount").arg(target));
}

#[test]
fn tree_with_another_filesystem_inside_is_not_judged() {
    inside("trees::refused::tree_with_another_filesystem_inside_is_not_judged", |ground| {
        for filesystem in Filesystem::ALL {
            let [source, copy] = pair(ground, filesystem);
            for side in [&source, &copy] {
                let inner = side.join("folder/inner");
                mount("tmpfs", "rw", Path::new("tmpfs"), &inner);
                let error = judged_to(1, &source, &copy).unwrap_err().to_string();
                assert_eq!(error, "\"folder/inner\": another filesystem is mounted there");
                assert!(Survey::of(side).is_err());
                unmount(&inner);
                assert!(judged(&source, &copy).is_equal());
            }
        }
    });
}

#[test]
fn file_with_another_mounted_over_it_is_not_judged() {
    inside("trees::refused::file_with_another_mounted_over_it_is_not_judged", |ground| {
        let [source, copy] = pair(ground, Filesystem::Xfs);
        let other = ground.folder("elsewhere").join("last");
        fs::copy(source.join("last"), &other).unwrap();
        mount("none", "bind", &other, &copy.join("last"));
        let error = judged_to(1, &source, &copy).unwrap_err().to_string();
        assert_eq!(error, "\"last\": another filesystem is mounted there");
    });
}

#[test]
fn nothing_comes_after_what_could_not_be_seen() {
    inside("trees::refused::nothing_comes_after_what_could_not_be_seen", |ground| {
        let [source, _] = pair(ground, Filesystem::Ext4);
        mount("tmpfs", "rw", Path::new("tmpfs"), &source.join("folder"));
        let walk = Walk::new(&source, Depth::Whole, Arc::default()).unwrap().agreed(false, 1);
        let seen: Vec<_> = walk.map(|entry| entry.map(|entry| entry.path)).collect();
        assert!(matches!(&seen[..], [Ok(root), Err(_)] if root.is_empty()), "{seen:?}");
    });
}

#[test]
fn root_that_is_no_folder_is_not_judged() {
    inside("trees::refused::root_that_is_no_folder_is_not_judged", |ground| {
        let [source, copy] = pair(ground, Filesystem::Tmpfs);
        assert!(judged_to(1, &source, &copy.join("last")).is_err());
        assert!(judged_to(1, &source.join("nothing"), &copy).is_err());
    });
}
