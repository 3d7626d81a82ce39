//! The images that users run: the driver's program with the libraries it is linked to and nothing else, and the same with
//! the programs that a node formats, checks and mounts with, or with the one that a mover copies with.
#![expect(clippy::print_stdout, reason = "it speaks to a person")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::bill;
use super::pack::{Form, Packed, copy_program, make_folder, make_folders, pack, write_file};
use super::packages::program;

/// What the chart expects where nobody says otherwise. No registry serves it, so nobody else's image can be pulled for it.
pub const NAME: &str = "localhost/kosmos-csi";

/// Nobody, by the custom of small images; the chart says the same.
const USER: &str = "65532:65532";
const PATH: &str = "/usr/sbin:/usr/bin";

/// What a node calls, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 6] = [
    ("blkid", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("resize2fs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_growfs", "xfsprogs"),
];
/// Needed for volumes of NFS alone.
const NFS: (&str, &str) = ("mount.nfs", "nfs-common");
const RSYNC: (&str, &str) = ("rsync", "rsync");
/// What these programs and the libraries read, where it is there.
const SETTINGS: [&str; 3] = ["/etc/mke2fs.conf", "/etc/netconfig", "/etc/protocols"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Everything but the role on real nodes; as nobody.
    Small,
    /// With a node's programs; as root.
    Node,
    /// With rsync; as root.
    Mover,
}

/// Packs both images of a program into a folder and says what to type next.
pub fn images(driver: &Path, name: &str, tag: &str, folder: &Path) -> Result<()> {
    check(name, tag)?;
    fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let mut packed = Vec::new();
    for flavour in [Flavour::Small, Flavour::Node, Flavour::Mover] {
        packed.push((reference(flavour, name, tag), image(flavour, driver, name, tag, folder)?));
    }
    if program(NFS.0).is_none() {
        println!("{} is not on this machine, so nodes cannot use volumes of NFS: install {}, and again", NFS.0, NFS.1);
    }
    tell(name, tag, &packed);
    Ok(())
}

fn check(name: &str, tag: &str) -> Result<()> {
    let last = name.rsplit('/').next().unwrap_or_default();
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    ensure!(plain(last), "IMAGE {name:?} is not a name such as registry.example.org/kosmos-csi; the tag goes into TAG");
    ensure!(plain(tag), "TAG {tag:?} is not a tag: letters, digits, dots, dashes and underscores");
    Ok(())
}

fn reference(flavour: Flavour, name: &str, tag: &str) -> String {
    match flavour {
        Flavour::Small => format!("{name}:{tag}"),
        Flavour::Node => format!("{name}-node:{tag}"),
        Flavour::Mover => format!("{name}-mover:{tag}"),
    }
}

pub fn image(flavour: Flavour, driver: &Path, name: &str, tag: &str, folder: &Path) -> Result<Packed> {
    let reference = reference(flavour, name, tag);
    let workshop = tempfile::Builder::new().prefix(".filling-").tempdir_in(folder)?;
    let root = workshop.path().join("root");
    fill(flavour, driver, &root).with_context(|| format!("fill the image {reference}"))?;
    let user = (flavour == Flavour::Small).then_some(USER);
    let form = Form { reference: &reference, entrypoint: Some("/kosmos-csi"), command: None, user, path: PATH };
    let file = reference.rsplit('/').next().unwrap_or_default().replace(':', "-");
    let packed = pack(&root, &form, &folder.join(format!("{file}.tar")))?;
    bill::write(&reference, &packed, &root).with_context(|| format!("list what {reference} is made of"))?;
    Ok(packed)
}

