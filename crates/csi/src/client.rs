//! A driver's socket as its callers see it: what to ask, and the code of a refusal, by which callers steer.

use std::{collections::HashMap, fmt, path::Path, time::Duration};

pub use tonic::Code;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

use super::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeRequest, GetCapacityRequest, GetCapacityResponse, Snapshot, Volume,
    controller_client::ControllerClient,
};

/// Whoever calls a driver over its socket. The connection is made when it is first needed, and again when it was lost.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

/// An answer other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    pub code: Code,
    pub message: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.code, self.message)
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        // A driver that dies while it works answers nothing. The library calls that an unknown error, with a cause of its own;
        // the sidecars' library says UNAVAILABLE, after which they ask again.
        match std::error::Error::source(&status) {
            Some(cause) if status.code() == Code::Unknown => {
                Self { code: Code::Unavailable, message: format!("{}: {cause}", status.message()) }
            }
            _ => Self { code: status.code(), message: status.message().to_owned() },
        }
    }
}

impl Client {
    /// Fails only for a path that cannot be a socket's.
    pub fn new(socket: &Path) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .map_err(|error| format!("{} is no socket to call: {error}", socket.display()))?;
        Ok(Self { channel: endpoint.connect_lazy() })
    }

    pub async fn create_volume(&self, request: CreateVolumeRequest, patience: Duration) -> Result<Volume, CallError> {
        let answer = ControllerClient::new(self.channel.clone()).create_volume(within(request, patience)).await?;
        let empty = || CallError { code: Code::Internal, message: "the driver's answer holds no volume".to_owned() };
        answer.into_inner().volume.ok_or_else(empty)
    }

    pub async fn get_capacity(
        &self,
        request: GetCapacityRequest,
        patience: Duration,
    ) -> Result<GetCapacityResponse, CallError> {
        let answer = ControllerClient::new(self.channel.clone()).get_capacity(within(request, patience)).await?;
        Ok(answer.into_inner())
    }

    pub async fn delete_volume(&self, volume_id: String, patience: Duration) -> Result<(), CallError> {
        let request = DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() };
        ControllerClient::new(self.channel.clone()).delete_volume(within(request, patience)).await?;
        Ok(())
    }

    pub async fn expand_volume(
        &self,
        request: ControllerExpandVolumeRequest,
        patience: Duration,
    ) -> Result<ControllerExpandVolumeResponse, CallError> {
        let request = within(request, patience);
        Ok(ControllerClient::new(self.channel.clone()).controller_expand_volume(request).await?.into_inner())
    }

    /// What the node is to be told.
    pub async fn publish_volume(
        &self,
        request: ControllerPublishVolumeRequest,
        patience: Duration,
    ) -> Result<HashMap<String, String>, CallError> {
        let request = within(request, patience);
        let answer = ControllerClient::new(self.channel.clone()).controller_publish_volume(request).await?;
        Ok(answer.into_inner().publish_context)
    }

    pub async fn unpublish_volume(
        &self,
        request: ControllerUnpublishVolumeRequest,
        patience: Duration,
    ) -> Result<(), CallError> {
        ControllerClient::new(self.channel.clone()).controller_unpublish_volume(within(request, patience)).await?;
        Ok(())
    }

    pub async fn create_snapshot(
        &self,
        request: CreateSnapshotRequest,
        patience: Duration,
    ) -> Result<Snapshot, CallError> {
        let answer = ControllerClient::new(self.channel.clone()).create_snapshot(within(request, patience)).await?;
        let empty = || CallError { code: Code::Internal, message: "the driver's answer holds no snapshot".to_owned() };
        answer.into_inner().snapshot.ok_or_else(empty)
    }

    pub async fn delete_snapshot(&self, snapshot_id: String, patience: Duration) -> Result<(), CallError> {
        let request = DeleteSnapshotRequest { snapshot_id, ..DeleteSnapshotRequest::default() };
        ControllerClient::new(self.channel.clone()).delete_snapshot(within(request, patience)).await?;
        Ok(())
    }
}

/// The driver learns of the time as well, and answers before it is over.
fn within<T>(message: T, patience: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(patience);
    request
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, net::UnixListener};

    use super::*;

    #[tokio::test]
    async fn driver_that_dies_while_it_works_is_unavailable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi.sock");
        let listener = UnixListener::bind(&path).unwrap();
        for heard in [0, 1, 24, 64, 200] {
            let client = Client::new(&path).unwrap();
            let dies = async {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut bytes = vec![0; heard];
                connection.read_exact(&mut bytes).await.unwrap();
            };
            let asked = client.delete_volume("m/ns/claim/0123456789abcdef".to_owned(), Duration::from_secs(5));
            let (refused, ()) = tokio::join!(asked, dies);
            assert_eq!(refused.unwrap_err().code, Code::Unavailable, "after {heard} bytes");
        }
    }
}
