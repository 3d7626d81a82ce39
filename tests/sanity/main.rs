//! csi-sanity on the embedded default: `kosmos-csi dev`, its controller's own socket, and volumes that are directories.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod suite;
#[path = "../clusters/tools.rs"]
#[allow(dead_code, reason = "the fleet uses the rest")]
mod tools;
#[path = "../clusters/tools_table.rs"]
#[allow(dead_code, reason = "the fleet uses the rest")]
mod tools_table;

use std::{path::Path, process::Stdio, time::Duration};

use kosmos_csi::csi::{
    identity::Identity,
    v1::{self, identity_server::IdentityServer, node_server},
};
use suite::Suite;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::UnixListener,
    process::{Child, Command},
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn csi_sanity_passes_every_spec_listed() {
    let folder = tempfile::Builder::new().prefix("sanity-").tempdir_in("/tmp").unwrap();
    let node = folder.path().join("node.sock");
    let serving = tokio::spawn(serve_node(UnixListener::bind(&node).unwrap()));
    let dev = start(folder.path()).await;
    let suite = Suite {
        program: tools::tool("csi-sanity").unwrap(),
        controller: folder.path().join("csi.sock"),
        node,
        parameters: "member: cluster38\nleafStorageClass: openebs-hostpath\n",
        folder: folder.path().to_owned(),
    };
    let outcome = suite.run().await;
    let left: Vec<_> = std::fs::read_dir(folder.path().join("volumes/cluster38")).unwrap().collect();
    drop(dev);
    serving.abort();
    let said = std::fs::read_to_string(folder.path().join("dev.log")).unwrap();
    assert!(outcome.is_ok(), "{outcome:?}\n{said}");
    assert!(left.is_empty(), "volumes are left: {left:?}");
}

/// Until it says that it is ready.
async fn start(folder: &Path) -> Child {
    let mut dev = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
        .args(["dev", "--dir"])
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(folder.join("dev.log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let ready = async { while lines.next_line().await.unwrap().unwrap() != "ready" {} };
    timeout(PATIENCE, ready).await.unwrap();
    dev
}

/// The suite asks a node what it can, and cleans up through it. This one can nothing.
struct Node;

#[tonic::async_trait]
impl node_server::Node for Node {
    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::NodeGetCapabilitiesResponse::default()))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        Ok(Response::new(v1::NodeGetInfoResponse { node_id: "none".to_owned(), ..Default::default() }))
    }

    async fn node_unpublish_volume(
        &self,
        _: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }
}

async fn serve_node(listener: UnixListener) {
    tonic::transport::Server::builder()
        .add_service(IdentityServer::new(Identity))
        .add_service(node_server::NodeServer::new(Node))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
        .unwrap();
}
