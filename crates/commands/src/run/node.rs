//! The node role: Identity and Node on a socket in the kubelet's folder, and the kubelet told of it. It speaks to no
//! cluster.

use std::{
    path::{Path, PathBuf},
    pin::pin,
};

use anyhow::Context;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Misuse, Signals, bounded, endpoint, first_failure, serve_admin};
use crate::{
    args::{Node, Registration},
    telemetry::Traces,
};
use cluster::metrics::Metrics;
use csi::{
    identity::Identity,
    node::Info,
    registration,
    server::{self, Socket},
};
use domain::volume::DRIVER;
use mount::{Linux, Machine, Permitted};

pub async fn node(arguments: Node, traces: Traces) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let folder = own_folder(&arguments.kubelet_dir)?;
    let path = endpoint(arguments.endpoint.as_deref())?.unwrap_or_else(|| folder.join("csi.sock"));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), endpoint = %path.display(), "kosmos-csi node starts");
    let socket = Socket::bind(&path).await.map_err(Misuse)?;
    let stop = CancellationToken::new();
    let grace = arguments.process.shutdown_grace;
    let work = Box::pin(run(arguments, &folder, (path, socket), stop.clone()));
    bounded(signals, stop, grace, traces, work).await?;
    tracing::info!("kosmos-csi node has stopped");
    Ok(())
}

/// Where the socket and the records are.
fn own_folder(kubelet_dir: &Path) -> Result<PathBuf, Misuse> {
    if !kubelet_dir.is_dir() {
        return Err(Misuse(format!(
            "--kubelet-dir {} is not a folder: give the one that this node's kubelet has as --root-dir",
            kubelet_dir.display()
        )));
    }
    let folder = kubelet_dir.join("plugins").join(DRIVER);
    std::fs::create_dir_all(&folder)
        .map_err(|error| Misuse(format!("the folder {} cannot be made: {error}", folder.display())))?;
    Ok(folder)
}

async fn run(
    arguments: Node,
    folder: &Path,
    (path, socket): (PathBuf, Socket),
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (metrics, last, ready) = (Metrics::new(), CancellationToken::new(), watch::Sender::new(false));
    let mut tasks = JoinSet::new();
    serve_admin(arguments.process.admin_address, &ready, &metrics, &last, &mut tasks).await?;
    let info = Info { name: arguments.node_name, member: arguments.member, most: arguments.max_volumes };
    let permitted = Permitted {
        leaf_drivers: arguments.leaf_drivers,
        nfs_servers: arguments.nfs_servers,
        local_folders: arguments.local_folders,
    };
    say_what_is_used(&info.member, &permitted);
    let service = service(info, arguments.kubelet_dir.clone(), arguments.device_dir, folder, permitted);
    if arguments.registration == Registration::Kubelet {
        // The socket of the service listens already: the kubelet calls as soon as it sees this one.
        let file = arguments.kubelet_dir.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
        let socket = Socket::bind(&file).await.map_err(Misuse)?;
        tasks.spawn(register(socket, path));
    }
    ready.send_replace(true);
    tracing::info!("kosmos-csi node is ready");
    let at_work = service.clone();
    let serving = server::serve_node(socket, Identity::default(), service, metrics, stop.clone());
    let work = async {
        ready.send_replace(false);
        at_work.ended().await;
    };
    let served = serve(serving, first_failure(&mut tasks), work, &stop).await;
    last.cancel();
    tasks.shutdown().await;
    served
}

/// Serves until a stop is asked for or something fails, and in either case until the work has ended: the programs that format and repair disks
/// end with this process, which may be the first one of its container.
async fn serve<E>(
    serving: impl Future<Output = Result<(), E>>,
    failure: impl Future<Output = anyhow::Result<()>>,
    work: impl Future<Output = ()>,
    stop: &CancellationToken,
) -> anyhow::Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut serving = pin!(serving);
    let (ended, rest) = tokio::select! {
        served = &mut serving => (served.context("the CSI socket"), None),
        failed = failure => (failed, Some(serving)),
    };
    if let Err(error) = &ended {
        tracing::error!(
            "kosmos-csi node ends, as soon as the work under way has ended, because a part of it failed: {error:#}"
        );
    }
    // No call begins any more, and the grace does.
    stop.cancel();
    let ended = match rest {
        Some(serving) => ended.and(serving.await.context("the CSI socket")),
        None => ended,
    };
    work.await;
    ended
}

fn say_what_is_used(member: &str, permitted: &Permitted) {
    if permitted.is_empty() {
        tracing::warn!(
            member,
            "this node uses only those volumes of the member that are disks attached to this machine: for others, name storage drivers, NFS \
             servers and folders of this node by --leaf-driver, --nfs-server and --local-folder"
        );
    } else {
        let Permitted { leaf_drivers, nfs_servers, local_folders } = permitted;
        tracing::info!(
            member,
            ?leaf_drivers,
            ?nfs_servers,
            ?local_folders,
            "this node uses the member's volumes of these storage drivers, NFS servers and folders"
        );
    }
}

/// `folder` is for the records.
pub fn service(
    info: Info,
    kubelet_dir: PathBuf,
    device_dir: PathBuf,
    folder: &Path,
    permitted: Permitted,
) -> csi::node::Node {
    let machine = Machine::new(Linux, folder.join("volumes"), device_dir, kubelet_dir.clone(), permitted);
    csi::node::Node::new(machine, kubelet_dir, info)
}

async fn register(mut socket: Socket, endpoint: PathBuf) -> anyhow::Result<()> {
    let listener = socket.take().context("the registration's socket")?;
    let registration = registration::Registration { name: DRIVER.to_owned(), endpoint };
    registration.serve(listener).await.context("the registration with the kubelet")
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        io,
        time::Duration,
    };

    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    /// For example the kubelet's socket, where no more files may be open.
    #[tokio::test]
    async fn part_that_fails_ends_neither_calls_nor_work_and_is_told_after_them() {
        let (stop, (go, wait)) = (CancellationToken::new(), oneshot::channel::<()>());
        let serving = async {
            stop.cancelled().await;
            Ok::<(), io::Error>(())
        };
        let failure = ready(Err(anyhow::anyhow!("too many open files")));
        let work = async { drop(wait.await) };
        let mut served = pin!(serve(serving, failure, work, &stop));
        assert!(timeout(SHORT, &mut served).await.is_err(), "mkfs would end with this process");
        assert!(stop.is_cancelled());
        go.send(()).unwrap();
        assert_eq!(served.await.unwrap_err().to_string(), "too many open files");
    }

    #[tokio::test]
    async fn work_is_waited_for_where_the_socket_fails() {
        let (stop, (go, wait)) = (CancellationToken::new(), oneshot::channel::<()>());
        let serving = async { Err(io::Error::other("on purpose")) };
        let work = async { drop(wait.await) };
        let mut served = pin!(serve(serving, pending(), work, &stop));
        assert!(timeout(SHORT, &mut served).await.is_err());
        assert!(stop.is_cancelled(), "work that hangs would be waited for without an end");
        go.send(()).unwrap();
        assert_eq!(served.await.unwrap_err().to_string(), "the CSI socket");
    }
}
