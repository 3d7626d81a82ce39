//! A node service that can nothing: the suite asks a node what it can and which it is, and cleans up through it. The host's
//! CSINode of its name says how many volumes it takes.
//!
//! It tells no topology. The suite would hold the topology of a snapshot against the node's as Go structs, in which the
//! one that was sent carries the size of its encoding and the one that came does not: no answer passes but an empty one.

use std::path::Path;

use anyhow::Result;
use kosmos_csi::csi::{
    identity::Identity,
    v1::{self, identity_server::IdentityServer, node_server},
};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status};

/// The node's name in the host.
pub const NAME: &str = "sanity";
const LIMIT: u8 = 3;

/// What the host knows of the node.
pub fn csi_node() -> Value {
    let driver = json!({
        "name": "kosmos.csi.io", "nodeID": format!("real/{NAME}"), "topologyKeys": null, "allocatable": {"count": LIMIT},
    });
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NAME}, "spec": {"drivers": [driver]}})
}

/// A VolumeAttributesClass of the member, which [`ATTRIBUTES`] names.
pub fn attributes_class(driver: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "gold"},
        "driverName": driver, "parameters": {"iops": "3000"},
    })
}

/// What the suite passes as mutable parameters, as YAML.
pub const ATTRIBUTES: &str = "leafVolumeAttributesClass: gold\n";

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
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: format!("real/{NAME}"),
            max_volumes_per_node: i64::from(LIMIT),
            ..Default::default()
        }))
    }

    async fn node_unpublish_volume(
        &self,
        _: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }
}

/// Serves at this path until it is dropped.
pub fn serve(socket: &Path) -> Result<AbortOnDropHandle<()>> {
    let listener = UnixListener::bind(socket)?;
    let serving = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(Identity))
        .add_service(node_server::NodeServer::new(Node))
        .serve_with_incoming(UnixListenerStream::new(listener));
    Ok(AbortOnDropHandle::new(tokio::spawn(async move { drop(serving.await) })))
}
