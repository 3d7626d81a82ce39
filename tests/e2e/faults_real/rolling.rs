//! A StatefulSet that users roll while faults go on, and every line of which its pods have said that it is on a disk. Their logs are read as
//! the node has them, by whoever has opened them: they are whole after the pod has gone.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File},
    io::Read,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{kept::Kept, pods::runs};
use crate::{
    agent::gone,
    clusters::{Cluster, wait_for},
    objects::Place,
};

const SET: &str = "db";
pub const PODS: [&str; 2] = ["db-0", "db-1"];
const CLAIMS: [&str; 2] = ["data-db-0", "data-db-1"];
const BEGINS: Duration = Duration::from_mins(3);
/// One pod after the other, each of which is detached and attached.
const ROLLED: Duration = Duration::from_mins(6);
/// Each line says who has written it: what a later one writes in the place of a line that was lost is not that line.
const WRITES: &str = "id=$(cut -c 1-8 /proc/sys/kernel/random/uuid); trap exit TERM; \
                      n=$(tail -n 1 /data/log 2>/dev/null | cut -d ' ' -f 1); n=${n:-0}; \
                      while :; do m=$((n + 1)); \
                      if echo \"$m $id\" >> /data/log && sync -d /data/log; then n=$m; echo \"$m $id\"; fi; sleep 0.1; done";

pub struct Rolling<'a> {
    /// Of whose nodes one runs its pods.
    cluster: &'a Cluster,
    namespace: String,
    pub kept: Vec<Kept>,
    heard: Mutex<Heard>,
}

/// From one container to the next.
#[derive(Debug, Default)]
struct Heard {
    logs: BTreeMap<PathBuf, Log>,
    said: Said,
}

#[derive(Debug)]
struct Log {
    pod: &'static str,
    file: File,
    /// Of a line that is not complete yet.
    begun: Vec<u8>,
}

/// The first and the last number that each container has said, by its pod and itself, and how many bytes that were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    numbers: BTreeMap<(&'static str, String), [u64; 2]>,
    pub bytes: u64,
}

impl<'a> Rolling<'a> {
    /// Of so many pods of this form, whose claims are in the member; a node of this cluster runs them.
    pub async fn begin(
        (host, leaf): (&Place<'_>, &Place<'_>),
        cluster: &'a Cluster,
        pods: usize,
        (pod, class): (&Value, &str),
    ) -> Result<Self> {
        let set: StatefulSet = serde_json::from_value(stateful_set(pods, pod, class))?;
        sets(host).create(&PostParams::default(), &set).await?;
        let mut kept = Vec::new();
        for (pod, claim) in PODS.into_iter().zip(CLAIMS).take(pods) {
            wait_for(&format!("{SET} makes {pod}"), BEGINS, || async { Ok(host.pods().get_opt(pod).await?.map(drop)) })
                .await?;
            runs(host, pod, BEGINS).await?;
            kept.push(Kept::look(leaf, &host.bound(claim).await?, claim).await?);
        }
        Ok(Self { cluster, namespace: host.namespace.clone(), kept, heard: Mutex::default() })
    }

