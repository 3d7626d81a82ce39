//! What a client asks before it asks anything else.

use std::sync::Arc;

use serde_json::json;

use super::resources::Kind;

#[derive(Debug)]
pub struct Page {
    pub content_type: String,
    pub body: Vec<u8>,
}

pub fn page(path: &str, _accept: &str, _kinds: &[Arc<Kind>]) -> Option<Page> {
    let body = match path {
        "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}).to_string(),
        "/readyz" | "/livez" | "/healthz" => "ok".to_owned(),
        _ => return None,
    };
    Some(Page { content_type: "application/json".to_owned(), body: body.into_bytes() })
}
