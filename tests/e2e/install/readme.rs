//! What README.md says under "Install", typed as it stands on clusters of one's own.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{helm::checkout, release, volumes::until};
use crate::clusters::{Fleet, product::Flavour, tools};

/// The blocks of a page that are marked so.
pub fn blocks(page: &str, mark: &str) -> Vec<String> {
    let mark = format!("<!-- {mark} -->\n```sh\n");
    let blocks = page.split(&mark).skip(1);
    blocks.filter_map(|block| block.split_once("```")).map(|(text, _)| text.replace("\\\n", " ")).collect()
}

/// The commands in them, one each.
fn commands(readme: &str, mark: &str) -> Vec<String> {
    let texts = blocks(readme, mark);
    texts.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty()).map(str::to_owned).collect()
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

/// Types it, on a fleet whose nodes have the images of the sidecars and of the example.
pub async fn install(fleet: &Fleet) -> Result<()> {
    let home = fleet.folder().join("home");
    fs::create_dir(&home)?;
    for member in fleet.members() {
        fs::copy(member.kubeconfig_inside(), home.join(format!("{}.kubeconfig", member.name())))?;
    }
    let images = home.display().to_string();
    release::pack(&home, &[Flavour::Small, Flavour::Node])?;
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
    let host = fleet.host();
    until(host, "default", "pod/nginx", "--for=condition=Ready").await?;
    for cluster in [host, fleet.member("cluster38")] {
        let phase = cluster.kubectl(&["get", "pvc", "nginx-pvc", "-o", "jsonpath={.status.phase}"]).await?;
        ensure!(phase == "Bound", "{}: the claim is {phase:?}", cluster.name());
    }
    host.kubectl(&["delete", "pod/nginx", "pvc/nginx-pvc", "--timeout=90s"]).await.map(drop)
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
