//! Whether a node takes a pod, its claims left aside: taints, selectors and node affinity. Resources and affinity
//! between pods are not looked at.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

/// Why the node does not take the pod.
pub(super) fn obstacle(pod: &PodSpec, node: &Node) -> Option<String> {
    let spec = node.spec.as_ref();
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        return Some("closed to new pods".to_owned());
    }
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let repels = |taint: &&Taint| {
        taint.effect != "PreferNoSchedule" && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    };
    if let Some(taint) = taints.find(repels) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(format!("with taint {}={value}:{} that the pod does not tolerate", taint.key, taint.effect));
    }
    let unlabelled = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&unlabelled);
    let selected = pod.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let wanted = required.is_none_or(|selector| selects(selector, node));
    (!selected || !wanted).then(|| "that the pod's node selector or affinity rules out".to_owned())
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if toleration.operator.as_deref() == Some("Exists") {
        return key.is_empty() || key == taint.key;
    }
    key == taint.key && text(&toleration.value) == text(&taint.value)
}

/// Terms are alternatives; one that says nothing selects nothing.
pub(super) fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_selects(term, node))
}

fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let field = |key: &str| node.metadata.name.as_deref().filter(|_| key == "metadata.name");
    let says_something = !expressions.is_empty() || !fields.is_empty();
    says_something
        && expressions.iter().all(|wanted| satisfies(wanted, label(&wanted.key)))
        && fields.iter().all(|wanted| satisfies(wanted, field(&wanted.key)))
}

fn satisfies(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn node() -> Node {
        let labels = json!({"kubernetes.io/hostname": "n", "disk": "ssd", "size": "8"});
        let taints = json!([{"key": "kosmos.io/node", "value": "true", "effect": "NoSchedule"}]);
        from_value(json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}})).unwrap()
    }

    fn taken(mut spec: Value) -> bool {
        spec["containers"] = json!([]);
        obstacle(&from_value(spec).unwrap(), &node()).is_none()
    }

    #[test]
    fn taint_must_be_tolerated() {
        for (toleration, taken_with_it) in [
            (json!({"key": "kosmos.io/node", "operator": "Equal", "value": "true", "effect": "NoSchedule"}), true),
            (json!({"key": "kosmos.io/node", "value": "true"}), true),
            (json!({"key": "kosmos.io/node", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "kosmos.io/node", "value": "false"}), false),
            (json!({"key": "kosmos.io/node", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "else", "operator": "Exists"}), false),
        ] {
            assert_eq!(taken(json!({"tolerations": [toleration.clone()]})), taken_with_it, "{toleration}");
        }
        assert!(!taken(json!({})));
    }

    #[test]
    fn selector_and_affinity_must_match() {
        let tolerations = json!([{"operator": "Exists"}]);
        let with = |expression: Value| {
            let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
            taken(json!({"tolerations": tolerations, "affinity": affinity}))
        };
        for (key, operator, values, expected) in [
            ("kubernetes.io/hostname", "In", json!(["m", "n"]), true),
            ("kubernetes.io/hostname", "In", json!(["m"]), false),
            ("disk", "NotIn", json!(["hdd"]), true),
            ("disk", "NotIn", json!(["ssd"]), false),
            ("gpu", "NotIn", json!(["a"]), true),
            ("disk", "Exists", json!([]), true),
            ("gpu", "Exists", json!([]), false),
            ("gpu", "DoesNotExist", json!([]), true),
            ("size", "Gt", json!(["7"]), true),
            ("size", "Lt", json!(["8"]), false),
        ] {
            let expression = json!({"key": key, "operator": operator, "values": values});
            assert_eq!(with(expression.clone()), expected, "{expression}");
        }
        assert!(taken(json!({"tolerations": tolerations, "nodeSelector": {"disk": "ssd"}})));
        assert!(!taken(json!({"tolerations": tolerations, "nodeSelector": {"disk": "hdd"}})));
    }

    #[test]
    fn term_that_says_nothing_selects_nothing() {
        let selector = |term: Value| from_value(json!({"nodeSelectorTerms": [term]})).unwrap();
        assert!(!selects(&selector(json!({})), &node()));
        let by_name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        assert!(selects(&selector(by_name), &node()));
    }

    #[test]
    fn node_that_is_closed_takes_nothing() {
        let mut node = node();
        node.spec.as_mut().unwrap().unschedulable = Some(true);
        let pod = from_value(json!({"containers": [], "tolerations": [{"operator": "Exists"}]})).unwrap();
        assert_eq!(obstacle(&pod, &node).as_deref(), Some("closed to new pods"));
    }
}
