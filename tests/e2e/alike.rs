//! A pod on a virtual node beside the same one that the member's own people run there: what is seen of both is the same.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    agent::{Agent, NODE, gone, phase},
    clusters::{images::BUSYBOX, wait_for},
    objects::{Place, nothing_of_ours, pod, tolerant},
    pool::on_fleet,
    rig::{LATER, MEMBERS},
};

const NAMESPACE: &str = "alike";
/// In the member, of its own people.
const OWN: &str = "alike-own";
const VOLUMES: &str = "volumes-alike";
const OWN_VOLUMES: &str = "volumes-alike-own";
/// A kubelet that is asked to begin many at once takes its time.
const ENDED: Duration = Duration::from_mins(2);
/// What a pod does between being deleted and ending, in seconds.
const FAREWELL: u64 = 3;

fn container(name: &str, script: &str, fields: Value) -> Value {
    let mut container = json!({
        "name": name, "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    });
    put(&mut container, fields);
    container
}

fn put(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
}

fn alone(script: &str, fields: Value) -> Value {
    json!([container("main", script, fields)])
}

/// What each has of its own in its spec. All come to an end.
fn lives() -> Vec<(&'static str, Value)> {
    let plain = json!({});
    let exec = |command: &[&str]| json!({"exec": {"command": command}});
    let probe = |command: &[&str]| json!({"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 30});
    let dies = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let some = json!({"cpu": "20m", "memory": "16Mi"});
    let first = container("first", "echo 1 >/scratch/log", plain.clone());
    let second = container("second", "[ -e /scratch/log ]", plain.clone());
    let fails = container("fails", "echo no >/dev/termination-log; exit 3", plain.clone());
    let helper = json!({"restartPolicy": "Always", "startupProbe": probe(&["ls", "/scratch/up"])});
    let helper = container("helper", "touch /scratch/up; exec sleep 1000", helper);
    let logs = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let last_words = [
        container("main", "echo bye >/dev/termination-log; exit 5", plain.clone()),
        container("talker", "echo words; exit 6", logs),
    ];
    let once_more = "[ -e /scratch/tried ] || { touch /scratch/tried; exit 7; }";
    let hook = json!({"lifecycle": {"postStart": exec(&["touch", "/scratch/begun"])}});
    vec![
        (
            "init-in-order",
            json!({"initContainers": [first, second], "containers": alone("[ -e /scratch/log ]", plain.clone())}),
        ),
        ("init-fails", json!({"initContainers": [fails], "containers": alone("true", plain.clone())})),
        ("sidecar", json!({"initContainers": [helper], "containers": alone("[ -e /scratch/up ]", plain.clone())})),
        ("last-words", json!({"containers": last_words})),
        ("once-more", json!({"restartPolicy": "OnFailure", "containers": alone(once_more, plain.clone())})),
        ("too-long", json!({"activeDeadlineSeconds": 2, "containers": alone("sleep 1000", plain)})),
        ("not-alive", json!({"containers": alone("sleep 1000", json!({"livenessProbe": dies}))})),
        ("hooked", json!({"containers": alone("until [ -e /scratch/begun ]; do sleep 0.1; done", hook)})),
        ("guaranteed", json!({"containers": alone("true", json!({"resources": {"limits": some.clone()}}))})),
        ("burstable", json!({"containers": alone("true", json!({"resources": {"requests": some}}))})),
    ]
}

/// What each does with a volume in which the first has left something, and says at its end.
fn uses() -> [(&'static str, Value); 6] {
    let mounted = |how: Value| {
        let mut mount = json!({"name": "scratch", "mountPath": "/scratch"});
        put(&mut mount, how);
        json!({"volumeMounts": [mount]})
    };
    let who = json!([{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let mut by_name = mounted(json!({"subPathExpr": "$(WHO)/own"}));
    by_name["env"] = who;
    let group = json!({"fsGroup": 4321, "runAsUser": 1234, "runAsGroup": 1234});
    let says = |script: &str| format!("{script} >/dev/termination-log");
    let owner = says("ls -dn /scratch | awk '{print $1, $3, $4}'");
    let read_only = says("touch /scratch/no 2>/dev/null && exit 9; cat /scratch/part/of/file");
    let sealed = json!({"securityContext": {"readOnlyRootFilesystem": true}});
    let plain = json!({});
    let leaves = "mkdir -p /scratch/part/of && echo one >/scratch/part/of/file && sync";
    [
        ("leaves-some", json!({"containers": alone(leaves, plain)})),
        ("sub-path", json!({"containers": alone(&says("cat /scratch/file"), mounted(json!({"subPath": "part/of"})))})),
        ("sub-path-by-name", json!({"containers": alone(&says("echo mine >/scratch/it; cat /scratch/it"), by_name)})),
        ("reads-only", json!({"containers": alone(&read_only, mounted(json!({"readOnly": true})))})),
        ("sealed", json!({"containers": alone("touch /no 2>/dev/null && exit 9; touch /scratch/yes", sealed)})),
        ("of-a-group", json!({"securityContext": group, "containers": alone(&owner, json!({}))})),
    ]
}

async fn begin(place: &Place<'_>, mut base: Value, volume: &Value, spec: Value) -> Result<()> {
    let mut scratch = json!({"name": "scratch"});
    put(&mut scratch, volume.clone());
    base["spec"]["volumes"] = json!([scratch]);
    put(&mut base["spec"], spec);
    place.pods().create(&PostParams::default(), &serde_json::from_value(base)?).await.map(drop).map_err(Into::into)
}

/// On the virtual node, and beside it.
async fn begin_both(host: &Place<'_>, own: &Place<'_>, name: &str, volume: &Value, spec: &Value) -> Result<()> {
    let mut here = tolerant(name, &[]);
    here["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    begin(host, here, volume, spec.clone()).await?;
    begin(own, pod(name, &[], ""), volume, spec.clone()).await
}

/// What people see, without what is another time or name on each side.
fn seen(pod: &Pod) -> Value {
    let status = json!(pod.status);
    let of = |kind: &str| -> Vec<Value> {
        let each = status[kind].as_array().into_iter().flatten();
        each.map(|one| {
            json!({
                "name": one["name"], "ready": one["ready"], "started": one["started"], "restarts": one["restartCount"],
                "state": state(&one["state"]), "before": state(&one["lastState"]),
            })
        })
        .collect()
    };
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let of_kubernetes = conditions.filter(|one| !one["type"].to_string().contains('/'));
    let mut conditions: Vec<String> =
        of_kubernetes.map(|one| format!("{} {} {}", one["type"], one["status"], one["reason"])).collect();
    conditions.sort();
    json!({
        "phase": status["phase"], "reason": status["reason"], "message": status["message"], "qos": status["qosClass"],
        "conditions": conditions, "init": of("initContainerStatuses"), "containers": of("containerStatuses"),
    })
}

fn state(state: &Value) -> Value {
    let kinds = state.as_object().into_iter().flatten();
    kinds
        .map(|(kind, told)| {
            let ended = [&told["exitCode"], &told["signal"], &told["reason"], &told["message"]];
            (kind.clone(), json!(ended))
        })
        .collect::<Map<String, Value>>()
        .into()
}

async fn are_alike(host: &Place<'_>, own: &Place<'_>, name: &str) -> Result<()> {
    wait_for(&format!("pod {name} has ended alike on both sides"), ENDED, || async {
        let (copied, usual) = (seen(&host.pods().get(name).await?), seen(&own.pods().get(name).await?));
        let has_ended = usual["phase"] == "Succeeded" || usual["phase"] == "Failed";
        ensure!(has_ended && copied == usual, "on the virtual node {copied:#}, and on the member's own {usual:#}");
        Ok(Some(()))
    })
    .await
}

/// Its last hook is run before it ends, and it is there until then.
async fn takes_its_leave(place: &Place<'_>) -> Result<()> {
    phase(place, "leaves", "Running").await?;
    let begun = Instant::now();
    place.pods().delete("leaves", &DeleteParams::default()).await?;
    gone(place, "leaves").await?;
    let took = begun.elapsed();
    ensure!(took >= Duration::from_secs(FAREWELL), "{} has ended it after {took:?}", place.cluster.name());
    Ok(())
}

async fn remove(place: &Place<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        place.pods().delete(name, &DeleteParams::default()).await?;
    }
    try_join_all(names.iter().map(|name| gone(place, name))).await.map(drop)
}

/// The member's administrator empties a node.
async fn is_evicted(host: &Place<'_>, copies: &Place<'_>) -> Result<()> {
    phase(host, "evicted", "Running").await?;
    copies.pods().evict("evicted", &EvictParams::default()).await?;
    let failed = phase(host, "evicted", "Failed").await?;
    let conditions = json!(failed.status)["conditions"].to_string();
    ensure!(conditions.contains("DisruptionTarget"), "nothing says that somebody has ended it: {conditions}");
    Ok(())
}

#[test]
fn pod_on_a_virtual_node_lives_and_ends_as_on_any_other_node() {
    on_fleet("pods-alike", async |rig| {
        let (host, member) = (Place::new(rig.fleet.host(), NAMESPACE).await?, rig.fleet.member(MEMBERS[0]));
        let own = Place::new(member, OWN).await?;
        let agent = Agent::start(rig).await?;
        let (lives, folder) = (lives(), json!({"emptyDir": {}}));
        for (name, spec) in &lives {
            begin_both(&host, &own, name, &folder, spec).await?;
        }
        let farewell = json!({"preStop": {"exec": {"command": ["sleep", FAREWELL.to_string()]}}});
        let leaves = alone("exec sleep 1000", json!({"lifecycle": farewell}));
        let leaves = json!({"terminationGracePeriodSeconds": 20, "containers": leaves});
        begin_both(&host, &own, "leaves", &folder, &leaves).await?;
        host.tolerant_pod("evicted", &[], Some(NODE)).await?;
        let names: Vec<&str> = lives.iter().map(|(name, _)| *name).collect();
        try_join_all(names.iter().map(|name| are_alike(&host, &own, name))).await?;
        tokio::try_join!(takes_its_leave(&host), takes_its_leave(&own))?;
        is_evicted(&host, &Place::existing(member, NAMESPACE).await?).await?;
        let all = [&names[..], &["evicted"]].concat();
        tokio::try_join!(remove(&host, &all), remove(&own, &names))?;
        agent.end().await
    });
}

#[test]
fn pod_finds_its_volume_on_a_virtual_node_as_on_any_other_node() {
    on_fleet("volumes-alike", async |rig| {
        let (host, member) = (Place::new(rig.fleet.host(), VOLUMES).await?, rig.fleet.member(MEMBERS[0]));
        let own = Place::new(member, OWN_VOLUMES).await?;
        let agent = Agent::start(rig).await?;
        host.class(VOLUMES, "WaitForFirstConsumer", json!({"leafStorageClass": LATER}), &MEMBERS).await?;
        host.claim("data", VOLUMES).await?;
        own.claim("data", LATER).await?;
        let (uses, volume) = (uses(), json!({"persistentVolumeClaim": {"claimName": "data"}}));
        for (name, spec) in &uses {
            begin_both(&host, &own, name, &volume, spec).await?;
            are_alike(&host, &own, name).await?;
            let ended = own.pods().get(name).await?.status.and_then(|status| status.phase);
            ensure!(ended.as_deref() == Some("Succeeded"), "{name} is {ended:?} on both sides");
        }
        let names = uses.each_ref().map(|(name, _)| *name);
        tokio::try_join!(remove(&host, &names), remove(&own, &names))?;
        host.delete_claim("data").await?;
        own.delete_claim("data").await?;
        nothing_of_ours(member, VOLUMES).await?;
        agent.end().await
    });
}
