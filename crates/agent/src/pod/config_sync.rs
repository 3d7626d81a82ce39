//! ConfigMaps and Secrets of the host, kept in a member for as long as a pod of the host that runs there names them. They
//! carry our labels; whatever else has such a name is left alone, and no pod is given it.
//!
//! Secrets leave the host only where its namespace says so by a label. No message holds anything of what is in one.

use std::collections::BTreeMap;

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    super::{
        HOST, MANAGED_BY,
        node::ignore_conflict,
        object::{self, Objects, items, mark, parsed, read, short, text, way_out},
        open_namespaces::OPEN,
    },
    COPIED, Pods,
    account_tokens::{self, RENEW_AT},
    missing,
    names::{
        FORMER_ROOT_CA, Given, Kind, Name, Need, ROOT_CA, VERSION, host_root_ca, is_of_an_agent, named, rewritten,
        token_secret, tokens,
    },
    rejection::{PodRejection, denied},
    removal::with_uid,
};
use domain::volume::{DRIVER, id::is_subdomain};

/// In bytes, of what a copy says of itself: a UID and a version.
const LONGEST_NOTE: usize = 200;
/// A Secret of this type is given a token by the cluster that it is in, of the account there that it names.
const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// Why an object goes to no member, whatever it holds.
const NOT_GIVEN: &str = "ObjectNotGiven";
/// What marks were called when all hosts had one name for theirs. They begin with it.
pub(super) const FORMER_MARK: &str = "kosmos-csi.secrets";

/// What a pod is given of what it names.
#[derive(Debug, Default)]
pub(super) struct Synced {
    secrets: bool,
    left_out: Vec<Name>,
    /// Containers wait for what the host does not have. It may come at once: what belongs together is often made together.
    pub(super) is_awaited: bool,
    /// Why the pod is without something that it names: the first that there is something to say of.
    pub(super) why_without: Option<PodRejection>,
}

impl Synced {
    pub(super) fn given<'a>(&'a self, pod_uid: &'a str, host: &'a str) -> Given<'a> {
        Given { secrets: self.secrets, left_out: &self.left_out, pod_uid, host }
    }

    /// A kubelet runs a pod without what is optional and not there.
    fn leave_out(&mut self, name: Name, why: &PodRejection) {
        self.left_out.push(name);
        self.note(why, "The pod runs without it, as it is optional");
    }

    /// A kubelet starts all but the containers that need what is not there.
    fn wait_for(&mut self, why: &PodRejection) {
        self.is_awaited = true;
        self.note(why, "Containers that take a variable from it wait until it exists; the other containers start");
    }

    fn note(&mut self, why: &PodRejection, so: &str) {
        self.why_without.get_or_insert_with(|| PodRejection::new(why.reason, format!("{}. {so}", why.message)));
    }
}

