//! The rights that objects grant, one question each, and what the answers come to.

use serde_json::{Value, json};

use super::objects::word;

/// One question: may the account do this?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Right {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub verb: String,
    /// Empty: in all of them.
    pub namespace: String,
    /// Empty: any.
    pub name: String,
}

/// All rights that bindings among these objects give to an account, in the order of the roles.
pub fn of(objects: &[Value], account: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for role in objects {
        for binding in objects.iter().filter(|binding| binds(binding, role, account)) {
            for rule in role["rules"].as_array().into_iter().flatten() {
                // What a Role in it or a binding in it says counts there alone.
                of_rule(rule, word(binding, "/metadata/namespace"), &mut rights);
            }
        }
    }
    rights
}

fn binds(binding: &Value, role: &Value, account: &str) -> bool {
    let same = |path: &str, of: &str| word(binding, path) == word(role, of);
    let to_account = |subject: &Value| word(subject, "/name") == account;
    same("/roleRef/kind", "/kind")
        && same("/roleRef/name", "/metadata/name")
        && binding["subjects"].as_array().is_some_and(|subjects| subjects.iter().any(to_account))
}

fn of_rule(rule: &Value, namespace: &str, rights: &mut Vec<Right>) {
    let words = |field: &str| -> Vec<String> {
        let words = rule[field].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let (verbs, mut names) = (words("verbs"), words("resourceNames"));
    if names.is_empty() {
        names.push(String::new());
    }
    for group in words("apiGroups") {
        for written in words("resources") {
            let (resource, subresource) = written.split_once('/').unwrap_or((&written, ""));
            for name in &names {
                let right = |verb: &String| Right {
                    group: group.clone(),
                    resource: resource.to_owned(),
                    subresource: subresource.to_owned(),
                    verb: verb.clone(),
                    namespace: namespace.to_owned(),
                    name: name.clone(),
                };
                rights.extend(verbs.iter().map(right));
            }
        }
    }
}

impl Right {
    /// The object by which a cluster is asked.
    pub fn question(&self) -> Value {
        let mut attributes = json!({"group": self.group, "resource": self.resource, "verb": self.verb});
        for (key, value) in [("subresource", &self.subresource), ("namespace", &self.namespace), ("name", &self.name)] {
            if !value.is_empty() {
                attributes[key] = json!(value);
            }
        }
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {"resourceAttributes": attributes},
        })
    }

    /// What it is about, without the verb.
    pub fn subject(&self) -> String {
        let mut subject = self.resource.clone();
        let mut add = |between: &str, more: &str| {
            if !more.is_empty() {
                subject = format!("{subject}{between}{more}");
            }
        };
        add("/", &self.subresource);
        add(".", &self.group);
        add(" ", &self.name);
        add(" in ", &self.namespace);
        subject
    }
}

/// The verbs of one subject: those that are there, and those that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub subject: String,
    pub granted: Vec<String>,
    pub missing: Vec<String>,
}

/// The answers, a subject at a time.
pub fn by_subject(answers: &[(Right, bool)]) -> Vec<Answered> {
    let mut subjects: Vec<Answered> = Vec::new();
    for (right, granted) in answers {
        let subject = right.subject();
        let at = subjects.iter().position(|known| known.subject == subject).unwrap_or_else(|| {
            subjects.push(Answered { subject, granted: Vec::new(), missing: Vec::new() });
            subjects.len() - 1
        });
        let verbs = if *granted { &mut subjects[at].granted } else { &mut subjects[at].missing };
        verbs.push(right.verb.clone());
    }
    subjects
}

/// What is missing, in one sentence; none where nothing is.
pub fn missing(answers: &[(Right, bool)]) -> Option<String> {
    let lacking: Vec<String> = by_subject(answers)
        .into_iter()
        .filter(|subject| !subject.missing.is_empty())
        .map(|subject| format!("{} {}", subject.missing.join(", "), subject.subject))
        .collect();
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{ACCOUNT, PODS_ACCOUNT, STATS_ACCOUNT, Uses, own_name};

    #[test]
    fn every_verb_of_every_resource_is_a_right() {
        let role = json!({"kind": "Role", "metadata": {"name": "a", "namespace": "n"}, "rules": [
            {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
            {"apiGroups": ["x.io"], "resources": ["things"], "resourceNames": ["one"], "verbs": ["get"]},
        ]});
        let binding = json!({"kind": "RoleBinding", "metadata": {"namespace": "n"}, "roleRef": {"kind": "Role", "name": "a"}, "subjects": [{"name": "us"}]});
        assert_eq!(of(&[role.clone(), binding.clone()], "them"), [], "nothing is bound to them");
        let rights = of(&[role, binding], "us");
        let told: Vec<String> = rights.iter().map(|right| format!("{} {}", right.verb, right.subject())).collect();
        let pods = ["get pods in n", "list pods in n", "get pods/log in n", "list pods/log in n"];
        assert_eq!(told[..4], pods);
        assert_eq!(told[4..], ["get things.x.io one in n"]);
        let question = rights[4].question();
        let asked = json!({"group": "x.io", "resource": "things", "verb": "get", "namespace": "n", "name": "one"});
        assert_eq!(question["spec"]["resourceAttributes"], asked);
    }

    #[test]
    fn who_runs_pods_is_not_given_secrets_everywhere() {
        let rights = of(&Uses::ALL.of(None).unwrap(), PODS_ACCOUNT);
        assert!(
            rights.iter().any(|right| right.resource == "pods")
                && rights.iter().all(|right| right.resource != "secrets")
        );
    }

    #[test]
    fn driver_reads_no_secret_before_the_members_administrator_binds_that_where_it_is() {
        let rights = of(&Uses::ALL.of(Some("h")).unwrap(), &own_name(ACCOUNT, "h"));
        let secrets: Vec<String> = rights
            .iter()
            .filter(|right| right.resource == "secrets")
            .map(|right| format!("{} {}", right.verb, right.subject()))
            .collect();
        assert_eq!(secrets, ["create secrets in kosmos-csi-movers"]);
        assert!(rights.iter().all(|right| !right.resource.starts_with("virtualmachine")));
    }

    #[test]
    fn nobody_is_given_the_kubelets_of_a_member_and_one_account_their_figures_alone() {
        let objects = Uses::ALL.of(None).unwrap();
        for account in [ACCOUNT, PODS_ACCOUNT] {
            let of_kubelets = |right: &Right| right.resource == "nodes" && !right.subresource.is_empty();
            assert!(!of(&objects, account).iter().any(of_kubelets), "{account}");
        }
        let told = of(&objects, STATS_ACCOUNT);
        let told: Vec<String> = told.iter().map(|right| format!("{} {}", right.verb, right.subject())).collect();
        assert_eq!(told, ["list pods", "get nodes", "get nodes/stats"]);
    }

    #[test]
    fn what_is_missing_is_told_by_subject() {
        let rights = of(&Uses::ALL.of(None).unwrap(), ACCOUNT);
        let all: Vec<_> = rights.iter().cloned().map(|right| (right, true)).collect();
        assert_eq!(missing(&all), None);
        let without: Vec<_> = rights
            .into_iter()
            .map(|right| {
                let granted = right.resource != "persistentvolumes" || right.verb == "get";
                (right, granted)
            })
            .collect();
        assert_eq!(missing(&without).as_deref(), Some("list, watch, patch persistentvolumes"));
        let subject = &by_subject(&without)[1];
        assert_eq!((subject.granted.len(), subject.missing.len()), (1, 3));
    }
}