/// Makes the image's root folder.
pub fn fill(flavour: Flavour, driver: &Path, root: &Path) -> Result<()> {
    make_folder(root, 0o755)?;
    for folder in ["/etc", "/usr/sbin", "/usr/bin", "/proc", "/dev", "/run"] {
        make_folders(root, Path::new(folder))?;
    }
    make_folder(&root.join("tmp"), 0o1777)?;
    copy_program(driver, &root.join("kosmos-csi"))?;
    let mut programs = vec![driver.to_owned()];
    write_file(&root.join("etc/passwd"), "root:x:0:0:root:/:/none\nnobody:x:65532:65532:nobody:/:/none\n")?;
    write_file(&root.join("etc/group"), "root:x:0:\nnobody:x:65532:\n")?;
    write_file(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    if flavour == Flavour::Node {
        programs.extend(node_programs(root)?);
        for setting in SETTINGS.map(Path::new) {
            copy_setting(root, setting)?;
        }
        symlink("/proc/self/mounts", root.join("etc/mtab"))?;
    }
    if flavour == Flavour::Mover {
        programs.push(rsync(root)?);
    }
    for library in libraries(&programs)? {
        make_folders(root, library.parent().context("a library lies in a folder")?)?;
        let place = root.join(library.strip_prefix("/")?);
        copy_program(&library, &place)?;
    }
    Ok(())
}

fn copy_setting(root: &Path, setting: &Path) -> Result<()> {
    match fs::read_to_string(setting) {
        Ok(text) => write_file(&root.join(setting.strip_prefix("/")?), &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("read {}", setting.display())),
    }
}

fn node_programs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (name, package) in PROGRAMS.into_iter().chain([NFS]) {
        match program(name) {
            Some(path) => {
                copy_program(&path, &root.join("usr/sbin").join(name))?;
                found.push(path);
            }
            None => ensure!(name == NFS.0, "there is no {name} on this machine: install {package}"),
        }
    }
    Ok(found)
}

/// One that the mover would refuse is of no use in its image.
fn rsync(root: &Path) -> Result<PathBuf> {
    let path = program(RSYNC.0).with_context(|| format!("there is no rsync on this machine: install {}", RSYNC.1))?;
    let output = Command::new(&path).arg("--version").output().context("run rsync")?;
    mover::rsync_version(&String::from_utf8_lossy(&output.stdout)).map_err(anyhow::Error::msg)?;
    copy_program(&path, &root.join("usr/bin").join(RSYNC.0))?;
    Ok(path)
}

/// What the loader would load for these programs, and the loader itself.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for program in programs {
        let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("run ldd")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_static = String::from_utf8_lossy(&output.stderr).contains("not a dynamic executable");
        ensure!(output.status.success() || is_static, "ldd {}: {printed}", program.display());
        ensure!(!printed.contains("not found"), "{} lacks libraries:\n{printed}", program.display());
        found.extend(printed.lines().filter_map(library));
    }
    Ok(found)
}

/// The path in a line such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)`.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.rsplit_once("=> ").map_or(line, |(_, path)| path).trim();
    let path = path.split_whitespace().next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

fn tell(name: &str, tag: &str, packed: &[(String, Packed)]) {
    let width = packed.iter().map(|(reference, _)| reference.len()).max().unwrap_or(0);
    for (reference, image) in packed {
        let size = image.bytes.div_ceil(100_000);
        let (whole, tenth) = (size / 10, size % 10);
        println!("{reference:<width$}  {whole:>3}.{tenth} MB  {}  {}", image.digest, image.archive.display());
        println!("{:<width$}  what it is made of: {}", "", bill::place(&image.archive).display());
    }
    let archive = packed.first().map(|(_, image)| image.archive.display().to_string()).unwrap_or_default();
    let values = if name == NAME { String::new() } else { format!(" --set image.repository={name}") };
    let version = if tag == env!("CARGO_PKG_VERSION") { String::new() } else { format!(" --set image.tag={tag}") };
    println!("\non each node of the host, one of:");
    println!("  ctr -n k8s.io images import {archive}");
    println!("  docker load -i {archive}");
    println!("or once, to a registry of yours:");
    println!("  skopeo copy oci-archive:{archive} docker://REGISTRY/kosmos-csi:{tag}");
    println!("then:");
    println!(
        "  helm install kosmos-csi deploy/chart/kosmos-csi --namespace kosmos-csi --create-namespace{values}{version}"
    );
}
