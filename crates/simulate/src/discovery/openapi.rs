//! The least of OpenAPI that `kubectl apply` wants: that a kind can be patched, and that the server looks at fields.
//! There are no schemas. kubectl then takes its own for the kinds it knows, which is why strategic merge is not told here.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Kind;

const PARAMETERS: [(&str, &str); 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const BODIES: [&str; 3] =
    ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

pub(super) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// In the older form there is nothing to learn.
pub(super) fn empty() -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "1.36"}, "paths": {}})
}

/// Where the documents are.
pub(super) fn index(kinds: &[Arc<Kind>]) -> Value {
    let place = |kind: &Kind, version: &String| {
        if kind.group.is_empty() { format!("api/{version}") } else { format!("apis/{}/{version}", kind.group) }
    };
    let places = kinds.iter().flat_map(|kind| kind.versions.iter().map(|version| place(kind, version)));
    let paths: Map<String, Value> =
        places.map(|place| (place.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{place}")}))).collect();
    json!({"paths": paths})
}

pub(super) fn document(kinds: &[Arc<Kind>], version: &str) -> Value {
    let paths: Map<String, Value> =
        kinds.iter().map(|kind| (path(kind, version), json!({"patch": patch(kind, version)}))).collect();
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1.36"}, "paths": paths})
}

fn path(kind: &Kind, version: &str) -> String {
    let start = if kind.group.is_empty() { "/api" } else { "/apis" };
    let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("{start}/{}{namespace}/{}/{{name}}", kind.group_version(version), kind.plural)
}

fn patch(kind: &Kind, version: &str) -> Value {
    let parameter = |(name, of)| json!({"name": name, "in": "query", "schema": {"type": of, "uniqueItems": true}});
    let content: Map<String, Value> =
        BODIES.iter().map(|body| ((*body).to_owned(), json!({"schema": {"type": "object"}}))).collect();
    json!({
        "parameters": PARAMETERS.map(parameter),
        "requestBody": {"content": content, "required": true},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": version, "kind": kind.kind},
    })
}
