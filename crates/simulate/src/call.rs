//! A request over HTTP, understood: which verb, on which object, with which options.

use std::sync::Arc;

use http::{Method, request::Parts};
use serde_json::Value;

use super::{
    faults::Verb, protobuf, resources::Kind, selector::Selector, status_error::StatusError, store::Store, versions,
};

/// Parameters of the query, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(&key.replace('+', " ")), decode(&value.replace('+', " "))))
                .collect(),
        )
    }

    pub fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    pub fn is_true(&self, key: &str) -> bool {
        ["true", "1"].contains(&self.get(key))
    }

    /// Any word but those that say no.
    pub fn is_set(&self, key: &str) -> bool {
        self.has(key) && !["false", "0"].contains(&self.get(key))
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key).parse().ok()
    }

    /// A server may give less than the page that it is asked for.
    pub fn lower_limit(&mut self, most: u64) {
        for (_, limit) in self.0.iter_mut().filter(|(key, _)| key == "limit") {
            if limit.parse::<u64>().is_ok_and(|limit| limit > most) {
                *limit = most.to_string();
            }
        }
    }
}

/// In a query a plus is a space, and in a path it is itself.
fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits: String = bytes.by_ref().take(2).map(char::from).collect();
        match u8::from_str_radix(&digits, 16) {
            Ok(value) => decoded.push(value),
            Err(_) => decoded.extend(format!("%{digits}").bytes()),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Where a path leads, before it is known whether there is such a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
}

impl Place {
    /// None where the path is about no object: discovery, health and the like.
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if !["status", "finalize"].contains(plural) => {
                (*namespace, [&[*plural], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let (plural, name, subresource) = match rest.as_slice() {
            [plural] => (*plural, "", String::new()),
            [plural, name, sub @ ..] => (*plural, *name, sub.join("/")),
            [] => return None,
        };
        let own = str::to_owned;
        Some(Self {
            group: own(group),
            version: own(version),
            plural: own(plural),
            namespace: own(namespace),
            name: own(name),
            subresource,
        })
    }

    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// A group that is known answers for what it does not have; of others there is no page.
    fn missing(&self, store: &Store) -> StatusError {
        let known = |kind: &Kind| kind.group == self.group && (!kind.custom || kind.versions.contains(&self.version));
        if store.tables().any(|table| known(&table.kind)) {
            StatusError::no_such_path()
        } else {
            StatusError::no_page()
        }
    }

    pub fn verb(&self, method: &Method, query: &Query) -> Option<Verb> {
        let named = !self.name.is_empty();
        Some(match (method.as_str(), named) {
            ("GET", true) => Verb::Get,
            ("GET", false) if query.is_set("watch") => Verb::Watch,
            ("GET", false) => Verb::List,
            ("POST", named) if named != self.subresource.is_empty() && self.subresource != "status" => Verb::Create,
            ("PUT", true) => Verb::Update,
            ("PATCH", true) => Verb::Patch,
            ("DELETE", true) if self.subresource.is_empty() => Verb::Delete,
            ("DELETE", false) if self.plural != "namespaces" => Verb::DeleteCollection,
            _ => return None,
        })
    }
}

/// A request on a kind that exists.
#[derive(Clone, Debug)]
pub struct Call {
    pub verb: Verb,
    pub kind: Arc<Kind>,
    pub version: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    pub query: Query,
    pub selector: Selector,
    pub content_type: String,
    pub accept: String,
    /// What the client calls itself.
    pub agent: String,
    pub body: Vec<u8>,
    /// What a webhook writes on what is to be kept, and where.
    pub webhook: Option<(&'static str, &'static str)>,
}

impl Call {
    pub fn new(place: &Place, parts: &Parts, mut body: Vec<u8>, store: &Store) -> Result<Self, StatusError> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let resource = place.resource();
        let kind = store
            .table(&resource)
            .map(|table| Arc::clone(&table.kind))
            .filter(|kind| kind.versions.contains(&place.version) && (kind.namespaced || place.namespace.is_empty()));
        let kind = kind.ok_or_else(|| place.missing(store))?;
        let resource = versions::kept_as(resource);
        let verb = place.verb(&parts.method, &query).ok_or_else(StatusError::method_not_allowed)?;
        if kind.namespaced && place.namespace.is_empty() && !matches!(verb, Verb::List | Verb::Watch) {
            return Err(StatusError::method_not_allowed());
        }
        if !place.subresource.is_empty() && !kind.subresources.contains(&place.subresource) {
            return Err(StatusError::no_such_path());
        }
        let header =
            |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), &resource)?;
        let mut content_type = header("content-type");
        if protobuf::is_meant(&content_type) {
            body = protobuf::to_json(&body)?.to_string().into_bytes();
            "application/json".clone_into(&mut content_type);
        }
        Ok(Self {
            verb,
            kind,
            version: place.version.clone(),
            resource,
            namespace: place.namespace.clone(),
            name: place.name.clone(),
            subresource: place.subresource.clone(),
            query,
            selector,
            content_type,
            accept: header("accept"),
            agent: header("user-agent"),
            body,
            webhook: None,
        })
    }

    /// By the webhook that there is, if any.
    pub fn rewrite(&self, object: &mut Value) {
        if let Some((at, value)) = self.webhook
            && let Some(there) = object.pointer_mut(at)
        {
            *there = value.into();
        }
    }

    pub fn dry(&self) -> bool {
        self.query.get("dryRun") == "All"
    }

    /// The body as the object it must be.
    pub fn object(&self) -> Result<Value, StatusError> {
        super::decoder::object(&self.kind.kind, &self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plus_is_a_space_in_a_query_and_itself_in_a_path() {
        assert_eq!(Query::parse("labelSelector=a+in+%28b%29").get("labelSelector"), "a in (b)");
        assert_eq!(Place::parse("/api/v1/persistentvolumes/a+1%2B").unwrap().name, "a+1+");
    }

    #[test]
    fn path_is_told_apart() {
        let told = |path: &str| {
            Place::parse(path).map(|place| (place.resource(), place.namespace, place.name, place.subresource))
        };
        let expect = |resource: &str, namespace: &str, name: &str, sub: &str| {
            Some((resource.to_owned(), namespace.to_owned(), name.to_owned(), sub.to_owned()))
        };
        assert_eq!(told("/api/v1/namespaces/a/pods/b/status"), expect("pods", "a", "b", "status"));
        assert_eq!(told("/api/v1/namespaces/a"), expect("namespaces", "", "a", ""));
        assert_eq!(told("/api/v1/namespaces/a/finalize"), expect("namespaces", "", "a", "finalize"));
        assert_eq!(told("/apis/apps/v1/namespaces/a/deployments"), expect("deployments.apps", "a", "", ""));
        assert_eq!(
            told("/apis/storage.k8s.io/v1/storageclasses/x"),
            expect("storageclasses.storage.k8s.io", "", "x", "")
        );
        assert_eq!((told("/api/v1"), told("/version"), told("/apis/apps/v1")), (None, None, None));
    }

    #[test]
    fn query_is_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=true&limit=5&x");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert!(query.is_true("watch") && query.has("x") && !query.has("y"));
        assert_eq!(query.number("limit"), Some(5));
    }
}
