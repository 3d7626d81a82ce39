//! What a request is about, in Kubernetes' own words.

use http::{Method, Request, Uri};
use kube::client::Body;

use crate::metrics::requests::Subject;

pub(super) fn subject_of(request: &Request<Body>) -> Subject {
    let (verb, (resource, _)) = (verb_of(request.method(), request.uri()), route(request.uri().path()));
    Subject { verb, resource: resource.to_owned() }
}

pub(super) fn watches(address: &Uri) -> bool {
    address.query().unwrap_or_default().split('&').any(|parameter| parameter == "watch=true")
}

/// By what a FlowSchema can tell it from other requests of the same account: the verb, and where it is about one object the path without
/// the name of that. What is about a namespace itself counts as in it.
pub(super) fn sort_of(verb: &str, path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let kind = 1 + group_and_version(parts.first().copied());
    let name = kind + if parts.get(kind) == Some(&"namespaces") { 3 } else { 1 };
    if name < parts.len() {
        parts.remove(name);
    }
    format!("{verb} {}", parts.join("/"))
}

/// How many parts of a path say them, after this first one.
fn group_and_version(first: Option<&str>) -> usize {
    if first == Some("apis") { 2 } else { 1 }
}

/// The resource a path is about, and whether it names one of them: `persistentvolumeclaims`, true of
/// `/api/v1/namespaces/x/persistentvolumeclaims/y`.
fn route(path: &str) -> (&str, bool) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let group_and_version = group_and_version(parts.next());
    let mut rest = parts.skip(group_and_version);
    let rest: [Option<&str>; 4] = std::array::from_fn(|_| rest.next());
    match rest {
        [Some("namespaces"), Some(_), Some(kind), more] | [Some(kind), more, _, _] => (kind, more.is_some()),
        [None, ..] => ("", true),
    }
}

/// The verb in Kubernetes' own words.
fn verb_of(method: &Method, address: &Uri) -> &'static str {
    match (method.as_str(), route(address.path()).1) {
        ("GET", _) if watches(address) => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("PUT", _) => "update",
        ("DELETE", _) => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_and_resource_are_read_from_the_request() {
        for (method, address, verb, resource) in [
            (Method::GET, "/api/v1/namespaces/x/persistentvolumeclaims/y", "get", "persistentvolumeclaims"),
            (Method::GET, "/api/v1/persistentvolumes", "list", "persistentvolumes"),
            (Method::GET, "/api/v1/persistentvolumes?watch=true&x=y", "watch", "persistentvolumes"),
            (Method::GET, "/api/v1/namespaces/x", "get", "namespaces"),
            (Method::POST, "/apis/storage.k8s.io/v1/storageclasses?", "create", "storageclasses"),
            (Method::PATCH, "/api/v1/persistentvolumes/y?", "patch", "persistentvolumes"),
            (Method::GET, "/apis/storage.k8s.io/v1/namespaces/x/csistoragecapacities", "list", "csistoragecapacities"),
            (Method::GET, "/api/v1/namespaces/x/pods/y/log", "get", "pods"),
            (Method::GET, "/api/v1/namespaces", "list", "namespaces"),
            (Method::GET, "/version", "get", ""),
        ] {
            let uri: Uri = address.parse().unwrap();
            assert_eq!((verb_of(&method, &uri), route(uri.path()).0), (verb, resource), "{address}");
        }
    }

    #[test]
    fn requests_about_two_objects_of_one_kind_and_namespace_are_of_one_sort() {
        for (path, sort) in [
            ("/api/v1/namespaces/x/persistentvolumeclaims/y", "get api/v1/namespaces/x/persistentvolumeclaims"),
            ("/api/v1/namespaces/x/persistentvolumeclaims", "get api/v1/namespaces/x/persistentvolumeclaims"),
            ("/api/v1/namespaces/x/pods/y/log", "get api/v1/namespaces/x/pods/log"),
            ("/api/v1/persistentvolumes/y", "get api/v1/persistentvolumes"),
            ("/api/v1/namespaces/x", "get api/v1/namespaces/x"),
            ("/api/v1/namespaces", "get api/v1/namespaces"),
            ("/apis/storage.k8s.io/v1/storageclasses/y", "get apis/storage.k8s.io/v1/storageclasses"),
            ("/version", "get version"),
        ] {
            assert_eq!(sort_of("get", path), sort);
        }
    }
}
