//! What the proxy says in an API server's place.

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use hyper::body::Bytes;
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As API servers say it, and perhaps after how many seconds to ask again.
    Status { code: u16, reason: &'static str, retry_after: Option<u32> },
    /// A load balancer's, for people.
    Page { code: u16, title: &'static str },
}

pub const GATEWAY_TIMEOUT: Answer = Answer::Status { code: 504, reason: "Timeout", retry_after: None };
pub const INTERNAL_ERROR: Answer = Answer::Status { code: 500, reason: "InternalError", retry_after: None };
pub const UNAUTHORIZED: Answer = Answer::Status { code: 401, reason: "Unauthorized", retry_after: None };
pub const NO_SUCH_PAGE: Answer = Answer::Page { code: 404, title: "Not Found" };

pub const fn too_many_requests(retry_after: Option<u32>) -> Answer {
    Answer::Status { code: 429, reason: "TooManyRequests", retry_after }
}

impl Answer {
    pub fn response(self) -> Response<Bytes> {
        let (code, kind, text, wait) = match self {
            Self::Status { code, reason, retry_after } => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
                    "message": "a proxy on the way says so in the API server's place",
                    "details": {"retryAfterSeconds": retry_after.unwrap_or_default()},
                });
                (code, "application/json", status.to_string(), retry_after)
            }
            Self::Page { code, title } => {
                (code, "text/html", format!("<html><body><h1>{code} {title}</h1></body></html>\n"), None)
            }
        };
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(seconds) = wait {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
