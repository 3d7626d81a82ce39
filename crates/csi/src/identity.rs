//! Identity: the same answers on every socket, for as long as the process lives.

use tonic::{Request, Response, Status};

use super::v1::{
    self, identity_server,
    plugin_capability::{service::Type, volume_expansion},
};
use domain::volume::DRIVER;

/// A driver's name.
#[derive(Clone, Copy, Debug)]
pub struct Identity(pub &'static str);

impl Default for Identity {
    fn default() -> Self {
        Self(DRIVER)
    }
}

#[tonic::async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        Ok(Response::new(v1::GetPluginInfoResponse {
            name: self.0.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: std::collections::HashMap::new(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        let services = [
            Type::ControllerService,
            Type::VolumeAccessibilityConstraints,
            Type::GroupControllerService,
            Type::SnapshotAccessibilityConstraints,
        ]
        .map(Into::into);
        let capabilities = services.into_iter().chain([volume_expansion::Type::Online.into()]).collect();
        Ok(Response::new(v1::GetPluginCapabilitiesResponse { capabilities }))
    }

    /// About this process alone: a member's outage is no reason to restart it.
    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: Some(true) }))
    }
}
