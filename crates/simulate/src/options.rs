//! What a query may ask for, whatever the verb does with it: forms of answers, options of lists and of writes.

use serde_json::{Value, json};

use super::{
    call::{Call, Query},
    decoder,
    faults::Verb,
    kinds::Causes,
    status_error::StatusError,
};

const FORMS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const LONGEST_MANAGER: usize = 128;
const KINDS_OF_ANSWERS: [&str; 3] = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList"];

pub fn check(call: &Call) -> Result<(), StatusError> {
    acceptable(call)?;
    let mut causes = Causes::default();
    let kind = match call.verb {
        Verb::List | Verb::Watch => {
            numbers(&call.query)?;
            of_list(call, &mut causes);
            "ListOptions"
        }
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => return Ok(()),
    };
    if !kind.starts_with("List") {
        readable(call)?;
        of_write(call, &mut causes);
    }
    causes.into_result(&format!("{kind}.meta.k8s.io"), "")
}

/// Whether the client takes JSON, and a form of it that there is.
fn acceptable(call: &Call) -> Result<(), StatusError> {
    let wanted: Vec<&str> = call.accept.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let media = |part: &&str| ["application/json", "*/*"].contains(&part.split(';').next().unwrap_or_default().trim());
    if !wanted.is_empty() && !wanted.iter().any(media) {
        let several = matches!(call.verb, Verb::List | Verb::Watch);
        return Err(StatusError::not_acceptable(&if several {
            format!("{FORMS}, {STREAMS}")
        } else {
            FORMS.to_owned()
        }));
    }
    let form = |part: &&str| part.split(';').find_map(|word| word.trim().strip_prefix("as=").map(str::to_owned));
    let known = |part: &&str| media(part) && form(part).is_none_or(|form| KINDS_OF_ANSWERS.contains(&form.as_str()));
    if wanted.is_empty() || wanted.iter().any(known) { Ok(()) } else { Err(StatusError::no_such_form(FORMS)) }
}

fn readable(call: &Call) -> Result<(), StatusError> {
    let media = call.content_type.split(';').next().unwrap_or_default().trim();
    if call.verb == Verb::Patch || media.is_empty() || media == "application/json" {
        return Ok(());
    }
    Err(StatusError::unknown_format(FORMS))
}

fn numbers(query: &Query) -> Result<(), StatusError> {
    let given = ["limit", "timeoutSeconds"].into_iter().map(|name| query.get(name)).filter(|text| !text.is_empty());
    given.into_iter().try_for_each(|text| decoder::number(text).map(drop))
}

fn of_list(call: &Call, causes: &mut Causes) {
    let (field, given) = ("resourceVersionMatch", call.query.get("resourceVersionMatch"));
    let version = call.query.get("resourceVersion");
    let initial = call.query.get("sendInitialEvents");
    if call.verb == Verb::Watch {
        if !given.is_empty() && initial.is_empty() {
            causes.forbidden(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        if !given.is_empty() && given != "NotOlderThan" {
            causes.unsupported(field, &json!(given), &["NotOlderThan"]);
        }
        if !initial.is_empty() && given.is_empty() {
            causes.forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        return;
    }
    if !initial.is_empty() {
        causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if given.is_empty() {
        return;
    }
    if version.is_empty() {
        causes.forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if given == "Exact" && version == "0" {
        causes.forbidden(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    }
    if !["Exact", "NotOlderThan"].contains(&given) {
        causes.unsupported(field, &json!(given), &["Exact", "NotOlderThan", ""]);
    }
}

fn of_write(call: &Call, causes: &mut Causes) {
    dry_run(call.query.get("dryRun"), causes);
    let validation = call.query.get("fieldValidation");
    if !["", "Ignore", "Strict", "Warn"].contains(&validation) {
        causes.unsupported("fieldValidation", &json!(validation), &["", "Ignore", "Strict", "Warn"]);
    }
    if call.query.get("fieldManager").len() > LONGEST_MANAGER {
        causes.too_long("fieldManager", LONGEST_MANAGER);
    }
    if call.verb == Verb::Patch && call.query.has("force") && !call.content_type.contains("apply-patch") {
        causes.forbidden("force", "may not be specified for non-apply patch");
    }
}

fn dry_run(given: &str, causes: &mut Causes) {
    if !["", "All"].contains(&given) {
        causes.unsupported("dryRun", &json!([given]), &["All"]);
    }
}

/// Of a deletion, from its body where there is one: then the query says nothing.
pub fn of_deletion(body: &Value) -> Result<(), StatusError> {
    let mut causes = Causes::default();
    let policy = &body["propagationPolicy"];
    if let Some(given) = policy.as_str() {
        if !["Foreground", "Background", "Orphan"].contains(&given) {
            causes.unsupported("propagationPolicy", policy, &["Foreground", "Background", "Orphan", "nil"]);
        }
        if body["orphanDependents"].is_boolean() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            causes.invalid("propagationPolicy", policy, detail);
        }
    }
    for given in body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        dry_run(given, &mut causes);
    }
    causes.into_result("DeleteOptions.meta.k8s.io", "")
}
