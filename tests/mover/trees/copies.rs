//! Copies of trees, from each filesystem to each.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
    time::Instant,
};

use mover::compare::Judgement;

use super::{
    dress::{permit, set_times},
    ground::{Filesystem, Ground, inside, is_thorough, judged, judged_to, run, seeds},
    rsync,
    tree::{Tree, entries},
    witness,
};

pub const TREES: u64 = 200;
const FEW: u64 = 36;
const THREADS: usize = 2;

/// Two of each filesystem.
pub fn sides(ground: &Ground) -> [Vec<PathBuf>; 2] {
    ["source", "copy"].map(|side| {
        let mounted = |filesystem: Filesystem| ground.mounted(filesystem, &format!("{side}-{filesystem:?}"));
        Filesystem::ALL.map(mounted).to_vec()
    })
}

/// What differs between a tree and its copy; the judge and the witness must be of one opinion.
fn found(source: &Path, copy: &Path) -> Result<Judgement, String> {
    let judgement = judged(source, copy);
    match witness::finds(source, copy) {
        witness if judgement.is_equal() == witness.is_none() => Ok(judgement),
        witness => Err(format!("the judge: {judgement}\nthe witness: {witness:?}")),
    }
}

/// The judgement of a copy, and whether it took a second run.
fn copied(source: &Path, copy: &Path, seed: u64) -> Result<(Judgement, bool), String> {
    let tree = Tree::grow(source, seed);
    fs::create_dir(copy).unwrap();
    // Where nothing was there before, the mover writes in place whatever links there are.
    let has_hard_links = tree.has_hard_links && seed.is_multiple_of(2);
    rsync::copy(source, copy, has_hard_links);
    let first = found(source, copy)?;
    let is_of_access_lists =
        first.named.iter().all(|named| named.ends_with("has another attribute \"system.posix_acl_access\""));
    if first.is_equal() || !is_of_access_lists {
        return Ok((first, false));
    }
    rsync::copy(source, copy, has_hard_links);
    Ok((found(source, copy)?, true))
}

fn played(source: &Path, copy: &Path, seed: u64) -> Result<(u64, bool), String> {
    let copied = copied(source, copy, seed).and_then(|(judgement, again)| {
        if judgement.is_equal() { Ok((judgement.copy.entries, again)) } else { Err(judgement.to_string()) }
    });
    for side in [source, copy] {
        fs::remove_dir_all(side).unwrap();
    }
    copied.map_err(|wrong| format!("seed {seed}, {} to {}: {wrong}", source.display(), copy.display()))
}

#[test]
fn copies_of_random_trees_are_equal_and_a_witness_agrees() {
    inside("trees::copies::copies_of_random_trees_are_equal_and_a_witness_agrees", |ground| {
        let ([sources, copies], seeds, began) =
            (sides(ground), seeds(if is_thorough() { TREES } else { FEW }), Instant::now());
        let next = Mutex::new(seeds.iter().copied());
        let work = || {
            let mut found = Vec::new();
            while let Some(seed) = { next.lock().unwrap().next() } {
                let (pair, name) = (usize::try_from(seed % 9).unwrap(), seed.to_string());
                found.push(played(&sources[pair / 3].join(&name), &copies[pair % 3].join(&name), seed));
            }
            found
        };
        let found: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        let wrong: Vec<_> = found.iter().filter_map(|found| found.as_ref().err()).collect();
        let entries: u64 = found.iter().flatten().map(|(entries, _)| entries).sum();
        let again = found.iter().flatten().filter(|(_, again)| *again).count();
        assert!(wrong.is_empty(), "{} of {} trees: {wrong:#?}", wrong.len(), found.len());
        assert!(entries > 60 * found.len() as u64, "{entries} entries");
        let (count, seconds) = (found.len(), began.elapsed().as_secs_f64());
        eprintln!("figure: {count} trees with {entries} entries in {seconds:.1} s; {again} took rsync a second run");
    });
}

