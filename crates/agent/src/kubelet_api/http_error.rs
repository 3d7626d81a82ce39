//! What the API server is told instead of an answer; it shows the text to the user.

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE},
};
use kube::client::Body;

use domain::error::Error;

#[derive(Debug)]
pub(super) struct HttpError {
    pub(super) code: StatusCode,
    message: String,
}

impl HttpError {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn bad_request(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not served")
    }

    pub(super) fn unreachable(message: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, message)
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(format!("{}\n", self.message).into_bytes()));
        *response.status_mut() = self.code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // Who has too many connections is not to keep one more for his next request.
        if self.code == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NotFound(_) => StatusCode::NOT_FOUND,
            Error::Denied(_) => StatusCode::FORBIDDEN,
            Error::Unreachable { .. } | Error::HostUnreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_too_many_under_way_is_told_and_his_connection_closed() {
        let closes = |code| {
            let answer = HttpError::new(code, "why").into_response();
            answer.headers().get(CONNECTION).is_some_and(|value| value == "close")
        };
        assert!(closes(StatusCode::TOO_MANY_REQUESTS) && !closes(StatusCode::NOT_FOUND));
    }
}