    pub fn pods(&self) -> impl Iterator<Item = &'static str> {
        PODS.into_iter().take(self.kept.len())
    }

    /// What was said since the last look, also by who has ended meanwhile.
    pub fn listen(&self) -> Result<()> {
        let (files, mut heard) = (self.logs()?, self.heard());
        for (pod, path) in files {
            let Entry::Vacant(new) = heard.logs.entry(path) else { continue };
            // It may be gone by now.
            if let Ok(file) = File::open(new.key()) {
                new.insert(Log { pod, file, begun: Vec::new() });
            }
        }
        let Heard { logs, said } = &mut *heard;
        logs.values_mut().try_for_each(|log| log.read(said))
    }

    /// All that was said until now.
    pub fn said(&self) -> Result<Said> {
        self.listen()?;
        Ok(self.heard().said.clone())
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of its containers, with the pods that they are of. One may be made or removed at any moment.
    fn logs(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        let folder = self.cluster.folder().join("log/pods");
        let folders = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
        let mut logs = Vec::new();
        for folder in folders.flatten() {
            let Some(pod) = pod_of(&folder.file_name().to_string_lossy(), &self.namespace) else { continue };
            let files = fs::read_dir(folder.path().join("main")).into_iter().flatten().flatten();
            let files = files.map(|file| file.path()).filter(|file| file.extension().is_some_and(|end| end == "log"));
            logs.extend(files.map(|file| (pod, file)));
        }
        Ok(logs)
    }

    /// Its template is another one from now on.
    pub async fn rolls(&self, host: &Place<'_>, number: usize) -> Result<()> {
        let template = json!({"metadata": {"annotations": {"rolled": number.to_string()}}});
        let patch = Patch::Merge(json!({"spec": {"template": template}}));
        sets(host).patch(SET, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// All pods are of the last template, and write. Each has said more than before.
    pub async fn has_rolled(&self, host: &Place<'_>, before: &Said, within: Duration) -> Result<()> {
        let within = within.max(ROLLED);
        wait_for(&format!("{SET} has rolled"), within, || async {
            let set = sets(host).get(SET).await?;
            let status = set.status.unwrap_or_default();
            let is_seen = status.observed_generation == set.metadata.generation;
            let is_ready = status.ready_replicas == i32::try_from(self.kept.len()).ok();
            ensure!(
                is_seen && is_ready && status.current_revision == status.update_revision,
                "{:?} of {} are ready, of {:?} and {:?}",
                status.ready_replicas,
                self.kept.len(),
                status.current_revision,
                status.update_revision
            );
            Ok(Some(()))
        })
        .await?;
        wait_for(&format!("the pods of {SET} write"), within, || async {
            let now = self.said()?;
            Ok(self.pods().all(|pod| now.last(pod) > before.last(pod)).then_some(()))
        })
        .await
    }

    /// All that was said to be on the disks is there: a pod beside each reads it.
    pub async fn has_all(&self, place: &Place<'_>, said: &Said, number: usize) -> Result<()> {
        let all = self.pods().zip(CLAIMS).map(async |(pod, claim)| {
            let reader = format!("reader-of-{pod}-{number}");
            let script = reads(claim, &said.of(pod));
            place.run(&reader, &[claim], &script).await.with_context(|| format!("read {claim}"))
        });
        try_join_all(all).await.map(drop)
    }

    pub async fn end(self, host: &Place<'_>) -> Result<()> {
        sets(host).delete(SET, &DeleteParams::background()).await?;
        for pod in self.pods() {
            gone(host, pod).await?;
        }
        for kept in &self.kept {
            host.delete_claim(kept.name).await?;
            host.volume_is_gone(&kept.volume).await?;
        }
        Ok(())
    }
}

impl Log {
    fn read(&mut self, said: &mut Said) -> Result<()> {
        self.file.read_to_end(&mut self.begun).context("read a pod's log")?;
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let lines: Vec<u8> = self.begun.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            said.take(self.pod, line);
        }
        Ok(())
    }
}

impl Said {
    /// A line of a log, as containerd writes it.
    fn take(&mut self, pod: &'static str, line: &str) {
        let [_, "stdout", _, number, id] = line.split(' ').collect::<Vec<_>>()[..] else { return };
        let Ok(said) = number.parse() else { return };
        let [first, last] = self.numbers.entry((pod, id.to_owned())).or_insert([said, said]);
        (*first, *last) = ((*first).min(said), (*last).max(said));
        self.bytes += (number.len() + id.len()) as u64 + 2;
    }

    fn last(&self, pod: &str) -> u64 {
        self.numbers.iter().filter(|((of, _), _)| *of == pod).map(|(_, [_, last])| *last).max().unwrap_or_default()
    }

    /// Of each container of a pod.
    fn of(&self, pod: &str) -> String {
        let all = self.numbers.iter().filter(|((of, _), _)| *of == pod);
        let told = all.map(|((_, id), [first, last])| format!("{id}:{first}:{last}"));
        told.collect::<Vec<_>>().join(" ")
    }
}

fn sets(host: &Place<'_>) -> Api<StatefulSet> {
    Api::namespaced(host.client.clone(), &host.namespace)
}

/// A kubelet calls the folder of a pod's logs by namespace, name and UID.
fn pod_of(folder: &str, namespace: &str) -> Option<&'static str> {
    let (_, name) = folder.split_once('_').filter(|(of, _)| *of == namespace)?;
    let (name, _) = name.split_once('_')?;
    PODS.into_iter().find(|pod| *pod == name)
}

