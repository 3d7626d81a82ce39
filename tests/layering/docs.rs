//! The pages for people: short where they begin, all of them listed, and every link leads somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::root;

const LONGEST_README: usize = 150;

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(["README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    pages
}

/// What links lead to, outside of what is typed or shown as it is.
fn targets(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    });
    let links = prose.flat_map(|line| line.split("](").skip(1));
    links.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// As a page on the web has it.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |heading: &str| -> String {
        let kept = heading.to_lowercase();
        kept.chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(slug).collect()
}

fn broken(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    let told = |why: &str| Some(format!("{}: {target}: {why}", page.display()));
    if !path.exists() {
        return told("there is no such file");
    }
    if !anchor.is_empty() && !anchors(&fs::read_to_string(&path).unwrap()).contains(anchor) {
        return told("there is no such heading");
    }
    None
}

#[test]
fn every_link_of_the_pages_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        wrong.extend(targets(&text).into_iter().filter_map(|target| broken(&page, target)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The last parts of what begins with the driver's own name, in quotes or in backticks.
fn keys(text: &str, quote: char) -> BTreeSet<String> {
    let own = |word: &str| {
        word.split_once("kosmos.csi.io/").is_some_and(|(before, _)| before.is_empty() || before.ends_with('.'))
    };
    let words = text.split(quote).filter(|word| own(word) && !word.contains(['\n', ' ', ':', '{', '=']));
    words.map(|word| word.trim_end_matches("<hash>").to_owned()).filter(|word| word != "kosmos.csi.io/").collect()
}

#[test]
fn page_of_keys_has_those_that_the_code_has_and_no_others() {
    let mut written = BTreeSet::new();
    let folder = "crates/driver/src";
    for file in super::files(folder) {
        let text = fs::read_to_string(root().join(folder).join(file)).unwrap();
        let rules = text.split("#[cfg(test)]").next().unwrap_or_default();
        written.extend(keys(rules, '"'));
    }
    written.remove("topology.kosmos.csi.io/");
    let told = keys(&fs::read_to_string(root().join("docs/keys.md")).unwrap(), '`');
    assert_eq!(told, written);
}

#[test]
fn summary_names_every_page_and_the_readme_is_read_in_one_go() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let named: BTreeSet<&str> = targets(&summary).into_iter().collect();
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        let is_named = named.iter().any(|target| Path::new(target).file_name().is_some_and(|file| file == name));
        assert!(
            is_named || ["SUMMARY.md", "CHANGELOG.md", "CONTRIBUTING.md"].contains(&name),
            "docs/SUMMARY.md leaves out {name}"
        );
    }
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= LONGEST_README, "README.md has {lines} lines: at most {LONGEST_README}");
}
