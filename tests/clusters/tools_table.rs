//! Which programs the test clusters are made of, and what identifies one build of them.
//!
//! Each row is pinned by a wrapper module under `tools/`. A build's key is made of the version and of everything
//! that shapes the binaries (the wrapper's files, the build's arguments, the Go version), so a binary that is
//! found under its key is the one the checkout asks for. Knows nothing of the cache and starts no build.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Programs that come from the same upstream release and are built together.
#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    /// The wrapper module's folder under `tools/`.
    pub wrapper: &'static str,
    /// The module that holds the main packages; its version is the tool's.
    pub module: &'static str,
    pub layout: Layout,
    pub binaries: &'static [&'static str],
}

/// Where a module keeps its main packages, and with it how the linker tells them their version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The module is the one program, which knows its version or is never asked.
    Root,
    /// `cmd/<binary>`, never asked its version.
    Command,
    /// `cmd/<binary>`, version in `main.version`: the custom of the CSI sidecars.
    Sidecar,
    /// `cmd/<binary>`, version in Kubernetes' own variables: an API server and a kubelet compare theirs.
    Kubernetes,
    /// `test/images/<binary>`, the program of an image of Kubernetes' own tests.
    TestImage,
}

#[rustfmt::skip] // one row, one line
pub const TOOLS: [Tool; 16] = [
    tool("pause", "pause", Layout::Root, "kosmos-csi/tools/pause", &["pause"]),
    tool("csi-spec", "csi-spec", Layout::Root, "kosmos-csi/tools/csi-spec", &["csi-spec"]),
    tool("etcd", "etcd", Layout::Root, "go.etcd.io/etcd/server/v3", &["etcd"]),
    tool("kubernetes", "kubernetes", Layout::Kubernetes, "k8s.io/kubernetes",
        &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"]),
    tool("external-provisioner", "provisioner", Layout::Sidecar,
        "github.com/kubernetes-csi/external-provisioner/v6", &["csi-provisioner"]),
    tool("external-attacher", "sidecars", Layout::Sidecar,
        "github.com/kubernetes-csi/external-attacher/v4", &["csi-attacher"]),
    tool("external-resizer", "sidecars", Layout::Sidecar,
        "github.com/kubernetes-csi/external-resizer/v2", &["csi-resizer"]),
    tool("external-snapshotter", "sidecars", Layout::Sidecar,
        "github.com/kubernetes-csi/external-snapshotter/v8", &["csi-snapshotter", "snapshot-controller"]),
    tool("csi-test", "sidecars", Layout::Sidecar, "github.com/kubernetes-csi/csi-test/v5", &["csi-sanity"]),
    tool("local-path-provisioner", "local-path", Layout::Root,
        "github.com/rancher/local-path-provisioner", &["local-path-provisioner"]),
    tool("metrics-server", "metrics-server", Layout::Command, "sigs.k8s.io/metrics-server", &["metrics-server"]),
    tool("scrape", "scrape", Layout::Root, "kosmos-csi/tools/scrape", &["scrape"]),
    tool("alerts", "alerts", Layout::Root, "kosmos-csi/tools/alerts", &["alerts"]),
    tool("ownerless", "ownerless", Layout::Root, "kosmos-csi/tools/ownerless", &["ownerless"]),
    tool("mock-driver", "mock-driver", Layout::Root, "kosmos-csi/tools/mock-driver", &["mock-driver"]),
    tool("helm", "helm", Layout::Command, "helm.sh/helm/v4", &["helm"]),
];

/// A control plane of the minor version before, which is built where somebody asks for it alone.
pub const OLDER: Tool = tool(
    "older-kubernetes",
    "older",
    Layout::Kubernetes,
    "k8s.io/kubernetes",
    &["kube-apiserver", "kube-controller-manager", "kube-scheduler"],
);

/// Kubernetes' own end-to-end suites and the programs of the pods that they make, which are built where somebody asks for them alone.
pub const SUITES: [Tool; 3] = [
    tool("suites", "suites", Layout::Root, "kosmos-csi/tools/suites", &["e2e.test"]),
    tool("agnhost", "suites", Layout::TestImage, "k8s.io/kubernetes", &["agnhost"]),
    tool("first", "first", Layout::Root, "kosmos-csi/tools/first", &["first"]),
];

/// The module that carries the snapshot CRDs, and the tool whose build keeps a copy of them.
pub const SNAPSHOT_CRDS: (&str, &str) =
    ("external-snapshotter", "github.com/kubernetes-csi/external-snapshotter/client/v8");

const fn tool(
    name: &'static str,
    wrapper: &'static str,
    layout: Layout,
    module: &'static str,
    binaries: &'static [&'static str],
) -> Tool {
    Tool { name, wrapper, module, layout, binaries }
}

impl Tool {
    pub fn wrapper_folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clusters/tools").join(self.wrapper)
    }

    /// The version that the wrapper's go.mod pins; the project's own programs have none.
    pub fn version(&self) -> Result<String> {
        let path = self.wrapper_folder().join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(required_version(&text, self.module).unwrap_or_else(|| "own".to_owned()))
    }

    /// What follows `go build -o <output>`.
    pub fn arguments(&self, version: &str) -> Vec<String> {
        let mut arguments = ["-trimpath", "-buildvcs=false", "-ldflags"].map(str::to_owned).to_vec();
        arguments.push(format!("-s -w{}", self.stamp(version)));
        arguments.extend(self.binaries.iter().map(|binary| self.package(binary)));
        arguments
    }

    fn package(&self, binary: &str) -> String {
        match self.layout {
            Layout::Root => self.module.to_owned(),
            Layout::Command | Layout::Sidecar | Layout::Kubernetes => format!("{}/cmd/{binary}", self.module),
            Layout::TestImage => format!("{}/test/images/{binary}", self.module),
        }
    }

    fn stamp(&self, version: &str) -> String {
        let variables = "k8s.io/component-base/version";
        match self.layout {
            Layout::Root | Layout::Command | Layout::TestImage => String::new(),
            Layout::Sidecar => format!(" -X main.version={version}"),
            Layout::Kubernetes => {
                let mut parts = version.trim_start_matches('v').split('.');
                let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
                format!(
                    " -X {variables}.gitVersion={version} -X {variables}.gitMajor={major} -X {variables}.gitMinor={minor}"
                )
            }
        }
    }

    /// The folder name of this build: changes with whatever changes the binaries.
    pub fn key(&self, version: &str, go_version: &str) -> Result<String> {
        let mut hash = Sha256::new();
        for file in files_of(&self.wrapper_folder())? {
            let content = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            feed(&mut hash, name.as_bytes());
            feed(&mut hash, &content);
        }
        for argument in self.arguments(version) {
            feed(&mut hash, argument.as_bytes());
        }
        feed(&mut hash, go_version.as_bytes());
        Ok(format!("{}-{version}-{}", self.name, short(&hash.finalize())))
    }
}

/// The length goes first, so that no two lists of parts can look the same.
fn feed(hash: &mut Sha256, part: &[u8]) {
    hash.update(part.len().to_le_bytes());
    hash.update(part);
}

/// The first ten hexadecimal digits: enough to tell builds apart, short enough to read.
pub fn short(digest: &[u8]) -> String {
    digest.iter().take(5).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn required_version(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        let version = line.strip_prefix(module)?.strip_prefix(' ')?;
        version.split_whitespace().next().map(str::to_owned)
    })
}
