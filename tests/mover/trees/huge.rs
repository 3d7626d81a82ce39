//! Trees that are too large for whoever keeps all of them in memory, or reads what is not there.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::{Duration, Instant},
};

use super::{
    dress::set_times,
    ground::{Filesystem, inside, is_thorough, judged},
    rsync,
};

const ENTRIES: u64 = 100_000;
/// Of memory, for both walks together.
const MOST: u64 = 96 << 20;
const GIBIBYTE: u64 = 1 << 30;

/// A row of what the kernel says of this process.
fn memory(row: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(row)?.strip_suffix("kB")).unwrap();
    line.trim().parse::<u64>().unwrap() << 10
}

#[test]
fn hundred_thousand_entries_of_a_folder_are_judged_in_little_memory() {
    inside("trees::huge::hundred_thousand_entries_of_a_folder_are_judged_in_little_memory", |ground| {
        let source = ground.mounted(Filesystem::Ext4, "source").join("tree");
        let copy = ground.mounted(Filesystem::Xfs, "copy").join("tree");
        fs::create_dir_all(source.join("many")).unwrap();
        fs::create_dir(&copy).unwrap();
        for number in 0..ENTRIES {
            File::create_new(source.join("many").join(format!("{number:08}-of-very-many"))).unwrap();
        }
        rsync::copy(&source, &copy, false);
        // What came before counts no longer.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let (before, began) = (memory("VmHWM:"), Instant::now());
        let judgement = judged(&source, &copy);
        let (grown, took) = (memory("VmHWM:") - before, began.elapsed());
        assert!(judgement.is_equal(), "{judgement}");
        assert_eq!(judgement.copy.entries, ENTRIES + 2);
        assert!(grown < MOST, "{grown} bytes more");
        eprintln!("{ENTRIES} entries: {} KiB more, {:.1} s", grown >> 10, took.as_secs_f64());
    });
}

/// With a little data in the middle, which begins at no block.
fn grow(path: &Path, size: u64) {
    let file = File::create_new(path).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(b"not lost in nothing", size / 2 + 12_345).unwrap();
    set_times(path, (1_700_000_000, 1));
}

#[test]
fn hundred_gibibytes_of_holes_are_judged_in_no_time_and_a_byte_at_their_end_is_found() {
    inside(
        "trees::huge::hundred_gibibytes_of_holes_are_judged_in_no_time_and_a_byte_at_their_end_is_found",
        |ground| {
            for filesystem in Filesystem::ALL {
                let root = ground.mounted(filesystem, &format!("{filesystem:?}"));
                let (source, copy) = (root.join("source"), root.join("copy"));
                for side in [&source, &copy] {
                    fs::create_dir(side).unwrap();
                    grow(&side.join("image"), 100 * GIBIBYTE);
                    set_times(side, (0, 0));
                }
                let (began, judgement) = (Instant::now(), judged(&source, &copy));
                assert!(judgement.is_equal(), "{judgement}");
                assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
                let image = copy.join("image");
                File::options().write(true).open(&image).unwrap().write_all_at(b"!", 100 * GIBIBYTE - 1).unwrap();
                set_times(&image, (1_700_000_000, 1));
                assert_eq!(judged(&source, &copy).named, ["\"image\" has other content"]);
            }
        },
    );
}

/// rsync reads every hole, a gigabyte of them in a second: as many as people have are copied where everything is asked for.
#[test]
fn copy_of_a_huge_file_is_equal_and_has_its_holes() {
    inside("trees::huge::copy_of_a_huge_file_is_equal_and_has_its_holes", |ground| {
        let size = GIBIBYTE * if is_thorough() { 100 } else { 1 };
        for (from, to) in [(Filesystem::Ext4, Filesystem::Xfs), (Filesystem::Xfs, Filesystem::Ext4)] {
            let source = ground.mounted(from, &format!("from-{from:?}"));
            let copy = ground.mounted(to, &format!("to-{to:?}"));
            grow(&source.join("image"), size);
            rsync::copy(&source, &copy, false);
            let judgement = judged(&source, &copy);
            assert!(judgement.is_equal(), "{judgement}");
            assert_eq!(judgement.copy.bytes, size);
            assert!(copy.join("image").metadata().unwrap().blocks() * 512 < 1 << 20);
        }
    });
}
