//! The pages for people: short where they begin, all of them listed, and every link leads somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::root;

const LONGEST_README: usize = 150;
const LONGEST_WAY: usize = 15;

fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "docs/design"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let docs = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
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
    let folders = super::CRATES.map(|name| format!("crates/{name}/src"));
    for (folder, file) in
        folders.iter().flat_map(|folder| super::files(folder).into_iter().map(move |file| (folder, file)))
    {
        let text = fs::read_to_string(root().join(folder).join(file)).unwrap();
        let rules = text.split("#[cfg(test)]").next().unwrap_or_default();
        written.extend(keys(rules, '"'));
    }
    written.remove("topology.kosmos.csi.io/");
    let told = keys(&fs::read_to_string(root().join("docs/keys.md")).unwrap(), '`');
    assert_eq!(told, written);
}

#[test]
fn summary_names_every_page_and_each_that_is_linked_to() {
    let named = named_in_summary();
    for page in pages().into_iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        assert!(named.contains(&page.canonicalize().unwrap()), "docs/SUMMARY.md leaves out {}", page.display());
    }
    // A book has no other pages: such a link would lead nowhere in it.
    for page in &named {
        let text = fs::read_to_string(page).unwrap();
        let files = targets(&text).into_iter().map(|target| target.split('#').next().unwrap_or_default());
        let is_page = |file: &str| Path::new(file).extension().is_some_and(|end| end == "md");
        for file in files.filter(|file| is_page(file) && !file.starts_with("https://")) {
            let path = page.parent().unwrap().join(file).canonicalize().unwrap();
            assert!(named.contains(&path), "{}: docs/SUMMARY.md leaves out {file}", page.display());
        }
    }
}

/// By the page that says what there is to apply, and by a test that applies it.
#[test]
fn every_example_is_offered_and_applied() {
    let page = fs::read_to_string(root().join("docs/install.md")).unwrap();
    let tests = [
        "tests/e2e/install/examples.rs",
        "tests/e2e/install/volumes.rs",
        "tests/e2e/install/demo.rs",
        "tests/dev/kubectl.rs",
    ];
    let tests: String = tests.map(|file| fs::read_to_string(root().join(file)).unwrap()).concat();
    // README's commands are run by a test, and those of the page for who develops.
    let by_hand: String =
        ["README.md", "docs/development.md"].map(|file| fs::read_to_string(root().join(file)).unwrap()).concat();
    for example in fs::read_dir(root().join("deploy/examples")).unwrap() {
        let name = example.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("](../deploy/examples/{name})")), "docs/install.md does not offer {name}");
        assert!(tests.contains(&name) || by_hand.contains(&name), "no test applies {name}");
    }
}

#[test]
fn every_page_that_people_see_is_pictured_where_it_is_explained() {
    let page = fs::read_to_string(root().join("docs/ui.md")).unwrap();
    for picture in fs::read_dir(root().join("docs/pictures")).unwrap() {
        let name = picture.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("](pictures/{name})")), "docs/ui.md does not show {name}");
    }
    let pictured = |name: &str| root().join(format!("docs/pictures/{name}.png")).exists();
    for template in fs::read_dir(root().join("crates/ui/templates")).unwrap() {
        let name = template.unwrap().file_name().into_string().unwrap();
        let text = fs::read_to_string(root().join("crates/ui/templates").join(&name)).unwrap();
        let shown = name.trim_end_matches(".html");
        assert!(!text.contains("{% block heading %}") || name == "base.html" || pictured(shown), "{name}");
    }
}

fn named_in_summary() -> BTreeSet<PathBuf> {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    targets(&summary).iter().map(|target| root().join("docs").join(target).canonicalize().unwrap()).collect()
}

#[test]
fn readme_is_read_in_one_go() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= LONGEST_README, "README.md has {lines} lines: at most {LONGEST_README}");
}

/// A file of the driver, as the pages name it: `leaf/claim.rs` is `crates/leaf/src/claim.rs`. Empty where there is none.
fn source(file: &str) -> String {
    let (name, below) = file.split_once('/').unwrap_or_default();
    fs::read_to_string(root().join("crates").join(name).join("src").join(below)).unwrap_or_default()
}

