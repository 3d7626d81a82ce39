//! What admission refuses to accounts whose rights have no names, by the accounts' own tokens.

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use k8s_openapi::api::{core::v1::Event, storage::v1::VolumeAttachment};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, PostParams},
    config::KubeConfigOptions,
};
use serde_json::{Value, json};

use crate::{
    agent::{ACCOUNT, Agent, NODE},
    clusters::wait_for,
    objects::{Place, pod},
    pool::{beside_others, on_fleet},
    rig::{DRIVER, DRIVER_NAMESPACE, NOW, PATIENCE, PODS_NAMESPACE, Rig},
};

const MEMBER: &str = "cluster38";
/// The driver's own.
const DRIVER_ACCOUNT: &str = "kosmos-csi";
/// In the host.
const CONTROLLER: &str = "kosmos-csi-controller";
/// Pods that ask for more than `baseline`, each by the field that does.
const ABOVE_BASELINE: &str = include_str!("../agent/above_baseline.json");

/// An account's own client.
pub struct Account(Client);

impl Account {
    pub async fn of(place: &Place<'_>, namespace: &str, name: &str) -> Result<Self> {
        let kubeconfig = place.cluster.kubeconfig_outside_for(namespace, name).await?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self(Client::try_from(config)?))
    }

    /// A request that changes nothing, whatever is answered. `CONNECT` is what `kubectl exec` and its like ask.
    async fn tries(&self, method: &str, path: &str, body: &Value) -> Result<(), String> {
        let (method, uri) = match method {
            "CONNECT" => ("POST", path.to_owned()),
            method => (method, format!("{path}?dryRun=All")),
        };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", if method == "PATCH" { "application/merge-patch+json" } else { "application/json" })
            .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() });
        let answer = self.0.request::<Value>(request.map_err(|error| error.to_string())?).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    pub async fn is_refused<P: AsRef<str>>(&self, by: &str, attempts: &[(&str, P, Value)]) -> Result<()> {
        for (method, path, body) in attempts {
            let (path, words) = (path.as_ref(), format!("ValidatingAdmissionPolicy '{by}'"));
            match self.tries(method, path, body).await {
                Ok(()) => bail!("{method} {path} is allowed: {body}"),
                Err(told) => ensure!(told.contains(&words), "{method} {path} {body}: {told}"),
            }
        }
        Ok(())
    }

    /// Nothing forbids it, and there is no such object.
    pub async fn finds_none(&self, method: &str, path: &str) -> Result<()> {
        match self.tries(method, path, &Value::Null).await {
            Err(told) if told.contains("not found") => Ok(()),
            other => bail!("{method} {path}: {other:?}"),
        }
    }

    /// What is said to it.
    pub async fn refusal(&self, method: &str, path: &str, body: &Value) -> Result<String> {
        let told = self.tries(method, path, body).await.err();
        told.with_context(|| format!("{method} {path} is allowed: {body}"))
    }

    pub async fn is_allowed(&self, method: &str, path: &str, body: &Value) -> Result<()> {
        let answer = self.tries(method, path, body).await;
        answer.map_err(|told| anyhow::anyhow!("{method} {path} {body}: {told}"))
    }
}

