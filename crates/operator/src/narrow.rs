//! What `member add --namespace` makes in place of rights in the whole member: those on kinds that lie in namespaces are bound in
//! the namespaces that are named, and nowhere else.

use serde_json::{Value, json};

use super::objects::{ACCOUNT, own_name, word};
use domain::volume::namespaces::Namespaces;

const CLUSTER_SCOPED: &str = "kosmos-csi-cluster-scoped";
const NAMESPACED: &str = "kosmos-csi-namespaced";
/// Of the kinds that the driver is given rights on, those of which it writes or reads what lies in namespaces of people. How much
/// room there is lies in the namespaces of storage drivers.
const KINDS: [&str; 6] =
    ["persistentvolumeclaims", "resourcequotas", "events", "pods", "volumesnapshots", "volumegroupsnapshots"];

/// The same objects, with the driver's rights bound in these namespaces alone.
pub fn narrowed(objects: Vec<Value>, namespaces: &Namespaces) -> Vec<Value> {
    let Namespaces::Only(names) = namespaces else { return objects };
    let narrow = |object: Value| match (word(&object, "/kind"), word(&object, "/roleRef/name")) {
        ("ClusterRole", _) if word(&object, "/metadata/name") == ACCOUNT => roles(&object).to_vec(),
        ("ClusterRoleBinding", ACCOUNT) => bindings(&object, names),
        _ => vec![object],
    };
    objects.into_iter().flat_map(narrow).collect()
}

/// The driver's role in two.
fn roles(role: &Value) -> [Value; 2] {
    let (mut cluster_scoped, mut namespaced) = (Vec::new(), Vec::new());
    for rule in role["rules"].as_array().into_iter().flatten() {
        let resources = rule["resources"].as_array().cloned().unwrap_or_default();
        let (within, rest): (Vec<Value>, Vec<Value>) =
            resources.into_iter().partition(|kind| kind.as_str().is_some_and(|kind| KINDS.contains(&kind)));
        for (rules, resources) in [(&mut namespaced, within), (&mut cluster_scoped, rest)] {
            if !resources.is_empty() {
                rules.push(only_kube_system(json!({
                    "apiGroups": rule["apiGroups"], "resources": resources, "verbs": rule["verbs"],
                })));
            }
        }
    }
    [(CLUSTER_SCOPED, cluster_scoped), (NAMESPACED, namespaced)].map(|(name, rules)| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        })
    })
}

/// It says which cluster this is; none is made.
fn only_kube_system(mut rule: Value) -> Value {
    if rule["resources"] == json!(["namespaces"]) {
        rule["verbs"] = json!(["get"]);
        rule["resourceNames"] = json!(["kube-system"]);
    }
    rule
}

fn bindings(binding: &Value, namespaces: &[String]) -> Vec<Value> {
    // The name ends with the host's, where it is a host's own.
    let named = |role: &str| word(binding, "/metadata/name").replacen(ACCOUNT, role, 1);
    let mut everywhere = binding.clone();
    everywhere["metadata"]["name"] = json!(named(CLUSTER_SCOPED));
    everywhere["roleRef"]["name"] = json!(CLUSTER_SCOPED);
    let mut all = vec![everywhere];
    all.extend(namespaces.iter().map(|namespace| {
        let mut within = binding.clone();
        within["kind"] = json!("RoleBinding");
        within["metadata"]["name"] = json!(named(NAMESPACED));
        within["metadata"]["namespace"] = json!(namespace);
        within["roleRef"]["name"] = json!(NAMESPACED);
        within
    }));
    all
}

/// All that may give rights to the driver's account of a host: bindings by name, in the whole member and in a namespace of it.
pub fn names_of_bindings(host: Option<&str>) -> ([String; 2], String) {
    let own = |name: &str| host.map_or_else(|| name.to_owned(), |host| own_name(name, host));
    ([own(ACCOUNT), own(CLUSTER_SCOPED)], own(NAMESPACED))
}

/// Roles that hosts with narrow rights share.
pub fn shared_roles() -> [Value; 2] {
    [CLUSTER_SCOPED, NAMESPACED].map(
        |name| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        objects::{Uses, title},
        rights,
    };

    fn told(objects: &[Value], account: &str) -> BTreeSet<String> {
        rights::of(objects, account).iter().map(|right| format!("{} {}", right.verb, right.subject())).collect()
    }

    #[test]
    fn rights_on_what_lies_in_namespaces_are_bound_in_those_that_are_named_and_nothing_else_changes() {
        for host in [None, Some("h")] {
            let account = host.map_or_else(|| ACCOUNT.to_owned(), |host| own_name(ACCOUNT, host));
            let whole = Uses::default().of(host).unwrap();
            let narrow = narrowed(whole.clone(), &Namespaces::named(["bank", "shop"]).unwrap());
            let (before, after) = (told(&whole, &account), told(&narrow, &account));
            let expected = before.iter().flat_map(|right| match right.split_once(' ').unwrap() {
                ("create", "namespaces") => vec![],
                ("get", "namespaces") => vec!["get namespaces kube-system".to_owned()],
                (_, subject) if subject.split('.').next().is_some_and(|kind| KINDS.contains(&kind)) => {
                    vec![format!("{right} in bank"), format!("{right} in shop")]
                }
                _ => vec![right.clone()],
            });
            assert_eq!(after, expected.collect());
            assert!(
                after.contains("create persistentvolumeclaims in shop") && after.contains("patch persistentvolumes")
            );
        }
    }

    #[test]
    fn bindings_of_a_host_are_found_again_by_their_names() {
        let whole = Uses::default().of(Some("h")).unwrap();
        let narrow = narrowed(whole.clone(), &Namespaces::named(["shop"]).unwrap());
        let (everywhere, within) = names_of_bindings(Some("h"));
        for object in whole.iter().chain(&narrow) {
            let name = word(object, "/metadata/name");
            match word(object, "/kind") {
                "ClusterRoleBinding" => assert!(everywhere.contains(&name.to_owned()), "{}", title(object)),
                "RoleBinding" if word(object, "/metadata/namespace") == "shop" => assert_eq!(name, within),
                _ => {}
            }
        }
        let roles = narrow.iter().filter(|object| object["kind"] == "ClusterRole").map(title);
        assert!(roles.eq(shared_roles().each_ref().map(title)));
        assert_eq!(narrowed(whole.clone(), &Namespaces::All), whole);
    }
}
