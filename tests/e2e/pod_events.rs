//! What a member's kubelet says of a copy in events is read in the host, on the pod.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, NODE, gone, phase},
    clusters::wait_for,
    objects::{Place, tolerant},
    pool::on_fleet,
    rig::PATIENCE,
};

const NAMESPACE: &str = "pod-events";

/// A pod on the virtual node whose one container has these fields besides.
async fn run(host: &Place<'_>, name: &str, fields: Value) -> Result<()> {
    let mut pod = tolerant(name, &[]);
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    for (field, value) in fields.as_object().context("fields")? {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// The event of the host's pod with this reason and these words.
async fn told(host: &Place<'_>, pod: &str, reason: &str, words: &str) -> Result<Event> {
    let uid = host.pods().get(pod).await?.uid().context("a pod has a UID")?;
    let events: Api<Event> = Api::namespaced(host.client.clone(), &host.namespace);
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},reason={reason}"));
    wait_for(&format!("the host is told {reason} of pod {pod}: {words}"), PATIENCE, || async {
        let mut events = events.list(&about).await?.items.into_iter();
        Ok(events.find(|event| event.message.as_ref().is_some_and(|message| message.contains(words))))
    })
    .await
}

#[test]
fn kubectl_describe_shows_in_the_host_what_the_members_kubelet_says_of_a_pod() {
    on_fleet("pod-events", async |rig| {
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        let agent = Agent::start(rig).await?;
        let probe = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
        let refused = json!({"runAsNonRoot": true});
        let no_image = json!({"image": "127.0.0.1:1/none:1", "imagePullPolicy": "IfNotPresent"});
        let pods = [
            ("no-image", no_image, "Failed", "127.0.0.1:1/none:1"),
            ("unready", json!({"readinessProbe": probe}), "Unhealthy", "Readiness probe failed"),
            ("as-root", json!({"securityContext": refused}), "Failed", "runAsNonRoot"),
        ];
        for (pod, fields, _, _) in &pods {
            run(&host, pod, fields.clone()).await?;
        }
        for (pod, _, reason, words) in &pods {
            let event = told(&host, pod, reason, words).await?;
            let source = event.source.and_then(|source| source.component).unwrap_or_default();
            ensure!(source.starts_with("kubelet, cluster38/"), "{source}");
            let shown = host.cluster.kubectl(&["describe", "pod", pod, "-n", NAMESPACE]).await?;
            ensure!(shown.contains(words) && shown.contains("kubelet, cluster38/"), "{shown}");
        }
        // It goes on being said.
        let before = told(&host, "unready", "Unhealthy", "Readiness probe failed").await?.count;
        let counted = || async {
            let event = told(&host, "unready", "Unhealthy", "Readiness probe failed").await?;
            Ok((event.count > before).then_some(()))
        };
        wait_for("it is counted on", PATIENCE, counted).await?;
        phase(&host, "unready", "Running").await?;
        ends_as_its_kubelet_says(&host).await?;
        waits_for_its_variable_alone(&host).await?;
        says_that_its_hook_fails(&host).await?;
        for pod in pods.iter().map(|(pod, ..)| *pod).chain(ENDED.map(|(pod, ..)| pod)) {
            host.pods().delete(pod, &DeleteParams::default()).await?;
        }
        for pod in pods.iter().map(|(pod, ..)| *pod).chain(ENDED.map(|(pod, ..)| pod)) {
            gone(&host, pod).await?;
        }
        agent.end().await
    });
}

/// What `kubectl describe` says of a pod that took more memory than it may, or filled what it was given on the machine's disk.
const ENDED: [(&str, &str, &[&str]); 2] = [
    ("greedy", "exec tail /dev/zero", &["OOMKilled", "Exit Code:    137"]),
    ("full", "head -c 20m /dev/zero >/scratch/all; sleep 1000", &["Evicted", "exceeds the limit \"1Mi\""]),
];

async fn ends_as_its_kubelet_says(host: &Place<'_>) -> Result<()> {
    for (name, script, _) in ENDED {
        let mut pod = tolerant(name, &[]);
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
        pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]);
        let container = &mut pod["spec"]["containers"][0];
        container["command"] = json!(["sh", "-c", script]);
        container["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
        container["resources"] = json!({"limits": {"memory": "32Mi"}});
        host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    for (name, _, words) in ENDED {
        phase(host, name, "Failed").await?;
        let shown = host.cluster.kubectl(&["describe", "pod", name, "-n", NAMESPACE]).await?;
        ensure!(words.iter().all(|word| shown.contains(word)), "{name}: {shown}");
    }
    Ok(())
}

/// What is before and beside a container that lacks a variable starts, and it starts once the host has that.
async fn waits_for_its_variable_alone(host: &Place<'_>) -> Result<()> {
    let mut pod = tolerant("lacking", &[]);
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    let main = pod["spec"]["containers"][0].clone();
    let (mut first, mut late) = (main.clone(), main.clone());
    first["name"] = json!("first");
    first["command"] = json!(["true"]);
    late["name"] = json!("late");
    late["env"] = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]);
    pod["spec"]["initContainers"] = json!([first]);
    pod["spec"]["containers"] = json!([main, late]);
    host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    told(host, "lacking", "Failed", "couldn't find key a in ConfigMap pod-events/settings").await?;
    let shown = host.cluster.kubectl(&["describe", "pod", "lacking", "-n", NAMESPACE]).await?;
    ensure!(shown.contains("CreateContainerConfigError") && shown.contains("State:          Running"), "{shown}");
    let settings = json!({"metadata": {"name": "settings"}, "data": {"a": "1"}});
    let maps: Api<ConfigMap> = Api::namespaced(host.client.clone(), &host.namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(settings)?).await?;
    let ready = ["wait", "pod", "lacking", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=120s"];
    host.cluster.kubectl(&ready).await?;
    host.pods().delete("lacking", &DeleteParams::default()).await?;
    gone(host, "lacking").await
}

/// It is ready until it is deleted.
async fn says_that_its_hook_fails(host: &Place<'_>) -> Result<()> {
    let mut pod = tolerant("hooked", &[]);
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(20);
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["false"]}}});
    host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    phase(host, "hooked", "Running").await?;
    host.pods().delete("hooked", &DeleteParams::default()).await?;
    told(host, "hooked", "FailedPreStopHook", "").await?;
    gone(host, "hooked").await
}
