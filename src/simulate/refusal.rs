//! Why a request was refused, in the words and the form of an API server.

use serde_json::{Value, json};

use super::call::Call;

pub const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}

fn details(resource: &str, name: &str) -> Value {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let mut details = json!({"name": name, "kind": plural});
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    details
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, resource: &str, name: &str) -> Self {
        self.details = Some(details(resource, name));
        self
    }

    pub fn injected(code: u16, reason: &'static str) -> Self {
        Self::new(code, reason, "as a fault wants it")
    }

    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    pub fn no_such_path() -> Self {
        let mut refusal = Self::new(404, "NotFound", "the server could not find the requested resource");
        refusal.details = Some(json!({}));
        refusal
    }

    pub fn already_exists(resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    pub fn conflict(resource: &str, name: &str, problem: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {problem}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    pub fn forbidden(resource: &str, name: &str, problem: &str) -> Self {
        Self::new(403, "Forbidden", format!("{resource} \"{name}\" is forbidden: {problem}")).about(resource, name)
    }

    pub fn namespace_terminating(resource: &str, name: &str, namespace: &str) -> Self {
        let problem = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = Self::forbidden(resource, name, &problem);
        if let Some(details) = &mut refusal.details {
            let message = format!("namespace {namespace} is being terminated");
            details["causes"] =
                json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
        }
        refusal
    }

    /// `kind` with its group, such as `Deployment.apps`.
    pub fn invalid(kind: &str, name: &str, causes: &[Cause]) -> Self {
        let said: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let said = if said.len() == 1 { said.concat() } else { format!("[{}]", said.join(", ")) };
        let mut refusal = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {said}")).about(kind, name);
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        if let Some(details) = &mut refusal.details {
            details["causes"] = json!(causes);
        }
        refusal
    }

    pub fn version_missing(call: &Call) -> Self {
        let cause = Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: "Invalid value: 0: must be specified for an update".to_owned(),
            field: "metadata.resourceVersion".to_owned(),
        };
        Self::invalid(&call.kind.qualified(), &call.name, &[cause])
    }

    pub fn finalizers_added(call: &Call, added: &[String]) -> Self {
        let list = added.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ");
        let cause = Cause {
            reason: "FieldValueForbidden".to_owned(),
            message: format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
            ),
            field: "metadata.finalizers".to_owned(),
        };
        Self::invalid(&call.kind.qualified(), &call.name, &[cause])
    }

    pub fn wrong_kind(call: &Call, object: &Value) -> Self {
        let given = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        Self::bad_request(&format!(
            "{} in version \"{}\" cannot be handled as a {}: expected {} {}",
            given("kind"),
            given("apiVersion"),
            call.kind.kind,
            call.api_version(),
            call.kind.kind
        ))
    }

    pub fn bad_request(problem: &str) -> Self {
        Self::new(400, "BadRequest", problem)
    }

    pub fn expired(problem: &str) -> Self {
        Self::new(410, "Expired", problem)
    }

    pub fn too_large_version(wanted: u64, current: u64) -> Self {
        let mut refusal =
            Self::new(504, "Timeout", format!("Too large resource version: {wanted}, current: {current}"));
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        refusal.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        refusal
    }

    pub fn method_not_allowed() -> Self {
        let mut refusal =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        refusal.details = Some(json!({}));
        refusal
    }

    pub fn unsupported_media_type(problem: &str) -> Self {
        Self::new(415, "UnsupportedMediaType", problem)
    }

    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