#[test]
fn agents_account_writes_only_virtual_nodes_and_their_pods() {
    on_fleet("policies", async |rig| {
        let agent = Agent::start(rig).await?;
        let host = Place::new(rig.fleet.host(), "policies").await?;
        let real = host.cluster.node_name();
        let mut there = pod("there", &[], "sleep 1000");
        there["spec"]["nodeName"] = json!(real);
        host.pods().create(&PostParams::default(), &serde_json::from_value(there)?).await?;
        let account = Account::of(&host, PODS_NAMESPACE, ACCOUNT).await?;
        let node = |name: &str| format!("/api/v1/nodes/{name}");
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        wait_for("the policy is in force", PATIENCE, || async {
            account.is_refused(ACCOUNT, &[("PATCH", &node(&real), label.clone())]).await.map(Some)
        })
        .await?;
        let [nodes, csi_nodes] = ["/api/v1/nodes", "/apis/storage.k8s.io/v1/csinodes"];
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let pods = "/api/v1/namespaces/policies/pods";
        let drivers = json!({"drivers": [{"name": "other.example", "nodeID": "x", "topologyKeys": []}]});
        let new = |spec: &Value| json!({"metadata": {"name": "worker-9"}, "spec": spec});
        let attempts = [
            ("PATCH", &*node(&real), label.clone()),
            ("PATCH", &*node(&real), json!({"metadata": {"labels": {"kosmos.io/node": "true"}}})),
            ("PATCH", &*node(&real), json!({"spec": {"unschedulable": true}})),
            ("PATCH", &*node(&real), json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})),
            (
                "PATCH",
                &*format!("{nodes}/{real}/status"),
                json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}}),
            ),
            (
                "PATCH",
                &*format!("{nodes}/{real}/status"),
                json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
            ),
            ("DELETE", &*node(&real), Value::Null),
            ("POST", nodes, new(&json!({}))),
            ("PATCH", &*node(NODE), json!({"metadata": {"labels": {"kosmos.io/node": null}}})),
            ("PATCH", &*format!("{csi_nodes}/{real}"), json!({"spec": drivers})),
            ("POST", csi_nodes, new(&drivers)),
            ("POST", leases, new(&json!({"holderIdentity": "worker-9"}))),
            ("PATCH", &*format!("{leases}/{real}"), json!({"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}})),
            ("DELETE", &*format!("{pods}/there"), Value::Null),
            ("PATCH", &*format!("{pods}/there/status"), json!({"status": {"podIP": "10.9.9.9"}})),
            ("PATCH", &*format!("{pods}/there/status"), json!({"status": {"phase": "Failed"}})),
        ];
        account.is_refused(ACCOUNT, &attempts).await?;
        says_nothing_as_another(&account, &host).await?;
        account.is_allowed("PATCH", &node(NODE), &label).await?;
        host.pods().delete("there", &DeleteParams::default().grace_period(0)).await?;
        agent.end().await
    });
}

/// Neither of other objects, nor in the words of others.
async fn says_nothing_as_another(account: &Account, host: &Place<'_>) -> Result<()> {
    let events = "/api/v1/namespaces/policies/events";
    let event = |kind: &str, by: &str| {
        let about = json!({"kind": kind, "namespace": "policies", "name": "there"});
        let metadata = json!({"name": by, "namespace": "policies"});
        json!({"metadata": metadata, "involvedObject": about, "source": {"component": by}, "reason": "R"})
    };
    let of_kubelet = serde_json::from_value(event("Pod", "kubelet"))?;
    Api::<Event>::namespaced(host.client.clone(), "policies").create(&PostParams::default(), &of_kubelet).await?;
    let theirs = format!("{events}/kubelet");
    let of_member = |by: &str, reason: &str| {
        let changes = [("source.component", json!(by)), ("reason", json!(reason))];
        let mut event = but(event("Pod", "of-member"), &changes);
        event["reportingComponent"] = json!("kosmos.csi.io/member");
        event
    };
    let attempts = [
        ("POST", events, event("PersistentVolumeClaim", "kosmos.csi.io")),
        ("POST", events, event("Pod", "another")),
        ("PATCH", &*theirs, json!({"count": 9})),
        ("PATCH", &*theirs, json!({"reportingComponent": "kosmos.csi.io/member"})),
        ("POST", events, event("Node", "kosmos.csi.io")),
        ("POST", events, of_member("kubelet", "BackOff")),
        ("POST", events, of_member("default-scheduler, m", "FailedScheduling")),
        ("POST", events, but(event("Pod", "kosmos.csi.io"), &[("reason", json!("FailedScheduling"))])),
    ];
    account.is_refused(ACCOUNT, &attempts).await?;
    let ours = of_member("kubelet, m/n", "BackOff");
    account.is_allowed("POST", events, &ours).await?;
    let there: Api<Event> = Api::namespaced(host.client.clone(), "policies");
    there.create(&PostParams::default(), &serde_json::from_value(ours)?).await?;
    account.is_allowed("PATCH", &format!("{events}/of-member"), &json!({"count": 2})).await?;
    account.is_allowed("POST", events, &event("Pod", "kosmos.csi.io")).await
}

const ATTACHMENTS: &str = "policies-attachments";

