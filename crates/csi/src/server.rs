//! The private socket, and the services on it.

use std::{
    io::ErrorKind,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    service::Routes,
    transport::{Error, Server},
};

use super::{
    controller::Controller,
    identity::Identity,
    layer::RpcObserver,
    v1::{
        controller_server::ControllerServer,
        group_controller_server::GroupControllerServer,
        identity_server::IdentityServer,
        node_server::{self, NodeServer},
    },
};
use cluster::metrics::Metrics;

/// More than any sidecar has workers, on its one connection.
const CALLS_AT_ONCE: u32 = 10_000;

/// A socket that only its owner can open; its file goes when it is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: Option<UnixListener>,
    path: PathBuf,
}

impl Socket {
    /// Binds, or says in a sentence what is in the way. A socket that nobody serves any more is replaced.
    pub async fn bind(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(format!("the folder of the socket {shown} does not exist: make it first"));
        }
        if let Ok(there) = std::fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                return Err(format!("{shown} exists and is not a socket: it is left as it is; choose another path"));
            }
            // Only a refusal proves that nobody serves it: one who is too busy to accept is asked in vain as well.
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    return Err(format!("whether another process serves the socket {shown} cannot be told: {error}"));
                }
                Ok(_) => return Err(format!("another process serves the socket {shown}")),
            }
            std::fs::remove_file(path)
                .map_err(|error| format!("the stale socket {shown} cannot be removed: {error}"))?;
        }
        let listener =
            UnixListener::bind(path).map_err(|error| format!("the socket {shown} cannot be made: {error}"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| format!("the socket {shown} cannot be made private: {error}"))?;
        Ok(Self { listener: Some(listener), path: path.to_owned() })
    }
}

impl Socket {
    /// The listener, for a service of another kind; the file stays until the socket is dropped.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket's file could not be removed");
        }
    }
}

/// Serves the controller until the token is cancelled and the calls under way have been answered.
pub async fn serve_controller(
    socket: Socket,
    controller: Controller,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), Error> {
    let routes = Routes::new(IdentityServer::new(Identity::default()))
        .add_service(GroupControllerServer::new(controller.clone()))
        .add_service(ControllerServer::new(controller));
    serve(socket, routes, metrics, stop).await
}

/// Likewise a driver's node service.
pub async fn serve_node<N: node_server::Node>(
    socket: Socket,
    identity: Identity,
    node: N,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), Error> {
    let routes = Routes::new(IdentityServer::new(identity)).add_service(NodeServer::new(node));
    serve(socket, routes, metrics, stop).await
}

async fn serve(mut socket: Socket, routes: Routes, metrics: Metrics, stop: CancellationToken) -> Result<(), Error> {
    let Some(listener) = socket.take() else {
        return Ok(());
    };
    Server::builder()
        // A call that waits for its member must not keep others from being heard.
        .max_concurrent_streams(CALLS_AT_ONCE)
        .layer(RpcObserver(metrics))
        .add_routes(routes)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned())
        .await
}
