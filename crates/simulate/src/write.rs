//! POST, PUT and PATCH: from what is there and what is asked for to what is put down.

mod fixed;

use std::sync::Arc;

use serde_json::{Value, json};

use self::fixed::{keep_system_fields, no_new_finalizers};
use super::{
    Cluster,
    call::Call,
    kinds, limits, patch, quota,
    read::check_version,
    resources::Kind,
    status_error::StatusError,
    store::{Store, key_of, text},
    versions,
};

/// What was made, and whether it is new.
#[derive(Debug)]
pub struct Written {
    pub object: Arc<Value>,
    pub new: bool,
    pub warnings: Vec<String>,
}

/// Who makes an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Maker<'a> {
    /// What lives inside the cluster.
    Inside,
    /// Its fields are noted as its own.
    Client(&'a patch::Writer),
    /// Its fields have been noted already.
    Applier,
}

impl Written {
    fn with(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }
}

/// What no client may set.
const OF_THE_SERVER: [&str; 4] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// A body as its kind keeps it; what was dropped is refused, told or not, as the request wants it.
fn read_strictly(call: &Call, object: &mut Value) -> Result<Vec<String>, StatusError> {
    let undecodable = |problem: &str| StatusError::undecodable(call, problem);
    let noticed = kinds::decode(&call.kind, object).map_err(|problem: String| undecodable(&problem))?;
    let mut odd: Vec<String> =
        kinds::duplicates(&call.body).iter().map(|field| format!("duplicate field \"{field}\"")).collect();
    odd.extend(noticed.unknown.iter().map(|field| format!("unknown field \"{field}\"")));
    match call.query.get("fieldValidation") {
        "Strict" if !odd.is_empty() => Err(undecodable(&format!("strict decoding error: {}", odd.join(", ")))),
        "Ignore" => Ok(noticed.warnings),
        _ => Ok([odd, noticed.warnings].concat()),
    }
}