impl Pods<'_> {
    /// Puts what a pod names into the member, or says what is in the way.
    pub(super) async fn sync_for(&self, pod: &Value) -> kube::Result<Result<Synced, PodRejection>> {
        let namespace = text(pod, "/metadata/namespace");
        let (wanted, tokens) = (named(&pod["spec"]), tokens(&pod["spec"]));
        let pulling = || items(pod, "/spec/imagePullSecrets");
        let wants_secret = wanted.keys().find(|(kind, _)| *kind == Kind::Secret);
        let open = (wants_secret.is_some() || !tokens.is_empty()) && self.is_open(namespace).await?;
        if let Some((_, name)) = wants_secret.filter(|_| !open)
            && (wanted.iter().any(|((kind, _), need)| *kind == Kind::Secret && *need != Need::Nothing)
                || pulling().next().is_some())
        {
            let message = format!(
                "the pod names Secret {name}, but members are given no Secrets of namespace {namespace}: leave it out of the pod, or \
                 have the host's administrator allow it (kubectl label namespace {namespace} {OPEN}=true)"
            );
            return Ok(Err(PodRejection::new("SecretsNotGiven", message)));
        }
        let (mut kept, mut awaited) = (Synced { secrets: open, ..Synced::default() }, Vec::new());
        for (name, need) in in_turn(pod, in_copy(pod, open, &self.host.id.0), &self.host.id.0) {
            let synced = match refused_name((name.0, &name.1), &self.host.id.0) {
                Some(why) => Err(why),
                None if name.0 == Kind::Secret && !open => Ok(false),
                None => self.sync_one(&name, namespace, None).await?,
            };
            match synced {
                Ok(true) => {}
                Ok(false) if need == Need::Nothing => {
                    let is_read = name.0 == Kind::ConfigMap || open && pulling().all(|one| one["name"] != name.1);
                    if !is_read || !missing::is_given_empty(self, &name, namespace).await? {
                        kept.left_out.push(name);
                    }
                }
                Err(why) if need == Need::Nothing && why.reason == NOT_GIVEN => kept.leave_out(name, &why),
                Ok(false) if need == Need::Container => awaited.push(name),
                Ok(false) => return Ok(Err(is_not_there(&name, &self.host.id.0))),
                Err(why) => return Ok(Err(why)),
            }
        }
        for name in awaited {
            let why = is_not_there(&name, &self.host.id.0);
            match missing::stands_in(self, &name, namespace).await? {
                Ok(true) => kept.wait_for(&why),
                Ok(false) => return Ok(Err(why)),
                Err(taken) => return Ok(Err(taken)),
            }
        }
        if open
            && !tokens.is_empty()
            && let Err(why) = account_tokens::sync(self, pod, &tokens).await?
        {
            return Ok(Err(why));
        }
        Ok(Ok(kept))
    }

    pub(super) async fn is_open(&self, namespace: &str) -> kube::Result<bool> {
        let found = read(&object::namespaces(&self.host.client), namespace).await?;
        Ok(found.is_some_and(|namespace| mark(&namespace, "labels", OPEN) == "true"))
    }

    /// Whether the host has it; then the member has it as well. `there`: as the member has just told it, if it has.
    pub(super) async fn sync_one(
        &self,
        (kind, name): &Name,
        namespace: &str,
        there: Option<&Value>,
    ) -> kube::Result<Result<bool, PodRejection>> {
        // What was given under such a name before that was refused, copies that run have still.
        if there.is_none()
            && name != FORMER_ROOT_CA
            && let Some(why) = refused_name((*kind, name), &self.host.id.0)
        {
            return Ok(Err(why));
        }
        let original = match read(&self.of_kind(*kind, namespace, true), in_host(name, &self.host.id.0)).await {
            Err(error) => return denied(error, *kind, namespace, "host"),
            Ok(None) => return Ok(Ok(false)),
            Ok(Some(original)) => original,
        };
        if let Some(why) = refused_type(name, &original) {
            return Ok(Err(why));
        }
        let is_current = |there: &Value| mark(there, "annotations", VERSION) == version(&original);
        if there.is_some_and(is_current) {
            return Ok(Ok(true));
        }
        let mut wanted = self.marked(name, namespace, &json!({VERSION: version(&original)}));
        for field in ["data", "binaryData", "type"] {
            if let Some(value) = original.get(field) {
                wanted[field] = value.clone();
            }
        }
        self.put(*kind, namespace, name, wanted, is_current).await.map(|put| put.map(|()| true))
    }

    /// Makes an object in the member, or brings it up to date. One that is not ours is left alone.
    pub(super) async fn put(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        wanted: Value,
        is_current: impl Fn(&Value) -> bool,
    ) -> kube::Result<Result<(), PodRejection>> {
        let objects = self.of_kind(kind, namespace, false);
        let there = match read(&objects, name).await {
            Ok(there) => there,
            Err(error) => return denied(error, kind, namespace, &self.member.name),
        };
        let written = match &there {
            None if kind == Kind::Secret => {
                self.awaited.note(namespace);
                match self.mark_namespace(namespace).await {
                    Ok(()) => self.create_kept(kind, namespace, wanted).await,
                    refused => refused,
                }
            }
            None => self.create_kept(kind, namespace, wanted).await,
            Some(there) if !self.is_ours(there) => {
                let message = format!(
                    "member {} already has a {kind} {namespace}/{name} that is not this host's copy: {}",
                    self.member.name,
                    way_out(there, &self.host.id.0)
                );
                return Ok(Err(PodRejection::new("NameTaken", message)));
            }
            Some(there) if is_current(there) && !is_of_another_type(there, &wanted) => return Ok(Ok(())),
            Some(there) if is_fixed(there, &wanted) => self.replace(kind, namespace, there, wanted).await,
            Some(there) => {
                let patch = Patch::<()>::Json(
                    serde_json::from_value(changes(there, &wanted)).map_err(kube::Error::SerdeError)?,
                );
                objects.patch(name, &PatchParams::default(), &patch).await.map(drop)
            }
        };
        match written {
            Ok(()) => Ok(Ok(())),
            Err(error) => denied(error, kind, namespace, &self.member.name),
        }
    }

    /// Before the first Secret is there. Where somebody else has something of that name, it is as it was.
    pub(super) async fn mark_namespace(&self, namespace: &str) -> kube::Result<()> {
        let mark = self.marked(&self.namespace_mark(), namespace, &json!({VERSION: "1"}));
        ignore_conflict(self.create_kept(Kind::ConfigMap, namespace, mark).await)
    }

    /// The ConfigMap in a namespace of the member where there are Secrets of this host: nobody may list those of all namespaces, and the
    /// host's namespace, which gave them, may have gone. Another host may have Secrets there as well.
    pub(super) fn namespace_mark(&self) -> String {
        format!("{FORMER_MARK}.{}", self.host.id)
    }

    async fn create_kept(&self, kind: Kind, namespace: &str, wanted: Value) -> kube::Result<()> {
        self.of_kind(kind, namespace, false).create(&PostParams::default(), &parsed(wanted)?).await.map(drop)
    }

    async fn replace(&self, kind: Kind, namespace: &str, there: &Value, wanted: Value) -> kube::Result<()> {
        let objects = self.of_kind(kind, namespace, false);
        ignore_conflict(objects.delete(text(there, "/metadata/name"), &with_uid(there)).await.map(drop))?;
        self.create_kept(kind, namespace, wanted).await
    }

    pub(super) fn marked(&self, name: &str, namespace: &str, annotations: &Value) -> Value {
        let labels = json!({MANAGED_BY: DRIVER, HOST: self.host.id.0});
        json!({"metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}})
    }

    pub(super) fn is_ours(&self, there: &Value) -> bool {
        let ours = mark(there, "labels", MANAGED_BY) == DRIVER && mark(there, "labels", HOST) == self.host.id.0;
        ours && [VERSION, RENEW_AT].iter().any(|key| !mark(there, "annotations", key).is_empty())
    }

    pub(super) fn of_kind(&self, kind: Kind, namespace: &str, of_host: bool) -> Objects {
        let client = if of_host { &self.host.client } else { self.client };
        match kind {
            Kind::ConfigMap => object::config_maps(client, namespace),
            Kind::Secret => object::secrets(client, namespace),
        }
    }
}

/// What the copy of a pod names, and what of it needs that: with the member's names, and without its tokens.
fn in_copy(pod: &Value, open: bool, host: &str) -> BTreeMap<Name, Need> {
    let mut named = named(&rewritten(pod, open, host));
    named.remove(&(Kind::Secret, token_secret(text(pod, "/metadata/uid"))));
    named
}

/// First what the pod says that it waits for: as long as that is not there, nothing is asked about all else.
fn in_turn(pod: &Value, named: BTreeMap<Name, Need>, host: &str) -> impl Iterator<Item = (Name, Need)> {
    let says = |why: &PodRejection| {
        items(pod, "/status/conditions").any(|one| one["type"] == COPIED && one["message"] == why.message)
    };
    let (awaited, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|(name, _)| says(&is_not_there(name, host)));
    awaited.into_iter().chain(others)
}

fn is_not_there((kind, name): &Name, host: &str) -> PodRejection {
    PodRejection::new("WaitsForObject", format!("{kind} {} does not exist in the host", in_host(name, host)))
}

/// Why an object of the host is given to no member: another host's agent, or this one, may make its own of that name there, or none can
/// have it. API servers take any text for the name of a ConfigMap or Secret in a pod's volumes.
pub(super) fn refused_name((kind, name): (Kind, &str), host: &str) -> Option<PodRejection> {
    let is_root_ca = kind == Kind::ConfigMap && name == host_root_ca(host);
    let message = if is_of_an_agent(name) && !is_root_ca {
        format!("{kind} {name} has a name that is kept for objects of agents in members: give it another name")
    } else if is_subdomain(name) {
        return None;
    } else {
        format!("{kind} {name} cannot exist, as Kubernetes allows no such name: correct its name in the pod")
    };
    Some(PodRejection::new(NOT_GIVEN, message))
}

/// The same of what is in it.
fn refused_type(name: &str, original: &Value) -> Option<PodRejection> {
    let message = format!(
        "Secret {name} is of type {ACCOUNT_TOKEN}: a member would put a token of its own into it. Use a projected token of the host's account \
         (serviceAccountToken), or give the Secret another type"
    );
    (text(original, "/type") == ACCOUNT_TOKEN).then(|| PodRejection::new(NOT_GIVEN, message))
}

/// What is gone by of an object of ours that is there: somebody there may have noted very much on it.
pub(super) fn seen(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let note = |key| short(mark(object, "annotations", key), LONGEST_NOTE);
    json!({"metadata": {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "deletionTimestamp": metadata["deletionTimestamp"],
        "annotations": {VERSION: note(VERSION), RENEW_AT: note(RENEW_AT)},
    }})
}

fn in_host<'a>(name: &'a str, host: &str) -> &'a str {
    if name == host_root_ca(host) || name == FORMER_ROOT_CA { ROOT_CA } else { name }
}

