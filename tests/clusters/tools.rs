//! Where the programs of the test clusters are: resolves what `make tools` has built, and builds nothing.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::tools_table::{OLDER, SNAPSHOT_CRDS, SUITES, TOOLS, Tool};

/// A tool at the version the checkout asks for, and the place of its build, which may not be there yet.
#[derive(Debug)]
pub struct Build {
    pub tool: &'static Tool,
    pub version: String,
    pub folder: PathBuf,
}

impl Build {
    pub fn binary(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    pub fn crds(&self) -> PathBuf {
        self.folder.join("crd")
    }

    /// A folder gets its name only when it is complete, so its existence is enough.
    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }
}

/// Every program, built.
#[derive(Debug)]
pub struct Tools {
    builds: BTreeMap<&'static str, Build>,
}

/// Resolves every program, or says what `make tools` has yet to build.
pub fn tools() -> Result<Tools> {
    let builds = planned()?;
    let missing: Vec<_> = builds.iter().filter(|build| !build.exists()).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|build| build.tool.name).collect();
        bail!("run make tools: not built yet: {}", names.join(", "));
    }
    Ok(Tools { builds: builds.into_iter().map(|build| (build.tool.name, build)).collect() })
}

/// The path of one binary, whether or not the others are built.
pub fn tool(binary: &str) -> Result<PathBuf> {
    let build = planned()?.into_iter().find(|build| build.tool.binaries.contains(&binary));
    let build = build.with_context(|| format!("no tool has a binary {binary}"))?;
    ensure!(build.exists(), "run make tools: not built yet: {binary}");
    Ok(build.binary(binary))
}

/// What a program says of this on its standard input, or why it refuses that.
pub fn fed(program: &Path, argument: &str, input: &[u8]) -> Result<String> {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn()?;
    process.stdin.take().context("it reads")?.write_all(input)?;
    let output = process.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

impl Tools {
    /// The path of a binary, by its own name: `kube-apiserver`, `csi-sanity`.
    ///
    /// # Panics
    /// When no tool has such a binary: the name is the caller's slip.
    pub fn path(&self, binary: &str) -> PathBuf {
        self.build_of(binary).binary(binary)
    }

    /// The pinned version of a binary, as `v1.36.3`.
    ///
    /// # Panics
    /// When no tool has such a binary: the name is the caller's slip.
    pub fn version(&self, binary: &str) -> &str {
        &self.build_of(binary).version
    }

    /// The CRDs of snapshots and group snapshots, of the snapshot controller's own release.
    pub fn snapshot_crds(&self) -> Result<Vec<PathBuf>> {
        let build = self.builds.get(SNAPSHOT_CRDS.0);
        let folder = build.context("no tool carries the CRDs")?.crds();
        let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        ensure!(!files.is_empty(), "{} holds no CRD", folder.display());
        Ok(files)
    }

    fn build_of(&self, binary: &str) -> &Build {
        self.builds
            .values()
            .find(|build| build.tool.binaries.contains(&binary))
            .unwrap_or_else(|| panic!("no tool has a binary {binary}"))
    }
}

/// What the checkout asks for, built or not.
pub fn planned() -> Result<Vec<Build>> {
    let folder = cache_folder()?.join("tools");
    let go_version = go_version(&TOOLS[0].wrapper_folder())?;
    TOOLS.iter().map(|tool| plan(tool, &folder, &go_version)).collect()
}

/// A control plane of the minor version before, built or not.
pub fn planned_older() -> Result<Build> {
    plan(&OLDER, &cache_folder()?.join("tools"), &go_version(&OLDER.wrapper_folder())?)
}

/// Likewise, or what has yet to build it.
pub fn older() -> Result<Build> {
    let build = planned_older()?;
    ensure!(build.exists(), "run `clusters build --older`: not built yet: {} {}", build.tool.name, build.version);
    Ok(build)
}

/// Kubernetes' own suites and the programs of their pods, built or not.
pub fn planned_suites() -> Result<Vec<Build>> {
    let folder = cache_folder()?.join("tools");
    let go_version = go_version(&SUITES[0].wrapper_folder())?;
    SUITES.iter().map(|tool| plan(tool, &folder, &go_version)).collect()
}

/// The path of one of them, or what has yet to build it.
pub fn suites_program(binary: &str) -> Result<PathBuf> {
    let build = planned_suites()?.into_iter().find(|build| build.tool.binaries.contains(&binary));
    let build = build.with_context(|| format!("the suites have no program {binary}"))?;
    ensure!(build.exists(), "run `clusters build --suites`: not built yet: {binary}");
    Ok(build.binary(binary))
}

fn plan(tool: &'static Tool, folder: &Path, go_version: &str) -> Result<Build> {
    let version = tool.version()?;
    let folder = folder.join(tool.key(&version, go_version)?);
    Ok(Build { tool, version, folder })
}

/// Outside the checkout, so that `git clean` costs no build and worktrees share.
pub fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("KOSMOS_CSI_CACHE")
        .map(PathBuf::from)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| Path::new(&cache).join("kosmos-csi")))
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache/kosmos-csi")))
        .ok_or_else(|| anyhow!("no place for a cache: set KOSMOS_CSI_CACHE or HOME"))?;
    ensure!(folder.is_absolute(), "the cache folder {} is not an absolute path", folder.display());
    Ok(folder)
}

/// Asked in a wrapper's folder, because its go.mod may make Go switch to a newer toolchain.
fn go_version(wrapper: &Path) -> Result<String> {
    let output = go(wrapper)
        .args(["env", "GOVERSION"])
        .output()
        .context("cannot run go: install it, see https://go.dev/doc/install")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go env GOVERSION: {}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The go command, deaf to what the user's environment says about flags and workspaces.
pub fn go(wrapper: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(wrapper).env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off");
    command
}
