//! The ConfigMaps and Secrets that a pod names, and the tokens it wants. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::object::{items, text};

/// The ConfigMap in which every namespace of a cluster is given that cluster's certificate authority.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";
/// What a host's was called in a member when all hosts had one name for theirs. Copies of then mount it for as long as they run.
pub(super) const FORMER_ROOT_CA: &str = "kosmos-csi.kube-root-ca.crt";
/// What that of this host is called in a member, which has its own, and where other hosts may use the same namespaces.
pub(super) fn host_root_ca(host: &str) -> String {
    format!("{FORMER_ROOT_CA}.{host}")
}

/// On a copy: the object of the host, and its version, that it is a copy of.
pub(super) const VERSION: &str = "kosmos.csi.io/version";

/// What agents make for themselves in members has names that begin with one of these.
const OWN: [&str; 2] = ["kosmos-csi.", TOKENS];
const TOKENS: &str = "kosmos-csi-token-";

pub(super) fn is_of_an_agent(name: &str) -> bool {
    OWN.iter().any(|own| name.starts_with(own))
}

/// The volume in which a cluster hands its pods the account's token.
const ACCESS: &str = "kube-api-access-";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

pub(super) type Name = (Kind, String);

/// What of a pod does not start while something that it names is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    #[default]
    Nothing,
    /// A container that takes a variable of it: one that has no such key keeps it waiting as well.
    Container,
    /// All of it, for what is in a volume. So it is here for a container that takes all variables of it: with an empty one it would start.
    Pod,
}

/// What a pod can name, and where: the part that names it, and the field with the name.
const IN_VARIABLE: [(&str, Kind); 2] =
    [("/valueFrom/configMapKeyRef", Kind::ConfigMap), ("/valueFrom/secretKeyRef", Kind::Secret)];
const IN_VARIABLES: [(&str, Kind); 2] = [("/configMapRef", Kind::ConfigMap), ("/secretRef", Kind::Secret)];
const IN_VOLUME: [(&str, Kind); 2] = [("/configMap", Kind::ConfigMap), ("/secret", Kind::Secret)];

/// What one part of a pod names, and whether that can do without it.
fn named_in(part: &Value, places: [(&str, Kind); 2]) -> Option<(Name, bool)> {
    places.into_iter().find_map(|(place, kind)| {
        let source = part.pointer(place).filter(|source| source.is_object())?;
        let field = if source.get("secretName").is_some() { "/secretName" } else { "/name" };
        Some(((kind, text(source, field).to_owned()), source["optional"] == true))
    })
}

fn needed_in(part: &Value, places: [(&str, Kind); 2], need: Need) -> Option<(Name, Need)> {
    named_in(part, places).map(|(name, is_optional)| (name, if is_optional { Need::Nothing } else { need }))
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    items(spec, "/initContainers").chain(items(spec, "/containers"))
}

/// Everything that a pod names, and what of it needs that. What it pulls images with, it can do without.
pub(super) fn named(spec: &Value) -> BTreeMap<Name, Need> {
    let variables = containers(spec).flat_map(|container| {
        let one = items(container, "/env").filter_map(|variable| needed_in(variable, IN_VARIABLE, Need::Container));
        one.chain(items(container, "/envFrom").filter_map(|source| needed_in(source, IN_VARIABLES, Need::Pod)))
    });
    let volumes = items(spec, "/volumes").flat_map(|volume| {
        let projected =
            items(volume, "/projected/sources").filter_map(|source| needed_in(source, IN_VOLUME, Need::Pod));
        needed_in(volume, IN_VOLUME, Need::Pod).into_iter().chain(projected)
    });
    let pulling = items(spec, "/imagePullSecrets")
        .map(|source| ((Kind::Secret, text(source, "/name").to_owned()), Need::Nothing));
    let mut all = BTreeMap::<Name, Need>::new();
    for (name, need) in variables.chain(volumes).chain(pulling).filter(|((_, name), _)| !name.is_empty()) {
        let most = all.entry(name).or_default();
        *most = need.max(*most);
    }
    all
}

/// In seconds. A token is renewed for as long as its pod runs, so none has to live longer in another cluster. An API server that is
/// asked for 3607, which its admission writes into each pod, gives one of a year and says that it is one of an hour.
pub(super) const LONGEST_TOKEN: i64 = 3600;

