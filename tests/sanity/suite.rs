//! One run of csi-sanity against the driver. The names of the specs that passed must be those listed in `sanity/`, so that
//! none can silently drop out.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

/// Every group of specs that asks the controller's socket.
const CONTROLLER: &str = r"\[Controller Server\]|GroupController";
const NODE: &str = r"Node Service";
/// Holds two equal messages apart (see `sanity/README.md`).
const WRONG: &str = "accessibility requirements";
const PASSED: &str = include_str!("../../sanity/passed.txt");

/// The suite, and what it runs against.
#[derive(Debug)]
pub struct Suite {
    pub program: PathBuf,
    pub controller: PathBuf,
    pub node: PathBuf,
    /// Whether that is a real node, or one that can nothing: the suite asks who it is, and cleans up through it.
    pub mounts: bool,
    /// StorageClass parameters, as YAML.
    pub parameters: &'static str,
    /// Parameters of a VolumeAttributesClass, as YAML.
    pub attributes: &'static str,
    pub folder: PathBuf,
}

impl Suite {
    /// Runs every spec there is a service for. The identity specs ask the node's socket, so they are run by themselves
    /// on the controller's.
    pub async fn run(&self) -> Result<()> {
        let mut passed = self.specs("identity", &self.controller, "Identity Service").await?;
        let rest = if self.mounts { format!("{CONTROLLER}|{NODE}") } else { CONTROLLER.to_owned() };
        passed.append(&mut self.specs("rest", &self.node, &rest).await?);
        let counts = |name: &&str| !name.is_empty() && (self.mounts || !name.starts_with(NODE));
        let listed: BTreeSet<String> = PASSED.lines().filter(counts).map(str::to_owned).collect();
        let missing: Vec<_> = listed.difference(&passed).collect();
        let new: Vec<_> = passed.difference(&listed).collect();
        ensure!(missing.is_empty(), "listed in sanity/passed.txt and not passed: {missing:#?}");
        ensure!(new.is_empty(), "passed and not listed in sanity/passed.txt: {new:#?}");
        Ok(())
    }

    /// Runs a part of the suite; the names of the specs that passed.
    async fn specs(&self, name: &str, node: &Path, focus: &str) -> Result<BTreeSet<String>> {
        let file = |ending: &str| self.folder.join(format!("sanity-{name}.{ending}"));
        std::fs::write(file("yaml"), self.parameters).context("write the parameters")?;
        std::fs::write(file("mutable.yaml"), self.attributes).context("write the mutable parameters")?;
        let output = Command::new(&self.program)
            .arg(format!("--csi.endpoint={}", node.display()))
            .arg(format!("--csi.controllerendpoint={}", self.controller.display()))
            .arg(format!("--csi.testvolumeparameters={}", file("yaml").display()))
            .arg(format!("--csi.mountdir={}", file("mount").display()))
            .arg(format!("--csi.stagingdir={}", file("staging").display()))
            .arg(format!("--csi.testvolumemutableparameters={}", file("mutable.yaml").display()))
            .arg("--csi.testvolumesize=67108864")
            .arg("--csi.testvolumeexpandsize=134217728")
            .arg("--csi.testnodevolumeattachlimit")
            .arg(format!("--ginkgo.focus={focus}"))
            .arg(format!("--ginkgo.skip={WRONG}"))
            .arg("--ginkgo.no-color")
            .arg(format!("--ginkgo.json-report={}", file("json").display()))
            .output()
            .await
            .context("run csi-sanity")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let report = std::fs::read_to_string(file("json")).with_context(|| printed.to_string())?;
        let report: Value = serde_json::from_str(&report).context("read the report")?;
        // Said last, where whoever reads the end of a long output finds it.
        ensure!(output.status.success(), "{printed}\n{}", failures(&report).join("\n"));
        Ok(specs(&report).filter(|spec| spec["State"] == "passed").map(full_name).collect())
    }
}

/// From Ginkgo's own report.
fn specs(report: &Value) -> impl Iterator<Item = &Value> {
    let suites = report.as_array().into_iter().flatten();
    let specs = suites.filter_map(|suite| suite["SpecReports"].as_array()).flatten();
    specs.filter(|spec| spec["LeafNodeType"] == "It")
}

fn full_name(spec: &Value) -> String {
    let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let texts = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    texts.collect::<Vec<_>>().join(" > ")
}

fn failures(report: &Value) -> Vec<String> {
    let failed = specs(report).filter(|spec| !spec["Failure"].is_null());
    let told = |spec| format!("{}: {}", full_name(spec), spec["Failure"]["Message"].as_str().unwrap_or_default());
    failed.map(told).collect()
}
