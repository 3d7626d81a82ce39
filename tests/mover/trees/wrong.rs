//! Copies with one thing wrong.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use fastrand::Rng;
use mover::entry::shown;

use super::{
    ground::{Filesystem, Ground, inside, is_thorough, judged, number},
    plants, rsync,
    tree::Tree,
    witness,
};

/// On each filesystem, for each difference; fewer where there is little time.
const TREES: usize = 20;
const FEW: usize = 3;
/// Some have no place for one of them.
const MOST: u64 = 80;

/// The judge says this and nothing else.
fn assert_named(name: &str, source: &Path, copy: &Path, (path, said): &(PathBuf, String)) {
    let place = shown(path.strip_prefix(copy).unwrap().as_os_str().as_encoded_bytes());
    let judgement = judged(source, copy);
    assert!(!judgement.is_equal());
    assert_eq!(judgement.named, [format!("{place} {said}")], "{name} in {}", copy.display());
    assert_ne!(judgement.source.digest, judgement.copy.digest);
}

fn mend(source: &Path, copy: &Path, path: &Path) {
    if path.symlink_metadata().is_ok_and(|has| !has.is_dir()) {
        fs::remove_file(path).unwrap();
    }
    rsync::copy(source, copy, true);
    if path.is_dir() {
        // It may be recreated.
        rsync::copy(source, copy, true);
    }
}

fn planted_on(
    ground: &Ground,
    filesystem: Filesystem,
    trees: usize,
    check: impl Fn(&str, &Path, &Path, &(PathBuf, String)),
) -> BTreeMap<&'static str, usize> {
    let root = ground.mounted(filesystem, &format!("{filesystem:?}"));
    let mut planted = BTreeMap::from(plants::ALL.map(|(name, _)| (name, 0)));
    let first = number("KOSMOS_CSI_SEED").unwrap_or(1);
    for seed in (first..first + MOST).filter(|seed| !seed.is_multiple_of(3)) {
        let (source, copy) = (root.join(format!("{seed}")), root.join(format!("{seed}-copy")));
        let wanted: Vec<_> = plants::ALL.into_iter().filter(|(name, _)| planted[name] < trees).collect();
        if wanted.is_empty() {
            break;
        }
        Tree::grow(&source, seed);
        fs::create_dir(&copy).unwrap();
        rsync::settle(&source, &copy);
        let mut rng = Rng::with_seed(seed);
        for (name, plant) in wanted {
            if let Some(found) = plant(&copy, &mut rng) {
                check(name, &source, &copy, &found);
                mend(&source, &copy, &found.0);
                *planted.get_mut(name).unwrap() += 1;
            }
        }
        let judgement = judged(&source, &copy);
        assert!(judgement.is_equal(), "{judgement}");
        fs::remove_dir_all(&source).unwrap();
        fs::remove_dir_all(&copy).unwrap();
    }
    planted
}

#[test]
fn each_planted_difference_is_found_and_nothing_else_is_named() {
    inside("trees::wrong::each_planted_difference_is_found_and_nothing_else_is_named", |ground| {
        let began = Instant::now();
        let trees = if is_thorough() { TREES } else { FEW };
        let planted = thread::scope(|scope| {
            let each = Filesystem::ALL
                .map(|filesystem| scope.spawn(move || planted_on(ground, filesystem, trees, assert_named)));
            each.map(|thread| thread.join().unwrap())
        });
        for counts in &planted {
            assert!(counts.values().all(|count| *count == trees), "{counts:?}");
        }
        let all: usize = planted.iter().flat_map(BTreeMap::values).sum();
        eprintln!("figure: {all} planted differences in {:.1} s", began.elapsed().as_secs_f64());
    });
}

#[test]
fn witness_finds_each_planted_difference_as_well() {
    inside("trees::wrong::witness_finds_each_planted_difference_as_well", |ground| {
        let check = |name: &str, source: &Path, copy: &Path, _: &(PathBuf, String)| {
            assert!(witness::finds(source, copy).is_some(), "{name}");
            assert_ne!(witness::all_of(source), witness::all_of(copy), "{name}");
        };
        let planted = planted_on(ground, Filesystem::Xfs, 1, check);
        assert!(planted.values().all(|count| *count == 1), "{planted:?}");
    });
}