/// It creates such a folder without what its own group may do, where that is what all who are named may do at most.
#[test]
fn sticky_folder_with_an_access_list_takes_rsync_a_second_run_and_the_judge_tells() {
    inside("trees::copies::sticky_folder_with_an_access_list_takes_rsync_a_second_run_and_the_judge_tells", |ground| {
        let [source, copy] = ["source", "copy"].map(|name| ground.folder(name));
        let folder = source.join("shared");
        fs::create_dir(&folder).unwrap();
        permit(&folder, 0o1777);
        run(Command::new("setfacl").args(["--modify", "user:7:rwx"]).arg(&folder));
        rsync::copy(&source, &copy, false);
        assert_eq!(judged(&source, &copy).named, [r#""shared" has another attribute "system.posix_acl_access""#]);
        rsync::copy(&source, &copy, false);
        let judgement = judged(&source, &copy);
        assert!(judgement.is_equal(), "{judgement}");
    });
}

/// It takes no names apart, neither where it writes into what is there nor where it finds nothing to write.
#[test]
fn files_that_an_older_copy_has_as_one_stay_one_and_the_judge_tells() {
    inside("trees::copies::files_that_an_older_copy_has_as_one_stay_one_and_the_judge_tells", |ground| {
        for (content, has_hard_links) in [("other", false), ("same", false), ("same", true)] {
            let named = |side: &str| ground.folder(&format!("{content}-{has_hard_links}-{side}"));
            let (source, copy) = (named("source"), named("copy"));
            let (one, other) = (source.join("a"), source.join("b"));
            fs::write(&one, "same").unwrap();
            set_times(&one, (1_700_000_000, 0));
            fs::hard_link(&one, &other).unwrap();
            rsync::copy(&source, &copy, true);
            assert!(judged(&source, &copy).is_equal());
            fs::remove_file(&other).unwrap();
            fs::write(&other, content).unwrap();
            set_times(&other, (1_700_000_000, 0));
            rsync::copy(&source, &copy, has_hard_links);
            rsync::copy(&source, &copy, has_hard_links);
            let judgement = judged(&source, &copy);
            let told = r#""b" has as first name "a", and had no other"#;
            assert!(judgement.named.iter().any(|named| named == told), "{content} {has_hard_links}: {judgement}");
        }
    });
}

#[test]
fn one_seed_gives_one_tree() {
    inside("trees::copies::one_seed_gives_one_tree", |ground| {
        let [one, other] = ["one", "other"].map(|name| ground.mounted(Filesystem::Tmpfs, name).join("tree"));
        for seed in seeds(3) {
            for root in [&one, &other] {
                Tree::grow(root, seed);
            }
            let judgement = judged(&one, &other);
            assert!(judgement.is_equal(), "{seed}: {judgement}");
            for root in [&one, &other] {
                fs::remove_dir_all(root).unwrap();
            }
        }
    });
}

#[test]
fn old_disk_holds_whole_seconds_and_a_copy_on_it_is_equal_as_far_as_they_go() {
    inside("trees::copies::old_disk_holds_whole_seconds_and_a_copy_on_it_is_equal_as_far_as_they_go", |ground| {
        let old = ground.mounted(Filesystem::OldExt4, "old");
        let source = ground.mounted(Filesystem::Xfs, "source").join("tree");
        Tree::grow(&source, 1);
        for (second, path) in (-50..).step_by(7).zip(entries(&source)) {
            set_times(&path, (second * 1_000_000, 999_999_999));
        }
        let copy = old.join("tree");
        fs::create_dir(&copy).unwrap();
        rsync::settle(&source, &copy);
        let judgement = judged_to(1_000_000_000, &source, &copy).unwrap();
        assert!(judgement.is_equal(), "{judgement}");
        assert!(!judged(&source, &copy).is_equal());
    });
}
