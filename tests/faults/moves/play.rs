//! The movers of both members, played: a pod begins once its claim is bound, and two that run come to the same end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{Cluster, text};
use tokio::{task::JoinHandle, time::sleep};

use super::YARD;
use crate::bench::{Bench, lock};

/// Between two looks.
const STEP: Duration = Duration::from_millis(100);

/// What each volume holds, by member and name.
type Contents = Arc<Mutex<BTreeMap<(usize, String), String>>>;

/// How the movers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// Both say why.
    Fail,
    /// Both say that the storage of one of them does not answer.
    Hang,
    /// The sender says nothing at its end.
    Die,
    /// The receiver has copied something else, and says so.
    Lie,
    /// Both say that they hold the same, and of how many files each says something else.
    Miscount,
    /// Both run, and come to no end.
    Linger,
}

pub(super) struct Play {
    contents: Contents,
    mood: Arc<Mutex<Mood>>,
    work: JoinHandle<()>,
}

impl Drop for Play {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Play {
    pub(super) fn new(bench: &Arc<Bench>) -> Self {
        let contents = Contents::default();
        let mood = Arc::new(Mutex::new(Mood::Well));
        let (members, held, how) = (bench.members.clone(), Arc::clone(&contents), Arc::clone(&mood));
        let work = tokio::spawn(async move {
            loop {
                sleep(STEP).await;
                play(&members, &held, *lock(&how));
            }
        });
        Self { contents, mood, work }
    }

    pub(super) fn is(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }

    pub(super) fn write(&self, at: usize, volume: &str, content: &str) {
        lock(&self.contents).insert((at, volume.to_owned()), content.to_owned());
    }

    pub(super) fn read(&self, at: usize, volume: &str) -> String {
        lock(&self.contents).get(&(at, volume.to_owned())).cloned().unwrap_or_default()
    }
}

/// A mover's pod, and the volume that it has.
struct Mover {
    at: usize,
    name: String,
    volume: String,
    runs: bool,
    of: String,
}

fn play(members: &[Cluster], contents: &Contents, mood: Mood) {
    let movers: Vec<Mover> = members.iter().enumerate().flat_map(|(at, member)| movers(at, member)).collect();
    for mover in &movers {
        let is_other = |other: &&Mover| other.runs && other.of == mover.of && other.name.starts_with("receive-");
        let receiver = movers.iter().find(is_other).filter(|_| mover.runs && mover.name.starts_with("send-"));
        if let Some(receiver) = receiver.filter(|_| mood != Mood::Linger) {
            return copy(members, contents, mood, [mover, receiver]);
        }
    }
    for mover in movers.iter().filter(|mover| !mover.runs) {
        end(&members[mover.at], &mover.name, &json!({"phase": "Running"}));
    }
}

fn copy(members: &[Cluster], contents: &Contents, mood: Mood, [sender, receiver]: [&Mover; 2]) {
    let content = lock(contents).get(&(sender.at, sender.volume.clone())).cloned().unwrap_or_default();
    let is_copied = matches!(mood, Mood::Well | Mood::Miscount);
    let copied = if is_copied { content.clone() } else { format!("half of {content}") };
    lock(contents).insert((receiver.at, receiver.volume.clone()), copied.clone());
    let failed = |reason: &str, why: &str| json!({"failed": {"reason": reason, "message": why}}).to_string();
    let said = |digest: &str, files: u8| match mood {
        Mood::Fail => failed("NoSpace", "the volume is full"),
        Mood::Hang => failed("StorageHangs", "the storage of the copy has not answered"),
        _ => json!({"copied": {"digest": digest, "entries": 1, "files": files, "bytes": 1}}).to_string(),
    };
    let arrived = if mood == Mood::Miscount { 2 } else { 1 };
    let messages = [if mood == Mood::Die { String::new() } else { said(&content, 1) }, said(&copied, arrived)];
    for (mover, message) in [sender, receiver].into_iter().zip(messages) {
        let phase = if is_copied || mood == Mood::Lie { "Succeeded" } else { "Failed" };
        let state = json!({"terminated": {"exitCode": 0, "reason": "Completed", "message": message}});
        let status = json!({"phase": phase, "containerStatuses": [{"name": "mover", "state": state}]});
        end(&members[mover.at], &mover.name, &status);
    }
}

/// Those that can begin, or have, and have not ended.
fn movers(at: usize, member: &Cluster) -> Vec<Mover> {
    let pods = member.list("pods").into_iter().filter(|pod| text(pod, "/metadata/namespace") == YARD);
    let begun = pods.filter_map(|pod| {
        let phase = text(&pod, "/status/phase").to_owned();
        let name = text(&pod, "/metadata/name").to_owned();
        let claim = member.get(
            "persistentvolumeclaims",
            YARD,
            text(&pod, "/spec/volumes/0/persistentVolumeClaim/claimName"),
        )?;
        let has_keys = member.get("secrets", YARD, &name).is_some();
        let is_bound = text(&claim, "/status/phase") == "Bound";
        let ended = ["Succeeded", "Failed"].contains(&phase.as_str());
        let leaves = !text(&pod, "/metadata/deletionTimestamp").is_empty();
        (has_keys && is_bound && !ended && !leaves).then(|| Mover {
            at,
            volume: text(&claim, "/spec/volumeName").to_owned(),
            runs: phase == "Running",
            of: text(&pod, "/metadata/labels/kosmos.csi.io~1move").to_owned(),
            name,
        })
    });
    begun.collect()
}

fn end(member: &Cluster, pod: &str, status: &Value) {
    let _ = member.change("pods", YARD, pod, |pod| pod["status"] = status.clone());
}
