//! What the roles of the chart allow, held against what was asked of the API server: nothing too little, nothing too much.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::helm::objects;
use crate::{
    clusters::{AuditEntry, AuditMark, Cluster},
    rare::RARE,
};

/// One thing that one role allows.
#[derive(Debug, PartialEq, Eq)]
struct Right {
    role: String,
    user: String,
    /// Of a Role, whose name it precedes here; a ClusterRole is for all.
    namespace: Option<String>,
    verb: String,
    group: String,
    resource: String,
    /// Empty: of any name.
    names: Vec<String>,
}

impl Right {
    fn kind(&self) -> String {
        let point = if self.group.is_empty() { "" } else { "." };
        format!("{} {}{point}{}", self.verb, self.resource, self.group)
    }

    /// Several programs share the controller's account: the sidecars say who they are.
    fn covers(&self, entry: &AuditEntry) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let sidecar = entry.user_agent.starts_with("csi-");
        let named = self.names.is_empty() || self.names.contains(&entry.name);
        let place = self.namespace.as_ref().is_none_or(|namespace| *namespace == entry.namespace);
        entry.user == self.user
            && sidecar == self.role.ends_with("-sidecars")
            && entry.verb == self.verb
            && entry.group == self.group
            && (entry.resource == resource && entry.subresource == subresource)
            && (named && place)
    }
}

/// Every right of the roles that the objects bind to an account.
fn rights(objects: &[Value]) -> Vec<Right> {
    let mut all = Vec::new();
    for role in objects.iter().filter(|object| !object["rules"].is_null()) {
        let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let full = namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let binds = |binding: &&Value| {
            binding["roleRef"]["name"] == name
                && binding["roleRef"]["kind"] == role["kind"]
                && binding["metadata"]["namespace"] == role["metadata"]["namespace"]
        };
        let Some(binding) = objects.iter().find(binds) else { continue };
        let subject = &binding["subjects"][0];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let user = format!("system:serviceaccount:{}:{}", word(&subject["namespace"]), word(&subject["name"]));
        for rule in words_of_each(&role["rules"]) {
            let list = |key: &str| words_of_each(&rule[key]).iter().map(word).collect::<Vec<_>>();
            for (verb, group, resource) in product(&list("verbs"), &list("apiGroups"), &list("resources")) {
                let (role, user, namespace) = (full.clone(), user.clone(), namespace.clone());
                let names = list("resourceNames");
                all.push(Right { role, user, namespace, verb, group, resource, names });
            }
        }
    }
    all
}

fn words_of_each(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn product(verbs: &[String], groups: &[String], resources: &[String]) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for verb in verbs {
        for group in groups {
            all.extend(resources.iter().map(|resource| (verb.clone(), group.clone(), resource.clone())));
        }
    }
    all
}

fn is(right: &Right, role: &str, kind: &str) -> bool {
    right.role == role && right.kind() == kind
}

/// Since then nothing was denied.
pub async fn were_enough(host: &Cluster, manifest: &str, since: AuditMark) -> Result<()> {
    let rights = rights(&objects(manifest)?);
    let entries = host.audit_since(since).await?;
    let ours = |entry: &&AuditEntry| rights.iter().any(|right| right.user == entry.user);
    let denied = entries.iter().filter(ours).filter(|entry| entry.forbidden);
    let mut denied: Vec<String> =
        denied.map(|entry| format!("{}: {} {}", entry.user_agent, entry.verb, entry.uri)).collect();
    denied.sort();
    denied.dedup();
    ensure!(denied.is_empty(), "denied:\n{}", denied.join("\n"));
    Ok(())
}

/// Each was used, or is known to be rare.
pub async fn are_those_that_were_used(host: &Cluster, manifest: &str) -> Result<()> {
    let rights = rights(&objects(manifest)?);
    ensure!(rights.len() > 40, "{} rights are not all", rights.len());
    let entries = host.audit().await?;
    let rare = |right: &Right| RARE.iter().any(|rare| is(right, rare.role, rare.kind));
    let mut wrong = Vec::new();
    for right in rights.iter().filter(|right| !rare(right)) {
        if !entries.iter().any(|entry| right.covers(entry)) {
            wrong.push(format!("{} may {} and never does", right.role, right.kind()));
        }
    }
    for rare in RARE {
        if !rights.iter().any(|right| is(right, rare.role, rare.kind)) {
            wrong.push(format!("{} has no right to {}", rare.role, rare.kind));
        }
    }
    wrong.sort();
    ensure!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn right_is_used_only_by_what_it_allows() {
    let text = r#"[{"kind": "Role", "metadata": {"name": "a", "namespace": "n"}, "rules": [
        {"apiGroups": ["storage.k8s.io"], "resources": ["things/status"], "resourceNames": ["one"], "verbs": ["get", "patch"]}]},
        {"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "Role", "name": "a"},
        "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}]"#;
    let objects: Vec<Value> = serde_json::from_str(text).unwrap();
    let rights = rights(&objects);
    let kinds: Vec<String> = rights.iter().map(Right::kind).collect();
    assert_eq!(kinds, ["get things/status.storage.k8s.io", "patch things/status.storage.k8s.io"]);
    let used = AuditEntry {
        user: "system:serviceaccount:n:s".to_owned(),
        user_agent: String::new(),
        verb: "patch".to_owned(),
        group: "storage.k8s.io".to_owned(),
        resource: "things".to_owned(),
        subresource: "status".to_owned(),
        namespace: "n".to_owned(),
        name: "one".to_owned(),
        uri: String::new(),
        code: 200,
        forbidden: false,
        stage: String::new(),
    };
    assert!(rights[1].covers(&used) && !rights[0].covers(&used));
    for other in [
        AuditEntry { user: "system:serviceaccount:n:t".to_owned(), ..used.clone() },
        AuditEntry { user_agent: "csi-attacher/v1".to_owned(), ..used.clone() },
        AuditEntry { group: String::new(), ..used.clone() },
        AuditEntry { subresource: String::new(), ..used.clone() },
        AuditEntry { namespace: "other".to_owned(), ..used.clone() },
        AuditEntry { name: "two".to_owned(), ..used.clone() },
    ] {
        assert!(!rights[1].covers(&other), "{other:?}");
    }
}
