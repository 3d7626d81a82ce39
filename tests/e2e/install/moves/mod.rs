//! Volumes move to another member and back. Here a StatefulSet writes to one: its user asks for that by the command, with rights in one
//! namespace alone, and deletes a pod.

mod afterwards;
mod big;
mod drivers;
mod gone;
mod kills;
mod many;
mod owners;
mod reclaim;
mod tenant;
mod told;
mod users;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{examples, release::PATIENCE, volumes::until};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    lost::{MOST, lost_while},
};
use kills::{KILLS, Kills};
use told::Told;

pub use big::{members_go_away, much_data_moves};
pub use drivers::storage_of_two_drivers;
pub use gone::member_that_is_gone_for_good_ends_a_move;
pub use many::many_volumes_move;
pub use owners::storage_without_owners_stalls_a_move;
pub use reclaim::moved_volumes_go_or_stay;
pub use users::users_are_waited_for_and_named;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
const NAMESPACE: &str = "moving";
const USER: &str = "user";
const POD: &str = "writer-0";
const CLAIM: &str = "data-writer-0";
/// Of the claim.
const ATTRIBUTES: &str = "moving";
/// Each number is on the disk before it is said.
const WRITER: &str = "trap exit TERM; n=$(tail -n 1 /data/log 2>/dev/null); n=${n:-0}; \
                      while :; do n=$((n + 1)); echo $n >> /data/log && sync -d /data/log && echo $n; sleep 0.1; done";
/// There and back; more where everything is asked for, and then the controllers are killed again and again.
const TRIPS: usize = 2;
const THOROUGH_TRIPS: usize = 10;
/// However long it takes until as many controllers were killed.
const MOST_TRIPS: usize = 40;
/// Of Pod Security (label).
const LEVEL: &str = "pod-security.kubernetes.io/enforce";
const MOVED: Duration = Duration::from_mins(5);
/// What it takes until the log of a pod is followed, and until its end is heard.
const HEARD: Duration = Duration::from_secs(2);

/// A snapshot of a claim, once it can be used.
async fn photograph(host: &Cluster, claim: &str, name: &str) -> Result<()> {
    let photo = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"volumeSnapshotClassName": "photos", "source": {"persistentVolumeClaimName": claim}}});
    host.apply(&photo.to_string()).await?;
    until(host, NAMESPACE, &format!("volumesnapshot/{name}"), "--for=jsonpath={.status.readyToUse}=true").await
}

/// The move whose source is not kept.
const FIRST: &str = "trip-1";

fn is_thorough() -> bool {
    std::env::var_os("KOSMOS_CSI_THOROUGH").is_some()
}

fn trips() -> usize {
    if is_thorough() { THOROUGH_TRIPS } else { TRIPS }
}

pub async fn volume_moves_there_and_back(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    host.apply(&writer()).await?;
    let folder = tempfile::tempdir()?;
    let user = folder.path().join("user.kubeconfig");
    std::fs::write(&user, host.kubeconfig_for(NAMESPACE, USER).await?)?;
    let user = format!("--kubeconfig={}", user.display());
    let mut at = running(host, None).await?;
    let first = at.clone();
    let (before, mut told) = (claim(host).await?, Told::begin(fleet).await?);
    let (mut kills, mut trip, mut times_lost) = (Kills::default(), 0, 0);
    while trip < trips() || is_thorough() && kills.done < KILLS || trip % 2 == 1 {
        trip += 1;
        ensure!(trip <= MOST_TRIPS, "{} kills in {MOST_TRIPS} trips", kills.done);
        let to = other_than(&at);
        wait_for("it writes", PATIENCE, || async { Ok((said(host).await? > 0).then_some(())) }).await?;
        let move_it = Box::pin(async {
            let name = format!("trip-{trip}");
            let runs = async {
                let (acknowledged, began) = moved(fleet, &user, &name, to).await?;
                running(host, Some(to)).await.map(|_| (acknowledged, began.elapsed()))
            };
            tokio::try_join!(runs, Box::pin(told.listen(fleet))).map(|(runs, ())| runs)
        });
        let move_it = lost_while(Api::namespaced(host.client().await?, NAMESPACE), CLAIM, move_it);
        let ((acknowledged, took), lost) = if is_thorough() {
            tokio::select! {
                moved = move_it => moved?,
                never = kills.go_on(host) => match never? {},
            }
        } else {
            move_it.await?
        };
        eprintln!(
            "figure: trip {trip}: {:.1} s from the end of the pod in {at} until one runs in {to}; its claim was lost for {lost:?}",
            took.as_secs_f64()
        );
        let after = claim(host).await?;
        ensure!(after == before, "the claim was {before:?}, and is {after:?}");
        ensure!(is_thorough() || lost.iter().all(|time| *time <= MOST), "its claim was lost for {lost:?}");
        times_lost += lost.len();
        nothing_is_lost(host, acknowledged).await?;
        to.clone_into(&mut at);
    }
    ensure!(times_lost > 0, "nobody has seen that its claim was lost");
    if is_thorough() {
        kills.end(host).await?;
    }
    finalizer_stays_while_the_volume_is_replaced(host).await?;
    Box::pin(tenant::user_reaches_nothing_but_his_own(fleet, &user)).await?;
    Box::pin(afterwards::moved_volume_is_one_like_any_other(fleet)).await?;
    keeps(fleet, &first, trip / 2 - 1).await?;
    Box::pin(told.is_nothing_wrong(fleet)).await?;
    end(fleet, trip, Some(&first)).await?;
    told.has_seen_the_end(host).await
}

