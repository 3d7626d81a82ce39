//! The reader of how full volumes are, as one host or one member wants it. Pure.

use serde_json::{Value, json};

const INSTANCE: &str = "app.kubernetes.io/instance";
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// Of this host alone. The Deployment has its own name already.
pub(super) fn tell_of(deployment: &mut Value, host: &str) {
    let name = deployment["metadata"]["name"].clone();
    deployment["spec"]["selector"]["matchLabels"][INSTANCE] = name.clone();
    let template = &mut deployment["spec"]["template"];
    template["metadata"]["labels"][INSTANCE] = name.clone();
    template["spec"]["serviceAccountName"] = name;
    argue(deployment, &format!("--host={host}"));
}

/// By another image than the published one, and where kubelets show certificates for which nobody vouches.
pub fn adapt(objects: &mut [Value], image: Option<&str>, insecure: bool) {
    for deployment in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        if let (Some(image), Some(container)) = (image, deployment.pointer_mut(CONTAINER)) {
            container["image"] = json!(image);
        }
        if insecure {
            argue(deployment, "--kubelet-insecure-tls");
        }
    }
}

fn argue(deployment: &mut Value, argument: &str) {
    let container = deployment.pointer_mut(CONTAINER);
    if let Some(arguments) = container.and_then(|container| container["args"].as_array_mut()) {
        arguments.push(json!(argument));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{NAMESPACE, STATS_ACCOUNT, Uses, own_name, word};

    /// What an API server takes of the name of what makes pods, before it adds five characters.
    const TAKEN: usize = 58;
    const HOST: &str = "0b7c3f9e-6a51-4a0e-9d0d-6f8f9f1f0a11";

    fn deployment(host: Option<&str>) -> Value {
        let objects = Uses { volume_stats: true, ..Uses::default() }.of(host).unwrap();
        objects.into_iter().find(|object| object["kind"] == "Deployment").unwrap()
    }

    #[test]
    fn reader_of_a_host_has_its_own_account_selects_its_own_pods_and_tells_of_that_host() {
        let (own, name) = (deployment(Some(HOST)), own_name(STATS_ACCOUNT, HOST));
        // The member's admission policy goes by the names of its pods: they have the whole of this one, and nothing else.
        assert_eq!(name.len(), TAKEN, "{name}");
        assert_eq!((word(&own, "/metadata/name"), word(&own, "/metadata/namespace")), (name.as_str(), NAMESPACE));
        let template = &own["spec"]["template"];
        assert_eq!(own["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
        assert_eq!(template["metadata"]["labels"][INSTANCE], *name);
        // By that label the agent would take it for a copy of a pod of its host.
        assert!(template["metadata"]["labels"].get("kosmos.csi.io/host").is_none());
        assert_eq!(template["spec"]["serviceAccountName"], *name);
        assert_eq!(template["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}), "the image is for these");
        assert_eq!(template["spec"]["containers"][0]["args"], json!(["volume-stats", format!("--host={HOST}")]));
        assert_eq!(deployment(None)["spec"]["template"]["spec"]["containers"][0]["args"], json!(["volume-stats"]));
    }

    #[test]
    fn image_is_the_one_of_this_version_unless_another_is_named() {
        let mut objects = vec![deployment(None)];
        let container = |objects: &[Value]| objects[0].pointer(CONTAINER).unwrap().clone();
        let published = concat!("localhost/kosmos-csi:", env!("CARGO_PKG_VERSION"));
        assert_eq!(container(&objects)["image"], published);
        adapt(&mut objects, None, false);
        assert_eq!(objects, [deployment(None)]);
        adapt(&mut objects, Some("registry.example/kosmos-csi:2"), true);
        assert_eq!(container(&objects)["image"], "registry.example/kosmos-csi:2");
        assert_eq!(container(&objects)["args"], json!(["volume-stats", "--kubelet-insecure-tls"]));
    }
}
