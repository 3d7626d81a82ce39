//! What a client is told that asks what it may do: everything. Nobody is refused anything here because of who he is.

use serde_json::{Value, json};

use super::status_error::StatusError;

pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The question, with its answer.
pub(super) fn answered(question: &[u8]) -> Result<Value, StatusError> {
    let question = serde_json::from_slice(question).map_err(|error| StatusError::bad_request(&error.to_string()))?;
    let Value::Object(mut review) = question else {
        return Err(StatusError::bad_request("a SelfSubjectAccessReview is an object"));
    };
    review.insert("status".to_owned(), json!({"allowed": true}));
    Ok(Value::Object(review))
}
