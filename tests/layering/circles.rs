//! Modules of one folder do not use each other in a circle: who reads one of them need not read the others at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::{files, root};

/// Circles that are there, and stay. `docs/design/simulator.md` says why.
const KNOWN: [(&str, &[&str]); 5] = [
    ("dev/host", &["attacher", "capacity", "provisioner", "scheduler"]),
    ("simulate", &["call", "decoder", "kinds", "labels", "protobuf", "selector", "status_error", "versions"]),
    ("simulate", &["persist", "resources", "store"]),
    ("simulate", &["service", "watch"]),
    ("simulate", &["storage", "testing"]),
];

type Module = Vec<String>;
/// For each folder, which of its modules use which.
type Uses = BTreeMap<Module, BTreeSet<(String, String)>>;

fn words(path: &str) -> Module {
    path.split("::").map(str::trim).filter(|word| !word.is_empty() && *word != "self").map(str::to_owned).collect()
}

/// The text without comments and tests.
pub fn code(text: &str) -> String {
    let rules = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    rules.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// All paths that a tree of `use` names.
fn expand(tree: &str, before: &[String], into: &mut Vec<Module>) {
    // After the last comma.
    if tree.trim().is_empty() {
        return;
    }
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return into.push([before, &words(path)].concat());
    };
    let (before, mut depth, mut part) = ([before, &words(head)].concat(), 0, String::new());
    for letter in rest.chars() {
        match letter {
            ',' | '}' if depth == 0 => expand(&std::mem::take(&mut part), &before, into),
            _ => {
                depth += i32::from(letter == '{') - i32::from(letter == '}');
                part.push(letter);
            }
        }
    }
}

/// What one file names: by `use`, whether that is `pub`, and elsewhere.
fn named(text: &str) -> Vec<(Module, bool)> {
    let (code, mut found) = (code(text), Vec::new());
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        match statement
            .rsplit_once("use ")
            .filter(|(before, _)| before.trim_end().is_empty() || before.ends_with([' ', '\n']))
        {
            Some((before, tree)) => {
                let mut paths = Vec::new();
                expand(tree.trim_end_matches(';'), &[], &mut paths);
                let is_public = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
                found.extend(paths.into_iter().map(|path| (path, is_public)));
                rest.push_str(before);
            }
            None => rest.push_str(statement),
        }
    }
    let inline = rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'));
    found.extend(inline.filter(|path| path.contains("::") && !path.starts_with(':')).map(|path| (words(path), false)));
    found
}

/// The modules of one crate, and what each names.
struct Tree(BTreeMap<Module, Vec<(Module, bool)>>);

impl Tree {
    fn read(folder: &str) -> Self {
        let is_test = |file: &Path| file.iter().any(|part| part == "tests" || part == "tests.rs");
        let modules = files(folder).into_iter().filter(|file| !is_test(file)).map(|file| {
            let mut module: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into()).collect();
            module.pop_if(|last| ["mod", "lib"].contains(&last.as_str()));
            (module, named(&fs::read_to_string(root().join(folder).join(file)).unwrap()))
        });
        Self(modules.collect())
    }

    /// The module that a path leads to, also by the way of one that tells its names on.
    fn target(&self, from: &Module, path: &[String]) -> Option<Module> {
        let (mut at, mut path) = (from.clone(), path);
        match path.first()?.as_str() {
            "crate" => (at, path) = (Vec::new(), &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                at.truncate(at.len().saturating_sub(ups));
                path = &path[ups..];
            }
            first if !self.0.contains_key(&[at.as_slice(), &[first.to_owned()]].concat()) => return None,
            _ => {}
        }
        while let Some((next, rest)) = path.split_first() {
            let below = [at.as_slice(), std::slice::from_ref(next)].concat();
            if !self.0.contains_key(&below) {
                let told =
                    self.0[&at].iter().find(|(told, public)| *public && told.len() > 1 && told.last() == Some(next));
                let there = told.map(|(told, _)| [at.as_slice(), &told[..told.len() - 1]].concat());
                return Some(there.filter(|there| self.0.contains_key(there)).unwrap_or(at));
            }
            (at, path) = (below, rest);
        }
        Some(at)
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, paths) in &self.0 {
            for target in paths.iter().filter_map(|(path, _)| self.target(module, path)) {
                let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
                if let (Some(user), Some(used)) = (module.get(common), target.get(common)) {
                    uses.entry(module[..common].to_vec()).or_default().insert((user.clone(), used.clone()));
                }
            }
        }
        uses
    }
}

/// All that a module uses, and what that uses, and so on.
fn reached<'a>(uses: &'a BTreeSet<(String, String)>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        for (_, used) in uses.iter().filter(|(user, _)| user == next) {
            if found.insert(used.as_str()) {
                open.push(used);
            }
        }
    }
    found
}

/// Sets of modules each of which reaches all the others.
fn circles<'a>(uses: &'a BTreeSet<(String, String)>) -> BTreeSet<Vec<&'a str>> {
    let all: BTreeSet<&str> = uses.iter().map(|(user, _)| user.as_str()).collect();
    let circle = |user: &'a str| -> Vec<&'a str> {
        reached(uses, user).into_iter().filter(|other| reached(uses, other).contains(user)).collect()
    };
    all.into_iter().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn modules_use_each_other_in_no_circle_but_the_known_ones() {
    let mut found = BTreeSet::new();
    let names = super::CRATES.into_iter().chain(["dev", "simulate"]);
    for name in names {
        for (folder, uses) in Tree::read(&format!("crates/{name}/src")).uses() {
            let place = [&[name.to_owned()], folder.as_slice()].concat().join("/");
            let circles = circles(&uses).into_iter();
            found.extend(
                circles.map(|circle| (place.clone(), circle.into_iter().map(str::to_owned).collect::<Vec<_>>())),
            );
        }
    }
    let known = KNOWN.map(|(place, circle)| (place.to_owned(), circle.iter().map(|&name| name.to_owned()).collect()));
    assert_eq!(found, BTreeSet::from(known));
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let text =
        "use super::{\n    a::{B, c::D as E},\n    f,\n};\npub use self::g::H;\nfn i() { crate::j::k() } // l::m\n";
    let mut found: Vec<String> = named(text)
        .into_iter()
        .map(|(path, public)| format!("{}{}", path.join("/"), if public { "!" } else { "" }))
        .collect();
    found.sort();
    assert_eq!(found, ["crate/j/k", "g/H!", "super/a/B", "super/a/c/D", "super/f"]);
}