/// By force neither: nobody else knows by what.
async fn finalizer_stays_while_the_volume_is_replaced(host: &Cluster) -> Result<()> {
    let patch = |patch: &'static str, more: &'static [&'static str]| async move {
        let words = ["-n", NAMESPACE, "patch", "volumemove", "held", "--type=merge", "-p", patch];
        host.kubectl(&[&words[..], more].concat()).await
    };
    host.apply(&object("held", "none", "cluster38").to_string()).await?;
    wait_for("it is refused", MOVED, || async {
        let get = ["-n", NAMESPACE, "get", "volumemove", "held", "-o", "jsonpath={.status.phase}"];
        let now = host.kubectl(&get).await?;
        ensure!(now == "Refused", "it is {now:?}");
        Ok(Some(()))
    })
    .await?;
    patch(r#"{"status":{"phase":"Switching"}}"#, &["--subresource=status"]).await?;
    patch(r#"{"metadata":{"finalizers":["kosmos.csi.io/move"]}}"#, &[]).await?;
    let taken = patch(r#"{"metadata":{"finalizers":null}}"#, &[]).await;
    patch(r#"{"status":{"phase":"Refused"}}"#, &["--subresource=status"]).await?;
    match taken {
        Ok(_) => bail!("somebody took the finalizer of a move that switches"),
        Err(error) => ensure!(format!("{error:#}").contains("the host's volume is being replaced"), "{error:#}"),
    }
    host.kubectl(&["-n", NAMESPACE, "delete", "volumemove", "held", "--timeout=60s"]).await.map(drop)
}

/// What a story that failed has left is in no other's way.
async fn begin(fleet: &Fleet) -> Result<()> {
    let gone = ["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s"];
    fleet.host().kubectl(&gone).await?;
    for member in fleet.members() {
        let there = member.kubectl(&["get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "name"]).await?;
        if !there.is_empty() {
            member.kubectl(&["label", "namespace", NAMESPACE, &format!("{LEVEL}-")]).await?;
            member.kubectl(&["-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=1", "--timeout=60s"]).await?;
        }
    }
    discard_all(fleet).await
}

fn writer() -> String {
    let container = json!({"name": "main", "image": examples::IMAGE, "command": ["sh", "-c", WRITER],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let template = json!({
        "metadata": {"labels": {"app": "writer"}},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [container],
            "tolerations": [{"key": "kosmos.io/node", "operator": "Exists"}]},
    });
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "openebs-hostpath", "volumeAttributesClassName": ATTRIBUTES,
        "resources": {"requests": {"storage": "64Mi"}}}}]);
    // It stands for none in these members.
    let attributes = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": ATTRIBUTES},
        "driverName": "kosmos.csi.io", "parameters": {"leafVolumeAttributesClass.elsewhere": "gold"}});
    let rules = json!([
        {"apiGroups": ["kosmos.csi.io"], "resources": ["volumemoves"], "verbs": ["get", "create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]);
    let of_user = json!({"name": USER, "namespace": NAMESPACE});
    let authorization = "rbac.authorization.k8s.io";
    let items = json!([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        attributes,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": of_user},
        {"apiVersion": format!("{authorization}/v1"), "kind": "Role", "metadata": of_user, "rules": rules},
        {"apiVersion": format!("{authorization}/v1"), "kind": "RoleBinding", "metadata": of_user,
            "roleRef": {"apiGroup": authorization, "kind": "Role", "name": USER},
            "subjects": [{"kind": "ServiceAccount", "name": USER, "namespace": NAMESPACE}]},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "writer", "namespace": NAMESPACE},
            "spec": {"serviceName": "writer", "replicas": 1, "selector": {"matchLabels": {"app": "writer"}},
                "template": template, "volumeClaimTemplates": claims}},
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn other_than(member: &str) -> &'static str {
    if member == "cluster38" { "cluster39" } else { "cluster38" }
}

/// The member in which the pod runs.
async fn running(host: &Cluster, wanted: Option<&str>) -> Result<String> {
    wait_for("the pod runs", MOVED, || async {
        let path = "jsonpath={.spec.nodeName} {.status.phase}{.metadata.deletionTimestamp}";
        let pod = host.kubectl(&["-n", NAMESPACE, "get", "pod", POD, "--ignore-not-found", "-o", path]).await?;
        let member = pod.strip_suffix(" Running").and_then(|node| node.strip_prefix("kosmos-"));
        ensure!(member.is_some_and(|member| wanted.is_none_or(|wanted| member == wanted)), "it is {pod:?}");
        Ok(member.map(str::to_owned))
    })
    .await
}

async fn claim(host: &Cluster) -> Result<String> {
    let path = "jsonpath={.metadata.uid} {.spec.volumeName} {.status.phase}";
    host.kubectl(&["-n", NAMESPACE, "get", "pvc", CLAIM, "-o", path]).await
}

/// Up to which number the pod has said that it is on the disk.
async fn said(host: &Cluster) -> Result<usize> {
    let said = host.kubectl(&["-n", NAMESPACE, "logs", POD, "--tail=1"]).await?;
    Ok(said.trim().parse().unwrap_or_default())
}

/// Up to which number it has said so when it ends, and when it was told to go: what it writes until then is copied last.
async fn stops(host: &Cluster) -> Result<(usize, Instant)> {
    let before = said(host).await?;
    let logs = ["-n", NAMESPACE, "logs", POD, "--follow", "--tail=1"];
    let delete = ["-n", NAMESPACE, "delete", "pod", POD, "--timeout=60s"];
    let mut heard = Box::pin(host.kubectl(&logs));
    let mut gone = Box::pin(async {
        sleep(HEARD).await;
        let began = Instant::now();
        host.kubectl(&delete).await.map(|_| began)
    });
    let (heard, began) = tokio::select! {
        heard = &mut heard => (heard, gone.await?),
        began = &mut gone => (timeout(HEARD, heard).await.unwrap_or_else(|_| Err(anyhow!("it goes on"))), began?),
    };
    let last = match heard {
        Ok(words) => words.lines().next_back().and_then(|line| line.trim().parse().ok()).unwrap_or(before),
        Err(error) => {
            eprintln!("  the log of {POD} was not followed to its end, and counts up to {before}: {error:#}");
            before
        }
    };
    Ok((last.max(before), began))
}

/// Each number is there once, up to the one that was acknowledged at least.
async fn nothing_is_lost(host: &Cluster, acknowledged: usize) -> Result<()> {
    ensure!(acknowledged > 0, "nobody has heard the pod acknowledge a number");
    let read = host.kubectl(&["-n", NAMESPACE, "exec", POD, "--", "cat", "/data/log"]).await?;
    let lines = read.lines().map(|line| line.parse().with_context(|| format!("line {line:?}")));
    let lines: Vec<usize> = lines.collect::<Result<_>>()?;
    let numbers: Vec<usize> = (1..=lines.len()).collect();
    ensure!(lines == numbers && lines.len() >= acknowledged, "{acknowledged} were acknowledged; {lines:?}");
    Ok(())
}

/// What was acknowledged before the pod was gone, and when it was told to go.
async fn moved(fleet: &Fleet, user: &str, name: &str, to: &str) -> Result<(usize, Instant)> {
    let host = fleet.host();
    let (claim, to, name_it) = (format!("{NAMESPACE}/{CLAIM}"), format!("--to={to}"), format!("--name={name}"));
    let mut words = vec!["volume", "move", &claim, &to, &name_it, user];
    // What the others have kept stays until somebody discards it.
    words.extend((name == FIRST).then_some("--delete-source-after=0s"));
    let pod = async {
        waits_for_pods(host, name).await?;
        stops(host).await
    };
    let (told, before) = tokio::try_join!(fleet.exec(PROGRAM, &words), pod)?;
    ensure!(told.contains(&format!("The volume of claim {claim} is in member")), "{told}");
    let path = "jsonpath={.status.progress.bytes}";
    let carried = host.kubectl(&["-n", NAMESPACE, "get", "volumemove", name, "-o", path]).await?;
    ensure!(carried.parse::<u64>().is_ok_and(|bytes| bytes > 0), "it says that {carried:?} bytes were carried");
    Ok(before)
}

async fn ask(host: &Cluster, name: &str, to: &str) -> Result<()> {
    host.apply(&object(name, CLAIM, to).to_string()).await
}

fn object(name: &str, claim: &str, to: &str) -> Value {
    let spec = json!({"claimName": claim, "to": {"member": to}});
    json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
}

/// From then on nobody new gets the volume.
async fn waits_for_pods(host: &Cluster, name: &str) -> Result<()> {
    let waited = wait_for("the move waits for pods", MOVED, || async {
        let get = ["-n", NAMESPACE, "get", "volumemove", name, "-o"];
        let now = host.kubectl(&[&get[..], &["jsonpath={.status.phase}"]].concat()).await?;
        ensure!(now == "Waiting", "it is {now:?}");
        Ok(Some(()))
    })
    .await;
    let told = ["-n", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp"];
    match waited {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(host.kubectl(&told).await.unwrap_or_default())),
    }
}

/// What was kept in the members goes when somebody says so: as much in each, after so many trips there and back, but one less in the
/// member whose first source was not to be kept.
async fn end(fleet: &Fleet, trips: usize, given_up: Option<&str>) -> Result<()> {
    let host = fleet.host();
    let volume = host.kubectl(&["-n", NAMESPACE, "get", "pvc", CLAIM, "-o", "jsonpath={.spec.volumeName}"]).await?;
    host.kubectl(&["-n", NAMESPACE, "delete", "statefulset,pvc", "--all", "--timeout=90s"]).await?;
    wait_for("the volume is gone, and no attachment of it is left", MOVED, || async {
        let named = "jsonpath={range .items[*]}{.spec.source.persistentVolumeName}{.metadata.name} {end}";
        let left = host.kubectl(&["get", "volumeattachments,pv", "-o", named]).await?;
        ensure!(!left.contains(&volume), "{left}");
        Ok(Some(()))
    })
    .await?;
    for member in fleet.members() {
        let expected = trips / 2 - usize::from(given_up == Some(member.name()));
        keeps(fleet, member.name(), expected).await?;
    }
    discard_all(fleet).await?;
    host.kubectl(&["delete", "volumeattributesclass", ATTRIBUTES, "--ignore-not-found", "--timeout=90s"]).await?;
    host.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=90s"]).await.map(drop)
}

/// So many sources, once what is not to be kept is gone.
async fn keeps(fleet: &Fleet, member: &str, expected: usize) -> Result<()> {
    wait_for("what is not to be kept is gone", MOVED, || async {
        let kept = kept(fleet.member(member)).await?.len();
        ensure!(kept == expected, "{member} keeps {kept} sources");
        Ok(Some(()))
    })
    .await
}

/// The sources that a member keeps.
async fn kept(member: &Cluster) -> Result<Vec<String>> {
    let kept = member.kubectl(&["get", "pv", "-l", "kosmos.csi.io/moved", "-o", "name"]).await?;
    Ok(kept.lines().filter_map(|line| line.strip_prefix("persistentvolume/")).map(str::to_owned).collect())
}

/// With their data; and nothing is left of the movers.
async fn discard_all(fleet: &Fleet) -> Result<()> {
    for member in fleet.members() {
        for volume in kept(member).await? {
            discard(fleet, member, &volume).await?;
        }
        let left = member.kubectl(&["-n", "kosmos-csi-movers", "get", "pods,secrets,pvc", "-o", "name"]).await?;
        ensure!(left.is_empty(), "in the namespace of movers of {}: {left}", member.name());
    }
    Ok(())
}

/// A source, by the command for it.
async fn discard(fleet: &Fleet, member: &Cluster, volume: &str) -> Result<()> {
    let admin = format!("--kubeconfig={}", fleet.host().kubeconfig_inside().display());
    let which = format!("{}/{volume}", member.name());
    let listed = fleet.exec(PROGRAM, &["volume", "discard", &admin]).await?;
    ensure!(listed.contains(&which), "{which} is not in {listed}");
    fleet.exec(PROGRAM, &["volume", "discard", &which, "--data-will-be-lost", &admin]).await?;
    wait_for(&format!("{which} is removed"), MOVED, || async {
        let left = member.kubectl(&["get", "pv", volume, "--ignore-not-found", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left} is there");
        Ok(Some(()))
    })
    .await
}
