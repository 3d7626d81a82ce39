//! GET of one object, and lists: whole, in pages, and as they were.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    call::Call,
    decoder,
    status_error::StatusError,
    store::{Key, Store, Table, text, version_of},
};

/// In a token: a list goes on among what there is when it is asked for.
const NEWEST: u64 = 0;

/// Objects of one answer and what its head says.
#[derive(Debug)]
pub struct Page {
    pub objects: Vec<Arc<Value>>,
    pub revision: u64,
    pub next: Option<String>,
    pub remaining: Option<usize>,
}

/// `back` revisions ago, where a fault asks for it.
pub fn get(call: &Call, store: &Store, back: u64) -> Result<Arc<Value>, StatusError> {
    decoder::version(call.query.get("resourceVersion")).map_err(|problem| StatusError::unforeseen(&problem))?;
    let missing = || StatusError::not_found(&call.resource, &call.name);
    let table = store.table(&call.resource).ok_or_else(missing)?;
    let key: Key = (call.namespace.clone(), call.name.clone());
    if back > 0 {
        let then = table.at(store.revision.saturating_sub(back).max(table.forgotten));
        return then.and_then(|mut objects| objects.remove(&key)).ok_or_else(missing);
    }
    table.get(&key).cloned().ok_or_else(missing)
}

pub fn list(call: &Call, store: &Store, back: u64) -> Result<Page, StatusError> {
    let table = store.table(&call.resource).ok_or_else(StatusError::no_such_path)?;
    let limit = usize::try_from(call.query.number("limit").unwrap_or(0)).unwrap_or(usize::MAX);
    let asked = call.query.get("continue");
    if !asked.is_empty() && !["", "0"].contains(&call.query.get("resourceVersion")) {
        return Err(StatusError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let (revision, after) = if asked.is_empty() { (asked_revision(call, store)?, None) } else { resume(asked, store)? };
    if back > 0 {
        let revision = store.revision.saturating_sub(back).max(table.forgotten);
        return Ok(page(call, &known(table, revision)?, revision, limit, None));
    }
    if revision == store.revision {
        return Ok(page(call, table.objects(), revision, limit, after));
    }
    let known = known(table, revision).map_err(|expired| match &after {
        Some(key) => StatusError::expired_list(token(NEWEST, key)),
        None => expired,
    })?;
    Ok(page(call, &known, revision, limit, after))
}

fn known(table: &Table, revision: u64) -> Result<BTreeMap<Key, Arc<Value>>, StatusError> {
    table.at(revision).ok_or_else(|| StatusError::expired("The resourceVersion for the provided list is too old."))
}

/// Only an exact match reads the past: everything else may be, and is, answered by what is newest.
fn asked_revision(call: &Call, store: &Store) -> Result<u64, StatusError> {
    let number = decoder::version(call.query.get("resourceVersion"))
        .map_err(|problem| StatusError::bad_request(&format!("invalid resource version: {problem}")))?;
    if number > store.revision {
        return Err(StatusError::too_large_version(number, store.revision));
    }
    Ok(if call.query.get("resourceVersionMatch") == "Exact" { number } else { store.revision })
}

fn page(call: &Call, objects: &BTreeMap<Key, Arc<Value>>, revision: u64, limit: usize, after: Option<Key>) -> Page {
    let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let wanted = objects.range((from, std::ops::Bound::Unbounded)).filter(|(key, object)| {
        (call.namespace.is_empty() || key.0 == call.namespace) && call.selector.matches(object)
    });
    // How many remain is told only where nothing is selected.
    let most = if limit > 0 && !call.selector.is_empty() { limit + 1 } else { usize::MAX };
    let mut found: Vec<_> = wanted.take(most).map(|(key, object)| (key, Arc::clone(object))).collect();
    let (mut next, mut remaining) = (None, None);
    if limit > 0 && found.len() > limit {
        remaining = call.selector.is_empty().then(|| found.len() - limit);
        found.truncate(limit);
        next = found.last().map(|(key, _)| token(revision, key));
    }
    Page { objects: found.into_iter().map(|(_, object)| object).collect(), revision, next, remaining }
}

/// Opaque to clients: base64, of letters that need no escaping.
fn token(revision: u64, key: &Key) -> String {
    let text = json!([revision, key.0, key.1]).to_string();
    decoder::base64(text.as_bytes(), decoder::IN_PATHS).trim_end_matches('=').to_owned()
}

fn resume(token: &str, store: &Store) -> Result<(u64, Option<Key>), StatusError> {
    let wrong = |problem: &str| {
        StatusError::bad_request(&format!("invalid continue token: continue key is not valid: {problem}"))
    };
    let bytes = decoder::from_base64(token).ok_or_else(|| wrong("illegal base64 data"))?;
    let (revision, namespace, name) = serde_json::from_slice(&bytes).map_err(|_| {
        let first = bytes.first().copied().unwrap_or_default();
        let shown = if first.is_ascii_graphic() { char::from(first).to_string() } else { format!("\\u{first:04x}") };
        wrong(&format!("invalid character '{shown}' looking for beginning of value"))
    })?;
    Ok((if revision == NEWEST { store.revision } else { revision }, Some((namespace, name))))
}

/// A list as clients read it. Objects of built-in kinds do not repeat their kind in it.
pub fn as_list(call: &Call, page: &Page) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if call.kind.custom {
        metadata["continue"] = json!("");
    }
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let items: Vec<Value> = page.objects.iter().map(|object| item(call, object)).collect();
    json!({"kind": call.kind.list_kind, "apiVersion": call.api_version(), "metadata": metadata, "items": items})
}

fn item(call: &Call, object: &Value) -> Value {
    let mut item = object.clone();
    super::versions::to_given(call, &mut item);
    if !call.kind.custom
        && let Some(fields) = item.as_object_mut()
    {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// The text of the same. Most are written as they are kept, without a copy: a list may have many.
pub(super) fn item_text(call: &Call, object: &Value) -> String {
    match object.as_object() {
        Some(fields) if super::versions::is_given_as_kept(call) => {
            let given = fields.iter().filter(|(field, _)| !["kind", "apiVersion"].contains(&field.as_str()));
            serde_json::to_string(&given.collect::<BTreeMap<_, _>>()).unwrap_or_default()
        }
        _ => item(call, object).to_string(),
    }
}

/// Refuses a write that was decided on an older version.
pub fn check_version(call: &Call, live: &Value, wanted: &str) -> Result<(), StatusError> {
    if ["", "0"].contains(&wanted) || wanted == text(live, "/metadata/resourceVersion") {
        return Ok(());
    }
    if wanted.parse::<u64>().is_err() {
        let problem = format!("strconv.ParseUint: parsing \"{wanted}\": invalid syntax");
        return Err(StatusError::unforeseen(&problem));
    }
    debug_assert!(version_of(live) > 0, "stored objects have a version");
    Err(StatusError::conflict(&call.resource, &call.name, super::status_error::MODIFIED))
}
