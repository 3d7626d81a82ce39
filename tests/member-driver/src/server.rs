//! The sockets: how they are made, served and left.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use csi::registration::Registration;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing::info;

use crate::args::Args;
use crate::controller::ControllerService;
use crate::driver::Driver;
use crate::group::GroupControllerService;
use crate::identity::IdentityService;
use crate::node::NodeService;
use crate::proto::csi::controller_server::ControllerServer;
use crate::proto::csi::group_controller_server::GroupControllerServer;
use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;

/// How long calls may take to end once the process is asked to.
const GRACE: Duration = Duration::from_secs(20);

/// Finishes what an earlier process left, and serves.
pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let driver = Driver::open(args).with_context(|| format!("reading the state in {}", args.state.display()))?;
    driver.recover().await.context("finishing what a crash left")?;
    serve(args, Arc::new(driver)).await
}

/// Serves until a signal comes, and then until the calls under way have been answered.
async fn serve(args: &Args, driver: Arc<Driver>) -> anyhow::Result<()> {
    let (stop, stopping) = watch::channel(false);
    let csi = Server::builder()
        .add_service(IdentityServer::new(IdentityService(driver.clone())))
        .add_service(ControllerServer::new(ControllerService(driver.clone())))
        .add_service(GroupControllerServer::new(GroupControllerService(driver.clone())))
        .add_service(NodeServer::new(NodeService(driver.clone())))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listen(&args.endpoint)?), stopped(stopping.clone()));
    // The kubelet connects as soon as it sees this socket, so it comes second.
    let registration = async {
        let Some(path) = &args.registration else {
            return Ok(());
        };
        let endpoint = args.registration_endpoint.as_ref().unwrap_or(&args.endpoint).clone();
        let registration = Registration { name: driver.name.clone(), endpoint };
        tokio::select! {
            ended = registration.serve(listen(path)?) => ended.context("serving the registration"),
            () = stopped(stopping.clone()) => Ok(()),
        }
    };
    info!(driver = driver.name, node = driver.node, endpoint = %args.endpoint.display(), "serving");
    let both = async { tokio::try_join!(async { csi.await.context("serving CSI") }, registration) };
    tokio::pin!(both);
    tokio::select! {
        ended = &mut both => { ended?; }
        asked = until_asked() => {
            info!(signal = asked?, "stopping");
            stop.send_replace(true);
            let Ok(ended) = timeout(GRACE, both).await else {
                bail!("calls have not ended in time; the next start finishes what they began");
            };
            ended?;
        }
    }
    for path in args.registration.iter().chain([&args.endpoint]) {
        clear(path)?;
    }
    Ok(())
}

/// Listens on a socket that only root reaches.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    clear(path)?;
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(folder)
            .with_context(|| format!("making {}", folder.display()))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes a socket that an earlier process left.
fn clear(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("looking at {}", path.display())),
        Ok(there) if there.file_type().is_socket() => {
            fs::remove_file(path).with_context(|| format!("removing the old socket {}", path.display()))
        }
        Ok(_) => bail!("{} is there and is not a socket", path.display()),
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn until_asked() -> io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("sub/csi.sock");
        drop(listen(&socket).unwrap());
        assert!(socket.exists());
        drop(listen(&socket).unwrap());

        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(listen(&file).unwrap_err().to_string().contains("not a socket"));
        assert!(file.exists());
    }
}
