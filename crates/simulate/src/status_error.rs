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
pub struct StatusError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
    /// By what a list that was in pages goes on all the same.
    pub next: Option<String>,
}

impl std::fmt::Display for StatusError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for StatusError {}

fn details(resource: &str, name: &str) -> Value {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let fields = [("name", name), ("group", group), ("kind", plural)];
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(field, value)| (field.to_owned(), json!(value)))
        .collect()
}

fn listed(causes: &[Cause]) -> Value {
    let cause = |cause: &Cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
    causes.iter().map(cause).collect()
}

impl StatusError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, next: None }
    }

    /// Some refusals carry details that say nothing.
    fn plainly(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { details: Some(json!({})), ..Self::new(code, reason, message) }
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
        Self::plainly(404, "NotFound", "the server could not find the requested resource")
    }

    /// What answers where there is no API at all: no object, a text.
    pub fn no_page() -> Self {
        Self::new(404, "", "404 page not found\n")
    }

    pub fn is_page(&self) -> bool {
        self.code == 404 && self.reason.is_empty()
    }

    pub fn already_exists(resource: &str, name: &str, ending: bool) -> Self {
        let before = if ending { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{before}{resource} \"{name}\" already exists")).about(resource, name)
    }

    /// Of a deletion that is bound to another object than is there, or to another state of it.
    pub fn other_uid(kind: &str, name: &str, wanted: &str, there: &str) -> Self {
        let problem = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({there}). The object might have \
            been deleted and then recreated"
        );
        Self::conflict(kind, name, &problem)
    }

    pub fn other_version(kind: &str, name: &str, wanted: &str, there: &str) -> Self {
        let problem = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
            ({there}). The object might have been modified"
        );
        Self::conflict(kind, name, &problem)
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
        let mut said: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        said.dedup();
        let said = if said.len() == 1 { said.concat() } else { format!("[{}]", said.join(", ")) };
        let mut refusal = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {said}")).about(kind, name);
        if let Some(details) = &mut refusal.details {
            details["causes"] = listed(causes);
        }
        refusal
    }

    pub fn version_missing(call: &Call) -> Self {
        let cause = Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: "Invalid value: 0: must be specified for an update".to_owned(),
            field: "metadata.resourceVersion".to_owned(),
        };
        Self::invalid(&call.resource, &call.name, &[cause])
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

    /// A body that is no object of its kind.
    pub fn undecodable(call: &Call, problem: &str) -> Self {
        let kind = &call.kind.kind;
        Self::bad_request(&format!("{kind} in version \"{}\" cannot be handled as a {kind}: {problem}", call.version))
    }

    pub fn wrong_kind(call: &Call, object: &Value) -> Self {
        let given = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (kind, version, wanted) = (given("kind"), given("apiVersion"), &call.kind.kind);
        let problem = if super::resources::builtin().any(|known| known.kind == kind && known.api_version() == version) {
            format!("converting ({version}.{kind}) to ({}.{wanted}): unknown conversion", call.kind.internal_group())
        } else {
            format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        Self::bad_request(&format!("{kind} in version \"{version}\" cannot be handled as a {wanted}: {problem}"))
    }

    /// A custom object is judged as the kind it says it is of.
    pub fn wrong_custom_kind(call: &Call, object: &Value) -> Self {
        let kind = object["kind"].as_str().unwrap_or_default();
        let cause = Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: format!("Invalid value: \"{kind}\": must be {}", call.kind.kind),
            field: "kind".to_owned(),
        };
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        Self::invalid(&format!("{kind}.{}", call.kind.group), name, &[cause])
    }

    /// What a patch leads to is no object of its kind.
    pub fn unreadable_patch(object: &str, problem: &str) -> Self {
        Self::unusable_patch(&json!(object).to_string(), problem)
    }

    pub fn unusable_patch(shown: &str, problem: &str) -> Self {
        let cause = Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: format!("Invalid value: {shown}: {problem}"),
            field: "patch".to_owned(),
        };
        Self::invalid("", "", &[cause])
    }

    /// Of server-side apply.
    pub fn unappliable(call: &Call, problem: &str) -> Self {
        let group_version = format!("{}/{}", call.kind.group, call.version);
        Self::unforeseen(&format!(
            "failed to create typed patch object (/{}; {group_version}, Kind={}): {problem}",
            call.name, call.kind.kind
        ))
    }

    pub fn other_name(given: &str, wanted: &str) -> Self {
        Self::bad_request(&format!("the name of the object ({given}) does not match the name on the URL ({wanted})"))
    }

    pub fn other_namespace() -> Self {
        Self::bad_request("the namespace of the provided object does not match the namespace sent on the request")
    }

    pub fn bad_request(problem: &str) -> Self {
        Self::new(400, "BadRequest", problem)
    }

    pub fn expired(problem: &str) -> Self {
        Self::new(410, "Expired", problem)
    }

    /// Of a list in pages, which goes on by this token among what there is now.
    pub fn expired_list(next: String) -> Self {
        let problem = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                       without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
                       results. Continuing with the provided token results in an inconsistent list - objects that were created, \
                       modified, or deleted between the time the first chunk was returned and now may show up in the list.";
        Self { next: Some(next), ..Self::expired(problem) }
    }

    pub fn too_large_version(wanted: u64, current: u64) -> Self {
        let mut refusal =
            Self::new(504, "Timeout", format!("Too large resource version: {wanted}, current: {current}"));
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        refusal.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        refusal
    }

    pub fn method_not_allowed() -> Self {
        Self::plainly(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub fn not_acceptable(available: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Self::plainly(406, "NotAcceptable", message)
    }

    /// Of an answer in a form that there is not.
    pub fn no_such_form(accepted: &str) -> Self {
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
    }

    /// Of a body that holds an object.
    pub fn unknown_format(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Of a patch.
    pub fn unsupported_media_type() -> Self {
        Self::plainly(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// What can be read but not be done, where the API does not say why.
    pub fn not_processable() -> Self {
        Self::plainly(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    /// What clients are told of errors that the API has no word for.
    pub fn unforeseen(problem: &str) -> Self {
        Self::new(500, "", problem)
    }

    /// Of server-side apply: fields that other managers own.
    pub fn apply_conflict(message: &str, causes: &[Cause]) -> Self {
        let mut refusal = Self::new(409, "Conflict", message);
        refusal.details = Some(json!({"causes": listed(causes)}));
        refusal
    }

    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = json!(next);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_those_of_an_api_server() {
        assert_eq!(
            StatusError::not_found("storageclasses.storage.k8s.io", "fast").to_status(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
                "message": "storageclasses.storage.k8s.io \"fast\" not found", "code": 404,
                "details": {"name": "fast", "group": "storage.k8s.io", "kind": "storageclasses"},
            })
        );
        let cause = |field: &str| Cause {
            reason: "FieldValueRequired".to_owned(),
            message: "Required value".to_owned(),
            field: field.to_owned(),
        };
        let refusal = StatusError::invalid("Deployment.apps", "web", &[cause("spec.a"), cause("spec.b")]);
        let expected = "Deployment.apps \"web\" is invalid: [spec.a: Required value, spec.b: Required value]";
        assert_eq!(refusal.message, expected);
        assert_eq!(refusal.to_status()["details"]["causes"][1]["field"], json!("spec.b"));
        let status = StatusError::unforeseen("x").to_status();
        assert!(status.get("reason").is_none() && status.get("details").is_none(), "{status}");
    }
}
