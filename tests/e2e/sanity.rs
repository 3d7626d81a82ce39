//! csi-sanity on the real fleet. The names of the specs that passed must be those listed in `sanity/`, so that none can
//! silently drop out.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::{
    objects::nothing_of_ours,
    rig::{DRIVER_NAMESPACE, MEMBERS, Rig, on_fleet},
};

const PASSED: &str = include_str!("../../sanity/passed.txt");
const PARAMETERS: &str = "member: cluster38\nleafStorageClass: now\n";

#[test]
fn csi_sanity_passes_every_spec_listed() {
    on_fleet("csi_sanity", async |rig| {
        let ours = &rig.driver.socket;
        // The suite cleans up through a node service, and its identity specs ask the node's socket. Until the driver has
        // one, they are run by themselves, and the member's driver stands in for the cleaning.
        let theirs = rig.fleet.member("cluster38").member_driver_folder().join("csi.sock");
        let mut passed = run(rig, "identity", ours, "Identity Service").await?;
        passed.append(&mut run(rig, "controller", &theirs, r"Controller Service \[Controller Server\]").await?);
        let listed: BTreeSet<String> = PASSED.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let missing: Vec<_> = listed.difference(&passed).collect();
        let new: Vec<_> = passed.difference(&listed).collect();
        ensure!(missing.is_empty(), "listed in sanity/passed.txt and not passed: {missing:#?}");
        ensure!(new.is_empty(), "passed and not listed in sanity/passed.txt: {new:#?}");
        for member in MEMBERS {
            nothing_of_ours(rig.fleet.member(member), DRIVER_NAMESPACE).await?;
        }
        Ok(())
    });
}

/// Runs a part of the suite against our controller; the names of the specs that passed.
async fn run(rig: &Rig, name: &str, node_socket: &Path, focus: &str) -> Result<BTreeSet<String>> {
    let file = |ending: &str| rig.fleet.folder().join(format!("sanity-{name}.{ending}"));
    std::fs::write(file("yaml"), PARAMETERS).context("write the parameters")?;
    let output = Command::new(rig.fleet.tools().path("csi-sanity"))
        .arg(format!("--csi.endpoint={}", node_socket.display()))
        .arg(format!("--csi.controllerendpoint={}", rig.driver.socket.display()))
        .arg(format!("--csi.testvolumeparameters={}", file("yaml").display()))
        .arg(format!("--csi.mountdir={}", file("mount").display()))
        .arg(format!("--csi.stagingdir={}", file("staging").display()))
        .arg("--csi.testvolumesize=67108864")
        .arg(format!("--ginkgo.focus={focus}"))
        .arg("--ginkgo.no-color")
        .arg(format!("--ginkgo.json-report={}", file("json").display()))
        .output()
        .await
        .context("run csi-sanity")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}");
    passed(&std::fs::read_to_string(file("json")).with_context(|| printed.to_string())?)
}

/// Full names of the specs that passed, from Ginkgo's own report.
fn passed(report: &str) -> Result<BTreeSet<String>> {
    let suites: serde_json::Value = serde_json::from_str(report).context("read the report")?;
    let specs = suites.as_array().into_iter().flatten().filter_map(|suite| suite["SpecReports"].as_array());
    let names = specs.flatten().filter(|spec| spec["State"] == "passed" && spec["LeafNodeType"] == "It").map(|spec| {
        let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
        let texts = containers.chain([&spec["LeafNodeText"]]).filter_map(|text| text.as_str());
        texts.collect::<Vec<_>>().join(" > ")
    });
    Ok(names.collect())
}
