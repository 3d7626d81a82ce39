//! The namespaces of a fleet and of its nodes: how they are made, what their first process does, how to enter them.
//!
//! A fleet has network, mount, PID and IPC namespaces of its own, so ports, bridges and paths inside are fixed and
//! two fleets never meet. A node has another set inside the fleet's. Ending the first process of a set ends every
//! process in it, and with the last one the kernel removes its mounts and interfaces.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// The address of the fleet's bridge, at which the API servers answer nodes, pods and the fleet's own processes.
pub const BRIDGE_ADDRESS: &str = "10.200.0.1";
pub const BRIDGE: &str = "kosmos0";

pub const UNSHARE_FLEET: &[&str] = &["--mount", "--net", "--pid", "--ipc"];
pub const UNSHARE_NODE: &[&str] = &["--mount", "--net", "--pid", "--ipc", "--uts"];
const UNSHARE_ALWAYS: &[&str] = &["--fork", "--kill-child", "--mount-proc", "--propagation", "private", "--"];

/// The node's own folders: kept below the cluster's folder, so that they can be looked at from outside and vanish
/// with it; seen in the node at the usual paths.
const NODE_FOLDERS: &[(&str, &str)] = &[("lib", "/var/lib"), ("log", "/var/log"), ("run", "/run")];

/// What a kubelet sets for the whole machine. Files of the node cover them: the machine keeps its own values.
const NODE_SYSCTLS: &[&str] = &[
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// The arguments of `unshare` that run a command as the first process of new namespaces.
pub fn unshare_arguments(kinds: &[&str]) -> Vec<String> {
    kinds.iter().chain(UNSHARE_ALWAYS).map(ToString::to_string).collect()
}

/// Moves the calling thread, and the processes it starts, into the namespaces of a process. There is no way back:
/// the thread is used for nothing else afterwards.
pub fn enter(process: i32) -> Result<()> {
    join(process, &["ipc", "uts", "net", "pid", "mnt"])
}

/// Moves the calling thread into the network of a process: sockets it opens from now on are there.
pub fn enter_network(process: i32) -> Result<()> {
    join(process, &["net"])
}

fn join(process: i32, kinds: &[&str]) -> Result<()> {
    let open = |kind: &&str| File::open(format!("/proc/{process}/ns/{kind}"));
    let namespaces: Vec<File> = kinds
        .iter()
        .map(open)
        .collect::<io::Result<_>>()
        .with_context(|| format!("open the namespaces of process {process}: has it ended?"))?;
    // The kernel refuses another mount namespace to a thread that shares its working folder with others.
    unshare(CloneFlags::CLONE_FS).context("unshare the working folder")?;
    for namespace in namespaces {
        setns(namespace, CloneFlags::empty()).context("enter a namespace: this needs root")?;
    }
    Ok(())
}

/// The process that an `unshare --fork` started.
pub fn child_of(process: i32) -> Result<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let first = children.split_whitespace().next();
    first.and_then(|child| child.parse().ok()).with_context(|| format!("process {process} has no child"))
}

/// The first process of a fleet: makes the network, then waits until the guardian is gone, in whatever way.
pub fn first_process_of_fleet() -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    ip(&["address", "add", &format!("{BRIDGE_ADDRESS}/24"), "dev", BRIDGE])?;
    ip(&["link", "set", BRIDGE, "up"])?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("let packets pass between the fleet's nodes")?;
    announce()?;
    io::stdin().read_to_end(&mut Vec::new()).context("wait for the guardian's end")?;
    Ok(())
}

/// The first process of a node: gives it its folders and its name, then waits to be killed.
pub fn first_process_of_node(folder: &Path, name: &str) -> Result<()> {
    for (own, usual) in NODE_FOLDERS {
        let own = folder.join(own);
        fs::create_dir_all(&own).with_context(|| format!("make {}", own.display()))?;
        bind(&own, Path::new(usual))?;
    }
    for sysctl in NODE_SYSCTLS {
        cover(&Path::new("/proc/sys").join(sysctl), folder)?;
    }
    // After the binds: made now, each mount is a group of its own, and what a kubelet mounts is seen once.
    mount::<str, _, str, str>(None, "/", None, MsFlags::MS_REC | MsFlags::MS_SHARED, None)
        .context("let the node's mounts propagate to its pods")?;
    fs::write("/proc/sys/kernel/hostname", name).context("name the node")?;
    ip(&["link", "set", "lo", "up"])?;
    announce()?;
    loop {
        thread::park();
    }
}

fn cover(sysctl: &Path, folder: &Path) -> Result<()> {
    let Ok(value) = fs::read(sysctl) else {
        return Ok(()); // this kernel does not have it, so nobody can change it
    };
    let covers = folder.join("sysctl");
    fs::create_dir_all(&covers).context("make the folder of covered sysctls")?;
    let name = sysctl.file_name().context("a sysctl without a name")?;
    let file = covers.join(name);
    fs::write(&file, value).with_context(|| format!("write {}", file.display()))?;
    bind(&file, sysctl)
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount::<_, _, str, str>(Some(source), target, None, MsFlags::MS_BIND, None)
        .with_context(|| format!("bind {} to {}", source.display(), target.display()))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("run ip: is iproute2 installed?")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {problem}", arguments.join(" "));
    Ok(())
}

/// Says that the namespaces can be used, and from here on buries orphans, which is a first process's duty.
fn announce() -> Result<()> {
    let mut deaths = SigSet::empty();
    deaths.add(Signal::SIGCHLD);
    deaths.thread_block().context("block SIGCHLD")?;
    thread::spawn(move || {
        while deaths.wait().is_ok() {
            while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status != WaitStatus::StillAlive) {}
        }
    });
    writeln!(io::stdout(), "ready").context("say that the namespaces are ready")
}
