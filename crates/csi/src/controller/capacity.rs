//! How much room there is.

use domain::error::Result;

use super::{Controller, convert};
use crate::v1;

impl Controller {
    pub(super) async fn capacity(&self, request: v1::GetCapacityRequest) -> Result<v1::GetCapacityResponse> {
        let question = convert::capacity_question(request)?;
        Ok(convert::capacity(self.provisioner.capacity(&question).await?))
    }
}
