//! A pod as the member gets it: whole, but for what only the host means. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{
        HOST, MANAGED_BY,
        member_pod::MOUNTS,
        object::{items, text},
    },
    given::{GIVEN, given, marks},
    names::{Given, list_mut, tokens},
    step::COPY_OF,
};
use domain::volume::DRIVER;
use leaf::scheduling;

/// Nodes, classes, accounts and gates are the host's, and so are groups that are placed together and who takes part in an eviction. A priority is
/// given by the host's class, and the overhead and the preemption policy by its admission.
const HOSTS_OWN: [&str; 14] = [
    "nodeName",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "workloadRef",
    "evictionResponders",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "serviceAccount",
    "serviceAccountName",
    "overhead",
    "readinessGates",
    "ephemeralContainers",
];
/// The one label of a pod that its copy has otherwise.
const MANAGER: &str = "metadata.labels['app.kubernetes.io/managed-by']";

/// What a copy is made with, besides its pod.
#[derive(Debug)]
pub(super) struct Made<'a> {
    /// The host's id.
    pub(super) host: &'a str,
    /// Leaf claims by the volumes that mount them.
    pub(super) claims: &'a BTreeMap<String, String>,
    /// The handles of the host's volumes, by leaf claims.
    pub(super) handles: &'a BTreeMap<String, String>,
    pub(super) given: Given<'a>,
    /// The node of the member that the pod's virtual node stands for; none where that stands for all of them.
    pub(super) node: Option<&'a str>,
    /// Where pods find the host's API server: host and port.
    pub(super) address: Option<(&'a str, u16)>,
}

pub(super) fn copy(pod: &Value, made: &Made<'_>) -> Value {
    let metadata = &pod["metadata"];
    let (mut labels, mut annotations) = (marks(pod, "labels"), marks(pod, "annotations"));
    labels[MANAGED_BY] = json!(DRIVER);
    labels[HOST] = json!(made.host);
    annotations[COPY_OF] = metadata["uid"].clone();
    annotations[GIVEN] = given(pod);
    if !made.handles.is_empty() {
        annotations[MOUNTS] = json!(json!(made.handles).to_string());
    }
    json!({
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec(pod, made),
    })
}

fn spec(pod: &Value, made: &Made<'_>) -> Value {
    let mut spec = pod["spec"].clone();
    let wants_token = made.given.secrets && !tokens(&spec).is_empty();
    if let Some(fields) = spec.as_object_mut() {
        for field in HOSTS_OWN {
            fields.remove(field);
        }
        fields.insert("automountServiceAccountToken".to_owned(), json!(false));
    }
    scheduling::rewrite(&mut spec, made.node.as_slice());
    for volume in list_mut(&mut spec, "volumes") {
        mount(volume, made.claims);
        say_in_files(volume);
    }
    made.given.rewrite(&mut spec);
    for list in ["initContainers", "containers"] {
        for container in list_mut(&mut spec, list) {
            say_all(container, pod);
            if let Some(address) = made.address.filter(|_| wants_token) {
                show_host(container, address);
            }
        }
    }
    spec
}

/// A claim is called as its leaf is. One that was made for the pod is an ordinary claim in the member: its own controller
/// would take the leaf for a stranger's.
fn mount(volume: &mut Value, claims: &BTreeMap<String, String>) {
    let Some(leaf) = claims.get(text(volume, "/name")) else { return };
    let readonly = volume.pointer("/persistentVolumeClaim/readOnly").cloned();
    let mut source = json!({"claimName": leaf});
    if let Some(readonly) = readonly {
        source["readOnly"] = readonly;
    }
    *volume = json!({"name": volume["name"], "persistentVolumeClaim": source});
}

/// What a container is told of its pod is told of the host's.
pub(super) fn say_all(container: &mut Value, pod: &Value) {
    list_mut(container, "env").for_each(|variable| say(variable, pod));
}

fn say(variable: &mut Value, pod: &Value) {
    let value = match text(variable, "/valueFrom/fieldRef/fieldPath") {
        "spec.nodeName" => &pod["spec"]["nodeName"],
        "spec.serviceAccountName" => &pod["spec"]["serviceAccountName"],
        "metadata.uid" => &pod["metadata"]["uid"],
        MANAGER => &pod["metadata"]["labels"][MANAGED_BY],
        _ => return,
    };
    *variable = json!({"name": variable["name"], "value": value});
}

fn say_in_files(volume: &mut Value) {
    if let Some(files) = volume.get_mut("downwardAPI") {
        list_mut(files, "items").for_each(say_in_file);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for files in list_mut(projected, "sources").filter_map(|source| source.get_mut("downwardAPI")) {
            list_mut(files, "items").for_each(say_in_file);
        }
    }
}

/// A file says no text that is written into the pod, but what the copy notes of its pod.
fn say_in_file(file: &mut Value) {
    if text(file, "/fieldRef/fieldPath") == "metadata.uid" {
        file["fieldRef"]["fieldPath"] = json!(format!("metadata.annotations['{COPY_OF}']"));
    }
}

