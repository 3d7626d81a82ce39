//! Pods as they are read here: of what is said by whoever runs one, its phase alone. A member may say times of its pods that no parser here
//! takes, and whoever writes a pod may say such a one of who has written it; nobody is to hide others by that.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::json;

use cluster::unmanaged::Unmanaged;

pub(super) fn within(client: &Client, namespace: Option<&str>) -> Api<Unmanaged<DynamicObject>> {
    let kind = ApiResource::erase::<Pod>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

pub(super) async fn list(client: &Client, namespace: Option<&str>, wanted: &ListParams) -> kube::Result<Vec<Pod>> {
    let listed = within(client, namespace).list(wanted).await?;
    listed.items.into_iter().map(|pod| seen(pod.into_object())).collect()
}

pub(super) fn seen(pod: DynamicObject) -> kube::Result<Pod> {
    let spec =
        pod.data.get("spec").cloned().map(serde_json::from_value).transpose().map_err(kube::Error::SerdeError)?;
    let status = json!({"phase": pod.data.pointer("/status/phase")});
    let status = serde_json::from_value(status).map_err(kube::Error::SerdeError)?;
    Ok(Pod { metadata: pod.metadata, spec, status })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn pod_of_which_is_said_what_nobody_reads_is_read_all_the_same() {
        let never = "9999-12-31T23:59:59Z";
        let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": never}]);
        let owners =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "o", "controller": true}]);
        let pod = json!({
            "metadata": {"name": "a", "managedFields": [{"time": never}], "ownerReferences": owners, "annotations": {"b": "c"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "startTime": never, "conditions": conditions},
        });
        let read = seen(from_value::<Unmanaged<DynamicObject>>(pod).unwrap().into_object()).unwrap();
        let phase = read.status.and_then(|status| status.phase);
        let node = read.spec.and_then(|spec| spec.node_name);
        assert_eq!((phase.as_deref(), node.as_deref()), (Some("Running"), Some("n")));
        assert_eq!(read.metadata.owner_references.map(|owners| owners.len()), Some(1));
        assert_eq!(read.metadata.annotations.unwrap()["b"], "c");
        let bare =
            seen(from_value::<Unmanaged<DynamicObject>>(json!({"metadata": {"name": "a"}})).unwrap().into_object());
        assert_eq!(bare.unwrap().spec, None);
    }
}
