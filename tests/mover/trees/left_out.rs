//! What is not compared, and what is carried though it is easily left out.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use mover::{
    compare::{Judgement, compare},
    walk::{Depth, Survey, Walk},
};

use super::{
    dress::{set, set_times},
    ground::{Filesystem, inside, judged},
    rsync,
};

const TIME: (i64, i64) = (1_700_000_000, 1);

fn judged_with(with_lost_and_found: bool, source: &Path, copy: &Path) -> Judgement {
    let walk = |root: &Path| {
        Walk::new(root, Depth::Whole, Arc::default()).map(|walk| walk.agreed(with_lost_and_found, 1)).unwrap()
    };
    compare(walk(source), walk(copy)).unwrap()
}

#[test]
fn what_a_check_finds_is_compared_exactly_where_both_sides_have_agreed_to() {
    inside("trees::left_out::what_a_check_finds_is_compared_exactly_where_both_sides_have_agreed_to", |ground| {
        // The first has the folder from mkfs.
        let [source, copy] = [Filesystem::Ext4, Filesystem::Xfs].map(|kind| ground.mounted(kind, &format!("{kind:?}")));
        set_times(&source, TIME);
        set_times(&copy, TIME);
        assert!(source.join("lost+found").is_dir());
        assert!(judged_with(false, &source, &copy).is_equal());
        assert_eq!(judged_with(true, &source, &copy).named, ["\"lost+found\" is missing"]);
        fs::write(source.join("lost+found/#12"), "found").unwrap();
        assert!(judged_with(false, &source, &copy).is_equal());
        let missing = ["\"lost+found\" is missing", "\"lost+found/#12\" is missing"];
        assert_eq!(judged_with(true, &source, &copy).named, missing);
        let turned = judged_with(true, &copy, &source).named;
        assert!(turned[1].starts_with("\"lost+found/#12\" is there"), "{turned:?}");
    });
}

#[test]
fn folder_of_that_name_elsewhere_is_anybodys() {
    inside("trees::left_out::folder_of_that_name_elsewhere_is_anybodys", |ground| {
        let [source, copy] = ["source", "copy"].map(|name| ground.folder(name));
        fs::create_dir_all(source.join("a/lost+found")).unwrap();
        fs::create_dir(source.join("lost+found-too")).unwrap();
        rsync::copy(&source, &copy, false);
        assert!(judged(&source, &copy).is_equal());
        fs::remove_dir(copy.join("lost+found-too")).unwrap();
        fs::remove_dir(copy.join("a/lost+found")).unwrap();
        let named = judged(&source, &copy).named.join("; ");
        assert!(named.contains("\"a/lost+found\" is missing; "), "{named}");
        assert!(named.contains("\"lost+found-too\" is missing"), "{named}");
        assert!(!Survey::of(&source).unwrap().with_lost_and_found);
    });
}

#[test]
fn survey_tells_of_finds_exactly_where_something_is_among_them() {
    inside("trees::left_out::survey_tells_of_finds_exactly_where_something_is_among_them", |ground| {
        for filesystem in Filesystem::ALL {
            let root = ground.mounted(filesystem, &format!("{filesystem:?}"));
            let (told, folder) = (|| Survey::of(&root).unwrap().with_lost_and_found, root.join("lost+found"));
            assert!(!told(), "{filesystem:?}");
            fs::create_dir_all(&folder).unwrap();
            assert!(!told(), "{filesystem:?}");
            for name in [".hidden", "#12"] {
                File::create_new(folder.join(name)).unwrap();
                assert!(told(), "{filesystem:?} {name}");
                fs::remove_file(folder.join(name)).unwrap();
            }
            fs::create_dir(folder.join("#13")).unwrap();
            assert!(told(), "{filesystem:?}");
            fs::remove_dir_all(&folder).unwrap();
            File::create_new(&folder).unwrap();
            assert!(told(), "a file of that name is somebody's");
        }
    });
}

/// The names in which rsync keeps owners where it may not set them are its own: a tree that was once such a copy has them.
#[test]
fn attribute_of_rsyncs_own_is_carried_as_any_other() {
    inside("trees::left_out::attribute_of_rsyncs_own_is_carried_as_any_other", |ground| {
        let [source, copy] = ["source", "copy"].map(|name| ground.folder(name));
        let file = source.join("file");
        fs::write(&file, "once a copy").unwrap();
        set(&file, b"user.rsync.%stat", b"100644 0,0 5:5");
        set(&file, b"user.mine", b"1");
        rsync::copy(&source, &copy, false);
        let judgement = judged(&source, &copy);
        assert!(judgement.is_equal(), "{judgement}");
    });
}

#[test]
fn name_of_a_file_outside_the_tree_makes_no_difference() {
    inside("trees::left_out::name_of_a_file_outside_the_tree_makes_no_difference", |ground| {
        let [source, copy, outside] = ["source", "copy", "outside"].map(|name| ground.folder(name));
        fs::write(source.join("file"), "of two trees").unwrap();
        fs::hard_link(source.join("file"), outside.join("file")).unwrap();
        rsync::copy(&source, &copy, true);
        let judgement = judged(&source, &copy);
        assert!(judgement.is_equal(), "{judgement}");
        assert!(!Survey::of(&source).unwrap().has_hard_links);
    });
}