/// A token that a pod wants, in the order in which it names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) audience: String,
    pub(super) seconds: i64,
}

pub(super) fn tokens(spec: &Value) -> Vec<Token> {
    let sources = items(spec, "/volumes").flat_map(|volume| items(volume, "/projected/sources"));
    let tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
    let token = |token: &Value| Token {
        audience: text(token, "/audience").to_owned(),
        seconds: token["expirationSeconds"].as_i64().unwrap_or(LONGEST_TOKEN).min(LONGEST_TOKEN),
    };
    tokens.map(token).collect()
}

/// The Secret in the member that holds a pod's tokens.
pub(super) fn token_secret(pod_uid: &str) -> String {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(pod_uid)[..8]);
    format!("{TOKENS}{:016x}", u64::from_be_bytes(first))
}

pub(super) fn token_key(number: usize) -> String {
    format!("token-{number}")
}

/// What becomes of what a pod names, in its copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    /// Whether the namespace's Secrets, and tokens of its accounts, are given to members.
    pub(super) secrets: bool,
    /// What the pod can do without, and has to.
    pub(super) left_out: &'a [Name],
    pub(super) pod_uid: &'a str,
    pub(super) host: &'a str,
}

impl Given<'_> {
    fn leaves_out(&self, named: Option<(Name, bool)>) -> bool {
        named.is_some_and(|(name, _)| self.left_out.contains(&name))
    }

    /// A reference to something in the member that is not this pod's must never be left: it would be read there.
    pub(super) fn rewrite(&self, spec: &mut Value) {
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                retain(container, "env", |variable| !self.leaves_out(named_in(variable, IN_VARIABLE)));
                retain(container, "envFrom", |source| !self.leaves_out(named_in(source, IN_VARIABLES)));
                for variable in list_mut(container, "env") {
                    self.rename_root_ca(variable.pointer_mut("/valueFrom/configMapKeyRef"));
                }
                for source in list_mut(container, "envFrom") {
                    self.rename_root_ca(source.get_mut("configMapRef"));
                }
            }
        }
        retain(spec, "imagePullSecrets", |source| {
            !self.left_out.contains(&(Kind::Secret, text(source, "/name").to_owned()))
        });
        let mut tokens = 0..;
        for volume in list_mut(spec, "volumes") {
            self.rewrite_volume(volume, &mut tokens);
        }
    }

    fn rewrite_volume(&self, volume: &mut Value, tokens: &mut impl Iterator<Item = usize>) {
        let of_account = is_of_account(volume);
        for source in volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(token) = source.get("serviceAccountToken") else { continue };
            let number = tokens.next().unwrap_or_default();
            if self.secrets {
                let item = json!({"key": token_key(number), "path": token["path"]});
                *source = json!({"secret": {"name": token_secret(self.pod_uid), "items": [item]}});
            }
        }
        if let Some(projected) = volume.get_mut("projected") {
            retain(projected, "sources", |source| {
                source.get("serviceAccountToken").is_none() && !self.leaves_out(named_in(source, IN_VOLUME))
            });
            for source in list_mut(projected, "sources") {
                self.rename_root_ca(source.get_mut("configMap"));
            }
        }
        self.rename_root_ca(volume.get_mut("configMap"));
        let nothing_left = volume.pointer("/projected/sources").is_some_and(|sources| *sources == json!([]));
        if nothing_left || of_account && !self.secrets || self.leaves_out(named_in(volume, IN_VOLUME)) {
            *volume = json!({"name": volume["name"], "emptyDir": {}});
        }
    }

    fn rename_root_ca(&self, source: Option<&mut Value>) {
        if let Some(source) = source.filter(|source| source["name"] == ROOT_CA) {
            source["name"] = json!(host_root_ca(self.host));
        }
    }
}

/// The spec of a pod's copy, in what it names.
pub(super) fn rewritten(pod: &Value, secrets: bool, host: &str) -> Value {
    let mut spec = pod["spec"].clone();
    Given { secrets, left_out: &[], pod_uid: text(pod, "/metadata/uid"), host }.rewrite(&mut spec);
    spec
}

/// By its name alone it may be any: whoever makes a pod calls his volumes as he likes.
fn is_of_account(volume: &Value) -> bool {
    let has_token = || items(volume, "/projected/sources").any(|source| source.get("serviceAccountToken").is_some());
    text(volume, "/name").starts_with(ACCESS) && has_token()
}

