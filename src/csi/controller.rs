//! Controller: each RPC parses, calls its use-case and converts the answer.

use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::Span;

use super::{
    convert,
    inflight::InFlight,
    v1::{
        self, controller_server, controller_service_capability::rpc::Type,
        validate_volume_capabilities_response::Confirmed,
    },
};
use crate::{error::Error, provision::Provisioner};

#[derive(Clone, Debug)]
pub struct Controller {
    pub provisioner: Provisioner,
    pub in_flight: InFlight,
}

fn deadline<T>(request: &Request<T>) -> Instant {
    Instant::now() + convert::patience(request.metadata())
}

fn required(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() { Err(Error::Invalid(format!("{field} is missing")).into()) } else { Ok(()) }
}

#[tonic::async_trait]
impl controller_server::Controller for Controller {
    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<v1::ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = [Type::CreateDeleteVolume, Type::SingleNodeMultiWriter].map(Into::into).into();
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Result<Response<v1::CreateVolumeResponse>, Status> {
        let deadline = deadline(&request);
        let spec = convert::volume_spec(request.into_inner())?;
        let span = Span::current();
        span.record("volume.name", &spec.name);
        if let Some(claim) = &spec.claim {
            span.record("pvc", format!("{}/{}", claim.namespace, claim.name));
        }
        let _place = self.in_flight.enter(&spec.name)?;
        let volume = self.provisioner.create(&spec, deadline).await?;
        span.record("volume.id", volume.id.to_string());
        Ok(Response::new(v1::CreateVolumeResponse { volume: Some(convert::volume(volume)) }))
    }

    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Result<Response<v1::DeleteVolumeResponse>, Status> {
        let deadline = deadline(&request);
        let id = request.into_inner().volume_id;
        required("volume_id", &id)?;
        Span::current().record("volume.id", &id);
        let _place = self.in_flight.enter(&id)?;
        self.provisioner.delete(&id, deadline).await?;
        Ok(Response::new(v1::DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<v1::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        Span::current().record("volume.id", &request.volume_id);
        let uses = convert::uses(&request.volume_capabilities)?;
        let obstacle = self.provisioner.obstacle(&request.volume_id, &uses).await?;
        let confirmed = obstacle.is_none().then_some(Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        });
        let message = obstacle.unwrap_or_default();
        Ok(Response::new(v1::ValidateVolumeCapabilitiesResponse { confirmed, message }))
    }
}