fn show_host(container: &mut Value, (host, port): (&str, u16)) {
    let wanted = [("KUBERNETES_SERVICE_HOST", host.to_owned()), ("KUBERNETES_SERVICE_PORT", port.to_string())];
    let missing = wanted.into_iter().filter(|(name, _)| items(container, "/env").all(|there| there["name"] != *name));
    let shown = missing.map(|(name, value)| json!({"name": name, "value": value}));
    let all: Vec<Value> = shown.chain(items(container, "/env").cloned()).collect();
    container["env"] = json!(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &Value) -> Value {
        let metadata = json!({"namespace": "shop", "name": "p", "uid": "u", "labels": {"l": "1", "kosmos.csi.io/volume": "x"},
            "annotations": {"a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}", "kosmos.csi.io/renew-at": "0"}, "ownerReferences": [{"uid": "o"}], "finalizers": ["f"],
            "generateName": "p-"});
        json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    }

    fn copied(spec: &Value, secrets: bool) -> Value {
        let claims =
            BTreeMap::from([("data".to_owned(), "leaf".to_owned()), ("scratch".to_owned(), "p-scratch".to_owned())]);
        let given = Given { secrets, left_out: &[], pod_uid: "u", host: "h" };
        let address = Some(("api.example.org", 6443));
        copy(&pod(spec), &Made { host: "h", claims: &claims, handles: &BTreeMap::new(), given, node: None, address })
    }

    #[test]
    fn copy_is_without_what_only_the_host_means() {
        let (ours, other) =
            (json!({"key": "kosmos.io/node", "operator": "Exists"}), json!({"key": "disk", "operator": "Exists"}));
        let mut spec = json!({"tolerations": [ours, other], "containers": [{"name": "c", "image": "i"}],
            "affinity": {"nodeAffinity": {}}, "nodeSelector": {"disk": "ssd"}, "securityContext": {"runAsUser": 7},
            "aFieldOfTomorrow": 1});
        for field in HOSTS_OWN {
            spec[field] = json!("x");
        }
        let copy = copied(&spec, false);
        let kept = json!({"tolerations": [other], "containers": [{"name": "c", "image": "i"}],
            "securityContext": {"runAsUser": 7}, "aFieldOfTomorrow": 1, "automountServiceAccountToken": false});
        assert_eq!(copy["spec"], kept);
        let labels = json!({"l": "1", MANAGED_BY: DRIVER, HOST: "h"});
        let annotations = json!({"a": "1", COPY_OF: "u", GIVEN: given(&pod(&spec))});
        assert_eq!(
            copy["metadata"],
            json!({"namespace": "shop", "name": "p", "labels": labels, "annotations": annotations})
        );
        assert_eq!(copy.get("status"), None);
    }

    /// Some object of the member may be called so.
    #[test]
    fn copy_belongs_to_no_group_of_pods_that_its_host_places_together() {
        let group = json!({"podGroupName": "workers"});
        let spec = json!({"containers": [], "schedulingGroup": group, "workloadRef": {"name": "train", "podGroup": "workers"},
            "evictionResponders": [{"name": "example.org/responder"}]});
        assert_eq!(copied(&spec, false)["spec"], json!({"containers": [], "automountServiceAccountToken": false}));
    }

    #[test]
    fn claims_are_called_as_their_leaves_are() {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "mine", "readOnly": true}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "tmp", "emptyDir": {}},
        ]);
        assert_eq!(
            copied(&json!({"volumes": volumes}), false)["spec"]["volumes"],
            json!([
                {"name": "data", "persistentVolumeClaim": {"claimName": "leaf", "readOnly": true}},
                {"name": "scratch", "persistentVolumeClaim": {"claimName": "p-scratch"}},
                {"name": "tmp", "emptyDir": {}},
            ])
        );
    }

    #[test]
    fn copy_says_which_volumes_of_the_host_it_mounts() {
        let given = Given { secrets: false, left_out: &[], pod_uid: "u", host: "h" };
        let (claims, handles) = (BTreeMap::new(), BTreeMap::from([("leaf".to_owned(), "m/shop/leaf/01".to_owned())]));
        let made = Made { host: "h", claims: &claims, handles: &handles, given, node: None, address: None };
        let copy = copy(&pod(&json!({"containers": []})), &made);
        assert_eq!(copy["metadata"]["annotations"][MOUNTS], r#"{"leaf":"m/shop/leaf/01"}"#);
    }

    #[test]
    fn copy_is_kept_to_the_node_that_its_virtual_node_stands_for_and_apart_from_others_as_before() {
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["worker-1"]});
        let terms = json!([{"matchFields": [field]}]);
        let pinned = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let apart =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]});
        let of_host = json!({"requiredDuringSchedulingIgnoredDuringExecution": {}});
        for (affinity, kept) in [
            (Value::Null, json!({"nodeAffinity": pinned})),
            (json!({"nodeAffinity": of_host}), json!({"nodeAffinity": pinned})),
            (
                json!({"nodeAffinity": of_host, "podAntiAffinity": apart}),
                json!({"nodeAffinity": pinned, "podAntiAffinity": apart}),
            ),
        ] {
            let given = Given { secrets: false, left_out: &[], pod_uid: "u", host: "h" };
            let none = BTreeMap::new();
            let made = Made { host: "h", claims: &none, handles: &none, given, node: Some("worker-1"), address: None };
            let copy = copy(&pod(&json!({"nodeName": "kosmos-m-worker-1", "affinity": affinity})), &made);
            assert_eq!((&copy["spec"]["affinity"], copy["spec"].get("nodeName")), (&kept, None));
        }
    }

    #[test]
    fn pods_stay_apart_by_what_the_members_nodes_have() {
        let term = |key: &str| json!({"topologyKey": key});
        let (host, member) = (term("kubernetes.io/hostname"), term("topology.kosmos.csi.io/member"));
        let spec = json!({
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [host, member]},
            },
            "topologySpreadConstraints": [host, member],
        });
        let copy = copied(&spec, false);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [host]});
        assert_eq!(copy["spec"]["affinity"], json!({"podAntiAffinity": required}));
        assert_eq!(copy["spec"]["topologySpreadConstraints"], json!([host]));
    }

    /// Some of them the host's API server leaves to the scheduler, as those of an older one, or of labels that the pod lacks.
    #[test]
    fn label_keys_are_left_out_of_a_copy_that_the_host_has_put_into_the_selector() {
        let put = json!({"key": "pod-template-hash", "operator": "In", "values": ["5d4f"]});
        let term = |keys: Value| {
            let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [put]});
            json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": selector, "matchLabelKeys": keys})
        };
        let spec = |keys: &Value| {
            let preferred = json!({"weight": 1, "podAffinityTerm": term(keys.clone())});
            let all = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term(keys.clone())],
                "preferredDuringSchedulingIgnoredDuringExecution": [preferred]});
            let affinity = json!({"podAffinity": all, "podAntiAffinity": all});
            json!({"affinity": affinity, "topologySpreadConstraints": [term(keys.clone())]})
        };
        let (copy, left) = (copied(&spec(&json!(["pod-template-hash", "track"])), false), spec(&json!(["track"])));
        for part in ["affinity", "topologySpreadConstraints"] {
            assert_eq!(copy["spec"][part], left[part], "{part}");
        }
    }

    #[test]
    fn container_is_told_of_the_hosts_pod() {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let env = json!([field("NODE", "spec.nodeName"), field("UID", "metadata.uid"), field("IP", "status.podIP")]);
        let spec = json!({"nodeName": "kosmos-m", "containers": [{"env": env}]});
        let told = copied(&spec, false);
        let env =
            json!([{"name": "NODE", "value": "kosmos-m"}, {"name": "UID", "value": "u"}, field("IP", "status.podIP")]);
        assert_eq!(told["spec"]["containers"][0]["env"], env);
    }

    /// As Helm writes it on all that it installs.
    #[test]
    fn container_is_told_who_manages_the_hosts_pod_and_not_who_manages_its_copy() {
        let told = |labels: &Value| {
            let field = json!({"name": "BY", "valueFrom": {"fieldRef": {"fieldPath": MANAGER}}});
            let mut container = json!({"env": [field]});
            say_all(&mut container, &json!({"metadata": {"labels": labels}}));
            container["env"][0]["value"].clone()
        };
        assert_eq!(MANAGER, format!("metadata.labels['{MANAGED_BY}']"));
        assert_eq!(told(&json!({MANAGED_BY: "Helm"})), "Helm");
        assert_eq!(told(&Value::Null), Value::Null);
    }

    #[test]
    fn file_that_tells_of_a_pod_has_the_uid_of_the_hosts() {
        let volumes = |uid: &str| {
            let item = |path: &str| json!({"path": path, "fieldRef": {"fieldPath": path}});
            let mut files = json!({"items": [item("metadata.uid"), item("metadata.name")]});
            files["items"][0]["fieldRef"]["fieldPath"] = json!(uid);
            json!([{"name": "a", "downwardAPI": files}, {"name": "b", "projected": {"sources": [{"downwardAPI": files}]}}])
        };
        let told = copied(&json!({"containers": [], "volumes": volumes("metadata.uid")}), false);
        assert_eq!(told["spec"]["volumes"], volumes("metadata.annotations['kosmos.csi.io/pod-uid']"));
    }

    #[test]
    fn who_has_a_token_is_told_where_the_host_is() {
        let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
        let own = json!({"name": "KUBERNETES_SERVICE_PORT", "value": "1"});
        let volumes = json!([{"name": "t", "projected": {"sources": sources}}]);
        let spec = json!({"containers": [{"env": [own]}, {}], "volumes": volumes});
        let env = |secrets: bool| copied(&spec, secrets)["spec"]["containers"].clone();
        let host = json!({"name": "KUBERNETES_SERVICE_HOST", "value": "api.example.org"});
        assert_eq!(env(true)[0]["env"], json!([host, own]));
        assert_eq!(env(true)[1]["env"].as_array().unwrap().len(), 2);
        assert_eq!(env(false)[1].get("env"), None);
    }
}
