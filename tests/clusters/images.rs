//! The container images of the tests, packed from programs that are there anyway: nothing is pulled, so no test
//! depends on a registry.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::pack::{Form, copy_program, make_folder, pack, write_file};
use super::packages;
use super::tools::{Tools, cache_folder};
use super::tools_table::short;

/// The sandbox of every pod.
pub const PAUSE: &str = "docker.io/kosmos-csi-test/pause:1";
/// A shell and its tools.
pub const BUSYBOX: &str = "docker.io/kosmos-csi-test/busybox:1";

/// Part of each archive's key: grows when an image's form changes while its program does not.
const FORM: &str = "2";

const STAND_IN: &str = "trap 'exit 0' TERM\necho serves\nwhile :; do sleep 1 & wait; done\n";

struct Image {
    name: &'static str,
    form: Form<'static>,
    program: PathBuf,
    /// Fills the root folder with the program and what it needs.
    fill: fn(&Path, &Path) -> Result<()>,
}

/// The archives to import into a node's containerd, packed when they are not in the cache yet.
pub fn images(tools: &Tools) -> Result<Vec<PathBuf>> {
    images_in(tools, &cache_folder()?.join("images"))
}

pub fn images_in(tools: &Tools, folder: &Path) -> Result<Vec<PathBuf>> {
    let form = |reference| Form { reference, entrypoint: None, command: None, user: None, path: "/bin" };
    let pause = Image {
        name: "pause",
        form: Form { entrypoint: Some("/pause"), ..form(PAUSE) },
        program: tools.path("pause"),
        fill: fill_pause,
    };
    let busybox = Image {
        name: "busybox",
        form: Form { command: Some("sh"), ..form(BUSYBOX) },
        program: packages::busybox().context("there is no static busybox: run clusters packages")?,
        fill: fill_busybox,
    };
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    [pause, busybox].iter().map(|image| archive(image, folder)).collect()
}

fn archive(image: &Image, folder: &Path) -> Result<PathBuf> {
    let program = &image.program;
    let content = fs::read(program).with_context(|| format!("read {}", program.display()))?;
    let key = Sha256::new().chain_update(FORM).chain_update(content).finalize();
    let path = folder.join(format!("{}-{}.tar", image.name, short(&key)));
    if !path.exists() {
        let workshop = tempfile::Builder::new().prefix(".filling-").tempdir_in(folder)?;
        let root = workshop.path().join("root");
        make_folder(&root, 0o755)?;
        (image.fill)(&root, program)?;
        pack(&root, &image.form, &path).with_context(|| format!("pack the image {}", image.form.reference))?;
    }
    Ok(path)
}

/// An image of a sidecar under the name that the chart gives it, packed when it is not there yet.
pub fn sidecar(tools: &Tools, binary: &str, reference: &str) -> Result<PathBuf> {
    let folder = cache_folder()?.join("images");
    let path = folder.join(format!("{binary}-{}-{FORM}.tar", short(&Sha256::digest(reference))));
    if !path.exists() {
        let workshop = tempfile::Builder::new().prefix(".filling-").tempdir_in(&folder)?;
        let root = workshop.path().join("root");
        make_folder(&root, 0o755)?;
        copy_program(&tools.path(binary), &root.join(binary))?;
        let entrypoint = format!("/{binary}");
        let form = Form { reference, entrypoint: Some(&entrypoint), command: None, user: None, path: "/" };
        pack(&root, &form, &path)?;
    }
    Ok(path)
}

/// An image that stands in for another one, under its name: it says that it serves, and does nothing until it is told to end.
pub fn stand_in(reference: &str) -> Result<PathBuf> {
    let folder = cache_folder()?.join("images");
    let program = packages::busybox().context("there is no static busybox: run clusters packages")?;
    let path = folder.join(format!("stand-in-{}-{FORM}.tar", short(&Sha256::digest(reference))));
    if !path.exists() {
        let workshop = tempfile::Builder::new().prefix(".filling-").tempdir_in(&folder)?;
        let root = workshop.path().join("root");
        make_folder(&root, 0o755)?;
        fill_busybox(&root, &program)?;
        write_file(&root.join("serve"), STAND_IN)?;
        let form = Form { reference, entrypoint: Some("sh"), command: Some("/serve"), user: None, path: "/bin" };
        pack(&root, &form, &path)?;
    }
    Ok(path)
}

fn fill_pause(root: &Path, program: &Path) -> Result<()> {
    copy_program(program, &root.join("pause"))
}

pub fn fill_busybox(root: &Path, program: &Path) -> Result<()> {
    for (name, mode) in [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)] {
        make_folder(&root.join(name), mode)?;
    }
    copy_program(program, &root.join("bin/busybox"))?;
    let applets = Command::new(program).arg("--list").output().context("run busybox")?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines() {
        // The list names busybox too, and a link to itself would replace the program.
        if applet != "busybox" {
            symlink("busybox", root.join("bin").join(applet))?;
        }
    }
    write_file(&root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    write_file(&root.join("etc/group"), "root:x:0:\n")
}
