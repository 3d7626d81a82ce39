//! What the test clusters need of the machine: Go, root, and programs of the distribution. Says all that is
//! missing at once, each with the command that brings it, and installs the packages where apt-get can.
#![expect(clippy::print_stdout, reason = "it speaks to a person")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;

/// Debian's name of a package and what it brings. Asked for is the program, not the package: other
/// distributions have the one without the other.
#[rustfmt::skip] // one row, one line
const PACKAGES: [(&str, IsThere); 15] = [
    ("containerd", || has("containerd") && has("ctr")),
    ("runc", || has("runc")),
    ("busybox-static", || busybox().is_some()),
    ("containernetworking-plugins", || cni_plugins().is_some()),
    ("iptables", || has("iptables")),
    ("nftables", || has("nft")),
    ("xfsprogs", || has("mkfs.xfs")),
    ("e2fsprogs", || has("mkfs.ext4")),
    ("util-linux", || has("unshare") && has("nsenter") && has("losetup")),
    ("iproute2", || has("ip")),
    ("rsync", || has("rsync")),
    ("attr", || has("getfattr")),
    ("acl", || has("getfacl")),
    ("chromium", || has("chromium")),
    ("valgrind", || has("valgrind")),
];

type IsThere = fn() -> bool;

/// A person's PATH often lacks where the programs of the administrator are.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Debian's place first, then upstream's.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Something that is missing, and how to get it.
#[derive(Debug)]
pub struct Lacking {
    pub what: &'static str,
    pub remedy: String,
}

/// All that is missing on this machine.
pub fn prerequisites() -> Vec<Lacking> {
    let mut lacking = Vec::new();
    if !has("go") {
        let remedy = "install it: https://go.dev/doc/install".to_owned();
        lacking.push(Lacking { what: "go", remedy });
    }
    if !Uid::effective().is_root() {
        let remedy = "run the tests as root, with sudo for example".to_owned();
        lacking.push(Lacking { what: "root", remedy });
    }
    lacking.extend(missing_packages().into_iter().map(|what| Lacking { what, remedy: remedy_for(what) }));
    lacking
}

/// The missing things, one to a line.
pub fn list(lacking: &[Lacking]) -> String {
    let width = lacking.iter().map(|item| item.what.len()).max().unwrap_or(0);
    let mut text = "missing on this machine:".to_owned();
    for item in lacking {
        let _ = write!(text, "\n  {:<width$}  {}", item.what, item.remedy);
    }
    text
}

/// Each kubelet, containerd and API server watches files: several fleets need more than the kernel's default of 128.
const INOTIFY: (&str, u32) = ("/proc/sys/fs/inotify/max_user_instances", 1024);

/// Lets this machine have several fleets, until it restarts.
pub fn raise_limits() -> Result<()> {
    let (limit, enough) = INOTIFY;
    let now: u32 = fs::read_to_string(limit).context("read the limit of inotify")?.trim().parse()?;
    if now < enough {
        fs::write(limit, enough.to_string())
            .with_context(|| format!("raise {limit} from {now} to {enough}: run it as root"))?;
        println!("fs.inotify.max_user_instances is {enough} now, and was {now}: several fleets need more");
    }
    Ok(())
}

/// Installs the packages whose programs are missing.
pub fn install() -> Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        println!("all {} packages are there", PACKAGES.len());
        return Ok(());
    }
    if !Uid::effective().is_root() || !has("apt-get") {
        bail!("{}", list(&prerequisites()));
    }
    println!("installing {}", missing.join(", "));
    apt_get(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&missing);
    apt_get(&arguments)?;
    let still = missing_packages();
    ensure!(still.is_empty(), "apt-get has installed {}, but their programs are not found", still.join(", "));
    println!("installed {} packages", missing.len());
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["--quiet", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .context("run apt-get")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "apt-get {}: {}\n{said}", arguments.join(" "), output.status);
    Ok(())
}

fn missing_packages() -> Vec<&'static str> {
    PACKAGES.iter().filter(|(_, is_there)| !is_there()).map(|(name, _)| *name).collect()
}

fn remedy_for(package: &str) -> String {
    if has("apt-get") {
        format!("apt-get install --no-install-recommends {package}")
    } else {
        format!("install what Debian calls {package}, with the distribution's package manager")
    }
}

fn has(name: &str) -> bool {
    program(name).is_some()
}

/// Where a program is, in the PATH or among the administrator's.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The folder of the CNI plugins.
pub fn cni_plugins() -> Option<PathBuf> {
    let complete =
        |folder: &Path| ["bridge", "host-local", "loopback"].iter().all(|plugin| folder.join(plugin).is_file());
    CNI_FOLDERS.map(PathBuf::from).into_iter().find(|folder| complete(folder))
}

/// A busybox that runs in an image of its own, where there are no shared libraries.
pub fn busybox() -> Option<PathBuf> {
    program("busybox").filter(|path| fs::read(path).is_ok_and(|file| !wants_loader(&file)))
}

/// Whether a 64-bit little-endian ELF file names a dynamic loader (a program header of type `PT_INTERP`).
fn wants_loader(file: &[u8]) -> bool {
    let number = |at: usize, width: usize| {
        let bytes = file.get(at..at + width).unwrap_or_default();
        bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|place| number(start + place * size, 4) == 3)
}
