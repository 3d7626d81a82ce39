//! The images that users run: the driver's program with the libraries it is linked to and nothing else, and the same with
//! the programs that a node formats, checks and mounts with, or with the one that a mover copies with. What is in them is laid out by
//! a script, which the Dockerfile calls as well.
#![expect(clippy::print_stdout, reason = "it speaks to a person")]

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::bill;
use super::pack::{Form, Packed, pack};
use super::packages::program;

/// What the chart expects where nobody says otherwise. No registry serves it, so nobody else's image can be pulled for it.
pub const NAME: &str = "localhost/kosmos-csi";

/// Nobody, by the custom of small images; the chart says the same.
const USER: &str = "65532:65532";
const PATH: &str = "/usr/sbin:/usr/bin";

/// Lays out an image's root folder.
pub const ROOT: &str = "deploy/image/root.sh";
/// Needed for volumes of NFS alone, and the Debian package that has it.
const NFS: (&str, &str) = ("mount.nfs", "nfs-common");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Everything but the role on real nodes; as nobody.
    Small,
    /// With a node's programs; as root.
    Node,
    /// With rsync; as root.
    Mover,
}

impl Flavour {
    pub const ALL: [Self; 3] = [Self::Small, Self::Node, Self::Mover];

    /// As the script has it, and the Dockerfile.
    pub fn word(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Node => "node",
            Self::Mover => "mover",
        }
    }

    pub fn form(self, reference: &str) -> Form<'_> {
        let user = (self == Self::Small).then_some(USER);
        Form { reference, entrypoint: Some("/kosmos-csi"), command: None, user, path: PATH }
    }
}

/// Packs all images of a program into a folder and says what to type next.
pub fn images(driver: &Path, name: &str, tag: &str, folder: &Path) -> Result<()> {
    check(name, tag)?;
    fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let mut packed = Vec::new();
    for flavour in Flavour::ALL {
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
    let file = reference.rsplit('/').next().unwrap_or_default().replace(':', "-");
    let packed = pack(&root, &flavour.form(&reference), &folder.join(format!("{file}.tar")))?;
    bill::write(&reference, &packed, &root).with_context(|| format!("list what {reference} is made of"))?;
    Ok(packed)
}

/// Makes the image's root folder.
pub fn fill(flavour: Flavour, driver: &Path, root: &Path) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(ROOT);
    let output = Command::new(script).arg(flavour.word()).arg(driver).arg(root).output();
    let output = output.with_context(|| format!("run {ROOT}"))?;
    ensure!(output.status.success(), "{ROOT}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
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
