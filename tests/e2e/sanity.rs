//! csi-sanity on the real fleet. The names of the specs that passed must be those listed in `sanity/`, so that none can
//! silently drop out.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::{
    objects::nothing_of_ours,
    rig::{DRIVER_NAMESPACE, MEMBERS, on_fleet},
};

const PASSED: &str = include_str!("../../sanity/passed.txt");
const PARAMETERS: &str = "member: cluster38\nleafStorageClass: now\n";

#[test]
fn csi_sanity_passes_every_spec_listed() {
    on_fleet("csi_sanity", async |rig| {
        let folder = rig.fleet.folder();
        let (parameters, report) = (folder.join("sanity.yaml"), folder.join("sanity.json"));
        std::fs::write(&parameters, PARAMETERS).context("write the parameters")?;
        let output = Command::new(rig.fleet.tools().path("csi-sanity"))
            .arg(format!("--csi.endpoint={}", rig.driver.socket.display()))
            .arg(format!("--csi.testvolumeparameters={}", parameters.display()))
            .arg("--csi.testvolumesize=67108864")
            .arg("--ginkgo.skip=Node Service")
            .arg(format!("--ginkgo.json-report={}", report.display()))
            .output()
            .await
            .context("run csi-sanity")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let passed = passed(&std::fs::read_to_string(&report).with_context(|| printed.to_string())?)?;
        ensure!(output.status.success(), "{printed}");
        let listed: BTreeSet<&str> = PASSED.lines().filter(|line| !line.is_empty()).collect();
        let seen: BTreeSet<&str> = passed.iter().map(String::as_str).collect();
        let missing: Vec<_> = listed.difference(&seen).collect();
        let new: Vec<_> = seen.difference(&listed).collect();
        ensure!(missing.is_empty(), "listed in sanity/passed.txt and not passed: {missing:#?}");
        ensure!(new.is_empty(), "passed and not listed in sanity/passed.txt: {new:#?}");
        for member in MEMBERS {
            nothing_of_ours(rig.fleet.member(member), DRIVER_NAMESPACE).await?;
        }
        Ok(())
    });
}

/// Full names of the specs that passed, from Ginkgo's own report.
fn passed(report: &str) -> Result<Vec<String>> {
    let suites: serde_json::Value = serde_json::from_str(report).context("read the report")?;
    let specs = suites.as_array().into_iter().flatten().filter_map(|suite| suite["SpecReports"].as_array());
    let names = specs.flatten().filter(|spec| spec["State"] == "passed" && spec["LeafNodeType"] == "It").map(|spec| {
        let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
        let texts = containers.chain([&spec["LeafNodeText"]]).filter_map(|text| text.as_str());
        texts.collect::<Vec<_>>().join(" > ")
    });
    Ok(names.collect())
}
