//! The files of `deploy/examples`, applied as they stand.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    helm::checkout,
    release::PATIENCE,
    volumes::{GROWING, until},
};
use crate::clusters::{Cluster, Fleet, wait_for};

pub fn example(file: &str) -> Result<String> {
    let path = checkout().join("deploy/examples").join(file);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// Applies one as a user does, in a namespace, where it says what is written here as something else.
pub async fn applied(cluster: &Cluster, namespace: &str, file: &str, changes: &[(&str, &str)]) -> Result<()> {
    let mut text = example(file)?;
    for (from, to) in changes {
        ensure!(text.contains(from), "{file} says nothing of {from:?}");
        text = text.replace(from, to);
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(file);
    fs::write(&path, text)?;
    cluster.kubectl(&["-n", namespace, "apply", "-f", &path.display().to_string()]).await.map(drop)
}

/// What the examples run. A stand-in has its name here.
pub const IMAGE: &str = "docker.io/library/nginx:alpine";
const MANY: usize = 20;
const FEW: usize = 5;
/// Many pods in two nodes on one machine, and a helper for each volume.
const LONG: Duration = Duration::from_mins(5);
const SELECTOR: [&str; 2] = ["-l", "app=ledger"];

/// Up, down and up again: every pod finds its own data, in the member where it was.
pub async fn stateful_set_is_spread_over_members(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    host.apply(&example("statefulset.yaml")?).await?;
    let before = scale(host, MANY).await?;
    let nodes: BTreeSet<&str> = before.values().map(String::as_str).collect();
    ensure!(nodes == BTreeSet::from(["kosmos-cluster38", "kosmos-cluster39"]), "{before:?}");
    for member in fleet.members() {
        let claims = member.kubectl(&["get", "pvc", "-o", "jsonpath={.items[*].status.phase}"]).await?;
        let claims: Vec<&str> = claims.split_whitespace().collect();
        ensure!(claims == ["Bound"; MANY / 2], "{}: {claims:?}", member.name());
    }
    let last = format!("ledger-{}", MANY - 1);
    host.kubectl(&["exec", &last, "--", "sh", "-c", "hostname > /data/file && sync"]).await?;
    scale(host, FEW).await?;
    let after = scale(host, MANY).await?;
    ensure!(after == before, "before {before:?}, after {after:?}");
    let found = host.kubectl(&["exec", &last, "--", "cat", "/data/file"]).await?;
    ensure!(found.trim() == last, "{last} finds {found:?}");
    host.kubectl(&["delete", "statefulset,service", "ledger", "--timeout=90s"]).await?;
    host.kubectl(&[&["delete", "pods,pvc", "--timeout=180s"], &SELECTOR[..]].concat()).await.map(drop)
}

/// The nodes of all pods, once so many are ready and no other one is there.
async fn scale(host: &Cluster, replicas: usize) -> Result<BTreeMap<String, String>> {
    host.kubectl(&["scale", "statefulset/ledger", &format!("--replicas={replicas}")]).await?;
    let path = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.conditions[?(@.type==\"Ready\")].status}\n{end}";
    wait_for(&format!("{replicas} pods are ready"), LONG, || async {
        let pods = host.kubectl(&[&["get", "pods", "-o", path], &SELECTOR[..]].concat()).await?;
        let lines: Vec<Vec<&str>> = pods.lines().map(|line| line.split_whitespace().collect()).collect();
        let ready = lines.iter().filter_map(|words| match words[..] {
            [name, node, "True"] => Some((name.to_owned(), node.to_owned())),
            _ => None,
        });
        let ready: BTreeMap<String, String> = ready.collect();
        ensure!(ready.len() == replicas && lines.len() == replicas, "{} of {} are ready", ready.len(), lines.len());
        Ok(Some(ready))
    })
    .await
}

/// A claim of a member becomes a volume of the host by consent, and stays when that goes.
pub async fn claim_of_a_member_is_imported_and_stays(fleet: &Fleet) -> Result<()> {
    let (host, member) = (fleet.host(), fleet.member("cluster38"));
    // A class that binds at once: nobody uses the claim in the member here.
    member.apply(&example("imported-member.yaml")?.replace("openebs-hostpath", GROWING)).await?;
    until(member, "shop", "pvc/archive", "--for=jsonpath={.status.phase}=Bound").await?;
    let id = host.identity().await?;
    member.kubectl(&["annotate", "-n", "shop", "pvc/archive", &format!("kosmos.csi.io/consent={id}")]).await?;
    host.apply(&example("imported.yaml")?).await?;
    until(host, "shop", "pvc/archive", "--for=jsonpath={.status.phase}=Bound").await?;
    wait_for("it is attached to its member's virtual node", PATIENCE, || async {
        let path =
            "jsonpath={range .items[*]}{.spec.source.persistentVolumeName} {.spec.nodeName} {.status.attached}{end}";
        let attached = host.kubectl(&["get", "volumeattachments", "-o", path]).await?;
        ensure!(attached == "archive kosmos-cluster38 true", "{attached:?}");
        Ok(Some(()))
    })
    .await?;
    host.kubectl(&["-n", "shop", "delete", "pod", "reader", "--timeout=90s"]).await?;
    host.kubectl(&["-n", "shop", "delete", "pvc", "archive", "--timeout=90s"]).await?;
    host.kubectl(&["delete", "pv", "archive", "--timeout=90s"]).await?;
    let phase = member.kubectl(&["-n", "shop", "get", "pvc", "archive", "-o", "jsonpath={.status.phase}"]).await?;
    ensure!(phase == "Bound", "the member's claim is {phase:?}");
    member.kubectl(&["-n", "shop", "delete", "pvc", "archive", "--timeout=90s"]).await.map(drop)
}