pub(super) fn list_mut<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

fn retain(object: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(list) = object.get_mut(list).and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Value {
        json!({"name": "kube-api-access-x1", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": []}},
        ]}})
    }

    fn spec() -> Value {
        json!({
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [{
                "env": [
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "maybe", "key": "b", "optional": true}}},
                    {"name": "C", "value": "plain"},
                ],
                "envFrom": [{"secretRef": {"name": "passwords"}}],
            }],
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "settings", "optional": true}}]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "files"}},
                {"name": "b", "secret": {"secretName": "keys", "optional": true}},
                {"name": "c", "projected": {"sources": [{"secret": {"name": "keys"}}]}},
                access(),
            ],
        })
    }

    fn secret(name: &str) -> Name {
        (Kind::Secret, name.to_owned())
    }

    #[test]
    fn everything_a_pod_names_is_found_and_what_of_it_needs_that() {
        let told: Vec<String> =
            named(&spec()).into_iter().map(|((kind, name), need)| format!("{kind} {name}: {need:?}")).collect();
        let config_maps = ["ConfigMap files: Pod", "ConfigMap kube-root-ca.crt: Pod", "ConfigMap settings: Container"];
        let secrets =
            ["Secret keys: Pod", "Secret maybe: Nothing", "Secret passwords: Pod", "Secret registry: Nothing"];
        assert_eq!(told, [&config_maps[..], &secrets[..]].concat());
        assert_eq!(tokens(&spec()), [Token { audience: String::new(), seconds: 3600 }]);
    }

    #[test]
    fn what_is_left_out_is_named_no_more() {
        let left_out = [secret("maybe"), secret("keys"), secret("registry")];
        let mut spec = spec();
        Given { secrets: true, left_out: &left_out, pod_uid: "u", host: "h" }.rewrite(&mut spec);
        let still: Vec<Name> = named(&spec).into_keys().collect();
        assert!(left_out.iter().all(|name| !still.contains(name)), "{still:?}");
        assert_eq!(spec["volumes"][1], json!({"name": "b", "emptyDir": {}}));
        assert_eq!(spec["volumes"][2], json!({"name": "c", "emptyDir": {}}));
        assert_eq!(spec["containers"][0]["env"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn token_is_the_hosts_where_the_namespace_gives_its_secrets_and_none_elsewhere() {
        let mut given = json!({"volumes": [access()]});
        let mut kept = given.clone();
        Given { secrets: true, left_out: &[], pod_uid: "u", host: "h" }.rewrite(&mut given);
        let sources = given.pointer("/volumes/0/projected/sources").unwrap();
        assert_eq!(
            sources[0],
            json!({"secret": {"name": token_secret("u"), "items": [{"key": "token-0", "path": "token"}]}})
        );
        assert_eq!(sources[1]["configMap"]["name"], "kosmos-csi.kube-root-ca.crt.h");
        Given { secrets: false, left_out: &[], pod_uid: "u", host: "h" }.rewrite(&mut kept);
        assert_eq!(kept, json!({"volumes": [{"name": "kube-api-access-x1", "emptyDir": {}}]}));
        let token = json!({"serviceAccountToken": {"path": "t"}});
        let mut own =
            json!({"volumes": [{"name": "own", "projected": {"sources": [token, {"configMap": {"name": "a"}}]}}]});
        Given { secrets: false, left_out: &[], pod_uid: "u", host: "h" }.rewrite(&mut own);
        assert_eq!(own["volumes"][0]["projected"]["sources"], json!([{"configMap": {"name": "a"}}]));
    }

    /// What is written on it would be lost.
    #[test]
    fn volume_that_is_only_called_like_that_of_an_account_stays_what_it_is() {
        let claim = json!({"name": "kube-api-access-data", "persistentVolumeClaim": {"claimName": "leaf"}});
        let sources = json!([{"configMap": {"name": "files"}}]);
        let projected = json!({"name": "kube-api-access-files", "projected": {"sources": sources}});
        let mut spec = json!({"volumes": [claim, projected]});
        let before = spec.clone();
        Given { secrets: false, left_out: &[], pod_uid: "u", host: "h" }.rewrite(&mut spec);
        assert_eq!(spec, before);
    }
}
