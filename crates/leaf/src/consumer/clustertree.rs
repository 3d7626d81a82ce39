//! What clustertree's copy of a host's pod asks of nodes, where that runs the pods of a member. It has none of the pod's tolerations, and what an
//! annotation of the pod says instead. Pure.

use k8s_openapi::{
    api::core::v1::{Affinity, NodeSelector, PodSpec},
    serde_json::from_str,
};

use super::Constraints;

impl Constraints {
    /// `selector` is that annotation: node selector, tolerations and affinity, called as those of a pod. One that cannot be read says nothing.
    pub fn of_clustertree(pod: &PodSpec, selector: Option<&str>, nodes: &[&str]) -> Self {
        let said: PodSpec = selector.and_then(|text| from_str(text).ok()).unwrap_or_default();
        let required = required(said.affinity.as_ref());
        let affinity = pod.affinity.clone().or(said.affinity);
        let meant = PodSpec { affinity, tolerations: said.tolerations, ..pod.clone() };
        let mut wishes = Self::of(Some(&meant), nodes);
        wishes.node_selector = said.node_selector;
        if nodes.is_empty() && required.is_some() {
            let of_nodes = wishes.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
            of_nodes.required_during_scheduling_ignored_during_execution = required;
        }
        wishes
    }
}

fn required(affinity: Option<&Affinity>) -> Option<NodeSelector> {
    affinity?.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.clone()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json, to_value};

    use super::*;

    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

    fn wishes(pod: &Value, selector: Option<&str>, nodes: &[&str]) -> Constraints {
        Constraints::of_clustertree(&from_value(pod.clone()).unwrap(), selector, nodes)
    }

    fn in_zone(zone: &str) -> Value {
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]})
    }

    #[test]
    fn copy_tolerates_nothing_and_requires_no_label_where_its_pod_has_no_annotation_that_can_be_read() {
        let tolerations = json!([{"key": "dedicated", "operator": "Exists"}]);
        let pod = json!({"containers": [], "nodeSelector": {"disk": "ssd"}, "tolerations": tolerations});
        let ours = Constraints::of(Some(&from_value(pod.clone()).unwrap()), &[]);
        for selector in [None, Some(""), Some("none"), Some("[]"), Some("{}")] {
            let theirs = wishes(&pod, selector, &[]);
            assert!(theirs.tolerations.is_empty() && theirs.node_selector.is_none(), "{selector:?}");
            assert_eq!((&theirs.affinity, theirs.tolerations.len() + 1), (&ours.affinity, ours.tolerations.len()));
        }
    }

    #[test]
    fn copy_asks_for_what_the_annotation_of_its_pod_says() {
        let said = json!({
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {REQUIRED: in_zone("a")}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        });
        let apart = json!({REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]});
        let of_host = json!({"nodeAffinity": {REQUIRED: in_zone("host")}, "podAntiAffinity": apart});
        for affinity in [json!({}), of_host] {
            let pod = json!({"containers": [], "affinity": affinity});
            let found = wishes(&pod, Some(&said.to_string()), &[]);
            assert_eq!(found.tolerations[0].key.as_deref(), Some("dedicated"));
            assert_eq!(to_value(&found.node_selector).unwrap(), said["nodeSelector"]);
            let asked = to_value(&found.affinity).unwrap();
            assert_eq!(asked["nodeAffinity"][REQUIRED], in_zone("a"), "{asked}");
            assert_eq!(asked.get("podAntiAffinity"), affinity.get("podAntiAffinity"), "{asked}");
        }
    }

    #[test]
    fn node_that_the_topology_names_counts_for_more_than_the_annotation() {
        let said = json!({"affinity": {"nodeAffinity": {REQUIRED: in_zone("a")}}}).to_string();
        let found = wishes(&json!({"containers": []}), Some(&said), &["n1"]);
        let named = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        let asked = to_value(&found.affinity).unwrap();
        assert_eq!(asked["nodeAffinity"][REQUIRED], json!({"nodeSelectorTerms": [named]}));
    }
}
