//! How much room there is.

use domain::error::Result;

use super::{Controller, convert};
use crate::v1;

pub(super) async fn capacity(
    controller: &Controller,
    request: v1::GetCapacityRequest,
) -> Result<v1::GetCapacityResponse> {
    let question = convert::capacity_question(request)?;
    Ok(convert::capacity(driver::provision::capacity::capacity(&controller.provisioner, &question).await?))
}
