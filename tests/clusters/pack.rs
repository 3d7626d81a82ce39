//! Packs a folder as a container image of one layer, without a container daemon. The archive is an OCI layout that is also
//! what `docker save` writes, so docker, podman, containerd and skopeo all read it. Owners, times and order are fixed: the
//! same content is the same image everywhere.

use std::env::consts::ARCH;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// What is said of an image beside its content.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// Name and tag, as pods name it.
    pub reference: &'a str,
    pub entrypoint: Option<&'a str>,
    pub command: Option<&'a str>,
    /// Without one: root.
    pub user: Option<&'a str>,
    pub path: &'a str,
}

/// An image that is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub archive: PathBuf,
    /// Of its manifest: what it is known by.
    pub digest: String,
    pub bytes: u64,
}

const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Packs what is below `root`. The archive gets its name when it is complete.
pub fn pack(root: &Path, form: &Form<'_>, archive: &Path) -> Result<Packed> {
    let folder = archive.parent().context("an archive lies in a folder")?;
    let workshop = tempfile::Builder::new().prefix(".packing-").tempdir_in(folder)?;
    let workshop = workshop.path();
    let blobs = workshop.join("blobs/sha256");
    make_folders(workshop, Path::new("/blobs/sha256"))?;
    let layer = workshop.join("layer.tar");
    tar(&layer, root, &["."])?;
    let layer = keep(&layer, &blobs, LAYER)?;
    let config = keep_text(&config(form, &layer["digest"]), workshop, &blobs, CONFIG)?;
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let mut manifest = keep_text(&manifest, workshop, &blobs, MANIFEST)?;
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    let tag = form.reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    manifest["annotations"] =
        json!({"io.containerd.image.name": form.reference, "org.opencontainers.image.ref.name": tag});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    let saved = json!([{"Config": blob(&config), "RepoTags": [form.reference], "Layers": [blob(&layer)]}]);
    write_file(&workshop.join("oci-layout"), LAYOUT)?;
    write_file(&workshop.join("index.json"), &index.to_string())?;
    write_file(&workshop.join("manifest.json"), &saved.to_string())?;
    let packed = workshop.join("image.tar");
    tar(&packed, workshop, &["oci-layout", "index.json", "manifest.json", "blobs"])?;
    fs::rename(&packed, archive).with_context(|| format!("write {}", archive.display()))?;
    Ok(Packed { archive: archive.to_owned(), digest, bytes: fs::metadata(archive)?.len() })
}

fn config(form: &Form<'_>, layer: &Value) -> Value {
    json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": if ARCH == "aarch64" { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {
            "Env": [format!("PATH={}", form.path)],
            "Entrypoint": form.entrypoint.map(|word| [word]),
            "Cmd": form.command.map(|word| [word]),
            "User": form.user.unwrap_or_default(),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    })
}

fn keep_text(text: &Value, workshop: &Path, blobs: &Path, kind: &str) -> Result<Value> {
    let file = workshop.join("text");
    write_file(&file, &text.to_string())?;
    keep(&file, blobs, kind)
}

/// Moves a file to where its digest says, and describes it.
fn keep(file: &Path, blobs: &Path, kind: &str) -> Result<Value> {
    fs::set_permissions(file, Permissions::from_mode(0o644))?; // tar has obeyed the umask
    let (digest, size) = (sha256(file)?, fs::metadata(file)?.len());
    fs::rename(file, blobs.join(&digest))?;
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size}))
}

fn blob(descriptor: &Value) -> String {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    format!("blobs/{}", digest.replace(':', "/"))
}

/// By the system's program: an image is large, and unoptimised code slow.
pub fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg("--binary").arg(file).output().context("run sha256sum")?;
    ensure!(output.status.success(), "sha256sum: {}", String::from_utf8_lossy(&output.stderr).trim());
    let printed = String::from_utf8(output.stdout)?;
    printed.split_whitespace().next().map(str::to_owned).context("sha256sum printed nothing")
}

fn tar(output: &Path, folder: &Path, members: &[&str]) -> Result<()> {
    let run = Command::new("tar")
        .args(["--format=gnu", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--sort=name"])
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

/// Modes are set apart from making: the user's umask must not reach the image.
pub fn make_folder(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir(path).with_context(|| format!("make {}", path.display()))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// The folders above a path of the image, as far as they are missing.
pub fn make_folders(root: &Path, path: &Path) -> Result<()> {
    let mut made = root.to_owned();
    for part in path.strip_prefix("/").unwrap_or(path) {
        made.push(part);
        if !made.is_dir() {
            make_folder(&made, 0o755)?;
        }
    }
    Ok(())
}

pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(0o755))?)
}

pub fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o644))?)
}
