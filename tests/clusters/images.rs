//! The container images of the tests, packed from programs that are there anyway: nothing is pulled, so no test
//! depends on a registry. Each is one layer in the form that `docker save` writes and `ctr images import` reads.

use std::env::consts::ARCH;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::packages;
use super::tools::{Tools, cache_folder};
use super::tools_table::short;

/// The sandbox of every pod.
pub const PAUSE: &str = "docker.io/kosmos-csi-test/pause:1";
/// A shell and its tools.
pub const BUSYBOX: &str = "docker.io/kosmos-csi-test/busybox:1";

/// Part of each archive's key: grows when an image's form changes while its program does not.
const FORM: &str = "1";

struct Image {
    name: &'static str,
    reference: &'static str,
    program: PathBuf,
    entrypoint: Option<&'static str>,
    command: Option<&'static str>,
    /// Fills the root folder with the program and what it needs.
    fill: fn(&Path, &Path) -> Result<()>,
}

/// The archives to import into a node's containerd, packed when they are not in the cache yet.
pub fn images(tools: &Tools) -> Result<Vec<PathBuf>> {
    images_in(tools, &cache_folder()?.join("images"))
}

pub fn images_in(tools: &Tools, folder: &Path) -> Result<Vec<PathBuf>> {
    let pause = Image {
        name: "pause",
        reference: PAUSE,
        program: tools.path("pause"),
        entrypoint: Some("/pause"),
        command: None,
        fill: fill_pause,
    };
    let busybox = Image {
        name: "busybox",
        reference: BUSYBOX,
        program: packages::busybox().context("there is no static busybox: run clusters packages")?,
        entrypoint: None,
        command: Some("sh"),
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
        let workshop = tempfile::Builder::new().prefix(".packing-").tempdir_in(folder)?;
        let packed = pack(image, workshop.path()).with_context(|| format!("pack the image {}", image.reference))?;
        fs::rename(packed, &path)?;
    }
    Ok(path)
}

fn pack(image: &Image, workshop: &Path) -> Result<PathBuf> {
    let root = workshop.join("root");
    make_folder(&root, 0o755)?;
    (image.fill)(&root, &image.program)?;
    let layer = workshop.join("layer.tar");
    tar(&layer, &root, &["."])?;
    let digest = Sha256::digest(fs::read(&layer)?);
    let config = json!({
        "architecture": if ARCH == "aarch64" { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {
            "Env": ["PATH=/bin"],
            "Entrypoint": image.entrypoint.map(|word| [word]),
            "Cmd": image.command.map(|word| [word]),
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest:x}")] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [image.reference], "Layers": ["layer.tar"] }]);
    fs::write(workshop.join("config.json"), config.to_string())?;
    fs::write(workshop.join("manifest.json"), manifest.to_string())?;
    let packed = workshop.join("image.tar");
    tar(&packed, workshop, &["manifest.json", "config.json", "layer.tar"])?;
    Ok(packed)
}

/// Owners, times and order are fixed, so that the same content is the same image everywhere.
fn tar(output: &Path, folder: &Path, members: &[&str]) -> Result<()> {
    let run = Command::new("tar")
        .args(["--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--sort=name"])
        .arg("-C")
        .arg(folder)
        .arg("-cf")
        .arg(output)
        .args(members)
        .output()
        .context("run tar")?;
    ensure!(run.status.success(), "tar: {}", String::from_utf8_lossy(&run.stderr).trim());
    Ok(())
}

fn fill_pause(root: &Path, program: &Path) -> Result<()> {
    copy_program(program, &root.join("pause"))
}

fn fill_busybox(root: &Path, program: &Path) -> Result<()> {
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

/// Modes are set apart from making: the user's umask must not reach the image.
fn make_folder(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

fn copy_program(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(0o755))?)
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o644))?)
}
