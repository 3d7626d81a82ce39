//! How much room there is.

use tonic::Status;

use super::{Controller, convert};
use crate::csi::v1;

impl Controller {
    pub(super) async fn capacity(&self, request: v1::GetCapacityRequest) -> Result<v1::GetCapacityResponse, Status> {
        let question = convert::capacity_question(request)?;
        Ok(convert::capacity(self.provisioner.capacity(&question).await?))
    }
}