#[test]
fn event_has_its_words_where_the_page_says_and_a_row_for_who_meets_it() {
    let read = |page: &str| fs::read_to_string(root().join(page)).unwrap();
    let (page, troubles) = (read("docs/development.md"), read("docs/troubleshooting.md"));
    let table = page.split("## Where words are").nth(1).unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().filter(|line| line.starts_with("| `")).map(|line| line.split('|').skip(1).collect()).collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        for (event, file) in quoted(row[0]).flat_map(|event| quoted(row[2]).map(move |file| (event, file))) {
            assert!(source(file).contains(&format!("\"{event}\"")), "{file} has no {event}");
            assert!(troubles.contains(&format!("`{event}`")), "docs/troubleshooting.md leaves out {event}");
        }
    }
}

/// Where reasons of events and conditions on pods, claims, volumes and moves stand: files below a folder whose path begins so, and what comes
/// before the reason, or before the name of a constant that holds it.
const REASONS: [(&str, &str, &[&str]); 3] = [
    ("crates/agent/src/pod", "", &["PodRejection::new(", "Self::new(", "of_former("]),
    ("crates/driver/src", "", &["News { reason: ", ".told(", "tell_event(", "&now, "]),
    ("crates/driver/src", "moving", &["(", ": &str = "]),
];

/// A word such as `LeafStuck` at the beginning of a text, or by the name of a constant there.
fn reason(begins: &str, file: &str) -> Option<String> {
    let begins = begins.trim_start();
    let word = if let Some(rest) = begins.strip_prefix('"') {
        rest.split('"').next()?
    } else {
        let is_other = |letter: char| !letter.is_ascii_uppercase() && letter != '_';
        let (name, _) = begins.split_once(is_other).filter(|(name, _)| !name.is_empty())?;
        file.split_once(&format!("const {name}: &str = \""))?.1.split('"').next()?
    };
    let is_reason = word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.chars().all(|letter| letter.is_ascii_alphabetic())
        && word.contains(|letter: char| letter.is_ascii_lowercase());
    is_reason.then(|| word.to_owned())
}

#[test]
fn every_reason_that_is_told_of_a_pod_a_claim_a_volume_or_a_move_has_a_row_for_who_meets_it() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let cells = page.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(1));
    let told: BTreeSet<&str> = cells.flat_map(quoted).collect();
    let mut said = BTreeSet::new();
    for (folder, begins, marks) in REASONS {
        let files = super::files(folder).into_iter().filter(|file| file.to_string_lossy().starts_with(begins));
        for file in files.filter(|file| !file.ends_with("tests.rs")) {
            let text = fs::read_to_string(root().join(folder).join(file)).unwrap();
            let rules = text.split("#[cfg(test)]").next().unwrap_or_default();
            said.extend(marks.iter().flat_map(|mark| rules.split(mark).skip(1)).filter_map(|rest| reason(rest, rules)));
        }
    }
    for known in ["NameTaken", "VolumeMoved", "LeafPending", "LeafStuck", "MoveCancelled", "SourceKept"] {
        assert!(said.contains(known), "{known} is not found in the code");
    }
    let development = fs::read_to_string(root().join("docs/development.md")).unwrap();
    let placed: BTreeSet<&str> = quoted(development.split("## Where words are").nth(1).unwrap()).collect();
    for (page, named) in [("troubleshooting", &told), ("development", &placed)] {
        let lacking: Vec<&String> = said.iter().filter(|reason| !named.contains(reason.as_str())).collect();
        assert!(lacking.is_empty(), "docs/{page}.md has no row for {lacking:?}");
    }
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A file that a way passes, and the functions in it.
type Station = (String, Vec<String>);

/// The ways of a design page: title and stations.
fn ways(page: &str) -> Vec<(String, Vec<Station>)> {
    let sections = page.split("\n## ").filter(|section| section.starts_with("The way of "));
    sections
        .map(|section| {
            let title = section.lines().next().unwrap_or_default().to_owned();
            let stations = section.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
            let station = |line: &str| {
                let mut words = quoted(line).map(str::to_owned);
                (words.next().unwrap_or_default(), words.collect())
            };
            (title, stations.map(station).collect())
        })
        .collect()
}