/// From what is there to what is wanted, as long as it is as it was seen.
fn changes(there: &Value, wanted: &Value) -> Value {
    let same = ["uid", "resourceVersion"]
        .map(|field| json!({"op": "test", "path": format!("/metadata/{field}"), "value": there["metadata"][field]}));
    let notes = json!({"op": "add", "path": "/metadata/annotations", "value": wanted["metadata"]["annotations"]});
    let fields = ["data", "binaryData", "stringData"].into_iter().filter_map(|field| {
        let path = format!("/{field}");
        match (wanted.get(field), there.get(field)) {
            (Some(value), _) => Some(json!({"op": "add", "path": path, "value": value})),
            // Tokens are given as text and kept as data.
            (None, Some(_)) if wanted.get("stringData").is_none() => Some(json!({"op": "remove", "path": path})),
            _ => None,
        }
    });
    same.into_iter().chain([notes]).chain(fields).collect()
}

/// As where the host's was made again.
fn is_of_another_type(there: &Value, wanted: &Value) -> bool {
    wanted.get("type").is_some_and(|kind| there.get("type") != Some(kind))
}

/// Nobody can change it to what is wanted: a type stays, and so does all that somebody there has said is not to change.
fn is_fixed(there: &Value, wanted: &Value) -> bool {
    is_of_another_type(there, wanted) || there["immutable"] == true
}

