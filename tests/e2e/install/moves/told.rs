//! What trips there and back have told, and to whom: the keys of movers are nowhere once their Secrets have gone, nothing was denied in the
//! members, and nobody was told to delete the volume that moved.

use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, future::try_join_all};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use tokio::time::timeout;

use super::{CLAIM, MOVED, NAMESPACE, PATIENCE};
use crate::clusters::{AuditEntry, AuditMark, Cluster, Fleet, wait_for};

const YARD: &str = "kosmos-csi-movers";
/// With this the driver's accounts begin in a member, and those of movers.
const OURS: &str = "system:serviceaccount:kosmos-csi";
/// So the host's sidecars say who they are.
const SIDECAR: &str = "csi-";
/// In the paths of its logs.
const CONTROLLER: &str = "kosmos-csi-controller";

/// A private key: the first line within its PEM, and the whole in base64, as a Secret has it.
type Key = [String; 2];

pub(super) struct Told {
    /// Of each member.
    since: Vec<AuditMark>,
    since_in_host: AuditMark,
    keys: Vec<Key>,
    /// Of movers, whose logs go with them: what each pod has said.
    logs: Vec<(String, String)>,
    /// Its name in the host.
    name: String,
    /// With which all handles of the volume end.
    volume: String,
}

impl Told {
    pub(super) async fn begin(fleet: &Fleet) -> Result<Self> {
        let host = fleet.host();
        let since = try_join_all(fleet.members().iter().map(Cluster::audit_mark)).await?;
        let of_claim = ["-n", NAMESPACE, "get", "pvc", CLAIM, "-o", "jsonpath={.spec.volumeName}"];
        let name = host.kubectl(&of_claim).await?;
        let handle = host.kubectl(&["get", "pv", &name, "-o", "jsonpath={.spec.csi.volumeHandle}"]).await?;
        let hash = handle.rsplit('/').next().filter(|hash| hash.len() == 16);
        let volume = hash.with_context(|| format!("handle {handle:?} ends with no hash"))?.to_owned();
        let since_in_host = host.audit_mark().await?;
        Ok(Self { since, since_in_host, keys: Vec::new(), logs: Vec::new(), name, volume })
    }

    /// Beside a move: both keys, and all that its movers say.
    pub(super) async fn listen(&mut self, fleet: &Fleet) -> Result<()> {
        let known = &self.keys;
        let heard = try_join_all(fleet.members().iter().map(|member| heard(member, known))).await?;
        for (key, pod, log) in heard {
            self.keys.push(key);
            self.logs.push((pod, log));
        }
        Ok(())
    }

    /// Before the claim is deleted.
    pub(super) async fn is_nothing_wrong(&self, fleet: &Fleet) -> Result<()> {
        let heard = self.logs.iter().filter(|(_, log)| !log.is_empty());
        let heard: Vec<&str> = heard.map(|(pod, _)| pod.as_str()).collect();
        let has_heard = |role: &str| heard.iter().any(|pod| pod.starts_with(role));
        let are_both = has_heard("send-") && has_heard("receive-");
        ensure!(self.keys.len() >= 2 && are_both, "{} keys were read, and of movers heard {heard:?}", self.keys.len());
        let with_key = self.logs.iter().filter(|(_, log)| self.has_key(log));
        let mut places: Vec<String> = with_key.map(|(pod, _)| format!("the log of {pod}")).collect();
        for cluster in fleet.clusters() {
            places.extend(self.keys_in(cluster).await?);
        }
        ensure!(places.is_empty(), "keys of movers are in {places:#?}");
        self.nobody_deletes_it(fleet.host()).await?;
        for (member, since) in fleet.members().iter().zip(&self.since) {
            let entries = member.audit_since(*since).await?;
            let ours: Vec<_> = entries.iter().filter(|entry| entry.user.starts_with(OURS)).collect();
            let denied = ours.iter().filter(|entry| entry.forbidden);
            let denied: Vec<_> = denied.map(|entry| (&entry.user, &entry.verb, &entry.uri)).collect();
            ensure!(denied.is_empty(), "denied in {}: {denied:#?}", member.name());
            ensure!(ours.len() > 50, "{} has answered {} requests", member.name(), ours.len());
        }
        Ok(())
    }

    /// Before the claim is deleted: no log has such a call, as far as those are left of who was killed, and no sidecar of the host does what
    /// it does once that is answered.
    pub(super) async fn nobody_deletes_it(&self, host: &Cluster) -> Result<()> {
        ensure!(!logs_of(host).is_empty(), "there are no logs of the controllers");
        let (deletions, removals) = (self.deletions(host), self.removals(host).await?);
        ensure!(deletions.is_empty(), "the volume was to be deleted: {deletions:#?}");
        ensure!(removals.is_empty(), "the volume was removed: {removals:#?}");
        Ok(())
    }