#[test]
fn way_of_a_request_is_short_passes_no_file_twice_and_names_functions_that_are_there() {
    let ways: Vec<_> = pages().iter().flat_map(|page| ways(&fs::read_to_string(page).unwrap())).collect();
    let titles: BTreeSet<&str> = ways.iter().map(|(title, _)| title.trim_start_matches("The way of ")).collect();
    assert_eq!(titles, BTreeSet::from(["CreateVolume", "DeleteVolume", "NodePublishVolume", "a copy", "a pod"]));
    for (title, stations) in &ways {
        let files: BTreeSet<&String> = stations.iter().map(|(file, _)| file).collect();
        assert!(files.len() == stations.len() && stations.len() <= LONGEST_WAY, "{title}: {files:?}");
        for (file, functions) in stations {
            let text = source(file);
            assert!(!functions.is_empty(), "{title}: {file} without a function");
            for function in functions {
                let is_there = text.lines().any(|line| {
                    line.split("fn ").nth(1).is_some_and(|rest| {
                        rest.strip_prefix(function.as_str()).is_some_and(|rest| rest.starts_with(['(', '<']))
                    })
                });
                assert!(is_there, "{title}: {file} has no function {function}");
            }
        }
    }
}

/// The wrapper of an older Kubernetes, which no change is tested with.
const OLDER: &str = "older";

/// The version that a wrapper of the tests' tools pins.
fn pinned(module: &str) -> String {
    pinned_by(|wrapper| wrapper != OLDER, module)
}

fn pinned_by(is_meant: impl Fn(&str) -> bool, module: &str) -> String {
    let tools = fs::read_dir(root().join("tests/clusters/tools")).unwrap().map(Result::unwrap);
    let tools = tools.filter(|tool| is_meant(&tool.file_name().to_string_lossy()));
    let files = tools.filter_map(|tool| fs::read_to_string(tool.path().join("go.mod")).ok());
    let all: String = files.collect();
    let line =
        all.lines().find(|line| line.contains(module) && !line.contains("indirect") && !line.contains("/client/"));
    line.and_then(|line| line.split_whitespace().last()).unwrap_or_default().to_owned()
}

#[test]
fn page_of_versions_has_those_that_are_tested_and_those_of_the_chart() {
    let page = fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    let row = |what: &str| page.lines().find(|line| line.starts_with(&format!("| {what}"))).unwrap_or_default();
    let kubernetes = pinned("k8s.io/kubernetes v");
    for of in ["Kubernetes of the host", "Kubernetes of a member"] {
        assert!(row(of).contains(kubernetes.trim_start_matches('v')), "{of}: {kubernetes}");
    }
    let chart = fs::read_to_string(root().join("deploy/chart/kosmos-csi/values.yaml")).unwrap();
    for (sidecar, image) in [
        ("external-provisioner", "csi-provisioner"),
        ("external-attacher", "csi-attacher"),
        ("external-resizer", "csi-resizer"),
        ("external-snapshotter", "csi-snapshotter"),
    ] {
        let version = pinned(&format!("kubernetes-csi/{sidecar}/v"));
        assert!(!version.is_empty() && row(sidecar).contains(&version), "{sidecar}: {version}");
        assert!(chart.contains(&format!("{image}, tag: {version}")), "the chart has another {image} than {version}");
    }
    for (what, module) in [("local-path-provisioner", "local-path-provisioner v"), ("Helm", "helm.sh/helm/")] {
        assert!(row(what).contains(&pinned(module)), "{what}: {}", pinned(module));
    }
    assert!(page.contains(&pinned("kubernetes-csi/csi-test/v")));
    let older = pinned_by(|wrapper| wrapper == OLDER, "k8s.io/kubernetes v");
    assert!(page.contains(&format!("a host of {}", older.trim_start_matches('v'))), "a host of {older}");
}

/// A constant as people say it: `Duration::from_secs(4)` is "4 s".
fn said(text: &str, constant: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("const {constant}: Duration = Duration::from_"))?;
    let (unit, rest) = rest.split_once('(')?;
    let unit = match unit {
        "millis" => "ms",
        "secs" => "s",
        "mins" => "min",
        "hours" => "h",
        _ => return None,
    };
    Some(format!("{} {unit}", rest.split_once(')')?.0))
}

#[test]
fn page_of_timers_says_what_the_code_waits() {
    let page = fs::read_to_string(root().join("docs/timers.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(".rs`"))
        .map(|line| line.split(" | ").collect())
        .collect();
    assert!(rows.len() > 20);
    for row in rows {
        let (long, by) = (row[1], row[2]);
        for decided in by.split("; ") {
            let mut words = decided.split('`').skip(1).step_by(2);
            let file = words.next().unwrap();
            let text = source(file);
            for constant in words {
                let said = said(&text, constant).unwrap_or_else(|| panic!("{file} has no {constant}"));
                let is_said = format!(" {long}").match_indices(&format!(" {said}")).count() == 1;
                assert!(is_said, "{file}: {constant} is {said}, and the page says {long:?}");
            }
        }
    }
}
