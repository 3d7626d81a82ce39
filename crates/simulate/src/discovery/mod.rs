//! What a client asks before it asks anything else: which kinds there are, in which versions, and what the server is.
//!
//! Clients of today ask once, for the aggregated list; older ones walk from `/apis` down. Both find the same.

mod openapi;

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::resources::Kind;

#[derive(Debug)]
pub struct Page {
    pub content_type: String,
    pub body: Vec<u8>,
}

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The order in which built-in groups are told: where a name is in several, clients take the first.
const GROUPS: &[&str] = &[
    "apps",
    "events.k8s.io",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
];

/// None where the path leads nowhere.
pub fn page(path: &str, accept: &str, kinds: &[Arc<Kind>]) -> Option<Page> {
    let aggregated = accept.contains("g=apidiscovery.k8s.io") && accept.contains("v=v2;");
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let body = match parts.as_slice() {
        ["readyz" | "livez" | "healthz"] => {
            return Some(Page { content_type: "text/plain; charset=utf-8".to_owned(), body: b"ok".to_vec() });
        }
        ["api" | "apis"] if aggregated => {
            let body = aggregated_list(kinds, parts == ["api"]).to_string().into_bytes();
            return Some(Page { content_type: AGGREGATED.to_owned(), body });
        }
        ["openapi", "v2"] if accept.contains("protobuf") => {
            // Clients that miss a kind in the younger form look here. An empty document is one without any bytes.
            return Some(Page { content_type: openapi::PROTOBUF.to_owned(), body: Vec::new() });
        }
        ["openapi", "v2"] => openapi::empty(),
        [] => json!({"paths": paths(kinds)}),
        ["version"] => version(),
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]})
        }
        ["apis"] => {
            let groups: Vec<Value> = groups(kinds).iter().map(|group| description(kinds, group)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["api", version] => resource_list(kinds, "", version)?,
        ["apis", group, version] if !group.is_empty() => resource_list(kinds, group, version)?,
        ["apis", group] if groups(kinds).iter().any(|there| there == group) => {
            let mut description = description(kinds, group);
            description["kind"] = json!("APIGroup");
            description["apiVersion"] = json!("v1");
            description
        }
        ["openapi", "v3"] => openapi::index(kinds),
        ["openapi", "v3", "api", version] => openapi::document(&served(kinds, "", version)?, version),
        ["openapi", "v3", "apis", group, version] => openapi::document(&served(kinds, group, version)?, version),
        _ => return None,
    };
    Some(Page { content_type: JSON.to_owned(), body: body.to_string().into_bytes() })
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3",
        "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "simulated/memory",
    })
}

/// Groups but the core one, in the order of their telling.
fn groups(kinds: &[Arc<Kind>]) -> Vec<String> {
    let there: BTreeSet<&String> = kinds.iter().map(|kind| &kind.group).filter(|group| !group.is_empty()).collect();
    let mut groups: Vec<String> = there.into_iter().cloned().collect();
    groups.sort_by_key(|group| GROUPS.iter().position(|known| known == group).unwrap_or(GROUPS.len()));
    groups
}

/// Versions of a group, the preferred one first: kinds of one group may differ in theirs.
fn versions(kinds: &[Arc<Kind>], group: &str) -> Vec<String> {
    let of_group = kinds.iter().filter(|kind| kind.group == group);
    let mut versions: Vec<String> = of_group.flat_map(|kind| kind.versions.iter().cloned()).collect();
    versions.sort_by_key(|version| (Reverse(super::resources::rank(version)), version.clone()));
    versions.dedup();
    versions
}

/// The kinds of a version, ordered by name.
fn served(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Vec<Arc<Kind>>> {
    let wanted = |kind: &&Arc<Kind>| kind.group == group && kind.versions.iter().any(|served| served == version);
    let mut found: Vec<Arc<Kind>> = kinds.iter().filter(wanted).cloned().collect();
    found.sort_by(|left, right| left.plural.cmp(&right.plural));
    Some(found).filter(|found| !found.is_empty())
}

fn paths(kinds: &[Arc<Kind>]) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in groups(kinds) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions(kinds, &group).iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.sort();
    let others = ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.into_iter().chain(others.map(str::to_owned)).collect()
}