/// It may patch them as well where the sidecars have their rights, which share it.
#[test]
fn controllers_account_writes_and_deletes_no_attachment_of_another_driver() {
    beside_others(ATTACHMENTS, async |rig| {
        let host = Place::new(rig.fleet.host(), ATTACHMENTS).await?;
        let attachments: Api<VolumeAttachment> = Api::all(host.client.clone());
        let [theirs, ours] = ["policies-theirs", "policies-ours"];
        for (name, attacher) in [(theirs, "other.example"), (ours, DRIVER)] {
            let source = json!({"persistentVolumeName": "policies-none"});
            let spec = json!({"attacher": attacher, "nodeName": "worker-9", "source": source});
            let attachment = json!({"metadata": {"name": name}, "spec": spec});
            attachments.create(&PostParams::default(), &serde_json::from_value(attachment)?).await?;
        }
        let resources = "--resource=volumeattachments,volumeattachments/status";
        host.cluster.kubectl(&["create", "clusterrole", ATTACHMENTS, "--verb=patch", resources]).await?;
        let (role, whose) =
            (format!("--clusterrole={ATTACHMENTS}"), format!("--serviceaccount={DRIVER_NAMESPACE}:{CONTROLLER}"));
        host.cluster.kubectl(&["create", "clusterrolebinding", ATTACHMENTS, &role, &whose]).await?;
        let account = Account::of(&host, DRIVER_NAMESPACE, CONTROLLER).await?;
        let attempts = |name: &str| {
            let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{name}");
            [
                ("DELETE", path.clone(), Value::Null),
                ("PATCH", path.clone(), json!({"metadata": {"finalizers": ["other.example/keeps"]}})),
                ("PATCH", format!("{path}/status"), json!({"status": {"attached": true}})),
            ]
        };
        wait_for("the policy is in force", PATIENCE, || async {
            account.is_refused(CONTROLLER, &attempts(theirs)).await.map(Some)
        })
        .await?;
        for (method, path, body) in attempts(ours) {
            account.is_allowed(method, &path, &body).await?;
        }
        host.cluster.kubectl(&["delete", "clusterrolebinding,clusterrole", ATTACHMENTS]).await?;
        host.cluster.kubectl(&["delete", "volumeattachment", theirs, ours]).await.map(drop)
    });
}

const CLOSED: &str = "policies-closed";
const OPEN: &str = "policies-open";
const FREE: &str = "policies-free";

pub fn labels() -> Value {
    json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": "of-a-host"})
}

pub fn ours(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels()}})
}

/// An object with some of its fields changed, by their paths.
pub fn but(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (path, value) in changes {
        let mut at = &mut object;
        for field in path.split('.') {
            at = &mut at[field];
        }
        at.clone_from(value);
    }
    object
}

/// A copy as the agent makes it.
pub fn copy(fields: &Value) -> Value {
    let mut pod = ours("Pod", "copy");
    pod["metadata"]["annotations"] = json!({"kosmos.csi.io/pod-uid": "u"});
    pod["spec"] = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    for part in ["spec", "metadata"] {
        for (field, value) in fields[part].as_object().into_iter().flatten() {
            let there = &mut pod[part][field];
            if let (Some(there), Some(more)) = (there.as_object_mut(), value.as_object()) {
                there.extend(more.clone());
            } else {
                there.clone_from(value);
            }
        }
    }
    pod
}

pub fn consumer() -> Value {
    let container = json!({"name": "c", "image": "kosmos.csi.io/consumer", "imagePullPolicy": "Never"});
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "leaf"}});
    let mut pod = ours("Pod", "kosmos-csi-consumer-1");
    pod["spec"] = json!({"automountServiceAccountToken": false, "containers": [container], "volumes": [volume]});
    pod
}

/// A Secret as the agent gives it, of this type, and with the name of an account for those in which a cluster puts its token.
fn secret(kind: &str) -> Value {
    let account = json!({"kubernetes.io/service-account.name": "default"});
    but(ours("Secret", "keys"), &[("type", json!(kind)), ("metadata.annotations", account)])
}

/// A member in which people have a claim with its volume, a pod and a ConfigMap.
async fn foreign(rig: &Rig) -> Result<(Place<'_>, String)> {
    let member = rig.fleet.member(MEMBER);
    for namespace in [CLOSED, FREE] {
        Place::new(member, namespace).await?;
    }
    member.kubectl(&["label", "namespace", FREE, "kosmos.csi.io/pods=privileged"]).await?;
    let open = Place::open(member, OPEN).await?;
    open.claim("theirs", NOW).await?;
    let volume = open.bound("theirs").await?.name_any();
    open.pods().create(&PostParams::default(), &serde_json::from_value(pod("theirs", &[], "sleep 1000"))?).await?;
    Ok((open, volume))
}

