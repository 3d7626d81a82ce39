//! What of a host's pod a member's scheduler is told. The pod's copy and the consumer of its claims require the same of a node: else a volume is
//! made where the copy cannot run, or waits for a node that the copy does not need. Pure.

use serde_json::{Value, json};

/// The taint of virtual nodes.
const TAINT: &str = "kosmos.io/node";
/// Decided in the host, and no node of a member has it.
const TOPOLOGY: &str = "topology.kosmos.csi.io/";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Has the spec of a host's pod ask for what a member has. Where it may be among the member's nodes stays; the node in the host is chosen
/// already, by labels that may be of nodes there alone. `nodes` are the member's that will do; none where any will.
pub fn rewrite(spec: &mut Value, nodes: &[&str]) {
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("nodeSelector");
    }
    if let Some(tolerations) = list(spec, "tolerations") {
        tolerations.retain(|toleration| !is_of_virtual_nodes(toleration));
    }
    if let Some(constraints) = list(spec, "topologySpreadConstraints") {
        narrow(constraints);
    }
    place(spec);
    if !nodes.is_empty() {
        pin(spec, nodes);
    }
}

/// By it a pod may go to virtual nodes; of a member's it says nothing.
pub fn is_of_virtual_nodes(toleration: &Value) -> bool {
    toleration["key"] == TAINT
}

fn place(spec: &mut Value) {
    let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) else { return };
    affinity.remove("nodeAffinity");
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = affinity.get_mut(kind) else { continue };
        if let Some(required) = list(terms, REQUIRED) {
            narrow(required);
        }
        if let Some(preferred) = list(terms, PREFERRED) {
            preferred.retain(|weighted| is_among_nodes(&weighted["podAffinityTerm"]));
            preferred.iter_mut().filter_map(|weighted| weighted.get_mut("podAffinityTerm")).for_each(leave_out_keys);
        }
    }
    if affinity.is_empty() {
        spec.as_object_mut().map(|spec| spec.remove("affinity"));
    }
}

fn narrow(terms: &mut Vec<Value>) {
    terms.retain(is_among_nodes);
    terms.iter_mut().for_each(leave_out_keys);
}

/// And not among members.
fn is_among_nodes(term: &Value) -> bool {
    !text(term, "topologyKey").starts_with(TOPOLOGY)
}

/// An API server puts into the selector what these keys mean by the labels of a pod, when that is made. The host's has done so: the member's would
/// do it once more, and takes no pod that has a key in both.
fn leave_out_keys(term: &mut Value) {
    let expressions = term["labelSelector"]["matchExpressions"].as_array();
    let selected: Vec<String> = expressions.into_iter().flatten().map(|one| text(one, "key").to_owned()).collect();
    if let Some(keys) = list(term, "matchLabelKeys") {
        keys.retain(|key| !selected.iter().any(|one| key == one));
    }
}

/// By name, as the members' own DaemonSets have it, and by no label, which may say anything: a scheduler there still decides whether there is room. A
/// field is compared with one value only, so each node has a term, and one term is enough.
fn pin(spec: &mut Value, nodes: &[&str]) {
    let term = |node: &&str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let terms: Vec<Value> = nodes.iter().map(term).collect();
    spec["affinity"]["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": terms}});
}

fn list<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    object.get_mut(name).and_then(Value::as_array_mut)
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_the_hosts_nodes_goes_and_what_is_decided_among_the_members_nodes_stays() {
        let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
        let (node, member) = (term("kubernetes.io/hostname"), term("topology.kosmos.csi.io/member"));
        let weighted = |term: &Value| json!({"weight": 5, "podAffinityTerm": term});
        let (ours, other) = (json!({"key": TAINT, "operator": "Exists"}), json!({"operator": "Exists"}));
        let of_pods = |terms: &[&Value]| {
            let preferred: Vec<Value> = terms.iter().map(|term| weighted(term)).collect();
            json!({REQUIRED: terms, PREFERRED: preferred})
        };
        let labelled = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
        let wish = json!({"weight": 1, "preference": labelled});
        let of_nodes = json!({REQUIRED: {"nodeSelectorTerms": [labelled]}, PREFERRED: [wish]});
        let all = of_pods(&[&node, &member]);
        let mut spec = json!({
            "nodeSelector": {"disk": "ssd"}, "tolerations": [ours, other], "topologySpreadConstraints": [member, node],
            "affinity": {"nodeAffinity": of_nodes, "podAffinity": all, "podAntiAffinity": all},
        });
        rewrite(&mut spec, &[]);
        let kept = of_pods(&[&node]);
        let expected = json!({
            "tolerations": [other], "topologySpreadConstraints": [node],
            "affinity": {"podAffinity": kept, "podAntiAffinity": kept},
        });
        assert_eq!(spec, expected);
    }

    #[test]
    fn pod_that_asks_for_the_hosts_nodes_alone_asks_for_nothing_or_for_the_nodes_that_will_do() {
        let spec = json!({"nodeSelector": {"disk": "ssd"}, "affinity": {"nodeAffinity": {}}});
        let named = |node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let on = |terms: &Value| json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}});
        for (nodes, expected) in [
            (&[][..], json!({})),
            (&["n1"][..], on(&json!([named("n1")]))),
            (&["n1", "n2"][..], on(&json!([named("n1"), named("n2")]))),
        ] {
            let mut spec = spec.clone();
            rewrite(&mut spec, nodes);
            assert_eq!(spec, expected);
        }
    }
}