fn description(kinds: &[Arc<Kind>], group: &str) -> Value {
    let version = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let versions: Vec<Value> = versions(kinds, group).iter().map(version).collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

fn resource_list(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let found = served(kinds, group, version)?;
    let resources: Vec<Value> = found.iter().flat_map(|kind| resources(kind)).collect();
    let mut list = json!({"kind": "APIResourceList", "groupVersion": found.first()?.group_version(version), "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// A kind and its subresources as lines of an APIResourceList.
fn resources(kind: &Kind) -> Vec<Value> {
    let mut own = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs(kind),
    });
    add_names(kind, &mut own);
    let sub = |sub: &String| {
        let part = Part::of(kind, sub);
        let name = format!("{}/{sub}", kind.plural);
        let mut line = json!({
            "name": name, "singularName": "", "namespaced": kind.namespaced, "kind": part.kind, "verbs": part.verbs,
        });
        if !part.group.is_empty() {
            line["group"] = json!(part.group);
            line["version"] = json!("v1");
        }
        line
    };
    std::iter::once(own).chain(kind.subresources.iter().map(sub)).collect()
}

fn add_names(kind: &Kind, line: &mut Value) {
    for (field, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !names.is_empty() {
            line[field] = json!(names);
        }
    }
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.custom {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    let mut verbs = vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    verbs.retain(|verb| *verb != "deletecollection" || kind.resource() != "namespaces");
    verbs
}

/// What a subresource takes and gives; a group only where it is another's.
struct Part<'a> {
    group: &'static str,
    kind: &'a str,
    verbs: &'static [&'static str],
}

impl<'a> Part<'a> {
    fn of(kind: &'a Kind, subresource: &str) -> Self {
        let (group, kind, verbs): (_, &str, &[&str]) = match subresource {
            "scale" => ("autoscaling", "Scale", &["get", "patch", "update"]),
            "eviction" => ("policy", "Eviction", &["create"]),
            "binding" => ("", "Binding", &["create"]),
            "finalize" => ("", &kind.kind, &["update"]),
            "token" => ("authentication.k8s.io", "TokenRequest", &["create"]),
            _ => ("", &kind.kind, &["get", "patch", "update"]),
        };
        Self { group, kind, verbs }
    }
}

fn aggregated_list(kinds: &[Arc<Kind>], core: bool) -> Value {
    let groups = if core { vec![String::new()] } else { groups(kinds) };
    let version = |group: &str, version: &String| {
        let resources: Vec<Value> =
            served(kinds, group, version).iter().flatten().map(|kind| aggregated(kind, version)).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            let versions: Vec<Value> = versions(kinds, group).iter().map(|name| version(group, name)).collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated(kind: &Kind, version: &str) -> Value {
    // Those of built-in kinds are left empty, which clients read as the group and version of the list.
    let (group, version) = if kind.custom { (kind.group.as_str(), version) } else { ("", "") };
    let mut line = json!({
        "resource": kind.plural,
        "responseKind": {"group": group, "version": version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    add_names(kind, &mut line);
    let sub = |sub: &String| {
        let part = Part::of(kind, sub);
        let (group, version) = if part.group.is_empty() { (group, version) } else { (part.group, "v1") };
        let response = json!({"group": group, "version": version, "kind": part.kind});
        json!({"subresource": sub, "responseKind": response, "verbs": part.verbs})
    };
    let subresources: Vec<Value> = kind.subresources.iter().map(sub).collect();
    if !subresources.is_empty() {
        line["subresources"] = json!(subresources);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{super::resources::builtin, *};

    fn answer(path: &str, accept: &str) -> Value {
        let mut kinds: Vec<Arc<Kind>> = builtin().map(Arc::new).collect();
        kinds.push(Arc::new(Kind {
            group: "example.org".to_owned(),
            versions: vec!["v1".to_owned(), "v1beta1".to_owned()],
            plural: "lamps".to_owned(),
            kind: "Lamp".to_owned(),
            custom: true,
            ..Kind::default()
        }));
        let page = page(path, accept, &kinds).unwrap();
        serde_json::from_slice(&page.body).unwrap()
    }

    #[test]
    fn groups_and_versions_lead_to_kinds() {
        let groups = answer("/apis", "");
        let last = groups["groups"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["name"], &last["versions"][1]["version"]), (&json!("example.org"), &json!("v1beta1")));
        let kinds = answer("/apis/apps/v1", "");
        let names: Vec<&str> =
            kinds["resources"].as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(names[2..5], ["deployments", "deployments/scale", "deployments/status"], "{names:?}");
        assert_eq!(answer("/apis/storage.k8s.io", "")["kind"], json!("APIGroup"));
        assert!(page("/apis/none", "", &[]).is_none() && page("/api/v2", "", &[]).is_none());
    }

    #[test]
    fn aggregated_list_names_what_subresources_give() {
        let list = answer("/apis", &format!("{AGGREGATED},{JSON}"));
        let apps = &list["items"][0];
        assert_eq!(apps["metadata"]["name"], json!("apps"));
        let scale = apps.pointer("/versions/0/resources/1/subresources/0").unwrap();
        assert_eq!(scale["responseKind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
        let core = answer("/api", AGGREGATED);
        assert_eq!(core.pointer("/items/0/versions/0/resources/0/resource"), Some(&json!("configmaps")));
    }

    #[test]
    fn every_kind_says_that_its_fields_can_be_validated() {
        let index = answer("/openapi/v3", "");
        assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], json!("/openapi/v3/api/v1"));
        let document = answer("/openapi/v3/apis/example.org/v1beta1", "");
        let patch = &document["paths"]["/apis/example.org/v1beta1/lamps/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["version"], json!("v1beta1"));
        let told = patch["parameters"].as_array().unwrap();
        assert!(told.iter().any(|parameter| parameter["name"] == json!("fieldValidation")), "{patch}");
    }
}