    /// Once it is gone: it would have been seen before, too.
    pub(super) async fn has_seen_the_end(&self, host: &Cluster) -> Result<()> {
        ensure!(!self.deletions(host).is_empty(), "no log tells that volume {} was deleted", self.volume);
        ensure!(!self.removals(host).await?.is_empty(), "no audit log tells that volume {} was removed", self.name);
        Ok(())
    }

    fn has_key(&self, text: &str) -> bool {
        self.keys.iter().flatten().any(|words| text.contains(words))
    }

    /// All objects, among them events, and Secrets, as those of movers have gone with them; logs of pods; and what the API server was asked.
    async fn keys_in(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?;
        let is_read = |kind: &&str| !kind.ends_with(".metrics.k8s.io");
        let kinds: Vec<&str> = kinds.lines().filter(is_read).collect();
        let are_all = ["events", "pods", "secrets"].iter().all(|kind| kinds.contains(kind));
        ensure!(are_all, "{} has {kinds:?}", cluster.name());
        let objects = cluster.kubectl(&["get", &kinds.join(","), "--all-namespaces", "-o", "json"]).await?;
        let asked = fs::read_to_string(cluster.folder().join("audit.log")).context("read the audit log")?;
        let texts = [("objects", objects), ("audit log", asked)];
        let told = texts.iter().filter(|(_, text)| self.has_key(text));
        let mut places: Vec<String> = told.map(|(what, _)| format!("the {what} of {}", cluster.name())).collect();
        places.extend(
            logs_of(cluster).iter().filter(|log| self.has_key(&read(log))).map(|log| log.display().to_string()),
        );
        Ok(places)
    }

    /// What sidecars of the host have asked its API server of the volume's end.
    async fn removals(&self, host: &Cluster) -> Result<Vec<AuditEntry>> {
        let entries = host.audit_since(self.since_in_host).await?;
        let is_one = |entry: &AuditEntry| {
            entry.user_agent.starts_with(SIDECAR)
                && (entry.verb == "delete" && entry.resource == "persistentvolumes" && entry.name == self.name)
        };
        Ok(entries.into_iter().filter(is_one).collect())
    }

    /// What the driver's log has of calls that delete the volume.
    fn deletions(&self, host: &Cluster) -> Vec<String> {
        let logs = logs_of(host).into_iter().filter(|log| log.display().to_string().contains(CONTROLLER));
        let is_one = |line: &&str| line.contains("method=\"DeleteVolume\"") && line.contains(&self.volume);
        logs.flat_map(|log| read(&log).lines().filter(is_one).map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

/// The next key that a mover gets in this member, its pod, and what that says until it ends: nothing, where it is recreated before.
async fn heard(member: &Cluster, known: &[Key]) -> Result<(Key, String, String)> {
    let secrets: Api<Secret> = Api::namespaced(member.client().await?, YARD);
    let secrets = watcher(secrets, watcher::Config::default()).default_backoff().applied_objects();
    let next = async {
        let mut secrets = pin!(secrets);
        loop {
            let Ok(secret) = secrets.next().await.context("Secrets are followed for ever")? else { continue };
            if let Some(key) = key_of(&secret).filter(|key| !known.contains(key)) {
                return anyhow::Ok((secret.name_any(), key));
            }
        }
    };
    let next = timeout(MOVED, next).await;
    // Its pod has the same name.
    let (pod, key) = next.with_context(|| format!("no mover of {} gets a key", member.name()))??;
    let said = wait_for("the mover has said something", PATIENCE, || async {
        let said = member.kubectl(&["-n", YARD, "logs", "--follow", &pod]).await?;
        Ok(Some(said).filter(|said| !said.is_empty()))
    })
    .await;
    Ok((key, pod, said.unwrap_or_default()))
}

fn key_of(secret: &Secret) -> Option<Key> {
    let key = secret.data.as_ref()?.get("tls.key")?;
    let text = String::from_utf8_lossy(&key.0);
    let first = text.lines().find(|line| !line.starts_with("-----"))?;
    let whole = serde_json::to_string(key).ok()?;
    Some([first.to_owned(), whole.trim_matches('"').to_owned()])
}

/// Of pods on the cluster's node.
fn logs_of(cluster: &Cluster) -> Vec<PathBuf> {
    let mut logs = Vec::new();
    find_files(&cluster.folder().join("log/pods"), &mut logs);
    logs
}

fn find_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find_files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// It may have gone with its pod meanwhile.
fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}