/// Some bodies are refused before they are applied.
fn read_patch(call: &Call, how: patch::PatchType) -> Result<(), StatusError> {
    let Ok(body) = serde_json::from_slice::<Value>(&call.body) else { return Ok(()) };
    match how {
        patch::PatchType::Apply if body["kind"] == *call.kind.kind => {
            let problem = kinds::unappliable(&call.kind, &body).filter(|_| !call.kind.custom);
            problem.map_or(Ok(()), |problem| Err(StatusError::unappliable(call, &problem)))
        }
        patch::PatchType::Strategic => match kinds::unpatchable(&call.kind.resource(), &body) {
            Some((shown, problem)) => Err(StatusError::unusable_patch(&shown, problem)),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The same of an object that a patch has made.
fn read_patched(call: &Call, object: &mut Value) -> Result<Vec<String>, StatusError> {
    let noticed = kinds::decode(&call.kind, object);
    let unreadable = |problem: &str| StatusError::unreadable_patch(&object.to_string(), problem);
    let noticed = noticed.map_err(|problem| unreadable(&problem))?;
    let odd: Vec<String> = noticed.unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
    match call.query.get("fieldValidation") {
        "Strict" if !odd.is_empty() => Err(unreadable(&format!("strict decoding error: {}", odd.join(", ")))),
        "Ignore" => Ok(noticed.warnings),
        _ => Ok([odd, noticed.warnings].concat()),
    }
}

fn same_place(call: &Call, object: &Value) -> Result<(), StatusError> {
    let name = text(object, "/metadata/name");
    if name != call.name {
        return Err(StatusError::other_name(name, &call.name));
    }
    if text(object, "/metadata/namespace") != call.namespace {
        return Err(StatusError::other_namespace());
    }
    Ok(())
}

impl Cluster {
    pub(super) fn create_by(&self, call: &Call, store: &mut Store) -> Result<Written, StatusError> {
        let mut object = call.object()?;
        Self::fit(call, &mut object)?;
        let warnings = read_strictly(call, &mut object)?;
        versions::to_kept(call, &mut object);
        call.rewrite(&mut object);
        let kind = Self::kept_kind(call, store)?;
        let object = self.make(store, &kind, object, Maker::Client(&self.writer(call)), call.dry())?;
        Ok(Written { object, new: true, warnings })
    }

    fn kept_kind(call: &Call, store: &Store) -> Result<Arc<Kind>, StatusError> {
        store.table(&call.resource).map(|table| Arc::clone(&table.kind)).ok_or_else(StatusError::no_such_path)
    }

    /// Everything that happens to a new object, whoever makes it.
    pub(super) fn make(
        &self,
        store: &mut Store,
        kind: &Kind,
        mut object: Value,
        maker: Maker<'_>,
        dry: bool,
    ) -> Result<Arc<Value>, StatusError> {
        let resource = kind.resource();
        kinds::decode(kind, &mut object).map_err(|problem| StatusError::bad_request(&problem))?;
        let namespace = text(&object, "/metadata/namespace").to_owned();
        self.complete_name(&mut object);
        let name = text(&object, "/metadata/name").to_owned();
        if kind.namespaced {
            living_namespace(store, &resource, &namespace, &name)?;
        }
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(StatusError::unforeseen("resourceVersion should not be set on objects to be created"));
        }
        let view = |resource: &str| {
            store.table(resource).map(|table| table.objects().values().cloned().collect()).unwrap_or_default()
        };
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in OF_THE_SERVER {
                metadata.remove(field);
            }
        }
        let (now, random) = (self.stamp(), &mut || self.0.chance.draw());
        let inside = matches!(maker, Maker::Inside);
        kinds::prepare_create(&mut object, &mut kinds::Making { kind, view: &view, random, now: &now, inside })?;
        limits::admit(store, &resource, &object, None)?;
        quota::admit(store, &resource, &object, None)?;
        if let Some(there) = store.get(&resource, &namespace, &name) {
            return Err(StatusError::already_exists(&resource, &name, is_terminating(&there)));
        }
        if let Maker::Client(writer) = maker {
            patch::note(&resource, kind.custom, &Value::Null, &mut object, writer);
        }
        object["metadata"]["uid"] = json!(self.0.chance.uuid());
        object["metadata"]["creationTimestamp"] = json!(self.0.clock.stamp());
        if dry {
            return Ok(Arc::new(object));
        }
        let made = store.put(&resource, object);
        quota::count(store, &namespace);
        super::custom::follow(store, &resource, &made);
        Ok(made)
    }

    fn complete_name(&self, object: &mut Value) {
        let prefix = text(object, "/metadata/generateName").to_owned();
        if text(object, "/metadata/name").is_empty() && !prefix.is_empty() {
            let prefix: String = prefix.chars().take(58).collect();
            object["metadata"]["name"] = json!(format!("{prefix}{}", self.0.chance.suffix()));
        }
    }

    /// Puts kind, version, namespace and metadata where a body left them out, and refuses a body about something else.
    fn fit(call: &Call, object: &mut Value) -> Result<(), StatusError> {
        if !object.is_object() {
            return Err(StatusError::bad_request("the body is not an object"));
        }
        for (field, expected) in [("kind", &call.kind.kind), ("apiVersion", &call.api_version())] {
            match object.get(field).and_then(Value::as_str).unwrap_or_default() {
                "" => object[field] = json!(expected),
                given if given == expected => {}
                _ if call.kind.custom => return Err(StatusError::wrong_custom_kind(call, object)),
                _ => return Err(StatusError::wrong_kind(call, object)),
            }
        }
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        if !object["metadata"].is_object() {
            return kinds::decode(&call.kind, object)
                .map(drop)
                .map_err(|problem| StatusError::undecodable(call, &problem));
        }
        if call.kind.namespaced {
            match text(object, "/metadata/namespace") {
                "" => object["metadata"]["namespace"] = json!(call.namespace),
                given if given == call.namespace => {}
                _ => return Err(StatusError::other_namespace()),
            }
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        Ok(())
    }

    pub(super) fn update_by(&self, call: &Call, store: &mut Store) -> Result<Written, StatusError> {
        let mut object = call.object()?;
        Self::fit(call, &mut object)?;
        let warnings = read_strictly(call, &mut object)?;
        let name = text(&object, "/metadata/name").to_owned();
        if name.is_empty() {
            return Err(StatusError::bad_request(&format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.name
            )));
        }
        if name != call.name {
            return Err(StatusError::other_name(&name, &call.name));
        }
        let Some(live) = store.get(&call.resource, &call.namespace, &call.name) else {
            return Err(StatusError::not_found(&call.resource, &call.name));
        };
        if text(&object, "/metadata/resourceVersion").is_empty() && call.kind.custom {
            return Err(StatusError::version_missing(call));
        }
        check_version(call, &live, text(&object, "/metadata/resourceVersion"))?;
        versions::to_kept(call, &mut object);
        call.rewrite(&mut object);
        self.replace(call, store, &live, object, Some(&self.writer(call))).map(|written| written.with(warnings))
    }

    pub(super) fn writer(&self, call: &Call) -> patch::Writer {
        patch::Writer {
            manager: call.manager(),
            subresource: call.subresource.clone(),
            api_version: call.api_version(),
            status_apart: call.kind.subresources.iter().any(|part| part == "status"),
            now: self.stamp(),
        }
    }

    pub(super) fn patch_by(&self, call: &Call, store: &mut Store) -> Result<Written, StatusError> {
        let how = patch::PatchType::from_content_type(&call.content_type)?;
        read_patch(call, how)?;
        let live = store.get(&call.resource, &call.namespace, &call.name);
        let options = patch::Options {
            name: call.name.clone(),
            kind: call.kind.kind.clone(),
            api_version: call.api_version(),
            writer: self.writer(call),
            force: call.query.is_true("force"),
            custom: call.kind.custom,
        };
        let Some(live) = live else {
            if how != patch::PatchType::Apply || !call.subresource.is_empty() {
                return Err(StatusError::not_found(&call.resource, &call.name));
            }
            let mut object = patch::apply(how, &call.resource, &Value::Null, &call.body, &options)?;
            Self::fit(call, &mut object)?;
            object["metadata"]["name"] = json!(call.name);
            let warnings = read_patched(call, &mut object)?;
            versions::to_kept(call, &mut object);
            let kind = Self::kept_kind(call, store)?;
            let object = self.make(store, &kind, object, Maker::Applier, call.dry())?;
            return Ok(Written { object, new: true, warnings });
        };
        let mut given = Value::clone(&live);
        versions::to_given(call, &mut given);
        let mut object = patch::apply(how, &call.resource, &given, &call.body, &options)?;
        let warnings = read_patched(call, &mut object)?;
        same_place(call, &object)?;
        versions::to_kept(call, &mut object);
        call.rewrite(&mut object);
        if text(&object, "/metadata/resourceVersion") != text(&live, "/metadata/resourceVersion") {
            check_version(call, &live, text(&object, "/metadata/resourceVersion"))?;
        }
        let noted = (how != patch::PatchType::Apply).then_some(&options.writer);
        self.replace(call, store, &live, object, noted).map(|written| written.with(warnings))
    }

    /// What every change of an object from outside goes through.
    fn replace(
        &self,
        call: &Call,
        store: &mut Store,
        live: &Value,
        mut object: Value,
        writer: Option<&patch::Writer>,
    ) -> Result<Written, StatusError> {
        keep_system_fields(call, live, &mut object)?;
        let view = |resource: &str| {
            store.table(resource).map(|table| table.objects().values().cloned().collect()).unwrap_or_default()
        };
        let (now, random) = (self.stamp(), &mut || self.0.chance.draw());
        let kind = Self::kept_kind(call, store)?;
        let making = kinds::Making { kind: &kind, view: &view, random, now: &now, inside: false };
        kinds::prepare_update(live, &mut object, &call.subresource, &making)?;
        no_new_finalizers(call, live, &object)?;
        if call.subresource.is_empty() {
            limits::admit(store, &call.resource, &object, Some(live))?;
        }
        quota::admit(store, &call.resource, &object, Some(live))?;
        if let Some(writer) = writer {
            patch::note(&call.resource, call.kind.custom, live, &mut object, writer);
        }
        if call.dry() || object == *live {
            return Ok(Written { object: Arc::new(object), new: false, warnings: Vec::new() });
        }
        Ok(Written { object: Self::put_down(store, &call.resource, object), new: false, warnings: Vec::new() })
    }

    /// An object that waited for its last finalizer goes with it.
    pub(super) fn put_down(store: &mut Store, resource: &str, object: Value) -> Arc<Value> {
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let ends = is_terminating(&object) && !is_held(resource, &object);
        // Who takes the last finalizer away is answered with the version that it was taken from; watches are told of
        // the object as it was.
        let last = ends.then(|| Arc::new(object.clone()));
        let (_, name) = key_of(&object);
        let put = match store.get(resource, &namespace, &name).filter(|_| ends) {
            Some(live) => store.remove(resource, Value::clone(&live)),
            None => store.put(resource, object),
        };
        quota::count(store, &namespace);
        super::custom::follow(store, resource, &put);
        last.unwrap_or(put)
    }
}

pub(super) fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether something still keeps a terminating object: finalizers, or a kubelet that has not ended the pod.
pub(super) fn is_held(resource: &str, object: &Value) -> bool {
    let some = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    some("/metadata/finalizers") || (resource == "namespaces" && some("/spec/finalizers")) || grace > 0
}

fn living_namespace(store: &Store, resource: &str, namespace: &str, name: &str) -> Result<(), StatusError> {
    let found =
        store.get("namespaces", "", namespace).ok_or_else(|| StatusError::not_found("namespaces", namespace))?;
    if is_terminating(&found) { Err(StatusError::namespace_terminating(resource, name, namespace)) } else { Ok(()) }
}

impl Call {
    /// Who owns what is written: by its own word, or by what the client calls itself.
    fn manager(&self) -> String {
        let agent = self.agent.split('/').next().filter(|agent| !agent.is_empty()).unwrap_or("unknown");
        let given = self.query.get("fieldManager");
        let apply = self.content_type.starts_with("application/apply-patch");
        if given.is_empty() && !apply { agent.to_owned() } else { given.to_owned() }
    }

    pub(super) fn api_version(&self) -> String {
        if self.kind.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.kind.group, self.version) }
    }
}
