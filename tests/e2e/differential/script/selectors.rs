//! Label and field selectors.

use serde_json::json;

use super::objects::*;
use crate::differential::step::Script;

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "selectors");
    script.post(NAMESPACES, namespace("selectors"));
    for (name, labels) in [
        ("red-1", json!({"color": "red", "size": "1"})),
        ("red-2", json!({"color": "red", "size": "2", "example.com/owner": "a"})),
        ("blue-1", json!({"color": "blue", "size": "1"})),
        ("none", json!({})),
        ("empty", json!({"color": ""})),
    ] {
        script.post(&maps, config_map(name, labels, json!({})));
    }
    for selector in [
        "color=red",
        "color==red",
        "color!=red",
        "color",
        "!color",
        "color in (red,blue)",
        "color notin (red)",
        "color=",
        "color in (red),size=2",
        "color=red,size!=1",
        "example.com/owner=a",
        "size>1",
        "size%3C2",
        "color=red,color=blue",
        "",
        "color in ()",
        "color in red",
        "a b c",
        "=x",
        "color=re d",
        "color=red,",
        "a/b/c=x",
        "color=-x",
    ] {
        script.get(&format!("{maps}?labelSelector={selector}"));
    }
    for selector in [
        "metadata.name=red-1",
        "metadata.name!=red-1",
        "metadata.namespace=selectors",
        "metadata.namespace=other",
        "metadata.name=red-1,metadata.namespace=selectors",
        "metadata.uid=x",
        "data.key=x",
        "metadata.name",
        "metadata.name=none,metadata.name!=none",
    ] {
        script.get(&format!("{maps}?fieldSelector={selector}"));
    }
    script.get("/api/v1/configmaps?fieldSelector=metadata.namespace=selectors&labelSelector=color=red");
    kinds(script);
}

/// Fields that some kinds can be chosen by.
fn kinds(script: &mut Script) {
    let pods = core("pods", "selectors");
    script.post(&core("serviceaccounts", "selectors"), account("default"));
    script.post(&pods, with(pod("placed"), "/spec/nodeName", json!("node-1")));
    script.post(&pods, pod("waiting"));
    for selector in [
        "spec.nodeName=node-1",
        "spec.nodeName=",
        "status.phase=Pending",
        "status.phase!=Pending",
        "spec.image=x",
        "spec.restartPolicy=Always",
        "spec.serviceAccountName=default",
    ] {
        script.get(&format!("{pods}?fieldSelector={selector}"));
    }
    script.get(&format!("{NAMESPACES}?fieldSelector=status.phase=Active,metadata.name=selectors"));
    script.get(&format!("{NAMESPACES}?labelSelector=kubernetes.io/metadata.name=selectors"));
    script.get(&format!("{}?fieldSelector=status.phase=Bound", core("persistentvolumeclaims", "selectors")));
    script.get(&format!("{VOLUMES}?fieldSelector=metadata.name=x"));
    let events = core("events", "selectors");
    for (name, object, reason) in [("first", "placed", "Pulled"), ("second", "waiting", "Failed")] {
        script.post(&events, event(name, "selectors", object, reason));
    }
    for selector in [
        "involvedObject.name=placed",
        "involvedObject.kind=Pod,involvedObject.name=waiting",
        "involvedObject.uid=00000000-0000-0000-0000-000000000001",
        "reason=Failed",
        "type=Normal",
        "type!=Normal",
        "involvedObject.nonsense=x",
        "source=test",
        "reportingComponent=test",
    ] {
        script.get(&format!("{events}?fieldSelector={selector}"));
    }
    let secrets = core("secrets", "selectors");
    script.post(
        &secrets,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "typed"},
        "type": "example.com/kind", "stringData": {"key": "value"}}),
    );
    script.get(&format!("{secrets}?fieldSelector=type=example.com/kind"));
    script.get(&format!("{secrets}?fieldSelector=type=Opaque"));
}
