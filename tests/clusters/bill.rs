//! What an image is made of, as an SPDX document beside it: the crates of the program, the distribution's packages that its other
//! files are from, and by their digests the files that are from none. It says the same wherever the same image is packed.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::pack::{Packed, sha256};
use super::packages::program;

/// The program itself.
const OURS: &str = "kosmos-csi";
const IMAGE: &str = "SPDXRef-Image";

/// Writes the document beside an image's archive.
pub fn write(reference: &str, packed: &Packed, root: &Path) -> Result<PathBuf> {
    let mut parts: Vec<Value> = crates()?.iter().map(|(name, version)| of_crate(name, version)).collect();
    parts.extend(of_files(root)?);
    for (number, part) in parts.iter_mut().enumerate() {
        part["SPDXID"] = json!(format!("SPDXRef-Package-{number}"));
    }
    let file = place(&packed.archive);
    let text = format!("{:#}\n", document(reference, &packed.digest, &parts));
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// Where it lies.
pub fn place(archive: &Path) -> PathBuf {
    archive.with_extension("spdx.json")
}

fn document(reference: &str, digest: &str, parts: &[Value]) -> Value {
    let digest = digest.trim_start_matches("sha256:");
    let image = json!({
        "SPDXID": IMAGE, "name": reference, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
        "primaryPackagePurpose": "CONTAINER", "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
    });
    let relation = |from: &str, kind: &str, to: &Value| json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to});
    let described = std::iter::once(relation("SPDXRef-DOCUMENT", "DESCRIBES", &json!(IMAGE)));
    let contained = parts.iter().map(|part| relation(IMAGE, "CONTAINS", &part["SPDXID"]));
    json!({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": reference,
        "documentNamespace": format!("https://kosmos.csi.io/spdx/{digest}"),
        // As the image's own times: the same content is the same document.
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: kosmos-csi-clusters"]},
        "packages": std::iter::once(image).chain(parts.iter().cloned()).collect::<Vec<_>>(),
        "relationships": described.chain(contained).collect::<Vec<_>>(),
    })
}

fn package(name: &str, version: &str, locator: &str) -> Value {
    json!({
        "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator},
        ],
    })
}

fn of_crate(name: &str, version: &str) -> Value {
    package(name, version, &format!("pkg:cargo/{name}@{version}"))
}

/// What the image's program is built from, by name and version.
fn crates() -> Result<BTreeSet<(String, String)>> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", OURS, "--edges", "normal", "--no-default-features"])
        // As `make image` was told.
        .args(["--features", &env::var("FEATURES").unwrap_or_default()])
        .args(["--prefix", "none", "--format", "{p}", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .context("run cargo tree")?;
    ensure!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr).trim());
    let named = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(String::from_utf8(tree.stdout)?.lines().filter_map(named).collect())
}

/// The packages of all files but the program, each once; a file of no package is one of its own.
fn of_files(root: &Path) -> Result<Vec<Value>> {
    let (mut packages, mut others) = (BTreeSet::new(), BTreeMap::new());
    for file in files(root)? {
        let place = file.strip_prefix(root)?.display().to_string();
        match source(&file, &place)?.and_then(|source| owner(&source)) {
            _ if place == OURS => {}
            Some(package) => drop(packages.insert(package)),
            None => drop(others.insert(place, sha256(&file)?)),
        }
    }
    let mut parts: Vec<Value> = packages.iter().filter_map(|package| of_package(package)).collect();
    parts.extend(others.into_iter().map(|(place, digest)| {
        json!({
            "name": format!("/{place}"), "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
            "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        })
    }));
    Ok(parts)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        match entry? {
            kind if kind.is_dir() => found.extend(files(&path)?),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    Ok(found)
}

/// The file of this machine that a file of the image is a copy of.
fn source(file: &Path, place: &str) -> Result<Option<PathBuf>> {
    let of_node = place.strip_prefix("usr/sbin/").and_then(program);
    let source = of_node.unwrap_or_else(|| Path::new("/").join(place));
    Ok((source.is_file() && fs::read(&source)? == fs::read(file)?).then_some(source))
}

/// The package that a file belongs to, where the distribution knows. It knows a file by one of its paths.
fn owner(file: &Path) -> Option<String> {
    let text = file.to_str()?;
    let merged = text.strip_prefix("/usr").map_or_else(|| format!("/usr{text}"), str::to_owned);
    let real = fs::canonicalize(file).ok()?.to_str()?.to_owned();
    let bare = real.strip_prefix("/usr").unwrap_or(&real).to_owned();
    [text.to_owned(), merged, real, bare].iter().find_map(|path| {
        let told = Command::new("dpkg-query").args(["--search", path]).output().ok()?;
        let told = String::from_utf8(told.stdout).ok()?;
        told.lines().next()?.rsplit_once(": ").map(|(package, _)| package.to_owned())
    })
}

fn of_package(package_name: &str) -> Option<Value> {
    let shown = "--showformat=${Package} ${Version} ${Architecture}";
    let told = Command::new("dpkg-query").args(["--show", shown, package_name]).output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let mut words = told.split_whitespace();
    let (name, version, architecture) = (words.next()?, words.next()?, words.next()?);
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let distribution = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("debian").trim_matches('"');
    let escaped = version.replace(':', "%3A").replace('+', "%2B");
    Some(package(name, version, &format!("pkg:deb/{distribution}/{name}@{escaped}?arch={architecture}")))
}