/// Ends well if the log of a claim has all lines of all these, and none of one that has come after those of a later one: then two have
/// written at once.
fn reads(claim: &str, said: &str) -> String {
    let has_all = "BEGIN { count = split(said, all, \" \"); for (i = 1; i <= count; i++) { split(all[i], one, \":\"); \
                   first[one[1]] = one[2] + 0; last[one[1]] = one[3] + 0 } } \
                   ($2 in first) && $2 != at { if ($2 in begun) two = 1; begun[$2] = 1; at = $2 } \
                   ($2 in first) && $1 + 0 >= first[$2] && $1 + 0 <= last[$2] && !(($1 \" \" $2) in seen) \
                   { seen[$1 \" \" $2] = 1; found[$2]++ } \
                   END { if (two) exit 1; for (id in first) if (found[id] != last[id] - first[id] + 1) exit 1 }";
    format!("awk -v said='{said}' '{has_all}' /{claim}/log")
}

fn stateful_set(pods: usize, pod: &Value, class: &str) -> Value {
    let mut spec = pod["spec"].clone();
    (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) = (json!("Always"), json!(2));
    let container = &mut spec["containers"][0];
    container["command"] = json!(["sh", "-c", WRITES]);
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let labels = json!({"app": SET});
    json!({
        "metadata": {"name": SET},
        "spec": {
            "serviceName": SET, "replicas": pods, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "resources": {"requests": {"storage": "64Mi"}}}}],
        },
    })
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, process::Command};

    use super::*;

    #[test]
    fn what_a_container_has_said_is_known_by_its_pod_and_by_itself() {
        let mut said = Said::default();
        for line in [
            "2026-01-01T00:00:00.1Z stdout F 1 aaaaaaaa",
            "2026-01-01T00:00:00.2Z stdout F 2 aaaaaaaa",
            "2026-01-01T00:00:00.3Z stdout F 3 bbbbbbbb",
            "2026-01-01T00:00:00.3Z stderr F 4 bbbbbbbb",
            "2026-01-01T00:00:00.3Z stdout F sync: error",
        ] {
            said.take("db-0", line);
        }
        said.take("db-1", "2026-01-01T00:00:00.3Z stdout F 70 cccccccc");
        assert_eq!(said.of("db-0"), "aaaaaaaa:1:2 bbbbbbbb:3:3");
        assert_eq!((said.last("db-0"), said.last("db-1"), said.bytes), (3, 70, 45));
        assert_eq!(pod_of("faults-of-ours_db-1_0b0c5a3e", "faults-of-ours"), Some("db-1"));
        assert_eq!(pod_of("faults-of-ours_keeper_0b0c5a3e", "faults-of-ours"), None);
        assert_eq!(pod_of("other_db-1_0b0c5a3e", "faults-of-ours"), None);
    }

    #[test]
    fn log_is_read_line_by_line_and_on_after_its_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let mut writes = File::create(&path).unwrap();
        let mut log = Log { pod: "db-0", file: File::open(&path).unwrap(), begun: Vec::new() };
        let mut said = Said::default();
        writes.write_all(b"t stdout F 1 a\nt stdout F").unwrap();
        log.read(&mut said).unwrap();
        assert_eq!(said.of("db-0"), "a:1:1");
        fs::remove_file(&path).unwrap();
        writes.write_all(b" 2 a\n").unwrap();
        log.read(&mut said).unwrap();
        assert_eq!(said.of("db-0"), "a:1:2");
    }

    #[test]
    fn line_that_another_container_has_written_is_not_the_one_that_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let has_all = |lines: &str, said: &str| {
            fs::write(folder.path().join("log"), lines).unwrap();
            let script = reads("data", said).replace("/data/log", &folder.path().join("log").display().to_string());
            Command::new("sh").args(["-c", &script]).status().unwrap().success()
        };
        assert!(has_all("1 a\n2 a\n2 a\n3 b\n4 b\n", "a:1:2 b:3:3"));
        assert!(!has_all("1 a\n2 b\n3 b\n", "a:1:2 b:3:3"), "the second line of a is lost");
        assert!(!has_all("1 a\n2 a\n", "a:1:2 b:3:3"));
        assert!(has_all("1 a\n", ""));
        assert!(!has_all("1 a\n2 b\n2 a\n3 b\n", "a:1:2 b:2:3"), "two have written at once");
        assert!(has_all("1 a\n2 x\n2 a\n", "a:1:2"), "of x nothing was said");
    }
}
