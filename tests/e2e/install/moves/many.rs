//! Many volumes are to move: as many are closed to their pods as may copy at the same time, and all are what they were. How long the driver
//! takes for each call about other volumes meanwhile is told, and how long it takes to make one and remove it, with everybody else's part.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{NAMESPACE, begin, discard_all, kept, object};
use crate::{
    clusters::{Cluster, Fleet},
    install::{examples, volumes::GROWING},
};

const MANY: usize = 20;
const MEBIBYTES: usize = 100;
/// As the chart has it.
const AT_ONCE: usize = 2;
/// So many pods fill volumes, and read them, at a time.
const BATCH: usize = 5;
/// A class whose volumes are made without a pod.
const SMALL: &str = "small";
/// So many small volumes are made with nothing beside; meanwhile it comes to about as many.
const IDLE: usize = 200;
/// Claims of small volumes: by their names the driver's log says which calls were when.
const BEFORE: &str = "before";
const MEANWHILE: &str = "meanwhile";
/// Seldom, as what looks takes of what is measured.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
const ALL_MOVED: Duration = Duration::from_mins(20);

pub async fn many_volumes_move(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    let claims = filled(host).await?;
    let before = sums(host, &claims, "cluster38").await?;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(made_and_removed(host, BEFORE).await?);
    }
    let moves: Vec<Value> = claims.iter().map(|claim| object(claim, claim, "cluster39")).collect();
    let began = Instant::now();
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": moves}).to_string()).await?;
    let meanwhile = async {
        let mut busy = Vec::new();
        loop {
            busy.push(made_and_removed(host, MEANWHILE).await?);
            if began.elapsed() > ALL_MOVED || have_moved(host).await? {
                return anyhow::Ok(busy);
            }
        }
    };
    let (most, busy) = tokio::try_join!(most_at_once(host), meanwhile)?;
    let (took, mebibytes) = (began.elapsed().as_secs_f64(), MANY * MEBIBYTES);
    ensure!(most == AT_ONCE, "{most} volumes were closed at the same time");
    ensure!(sums(host, &claims, "cluster39").await? == before, "the volumes are not what they were");
    eprintln!("figure: {MANY} volumes, {mebibytes} MiB in all, moved in {took:.0} s, {most} at a time");
    tell_of_others(host, idle, busy).await?;
    host.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=180s"]).await?;
    host.kubectl(&["delete", "storageclass", SMALL]).await?;
    for (member, kept_there) in [("cluster38", MANY), ("cluster39", 0)] {
        let kept = kept(fleet.member(member)).await?.len();
        ensure!(kept == kept_there, "{member} keeps {kept} sources");
    }
    discard_all(fleet).await
}

/// The volumes that are to move, of which each has something else in it.
async fn filled(host: &Cluster) -> Result<Vec<String>> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let small = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": SMALL},
        "provisioner": "kosmos.csi.io", "volumeBindingMode": "Immediate", "parameters": {"leafStorageClass": GROWING, "member": "cluster38"}});
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [namespace, small]}).to_string()).await?;
    let claims: Vec<String> = (0..MANY).map(|number| format!("data-{number}")).collect();
    for batch in claims.chunks(BATCH) {
        run(
            host,
            batch,
            "cluster38",
            &format!("dd if=/dev/urandom of=/data/file bs=1M count={MEBIBYTES} 2>/dev/null; sync"),
        )
        .await?;
    }
    Ok(claims)
}

/// Times with nothing beside, and meanwhile.
async fn tell_of_others(host: &Cluster, idle: Vec<Duration>, busy: Vec<Duration>) -> Result<()> {
    eprintln!("  other volumes, each call to the driver by a line of its log, and all that anybody does for one:");
    for method in ["CreateVolume", "DeleteVolume"] {
        let (before, meanwhile) = (calls(host, method, BEFORE).await?, calls(host, method, MEANWHILE).await?);
        let is_whole = before.len() >= idle.len() && meanwhile.len() >= busy.len();
        ensure!(is_whole, "the log has {} and {} calls of {method}", before.len(), meanwhile.len());
        tell(method, before, meanwhile);
    }
    tell("from the claim until it is gone, by kubectl", idle, busy);
    Ok(())
}

/// How long each of the driver's calls about a claim's volumes took, as its replicas have logged it.
async fn calls(host: &Cluster, method: &str, claim: &str) -> Result<Vec<Duration>> {
    let replicas = ["-l", "app.kubernetes.io/component=controller", "-c", "kosmos-csi", "--tail=-1"];
    let log = host.kubectl(&[&["-n", "kosmos-csi", "logs"], &replicas[..]].concat()).await?;
    let (method, volume) = (format!("method=\"{method}\""), format!("{NAMESPACE}/{claim}"));
    let lines = log.lines().filter(|line| line.contains(&method) && line.contains(&volume));
    let times = lines.filter_map(|line| line.split_once(" milliseconds=")?.1.split(' ').next()?.parse().ok());
    Ok(times.map(Duration::from_millis).collect())
}

