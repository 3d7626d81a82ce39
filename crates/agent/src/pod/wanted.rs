//! Which ConfigMaps and Secrets a pod that runs in a member is to have there. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::object::{Place, text},
    config_sync::refused_name,
    names::{FORMER_ROOT_CA, Kind, host_root_ca, named, rewritten, token_secret},
};

/// Where a thing is, by its kind.
pub(super) type SyncedObject = (Kind, Place);

/// By the names that they have there. What agents make for themselves is not for a pod to name, but where a copy has it that was made before
/// that was refused; nor is it given the authority of the host by its former name, but where a copy of then has that.
pub(super) fn to_have(pod: &Value, host: &str, named_by_copies: &BTreeSet<SyncedObject>) -> Vec<SyncedObject> {
    let own = token_secret(text(pod, "/metadata/uid"));
    let mut all = things(pod, &rewritten(pod, true, host));
    let root_ca = host_root_ca(host);
    let authority = all.iter().find(|(_, place)| place.name == root_ca);
    let former = authority.map(|(kind, place)| (*kind, Place { name: FORMER_ROOT_CA.to_owned(), ..place.clone() }));
    all.extend(former);
    all.retain(|thing| {
        let (kind, place) = thing;
        place.name == own || refused_name((*kind, &place.name), host).is_none() || named_by_copies.contains(thing)
    });
    all
}

/// What a pod names, by this spec of it.
pub(super) fn things(pod: &Value, spec: &Value) -> Vec<SyncedObject> {
    let place = |name| Place { namespace: text(pod, "/metadata/namespace").to_owned(), name };
    named(spec).into_keys().map(|(kind, name)| (kind, place(name))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(names: &[&str]) -> Value {
        let names = names.iter().map(|name| json!({"configMap": {"name": name, "optional": true}}));
        let token = json!({"serviceAccountToken": {"path": "t"}});
        let sources: Vec<Value> = names.chain([token]).collect();
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        json!({"metadata": {"namespace": "shop", "name": "p", "uid": "u"}, "spec": {"volumes": volumes}})
    }

    fn had(names: &[&str], named_by_copies: &[&str]) -> Vec<String> {
        let place = |name: &&str| Place { namespace: "shop".to_owned(), name: (*name).to_owned() };
        let copies = named_by_copies.iter().map(|name| (Kind::ConfigMap, place(name))).collect();
        to_have(&pod(names), "h", &copies).into_iter().map(|(kind, place)| format!("{kind} {}", place.name)).collect()
    }

    #[test]
    fn pod_is_to_have_what_it_names_its_own_tokens_and_the_hosts_authority() {
        let tokens = format!("Secret {}", token_secret("u"));
        let usual = ["ConfigMap kosmos-csi.kube-root-ca.crt.h", "ConfigMap settings", tokens.as_str()];
        assert_eq!(had(&["settings", "kube-root-ca.crt"], &[]), usual);
    }

    #[test]
    fn what_is_called_like_what_agents_make_is_kept_for_copies_that_have_it_alone() {
        let (theirs, tokens) = ("kosmos-csi.settings", format!("Secret {}", token_secret("u")));
        assert_eq!(had(&[theirs], &[]), [tokens.as_str()]);
        assert_eq!(had(&[theirs], &[theirs]), [format!("ConfigMap {theirs}"), tokens]);
    }

    #[test]
    fn authority_is_kept_by_its_former_name_for_copies_that_have_it_by_that() {
        let by = |copies: &[&str]| had(&["kube-root-ca.crt"], copies).contains(&format!("ConfigMap {FORMER_ROOT_CA}"));
        assert!(by(&[FORMER_ROOT_CA]) && !by(&[]) && !by(&["kosmos-csi.kube-root-ca.crt.h"]));
        assert!(!had(&["settings"], &[FORMER_ROOT_CA]).contains(&format!("ConfigMap {FORMER_ROOT_CA}")));
    }
}
