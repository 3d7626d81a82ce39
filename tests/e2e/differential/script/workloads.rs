//! Pods and what makes them: defaults, the account, what may change.

use serde_json::{Value, json};

use super::objects::*;
use crate::differential::step::{MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("workloads"));
    pods(script);
    refused_pods(script);
    deployments(script);
    others(script);
}

/// As small as a driver's helper pod: nothing of it may depend on defaults.
fn consumer() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "consumer", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c0", "image": "consumer", "imagePullPolicy": "Never",
            "command": ["true"], "volumeMounts": [{"name": "v0", "mountPath": "/v0", "readOnly": true}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "0.5", "memory": "1Gi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
            "volumes": [{"name": "v0", "persistentVolumeClaim": {"claimName": "data"}}],
            "automountServiceAccountToken": false, "enableServiceLinks": false, "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1, "nodeSelector": {"member": "a"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}}})
}

fn pods(script: &mut Script) {
    let pods = core("pods", "workloads");
    script.post(&pods, pod("early"));
    script.post(&core("serviceaccounts", "workloads"), account("default"));
    script.post(&pods, pod("plain"));
    script.post(&pods, consumer());
    script.post(&pods, with(pod("unmounted"), "/spec/automountServiceAccountToken", json!(false)));
    script.post(&pods, with(pod("account"), "/spec/serviceAccountName", json!("missing")));
    script.post(&pods, with(pod("tagged"), "/spec/containers/0/image", json!("busybox:1.36")));
    let mut busy = pod("busy");
    busy["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    busy["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"path": "/", "port": 80}});
    busy["spec"]["containers"][0]["env"] =
        json!([{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    busy["spec"]["initContainers"] = json!([{"name": "init", "image": "busybox"}]);
    busy["spec"]["volumes"] = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "x"}},
        {"name": "c", "secret": {"secretName": "x"}}, {"name": "d", "hostPath": {"path": "/x"}}]);
    script.post(&pods, busy);
    let plain = format!("{pods}/plain");
    script.patch(MERGE, &plain, json!({"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}));
    script.patch(MERGE, &plain, json!({"spec": {"nodeName": "node-1"}}));
    script.patch(
        MERGE,
        &plain,
        json!({"metadata": {"labels": {"new": "label"}}, "spec": {"activeDeadlineSeconds": 60}}),
    );
    script.post(
        &format!("{plain}/binding"),
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain"},
        "target": {"kind": "Node", "name": "node-1"}}),
    );
    script.get(&plain);
    script.post(
        &format!("{plain}/binding"),
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain"},
        "target": {"kind": "Node", "name": "node-2"}}),
    );
    script.patch(
        MERGE,
        &format!("{plain}/status"),
        json!({"status": {"phase": "Running", "podIP": "10.0.0.9",
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 2, "image": "busybox", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}),
    );
    script.patch(MERGE, &format!("{pods}/consumer"), json!({"spec": {"tolerations": null}}));
    script.delete(&plain);
}

fn refused_pods(script: &mut Script) {
    let pods = core("pods", "workloads");
    let mut bad = |pointer: &str, value: Value| {
        script.post(&pods, with(pod("bad"), pointer, value));
    };
    bad("/spec/containers", json!([]));
    bad("/spec/containers/0/image", json!(""));
    bad("/spec/containers/0/name", json!("Main"));
    bad("/spec/containers/0/volumeMounts", json!([{"name": "none", "mountPath": "/x"}]));
    bad("/spec/restartPolicy", json!("Nonsense"));
    bad("/spec/volumes", json!([{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]));
    bad("/spec/containers/0/resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}));
    bad("/spec/containers/0/imagePullPolicy", json!("Sometimes"));
    bad("/spec/terminationGracePeriodSeconds", json!("soon"));
    bad("/metadata/name", json!("Bad"));
}

fn deployments(script: &mut Script) {
    let deployments = "/apis/apps/v1/namespaces/workloads/deployments";
    let web = format!("{deployments}/web");
    script.post(deployments, deployment("web"));
    script.put(&web, deployment("web"));
    script.patch(MERGE, &web, json!({"spec": {"replicas": 2}}));
    script.patch(MERGE, &web, json!({"metadata": {"labels": {"a": "b"}}}));
    script.patch(MERGE, &web, json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}));
    script.patch(MERGE, &web, json!({"spec": {"replicas": -1}}));
    script.patch(MERGE, &web, json!({"spec": {"replicas": "two"}}));
    script.post(deployments, with(deployment("mismatch"), "/spec/selector/matchLabels/app", json!("other")));
    script.post(deployments, with(deployment("selectorless"), "/spec/selector", Value::Null));
    script.post(deployments, with(deployment("never"), "/spec/template/spec/restartPolicy", json!("Never")));
    script.post(deployments, with(deployment("recreate"), "/spec/strategy", json!({"type": "Recreate"})));
    script.post(
        deployments,
        with(deployment("rolling"), "/spec/strategy", json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})),
    );
    script.post(deployments, with(deployment("empty"), "/spec/template/spec/containers", json!([])));
    script.delete(&format!("{web}?propagationPolicy=Background"));
    script.delete(&format!("{deployments}/recreate?propagationPolicy=Foreground"));
    script.delete(&format!("{deployments}/rolling"));
}

