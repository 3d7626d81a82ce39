//! On which nodes pods of a release may run.

use serde_json::{Value, json};

use super::{
    chart::EVERYTHING,
    helm::{objects, rendered},
};

const REQUIRED: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions";

/// Of whatever runs pods, by its name.
fn pods(settings: &[&str]) -> Vec<(String, Value)> {
    let of = |object: Value| {
        let path = if object["kind"] == "Pod" { "/spec" } else { "/spec/template/spec" };
        let pod = object.pointer(path).filter(|pod| pod["containers"].is_array())?.clone();
        Some((format!("{} {}", object["kind"], object["metadata"]["name"]), pod))
    };
    objects(&rendered(settings).unwrap()).unwrap().into_iter().filter_map(of).collect()
}

fn requires(pod: &Value, expression: &Value) -> bool {
    pod.pointer(REQUIRED).and_then(Value::as_array).is_some_and(|all| all.contains(expression))
}

/// The images are for Linux. Virtual nodes say that they are of Linux too, and what runs there runs in a member.
#[test]
fn pods_of_a_release_run_on_nodes_of_linux_that_are_no_virtual_ones_whatever_they_tolerate() {
    let tolerant = "controller.tolerations[0].operator=Exists,virtualNode.tolerations[0].operator=Exists";
    let pods = pods(&[&EVERYTHING[..], &[tolerant]].concat());
    assert_eq!(pods.len(), 4);
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    for (name, pod) in pods {
        assert!(pod["nodeSelector"]["kubernetes.io/os"] == "linux" || requires(&pod, &linux), "{name}");
        assert!(requires(&pod, &json!({"key": "kosmos.io/node", "operator": "DoesNotExist"})), "{name}");
    }
}

#[test]
fn node_selector_of_a_user_comes_beside_that_of_the_chart() {
    let pods = pods(&["controller.nodeSelector.zone=a,virtualNode.nodeSelector.zone=a"]);
    assert_eq!(pods.len(), 3);
    for (name, pod) in pods {
        assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux", "zone": "a"}), "{name}");
    }
    let refusal = rendered(&["controller.nodeSelector.zone=1"]).unwrap_err();
    assert!(format!("{refusal:#}").contains("controller/nodeSelector/zone"), "{refusal:#}");
}