async fn leave(open: &Place<'_>) -> Result<()> {
    open.pods().delete("theirs", &DeleteParams::default().grace_period(0)).await?;
    open.delete_claim("theirs").await?;
    open.claim_is_gone("theirs").await
}

pub fn path(namespace: &str, rest: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{rest}")
}

#[test]
fn agents_account_in_a_member_makes_only_copies_that_their_namespace_takes() {
    on_fleet("policies-copies", async |rig| {
        let agent = Agent::start(rig).await?;
        let (open, _) = foreign(rig).await?;
        let account = Account::of(&open, DRIVER_NAMESPACE, ACCOUNT).await?;
        let (pods, maps, secrets) = (path(OPEN, "pods"), path(OPEN, "configmaps"), path(OPEN, "secrets"));
        let usual = copy(&json!({}));
        let role = format!("--clusterrole={ACCOUNT}-secrets");
        let whose = format!("--serviceaccount={DRIVER_NAMESPACE}:{ACCOUNT}");
        open.cluster.kubectl(&["create", "rolebinding", "secrets", "--namespace", OPEN, &role, &whose]).await?;
        wait_for("the policy is in force", PATIENCE, || async {
            account.is_refused(ACCOUNT, &[("POST", path(CLOSED, "pods"), usual.clone())]).await.map(Some)
        })
        .await?;
        account.is_allowed("POST", &pods, &usual).await?;
        let labelled = |labels: Value| json!({"metadata": {"name": "policies-new", "labels": labels}});
        let mut lax = labelled(labels());
        lax["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("privileged");
        let mut attempts = vec![
            ("POST", path("kube-system", "pods"), usual.clone()),
            ("POST", path(DRIVER_NAMESPACE, "pods"), usual.clone()),
            ("POST", path("kube-system", "configmaps"), ours("ConfigMap", "new")),
            ("POST", path(CLOSED, "configmaps"), ours("ConfigMap", "new")),
            ("POST", maps.clone(), json!({"metadata": {"name": "new"}})),
            ("PATCH", format!("{maps}/kube-root-ca.crt"), json!({"data": {"ca.crt": "x"}})),
            ("PATCH", format!("{maps}/kube-root-ca.crt"), json!({"metadata": {"labels": labels()}})),
            ("DELETE", format!("{maps}/kube-root-ca.crt"), Value::Null),
            ("DELETE", format!("{pods}/theirs"), Value::Null),
            ("CONNECT", path(CLOSED, "pods/any/exec?command=id&stdout=true"), Value::Null),
            ("CONNECT", path("kube-system", "pods/any/attach?stdout=true"), Value::Null),
            ("CONNECT", path(DRIVER_NAMESPACE, "pods/any/portforward"), Value::Null),
            ("POST", "/api/v1/namespaces".to_owned(), labelled(json!({}))),
            ("POST", "/api/v1/namespaces".to_owned(), labelled(labels())),
            ("POST", "/api/v1/namespaces".to_owned(), lax),
            ("POST", pods.clone(), but(usual.clone(), &[("metadata.labels", json!({}))])),
            ("POST", pods.clone(), but(usual.clone(), &[("metadata.annotations", json!({}))])),
            ("POST", pods.clone(), copy(&json!({"spec": {"nodeName": open.cluster.node_name()}}))),
            ("POST", pods.clone(), copy(&json!({"spec": {"automountServiceAccountToken": true}}))),
            ("POST", pods.clone(), copy(&json!({"spec": {"priorityClassName": "system-cluster-critical"}}))),
            ("POST", pods.clone(), copy(&json!({"spec": {"priorityClassName": "system-node-critical"}}))),
            ("POST", secrets.clone(), secret("kubernetes.io/service-account-token")),
        ];
        let with = |volume: Value| copy(&json!({"spec": {"volumes": [but(volume, &[("name", json!("v"))])]}}));
        attempts.extend(of_this_cluster().map(|volume| ("POST", pods.clone(), with(volume))));
        let cases: Vec<Value> = serde_json::from_str(ABOVE_BASELINE)?;
        attempts.extend(cases.iter().map(|case| ("POST", pods.clone(), copy(&case["pod"]))));
        account.is_refused(ACCOUNT, &attempts).await?;
        for case in cases {
            account.is_allowed("POST", &path(FREE, "pods"), &copy(&case["pod"])).await?;
        }
        account.is_allowed("POST", &secrets, &secret("Opaque")).await?;
        open.cluster.kubectl(&["delete", "rolebinding", "secrets", "--namespace", OPEN]).await?;
        adds_no_more_than_a_new_copy_may_have(&account, &open).await?;
        leave(&open).await?;
        agent.end().await
    });
}

/// Volumes by which a pod is given what a cluster has, or has it make a claim, of whatever class.
fn of_this_cluster() -> [Value; 3] {
    let projected = |source: Value| json!({"projected": {"sources": [source]}});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    [
        projected(json!({"serviceAccountToken": {"path": "t"}})),
        projected(json!({"clusterTrustBundle": {"name": "b", "path": "p"}})),
        json!({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}),
    ]
}

async fn adds_no_more_than_a_new_copy_may_have(account: &Account, open: &Place<'_>) -> Result<()> {
    let copied = serde_json::from_value(copy(&json!({})))?;
    let made = open.pods().create(&PostParams::default(), &copied).await?;
    // Those that Kubernetes gives it, and one for everything.
    let mut tolerations = json!(made.spec.unwrap_or_default().tolerations.unwrap_or_default());
    tolerations.as_array_mut().context("a list")?.push(json!({"operator": "Exists"}));
    let added = |context: Value| {
        let container = json!({"name": "d", "image": "i", "securityContext": context});
        json!({"spec": {"ephemeralContainers": [container]}})
    };
    let containers = |pod: &str| path(OPEN, &format!("pods/{pod}/ephemeralcontainers"));
    let pod = |pod: &str| path(OPEN, &format!("pods/{pod}"));
    let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
    let annotated = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    // Of this host, and no copy, as the driver's own pods are.
    let mover = but(copy(&json!({})), &[("metadata.name", json!("mover")), ("metadata.annotations", json!({}))]);
    open.pods().create(&PostParams::default(), &serde_json::from_value(mover)?).await?;
    let attempts = [
        ("PATCH", containers("theirs"), added(json!({}))),
        ("PATCH", containers("copy"), added(json!({"privileged": true}))),
        ("PATCH", containers("copy"), added(json!({"capabilities": {"add": ["SYS_PTRACE"]}}))),
        ("PATCH", containers("copy"), added(json!({"seccompProfile": {"type": "Unconfined"}}))),
        ("PATCH", pod("theirs"), labelled(json!({"role": "primary"}))),
        ("PATCH", pod("theirs"), labelled(labels())),
        ("PATCH", pod("copy"), labelled(json!({"kosmos.csi.io/host": null}))),
        ("PATCH", pod("copy"), annotated(json!({"kosmos.csi.io/pod-uid": "another"}))),
        ("PATCH", pod("copy"), json!({"spec": {"tolerations": tolerations}})),
        ("PATCH", pod("mover"), labelled(json!({"role": "primary"}))),
        ("PATCH", pod("mover"), annotated(json!({"kosmos.csi.io/pod-uid": "u"}))),
    ];
    account.is_refused(ACCOUNT, &attempts).await?;
    account.is_allowed("PATCH", &containers("copy"), &added(json!({}))).await?;
    account.is_allowed("PATCH", &pod("copy"), &labelled(json!({"role": "primary"}))).await?;
    for pod in ["copy", "mover"] {
        open.pods().delete(pod, &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}

/// In one that the driver opens, the agent could run what the people of the member let nobody run.
pub async fn opens_no_namespace(account: &Account) -> Result<()> {
    let (namespaces, level) = ("/api/v1/namespaces", "pod-security.kubernetes.io/enforce");
    let with = |label: &str, value: &str| {
        let mut namespace = ours("Namespace", "policies-new");
        namespace["metadata"]["labels"][label] = json!(value);
        namespace
    };
    let attempts = [
        ("POST", namespaces, json!({"metadata": {"name": "policies-new"}})),
        ("POST", namespaces, with("kosmos.csi.io/pods", "privileged")),
        ("POST", namespaces, with("kosmos.csi.io/pods", "baseline")),
        ("POST", namespaces, with(level, "privileged")),
    ];
    account.is_refused(DRIVER_ACCOUNT, &attempts).await?;
    account.is_allowed("POST", namespaces, &ours("Namespace", "policies-new")).await?;
    account.is_allowed("POST", namespaces, &with(level, "baseline")).await
}

#[test]
fn drivers_account_in_a_member_writes_only_leaves_and_makes_only_consumers() {
    on_fleet("policies-leaves", async |rig| {
        let (open, volume) = foreign(rig).await?;
        let account = Account::of(&open, DRIVER_NAMESPACE, DRIVER_ACCOUNT).await?;
        let (pods, claims) = (path(OPEN, "pods"), path(OPEN, "persistentvolumeclaims"));
        let volume = format!("/api/v1/persistentvolumes/{volume}");
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let leaf = but(ours("PersistentVolumeClaim", "leaf"), &[("spec", spec)]);
        let other = json!({"name": "mine", "namespace": OPEN});
        let container = consumer()["spec"]["containers"][0].clone();
        let before = but(container.clone(), &[("name", json!("before"))]);
        let with = |field: &str, value: Value| {
            let mut one = container.clone();
            one[field] = value;
            but(consumer(), &[("spec.containers", json!([one]))])
        };
        let mounting = |volume: Value| but(consumer(), &[("spec.volumes", json!([volume]))]);
        let attempts = [
            ("POST", claims.clone(), but(leaf.clone(), &[("metadata.labels", json!({}))])),
            ("PATCH", format!("{claims}/theirs"), json!({"metadata": {"finalizers": null}})),
            ("PATCH", format!("{claims}/theirs"), json!({"metadata": {"labels": labels()}})),
            ("PATCH", format!("{claims}/theirs"), json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})),
            ("DELETE", format!("{claims}/theirs"), Value::Null),
            ("PATCH", volume.clone(), json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
            ("PATCH", volume.clone(), json!({"spec": {"claimRef": other}})),
            ("PATCH", volume.clone(), json!({"metadata": {"labels": labels()}, "spec": {"claimRef": other}})),
            ("PATCH", volume.clone(), json!({"metadata": {"finalizers": null}})),
            ("DELETE", format!("{pods}/theirs"), Value::Null),
            ("POST", pods.clone(), copy(&json!({}))),
            ("POST", pods.clone(), but(consumer(), &[("metadata.name", json!("another"))])),
            ("POST", pods.clone(), but(consumer(), &[("metadata.labels", json!({}))])),
            (
                "POST",
                path(DRIVER_NAMESPACE, "pods"),
                but(consumer(), &[("spec.serviceAccountName", json!(DRIVER_ACCOUNT))]),
            ),
            ("POST", pods.clone(), but(consumer(), &[("spec.automountServiceAccountToken", json!(true))])),
            ("POST", pods.clone(), but(consumer(), &[("spec.hostNetwork", json!(true))])),
            ("POST", pods.clone(), but(consumer(), &[("spec.nodeName", json!(open.cluster.node_name()))])),
            ("POST", pods.clone(), but(consumer(), &[("spec.initContainers", json!([before]))])),
            ("POST", pods.clone(), but(consumer(), &[("spec.priorityClassName", json!("system-node-critical"))])),
            ("POST", pods.clone(), mounting(json!({"name": "v", "secret": {"secretName": "s"}}))),
            ("POST", pods.clone(), mounting(json!({"name": "v", "hostPath": {"path": "/"}}))),
            ("POST", pods.clone(), with("image", json!("i"))),
            ("POST", pods.clone(), with("imagePullPolicy", json!("Always"))),
            ("POST", pods.clone(), with("command", json!(["sh"]))),
            ("POST", pods.clone(), with("securityContext", json!({"privileged": true}))),
        ];
        account.is_refused(DRIVER_ACCOUNT, &attempts).await?;
        opens_no_namespace(&account).await?;
        account.is_allowed("POST", &claims, &leaf).await?;
        account.is_allowed("POST", &pods, &consumer()).await?;
        account.is_allowed("PATCH", &volume, &json!({"metadata": {"labels": labels()}})).await?;
        leave(&open).await
    });
}