fn others(script: &mut Script) {
    let apps = "/apis/apps/v1/namespaces/workloads";
    let of_kind = |kind: &str, name: &str| with(deployment(name), "/kind", json!(kind));
    script.post(&format!("{apps}/replicasets"), of_kind("ReplicaSet", "set"));
    script.post(&format!("{apps}/daemonsets"), of_kind("DaemonSet", "daemon"));
    let mut stateful = of_kind("StatefulSet", "state");
    stateful["spec"]["serviceName"] = json!("state");
    stateful["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    script.post(&format!("{apps}/statefulsets"), stateful);
    script.patch(MERGE, &format!("{apps}/statefulsets/state"), json!({"spec": {"serviceName": "other"}}));
    script.patch(MERGE, &format!("{apps}/replicasets/set"), json!({"spec": {"replicas": 0}}));
    script.post(
        "/apis/coordination.k8s.io/v1/namespaces/workloads/leases",
        json!({"apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease", "metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}}),
    );
    script.patch(
        MERGE,
        "/apis/coordination.k8s.io/v1/namespaces/workloads/leases/leader",
        json!({"spec": {"leaseDurationSeconds": 0}}),
    );
    script.patch(
        MERGE,
        "/apis/coordination.k8s.io/v1/namespaces/workloads/leases/leader",
        json!({"spec": {"renewTime": "2026-01-01T00:00:05Z"}}),
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/workloads";
    let group = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    script.post(
        &format!("{rbac}/roles"),
        json!({"apiVersion": group, "kind": "Role", "metadata": {"name": "reader"}, "rules": rules}),
    );
    let binding = json!({"apiVersion": group, "kind": "RoleBinding", "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "workloads"}]});
    script.post(&format!("{rbac}/rolebindings"), &binding);
    script.patch(MERGE, &format!("{rbac}/rolebindings/robot"), json!({"roleRef": {"name": "other"}}));
    let cluster = "/apis/rbac.authorization.k8s.io/v1";
    script.post(
        &format!("{cluster}/clusterroles"),
        json!({"apiVersion": group, "kind": "ClusterRole", "metadata": {"name": "differential"}, "rules": rules}),
    );
    script.post(&format!("{cluster}/clusterrolebindings"), json!({"apiVersion": group, "kind": "ClusterRoleBinding",
        "metadata": {"name": "differential"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "differential"},
        "subjects": [{"kind": "User", "name": "alice"}]}));
    events(script);
}

fn events(script: &mut Script) {
    let events = core("events", "workloads");
    script.post(&events, event("seen", "workloads", "plain", "Seen"));
    script.patch(MERGE, &format!("{events}/seen"), json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:09Z"}));
    script.post(&events, event("astray", "other", "plain", "Seen"));
    let new = "/apis/events.k8s.io/v1/namespaces/workloads/events";
    let told = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "told"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/test", "reportingInstance": "one",
        "action": "Testing", "reason": "Told", "type": "Warning", "note": "what happened",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "plain", "namespace": "workloads"}});
    script.post(new, &told);
    script.get(&format!("{new}/seen"));
    script.get(&format!("{events}/told"));
    script.post(new, with(with(told, "/metadata/name", json!("careless")), "/type", json!("Odd")));
}
