//! Whether a node is among those that an affinity names, as the scheduler reads it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// One of the terms is enough; all requirements of a term must hold.
pub(super) fn names(selector: &NodeSelector, node: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| holds(term, node, labels))
}

fn holds(term: &NodeSelectorTerm, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term that says nothing names no node.
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|wanted| is_met(wanted, labels.get(&wanted.key).map(String::as_str)))
        && fields.iter().all(|wanted| wanted.key == "metadata.name" && is_met(wanted, Some(node)))
}

fn is_met(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = || values.first().and_then(|bound| number(bound)).zip(value.and_then(number));
    match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => bound().is_some_and(|(bound, value)| value > bound),
        "Lt" => bound().is_some_and(|(bound, value)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json};

    use super::*;

    fn named(terms: &Value) -> bool {
        let selector: NodeSelector = from_value(json!({"nodeSelectorTerms": terms})).unwrap();
        let labels = [("disk", "fast"), ("cores", "8")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        names(&selector, "n1", &labels.into())
    }

    #[test]
    fn requirement_is_read_as_the_scheduler_reads_it() {
        for (key, operator, values, expected) in [
            ("disk", "In", json!(["slow", "fast"]), true),
            ("disk", "In", json!(["slow"]), false),
            ("none", "In", json!(["fast"]), false),
            ("disk", "NotIn", json!(["fast"]), false),
            ("none", "NotIn", json!(["fast"]), true),
            ("disk", "Exists", Value::Null, true),
            ("disk", "DoesNotExist", Value::Null, false),
            ("cores", "Gt", json!(["7"]), true),
            ("cores", "Lt", json!(["8"]), false),
            ("disk", "Gt", json!(["1"]), false),
            ("disk", "Near", json!(["fast"]), false),
        ] {
            let one = json!({"key": key, "operator": operator, "values": values});
            assert_eq!(named(&json!([{"matchExpressions": [one]}])), expected, "{one}");
        }
    }

    #[test]
    fn all_of_a_term_must_hold_and_one_term_is_enough() {
        let expression = |value: &str| json!({"key": "disk", "operator": "In", "values": [value]});
        let field = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        assert!(named(&json!([{"matchExpressions": [expression("slow")]}, {"matchFields": [field("n1")]}])));
        assert!(!named(&json!([{"matchExpressions": [expression("fast")], "matchFields": [field("n2")]}])));
        assert!(!named(&json!([{}])) && !named(&json!([])));
    }
}
