//! What a host's pod asks of nodes, as a consumer asks for it: as a preference. The pod's copy asks for none of it, since the labels may be those of
//! the host's nodes alone. So a member without them makes the volume all the same, and one that has them makes it there where it can. Pure.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm};

/// What only the host means: names and places of its virtual nodes.
const HOST_KEYS: [&str; 4] =
    ["kubernetes.io/hostname", "kosmos.io/node", "topology.kosmos.csi.io/member", "topology.kosmos.csi.io/node"];
/// The largest weight that Kubernetes takes.
const REQUIRED: i32 = 100;

/// Each label of the node selector counts by itself, so that one which the member lacks takes nothing from the others.
pub(super) fn of(pod: &PodSpec) -> Vec<PreferredSchedulingTerm> {
    let nodes = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone()).unwrap_or_default();
    let terms = nodes.required_during_scheduling_ignored_during_execution.unwrap_or_default().node_selector_terms;
    let required = labels(pod).chain(alternatives(terms));
    let mut all: Vec<_> = required.map(|preference| PreferredSchedulingTerm { preference, weight: REQUIRED }).collect();
    let mut preferred = nodes.preferred_during_scheduling_ignored_during_execution.unwrap_or_default();
    if !all.is_empty() {
        lighten(&mut preferred);
    }
    all.extend(preferred.into_iter().filter_map(|PreferredSchedulingTerm { preference, weight }| {
        Some(PreferredSchedulingTerm { preference: in_member(preference)?, weight })
    }));
    all
}

fn labels(pod: &PodSpec) -> impl Iterator<Item = NodeSelectorTerm> {
    let labels = pod.node_selector.iter().flatten().filter(|(key, _)| !HOST_KEYS.contains(&key.as_str()));
    labels.map(|(key, value)| {
        let label =
            NodeSelectorRequirement { key: key.clone(), operator: "In".to_owned(), values: Some(vec![value.clone()]) };
        NodeSelectorTerm { match_expressions: Some(vec![label]), match_fields: None }
    })
}

/// One of them is enough. So where one names the host's nodes alone, any node of the member will do.
fn alternatives(terms: Vec<NodeSelectorTerm>) -> Vec<NodeSelectorTerm> {
    let left: Option<Vec<_>> = terms.into_iter().map(in_member).collect();
    left.unwrap_or_default()
}

/// Without what names the host's nodes; none where nothing is left.
fn in_member(term: NodeSelectorTerm) -> Option<NodeSelectorTerm> {
    let mut expressions = term.match_expressions.unwrap_or_default();
    expressions.retain(|one| !HOST_KEYS.contains(&one.key.as_str()));
    let is_left = !expressions.is_empty();
    is_left.then_some(NodeSelectorTerm { match_expressions: Some(expressions), match_fields: None })
}

/// All that a pod prefers counts for less than one thing that it requires.
fn lighten(preferred: &mut Vec<PreferredSchedulingTerm>) {
    let all: i32 = preferred.iter().map(|one| one.weight).sum();
    let share = all / REQUIRED + 1;
    preferred.retain_mut(|one| {
        one.weight /= share;
        one.weight > 0
    });
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json, to_value};

    use super::*;

    fn rule(key: &str) -> Value {
        json!({"key": key, "operator": "In", "values": ["x"]})
    }

    fn term(keys: &[&str]) -> Value {
        json!({"matchExpressions": keys.iter().map(|key| rule(key)).collect::<Vec<_>>()})
    }

    fn weighted(weight: i32, keys: &[&str]) -> Value {
        json!({"weight": weight, "preference": term(keys)})
    }

    fn preferred(selector: &Value, required: &Value, preferred: &Value) -> Value {
        let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred});
        let spec = json!({"containers": [], "nodeSelector": selector, "affinity": {"nodeAffinity": nodes}});
        to_value(of(&from_value(spec).unwrap())).unwrap()
    }

    #[test]
    fn what_a_pod_requires_of_nodes_is_preferred_but_for_what_names_the_hosts() {
        let selector = json!({"disk": "x", "kubernetes.io/hostname": "kosmos-cluster38", "zone": "x"});
        let required = json!([term(&["kosmos.io/node", "gpu", "cores"]), term(&["fast"])]);
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["kosmos-cluster38"]});
        let mut named = term(&["rack"]);
        named["matchFields"] = json!([field]);
        let wish = json!([{"weight": 7, "preference": named}, weighted(9, &["topology.kosmos.csi.io/node"])]);
        let expected = json!([
            weighted(100, &["disk"]),
            weighted(100, &["zone"]),
            weighted(100, &["gpu", "cores"]),
            weighted(100, &["fast"]),
            weighted(7, &["rack"]),
        ]);
        assert_eq!(preferred(&selector, &required, &wish), expected);
        assert!(of(&PodSpec::default()).is_empty());
    }

    #[test]
    fn term_that_names_the_hosts_nodes_alone_leaves_the_others_nothing_to_ask_for() {
        let field = json!([{"key": "metadata.name", "operator": "In", "values": ["kosmos-cluster38"]}]);
        for host in [term(&["kubernetes.io/hostname"]), json!({"matchFields": field}), json!({})] {
            assert_eq!(preferred(&json!({}), &json!([term(&["disk"]), host]), &json!([])), json!([]), "{host}");
        }
    }

    #[test]
    fn all_that_a_pod_prefers_counts_for_less_than_one_thing_that_it_requires() {
        let weights = |all: &[i32], required: bool| -> Vec<i32> {
            let wish: Vec<Value> = all.iter().map(|weight| weighted(*weight, &["zone"])).collect();
            let selector = if required { json!({"disk": "x"}) } else { json!({}) };
            let told = preferred(&selector, &json!([]), &json!(wish));
            let all = told.as_array().unwrap().iter().skip(usize::from(required));
            all.map(|one| i32::try_from(one["weight"].as_i64().unwrap()).unwrap()).collect()
        };
        for (all, left) in [
            (vec![1, 60], vec![1, 60]),
            (vec![100], vec![50]),
            (vec![100, 100, 1], vec![33, 33]),
            (vec![40; 5], vec![13; 5]),
        ] {
            assert_eq!(weights(&all, true), left);
            assert_eq!(weights(&all, false), all);
            assert!(left.iter().sum::<i32>() < REQUIRED);
        }
    }
}
