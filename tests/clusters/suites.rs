//! The images that pods of Kubernetes' own end-to-end suites are of. No registry is asked: each is packed here from programs that are
//! there anyway, and a node knows it by the name that the suites give it as well.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rcgen::{CertificateParams, KeyPair};
use sha2::{Digest, Sha256};

use super::cluster::Cluster;
use super::images::{PAUSE, fill_busybox};
use super::pack::{Form, copy_program, make_folder, pack, write_file};
use super::packages;
use super::tools::{cache_folder, suites_program};
use super::tools_table::short;

/// Part of each archive's key: grows when an image's form changes while its programs do not.
const FORM: &str = "1";

const AGNHOST: &str = "docker.io/kosmos-csi-test/agnhost:1";
const SHELL: &str = "docker.io/kosmos-csi-test/shell:1";
/// Whose user is not root where the pod names none.
const NOT_ROOT: &str = "docker.io/kosmos-csi-test/not-root:1";

/// Which of these stands for which of the suites' images, by the last word of its name. Of nginx they run the shell.
const STAND_INS: [(&str, &str); 6] = [
    ("agnhost", AGNHOST),
    ("busybox", SHELL),
    ("glibc-dns-testing", SHELL),
    ("nginx", SHELL),
    ("nonroot", NOT_ROOT),
    ("pause", PAUSE),
];
/// Of the suites' registries the one of images that may be pulled by anybody.
const REGISTRY: &str = "registry.k8s.io/";

/// The suites look for this user's groups.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";

struct Programs {
    busybox: PathBuf,
    first: PathBuf,
    agnhost: PathBuf,
}

struct Image {
    name: &'static str,
    form: Form<'static>,
    /// Fills the root folder.
    fill: fn(&Path, &Programs) -> Result<()>,
}

impl Cluster {
    /// Gives the node all images that there are of the suites'; a pod of another one would wait for ever.
    pub async fn install_images_of_suites(&self) -> Result<()> {
        for archive in archives()? {
            let archive = archive.display().to_string();
            self.node_exec("ctr", &["-n", "k8s.io", "images", "import", &archive]).await?;
        }
        for (name, ours) in stood_in()? {
            self.node_exec("ctr", &["-n", "k8s.io", "images", "tag", "--force", ours, &name]).await?;
        }
        Ok(())
    }
}

/// As the suites name them, and ours for each.
fn stood_in() -> Result<Vec<(String, &'static str)>> {
    let output = Command::new(suites_program("e2e.test")?).arg("--list-images").output().context("run the suites")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let all: Vec<_> = printed.lines().filter_map(|name| Some((name.to_owned(), stand_in(name)?))).collect();
    ensure!(all.len() >= STAND_INS.len(), "of the suites' images {all:?} are known: {printed}");
    Ok(all)
}

fn stand_in(name: &str) -> Option<&'static str> {
    let word = name.strip_prefix(REGISTRY)?.rsplit('/').next()?.split(':').next()?;
    STAND_INS.iter().find(|(upstream, _)| *upstream == word).map(|(_, ours)| *ours)
}

/// Packed where they are not in the cache yet.
fn archives() -> Result<Vec<PathBuf>> {
    let form = |reference| Form { reference, entrypoint: None, command: None, user: None, path: "/bin" };
    let agnhost = Form { entrypoint: Some("/agnhost"), command: Some("pause"), ..form(AGNHOST) };
    let not_root = Form { command: Some("sh"), user: Some("1234"), ..form(NOT_ROOT) };
    let images = [
        Image { name: "agnhost", form: agnhost, fill: fill_agnhost },
        Image { name: "shell", form: Form { command: Some("sh"), ..form(SHELL) }, fill: fill_shell },
        Image { name: "not-root", form: not_root, fill: fill_shell },
    ];
    let programs = Programs {
        busybox: packages::busybox().context("there is no static busybox: run clusters packages")?,
        first: suites_program("first")?,
        agnhost: suites_program("agnhost")?,
    };
    let folder = cache_folder()?.join("images");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    images.iter().map(|image| archive(image, &programs, &folder)).collect()
}

/// The places of programs that are built here say what they are.
fn archive(image: &Image, programs: &Programs, folder: &Path) -> Result<PathBuf> {
    let busybox = fs::read(&programs.busybox).with_context(|| format!("read {}", programs.busybox.display()))?;
    let places = [&programs.first, &programs.agnhost].map(|place| place.display().to_string());
    let key = Sha256::new().chain_update(FORM).chain_update(busybox).chain_update(places.join("\n")).finalize();
    let path = folder.join(format!("suites-{}-{}.tar", image.name, short(&key)));
    if !path.exists() {
        let workshop = tempfile::Builder::new().prefix(".filling-").tempdir_in(folder)?;
        let root = workshop.path().join("root");
        make_folder(&root, 0o755)?;
        (image.fill)(&root, programs)?;
        pack(&root, &image.form, &path).with_context(|| format!("pack the image {}", image.form.reference))?;
    }
    Ok(path)
}

/// Every program of busybox' by way of `first`, without which a pod would end only with its grace period.
fn fill_shell(root: &Path, programs: &Programs) -> Result<()> {
    fill_busybox(root, &programs.busybox)?;
    for name in ["lib", "usr"] {
        make_folder(&root.join(name), 0o755)?;
    }
    let bin = root.join("bin");
    fs::rename(bin.join("busybox"), root.join("lib/busybox"))?;
    copy_program(&programs.first, &bin.join("busybox"))?;
    for name in ["bash", "curl"] {
        symlink("busybox", bin.join(name)).with_context(|| format!("link {name}"))?;
    }
    Ok(symlink("../bin", root.join("usr/bin"))?)
}

fn fill_agnhost(root: &Path, programs: &Programs) -> Result<()> {
    fill_shell(root, programs)?;
    copy_program(&programs.agnhost, &root.join("agnhost"))?;
    symlink("agnhost", root.join("agnhost-2"))?;
    write_file(&root.join("etc/passwd"), USERS)?;
    write_file(&root.join("etc/group"), GROUPS)?;
    // It serves HTTPS by these to whoever does not look who it is.
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?.pem();
    write_file(&root.join("localhost.crt"), &certificate)?;
    write_file(&root.join("localhost.key"), &key.serialize_pem())
}
