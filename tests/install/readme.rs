//! What README.md says under "Install", typed as it stands on clusters of one's own.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::runtime::Runtime;

use crate::{
    clusters::{Fleet, Spec, tools, wait_for},
    helm::checkout,
    release::{self, PATIENCE},
};

/// The commands of the blocks with this mark, one each.
fn commands(readme: &str, mark: &str) -> Vec<String> {
    let mark = format!("<!-- {mark} -->\n```sh\n");
    let blocks = readme.split(&mark).skip(1);
    let texts = blocks.filter_map(|block| block.split_once("```")).map(|(text, _)| text.replace("\\\n", " "));
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn install_section_has_few_commands_and_names_files_that_are_there() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let commands = commands(&readme, "install");
    assert_eq!(commands.len(), 5, "{commands:#?}");
    let files =
        commands.iter().flat_map(|command| command.split_whitespace()).filter(|word| word.starts_with("deploy/"));
    let files: Vec<&str> = files.collect();
    assert_eq!(files.len(), 3);
    for file in files {
        assert!(checkout().join(file).exists(), "{file}");
    }
}

#[test]
#[ignore = "kosmos-csi has no `member add` yet"]
fn install_section_ends_with_a_bound_claim() {
    Runtime::new().unwrap().block_on(async {
        let fleet = Fleet::start(Spec { members: 2, nodes: true }).await.unwrap();
        let _logs = fleet.test("install-section");
        if let Err(error) = type_it(&fleet).await {
            panic!("{error:#}");
        }
    });
}

async fn type_it(fleet: &Fleet) -> Result<()> {
    let home = fleet.folder().join("home");
    fs::create_dir(&home)?;
    for member in fleet.members() {
        fs::copy(member.kubeconfig_inside(), home.join(format!("{}.kubeconfig", member.name())))?;
    }
    try_join_all(fleet.members().iter().map(|member| member.install_local_path("openebs-hostpath"))).await?;
    release::import_sidecars(fleet).await?;
    let images = home.display().to_string();
    release::pack(&home)?;
    let readme = fs::read_to_string(checkout().join("README.md"))?;
    for command in commands(&readme, "install") {
        let command = command.replace("target/images", &images);
        let script = format!("{}\n{command}", settings(fleet, &home)?);
        let arguments = ["-euc", &script];
        if command.starts_with("ctr ") {
            fleet.host().node_exec("bash", &arguments).await.context(command)?;
        } else {
            fleet.exec("bash", &arguments).await.context(command)?;
        }
    }
    for cluster in [fleet.host(), fleet.member("cluster38")] {
        wait_for(&format!("the claim is bound in {}", cluster.name()), PATIENCE, || async {
            let phase = cluster.kubectl(&["get", "pvc", "nginx-pvc", "-o", "jsonpath={.status.phase}"]).await?;
            ensure!(phase == "Bound", "it is {phase:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// What a person at the host has, who sits in the checkout.
fn settings(fleet: &Fleet, home: &Path) -> Result<String> {
    let programs = [tools::tool("helm")?, tools::tool("kubectl")?, release::PROGRAM.into()];
    let folders: Vec<String> =
        programs.iter().filter_map(|program| Some(program.parent()?.display().to_string())).collect();
    Ok(format!(
        "cd {}; export HOME={} KUBECONFIG={} PATH={}:/usr/sbin:/usr/bin:/sbin:/bin",
        checkout().display(),
        home.display(),
        fleet.host().kubeconfig_inside().display(),
        folders.join(":"),
    ))
}