/// Changes whenever the object does.
fn version(original: &Value) -> String {
    format!("{}/{}", text(original, "/metadata/uid"), text(original, "/metadata/resourceVersion"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_names_the_hosts_authority_under_a_name_of_its_own_and_no_token() {
        let sources = json!([{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": ROOT_CA}}]);
        let volumes = json!([{"name": "kube-api-access-1", "projected": {"sources": sources}}]);
        let pod = json!({"metadata": {"uid": "u"}, "spec": {"volumes": volumes}});
        let named = |open| {
            in_copy(&pod, open, "h").into_keys().map(|(kind, name)| format!("{kind} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(named(true), ["ConfigMap kosmos-csi.kube-root-ca.crt.h"]);
        assert!(named(false).is_empty());
        for name in ["kosmos-csi.kube-root-ca.crt.h", "kosmos-csi.kube-root-ca.crt"] {
            assert_eq!(in_host(name, "h"), ROOT_CA);
        }
    }

    #[test]
    fn change_holds_only_for_what_was_seen_and_takes_away_what_is_gone() {
        let there =
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "data": {"a": "1"}, "binaryData": {"b": ""}});
        let wanted = json!({"metadata": {"annotations": {VERSION: "v"}}, "data": {"c": "2"}});
        assert_eq!(
            changes(&there, &wanted),
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/metadata/annotations", "value": {VERSION: "v"}},
                {"op": "add", "path": "/data", "value": {"c": "2"}},
                {"op": "remove", "path": "/binaryData"},
            ])
        );
        let tokens = json!({"metadata": {}, "stringData": {"token-0": "t"}});
        let paths: Vec<Value> = items(&changes(&there, &tokens), "").map(|one| one["path"].clone()).collect();
        assert_eq!(paths[3..], [json!("/stringData")]);
    }

    #[test]
    fn secret_that_a_member_would_fill_with_a_token_of_its_own_is_given_to_none() {
        let why = refused_type("keys", &json!({"type": ACCOUNT_TOKEN})).unwrap();
        assert!(why.reason == "ObjectNotGiven" && why.message.starts_with("Secret keys is of type"), "{why:?}");
        for other in [json!({"type": "Opaque"}), json!({"data": {}})] {
            assert_eq!(refused_type("keys", &other), None, "{other}");
        }
    }

    #[test]
    fn version_is_another_one_for_another_object_of_the_name() {
        let object = |uid: &str| json!({"metadata": {"uid": uid, "resourceVersion": "1"}});
        assert_ne!(version(&object("a")), version(&object("b")));
    }
}
