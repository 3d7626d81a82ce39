//! Makes the driver known to the kubelet, which finds the socket in its `plugins_registry` folder and asks.

use std::path::PathBuf;

use tonic::{Request, Response, Status};
use tracing::{error, info};

use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

#[derive(Debug)]
pub(crate) struct RegistrationService {
    pub(crate) name: String,
    /// The CSI socket, as the kubelet sees it.
    pub(crate) endpoint: PathBuf,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            info!("registered with the kubelet");
        } else {
            // The kubelet asks again when the socket is made anew, or when it starts.
            error!(error = status.error, "the kubelet refused the registration");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