/// The median, and nearly the slowest, which is compared.
fn tell(what: &str, mut idle: Vec<Duration>, mut busy: Vec<Duration>) {
    idle.sort();
    busy.sort();
    let at = |times: &[Duration], share: usize| times[(times.len() - 1) * share / 100];
    let told = |times: &[Duration]| {
        let [half, most] = [50, 99].map(|share| at(times, share).as_millis());
        format!("{half} ms, and 99 in 100 in {most} ms ({} of them)", times.len())
    };
    let longer = at(&busy, 99).as_secs_f64() / at(&idle, 99).as_secs_f64();
    eprintln!(
        "figure: {what} beside moves: {} with nothing beside, {} meanwhile: {longer:.1} times",
        told(&idle),
        told(&busy)
    );
}

/// Pods that do something with a volume each, in the member, until they are done.
async fn run(host: &Cluster, claims: &[String], member: &str, command: &str) -> Result<Vec<String>> {
    let items: Vec<Value> = claims
        .iter()
        .flat_map(|claim| [claim_of(claim, "openebs-hostpath", "256Mi"), pod(claim, member, command)])
        .collect();
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    let mut said = Vec::new();
    for claim in claims {
        said.push(ended(host, claim).await?);
    }
    Ok(said)
}

/// What a pod has said that is done with its volume; it goes.
pub(super) async fn ended(host: &Cluster, name: &str) -> Result<String> {
    let done = ["wait", &format!("pod/{name}"), "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s"];
    host.kubectl(&[&["-n", NAMESPACE], &done[..]].concat()).await?;
    let said = host.kubectl(&["-n", NAMESPACE, "logs", name]).await?;
    host.kubectl(&["-n", NAMESPACE, "delete", "pod", name, "--timeout=60s"]).await?;
    Ok(said)
}

async fn sums(host: &Cluster, claims: &[String], member: &str) -> Result<Vec<String>> {
    let mut sums = Vec::new();
    for batch in claims.chunks(BATCH) {
        sums.extend(run(host, batch, member, "sha256sum /data/file").await?);
    }
    ensure!(sums.iter().all(|sum| sum.len() > 64), "{sums:?}");
    Ok(sums)
}

pub(super) fn claim_of(name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
}

pub(super) fn pod(claim: &str, member: &str, command: &str) -> Value {
    let container = json!({"name": "main", "image": examples::IMAGE, "command": ["sh", "-c", command],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": claim, "namespace": NAMESPACE}, "spec": {
        "restartPolicy": "Never", "containers": [container], "nodeSelector": {"kubernetes.io/hostname": format!("kosmos-{member}")},
        "tolerations": [{"key": "kosmos.io/node", "operator": "Exists"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

/// A volume of a class that binds at once, from its claim until it is gone.
async fn made_and_removed(host: &Cluster, claim: &str) -> Result<Duration> {
    let began = Instant::now();
    host.apply(&claim_of(claim, SMALL, "256Mi").to_string()).await?;
    let object = format!("pvc/{claim}");
    let bound = ["-n", NAMESPACE, "wait", &object, "--for=jsonpath={.status.phase}=Bound", "--timeout=90s"];
    host.kubectl(&bound).await?;
    let volume = host.kubectl(&["-n", NAMESPACE, "get", &object, "-o", "jsonpath={.spec.volumeName}"]).await?;
    host.kubectl(&["-n", NAMESPACE, "delete", &object, "--timeout=90s"]).await?;
    let gone = ["wait", &format!("pv/{volume}"), "--for=delete", "--timeout=90s"];
    host.kubectl(&gone).await.map(|_| began.elapsed())
}

/// The phases of all moves.
async fn phases(host: &Cluster) -> Result<Vec<String>> {
    let path = "jsonpath={.items[*].status.phase}";
    let phases = host.kubectl(&["-n", NAMESPACE, "get", "volumemoves", "-o", path]).await?;
    Ok(phases.split_whitespace().map(str::to_owned).collect())
}

async fn have_moved(host: &Cluster) -> Result<bool> {
    let phases = phases(host).await?;
    let gives_up = phases.iter().any(|phase| ["Refused", "Cancelled"].contains(&phase.as_str()));
    ensure!(!gives_up, "{}", host.kubectl(&["-n", NAMESPACE, "get", "volumemoves", "-o", "wide"]).await?);
    Ok(phases.iter().filter(|phase| *phase == "Succeeded").count() == MANY)
}

/// As many were seen to be closed to their pods at the same time, until all have moved.
async fn most_at_once(host: &Cluster) -> Result<usize> {
    let mut most = 0;
    let seen = async {
        while !have_moved(host).await? {
            let now = phases(host).await?;
            let is_closed = |phase: &&String| ["Waiting", "Isolating", "Copying"].contains(&phase.as_str());
            most = most.max(now.iter().filter(is_closed).count());
            sleep(BETWEEN_LOOKS).await;
        }
        anyhow::Ok(())
    };
    let waited = tokio::time::timeout(ALL_MOVED, seen).await;
    if waited.is_err() {
        anyhow::bail!(
            "they have not all moved: {}",
            host.kubectl(&["-n", NAMESPACE, "get", "volumemoves", "-o", "wide"]).await?
        );
    }
    waited??;
    Ok(most)
}
