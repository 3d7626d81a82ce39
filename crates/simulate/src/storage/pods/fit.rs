//! Whether a pod may run on a node, as far as labels, taints and affinity to nodes go. Pure.

use serde_json::{Value, json};

use crate::object::{items, name, text, texts};

/// Why a pod cannot run on a node; none where it can.
pub(super) fn obstacle(pod: &Value, node: &Value) -> Option<String> {
    let is_tolerated =
        |taint: &Value| items(pod, "/spec/tolerations").iter().any(|toleration| tolerates(toleration, taint));
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) && !is_tolerated(&cordon) {
        return Some("1 node(s) were unschedulable".to_owned());
    }
    let mut taints = items(node, "/spec/taints").iter();
    let refused = taints.find(|taint| text(taint, "/effect") != "PreferNoSchedule" && !is_tolerated(taint));
    if let Some(taint) = refused {
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        return Some(format!("1 node(s) had untolerated taint(s) {{{key}: {value}}}"));
    }
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let selected = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let selects = selected.is_none_or(|wanted| wanted.iter().all(|(key, value)| label(node, key) == value.as_str()));
    if selects && pod.pointer(required).is_none_or(|selector| selects_node(selector, node)) {
        return None;
    }
    Some("1 node(s) didn't match Pod's node affinity/selector".to_owned())
}

/// By how much a pod prefers a node: the weights of those of its terms that the node meets.
pub(super) fn preference(pod: &Value, node: &Value) -> u64 {
    let preferred = items(pod, "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution");
    let met = preferred.iter().filter(|term| meets(&term["preference"], node));
    met.filter_map(|term| term["weight"].as_u64()).sum()
}

/// A node selector: any of its terms is enough, and none is never.
pub(super) fn selects_node(selector: &Value, node: &Value) -> bool {
    items(selector, "/nodeSelectorTerms").iter().any(|term| meets(term, node))
}

fn meets(term: &Value, node: &Value) -> bool {
    let (labels, fields) = (items(term, "/matchExpressions"), items(term, "/matchFields"));
    let named = |rule: &Value| if text(rule, "/key") == "metadata.name" { Some(name(node)) } else { None };
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|rule| holds(rule, label(node, text(rule, "/key"))))
        && fields.iter().all(|rule| holds(rule, named(rule)))
}

fn holds(rule: &Value, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| texts(rule, "/values").any(|one| one == value));
    let number = value.and_then(|value| value.parse::<i64>().ok());
    let bound = texts(rule, "/values").next().and_then(|bound| bound.parse::<i64>().ok());
    match text(rule, "/operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number.zip(bound).is_some_and(|(number, bound)| number > bound),
        "Lt" => number.zip(bound).is_some_and(|(number, bound)| number < bound),
        _ => false,
    }
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let same = |field: &str| text(toleration, field) == text(taint, field);
    let effect = text(toleration, "/effect").is_empty() || same("/effect");
    effect
        && match text(toleration, "/operator") {
            "Exists" => text(toleration, "/key").is_empty() || same("/key"),
            _ => same("/key") && same("/value"),
        }
}

fn label<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Value {
        json!({"metadata": {"name": "n1", "labels": {"zone": "a", "size": "5"}}})
    }

    fn required(terms: &Value) -> Value {
        json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}}})
    }

    #[test]
    fn a_pod_runs_where_its_selector_and_one_of_its_terms_hold() {
        let rule = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        for (pod, runs) in [
            (json!({"spec": {}}), true),
            (json!({"spec": {"nodeSelector": {"zone": "a"}}}), true),
            (json!({"spec": {"nodeSelector": {"zone": "b"}}}), false),
            (required(&json!([rule("zone", "In", &["b"]), rule("size", "Gt", &["4"])])), true),
            (required(&json!([rule("zone", "NotIn", &["a"])])), false),
            (required(&json!([rule("none", "DoesNotExist", &[])])), true),
            (required(&json!([rule("size", "Lt", &["5"])])), false),
            (required(&json!([field])), true),
            (required(&json!([{}])), false),
        ] {
            assert_eq!(obstacle(&pod, &node()).is_none(), runs, "{pod}");
        }
    }

    #[test]
    fn a_pod_prefers_a_node_by_the_weights_of_the_terms_that_it_meets() {
        let term = |weight: u64, key: &str, value: &str| {
            let rule = json!({"key": key, "operator": "In", "values": [value]});
            json!({"weight": weight, "preference": {"matchExpressions": [rule]}})
        };
        for (terms, weight) in [
            (json!([]), 0),
            (json!([term(7, "zone", "a"), term(2, "size", "5"), term(50, "zone", "b")]), 9),
            (json!([{"weight": 3, "preference": {}}]), 0),
        ] {
            let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}});
            let pod = json!({"spec": {"affinity": affinity}});
            assert_eq!((preference(&pod, &node()), obstacle(&pod, &node())), (weight, None), "{pod}");
        }
        assert_eq!(preference(&json!({"spec": {}}), &node()), 0);
    }

    #[test]
    fn taints_keep_off_what_does_not_tolerate_them() {
        let mut node = node();
        node["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
        for (toleration, runs) in [
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
        ] {
            let pod = json!({"spec": {"tolerations": [toleration]}});
            assert_eq!(obstacle(&pod, &node).is_none(), runs, "{pod}");
        }
        node["spec"] = json!({"unschedulable": true});
        assert!(obstacle(&json!({}), &node).is_some());
        let pod = json!({"spec": {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}});
        assert_eq!(obstacle(&pod, &node), None);
    }
}
