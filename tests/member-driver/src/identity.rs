//! The identity service: who the driver is and what it can do, the same on every node and at every moment.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::driver::Driver;
use crate::proto::csi;
use crate::proto::csi::identity_server::Identity;
use crate::proto::csi::plugin_capability::{
    Service, Type, VolumeExpansion, service, volume_expansion,
};

#[derive(Debug)]
pub(crate) struct IdentityService(pub(crate) Arc<Driver>);

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        Ok(Response::new(csi::GetPluginInfoResponse {
            name: self.0.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: HashMap::new(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        let service = |kind: service::Type| {
            Type::Service(Service {
                r#type: kind.into(),
            })
        };
        let capabilities = [
            service(service::Type::ControllerService),
            service(service::Type::VolumeAccessibilityConstraints),
            service(service::Type::GroupControllerService),
            Type::VolumeExpansion(VolumeExpansion {
                r#type: volume_expansion::Type::Online.into(),
            }),
        ];
        let capabilities = capabilities.map(|capability| csi::PluginCapability {
            r#type: Some(capability),
        });
        Ok(Response::new(csi::GetPluginCapabilitiesResponse {
            capabilities: capabilities.into(),
        }))
    }

    async fn probe(
        &self,
        _: Request<csi::ProbeRequest>,
    ) -> Result<Response<csi::ProbeResponse>, Status> {
        Ok(Response::new(csi::ProbeResponse { ready: Some(true) }))
    }
}
