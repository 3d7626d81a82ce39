//! How long a file may be, how many files one has to open for a type, and how much of all are tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::{files, root};

/// Of sources, and of tests.
const LONGEST_FILES: [(&str, usize); 3] = [("crates", 400), ("src", 400), ("tests", 600)];
/// In which a type may have methods of its own.
const MOST_FILES: usize = 3;
/// In a hundred lines.
const LEAST_TESTS: usize = 45;

fn read(folder: &str, file: &std::path::Path) -> String {
    fs::read_to_string(root().join(folder).join(file)).unwrap()
}

#[test]
fn no_file_is_too_long_to_read() {
    for (folder, longest) in LONGEST_FILES {
        for file in files(folder) {
            let lines = read(folder, &file).lines().count();
            assert!(lines <= longest, "{folder}/{} has {lines} lines: at most {longest}", file.display());
        }
    }
}

/// The type whose methods begin in a line, and not a trait's for it.
fn of_its_own(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl").filter(|rest| rest.starts_with(['<', ' ']) && !rest.contains(" for "))?;
    let named = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest.trim_start() };
    named.split(['<', ' ']).next()
}

#[test]
fn methods_of_a_type_stand_in_few_files() {
    let mut homes: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for file in files("crates").into_iter().filter(|file| !file.ends_with("tests.rs")) {
        let name = file.iter().next().unwrap().to_string_lossy().into_owned();
        let text = read("crates", &file);
        for owner in text.lines().filter_map(of_its_own) {
            homes.entry((name.clone(), owner.to_owned())).or_default().insert(file.display().to_string());
        }
    }
    let scattered: Vec<_> = homes.iter().filter(|(_, files)| files.len() > MOST_FILES).collect();
    assert!(scattered.is_empty(), "{scattered:#?}");
    assert!(homes.len() > 200, "{} types", homes.len());
    assert_eq!(
        ["impl<'a> Rows<'a> {", "impl<K: Kernel> Machine<K> {", "impl Host {"].map(of_its_own),
        [Some("Rows"), Some("Machine"), Some("Host")]
    );
    assert_eq!(["impl Display for Host {", "implicit", "    impl Inner {"].map(of_its_own), [None; 3]);
}

#[test]
fn nearly_half_of_all_lines_are_tests() {
    let (mut tests, mut all) = (0, 0);
    for folder in ["crates", "src", "tests"] {
        for file in files(folder) {
            let text = read(folder, &file);
            let is_test = folder == "tests" || file.iter().any(|part| part == "tests" || part == "tests.rs");
            let rules =
                if is_test { 0 } else { text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().lines().count() };
            all += text.lines().count();
            tests += text.lines().count() - rules;
        }
    }
    assert!(100 * tests >= LEAST_TESTS * all, "{tests} of {all} lines are tests: at least {LEAST_TESTS} in a hundred");
}
