//! Plays the movers. Their pods run as all pods of the members do, and nothing is in them: once both ends of an attempt run, the files
//! are copied here, from folder to folder, and the real mover's judge says what both pods leave as their last message.
//!
//! They need no line between them, and nothing answers on a mover's port: where a copy takes longer than some seconds, the driver tells
//! that it does not reach them.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{
    fs,
    process::Command,
    sync::Notify,
    task::{JoinSet, spawn_blocking},
};

use super::host::ignore_conflict;
use domain::volume::moving::YARD;
use mover::{
    compare::{Sum, compare},
    outcome::{Failure, Reason, last_message},
    walk::{Depth, Walk},
};
use simulate::{Cluster, storage::DIRECTORY, text};

/// In a mover's pod: which claim it has, which end it is, and of which attempt of which move.
const CLAIM: &str = "/spec/volumes/0/persistentVolumeClaim/claimName";
const ROLE: &str = "/spec/containers/0/args/1";
const ATTEMPT: [&str; 2] = ["/metadata/labels/kosmos.csi.io~1move", "/metadata/labels/kosmos.csi.io~1attempt"];
/// Of times, in nanoseconds: not every `cp` keeps less.
const GRANULARITY: u32 = 1_000;

/// A member whose movers are played.
#[derive(Clone, Debug)]
pub(super) struct Yard {
    pub(super) member: Cluster,
    /// Where each volume is a folder.
    pub(super) volumes: PathBuf,
}

/// One end of a copy, that has begun.
#[derive(Clone, Debug)]
struct End {
    member: Cluster,
    pod: Arc<Value>,
    /// Its volume.
    folder: PathBuf,
}

/// Works until it is dropped, or a member is no more.
pub(super) async fn run(yards: Vec<Yard>) {
    let changed = Arc::new(Notify::new());
    let mut following: JoinSet<()> = JoinSet::new();
    for yard in &yards {
        let (mut pods, changed) = (simulate::follow::follow(&yard.member, &["pods"]), Arc::clone(&changed));
        following.spawn(async move {
            loop {
                pods.next().await;
                changed.notify_one();
            }
        });
    }
    loop {
        let ends: Vec<End> = yards.iter().flat_map(Yard::ends).collect();
        if let Some([sender, receiver]) = pair(&ends) {
            let outcome = copy(&sender.folder, &receiver.folder).await;
            sender.says(&outcome);
            receiver.says(&outcome);
        }
        tokio::select! {
            () = changed.notified() => {}
            _ = following.join_next() => return,
        }
    }
}

impl Yard {
    fn ends(&self) -> Vec<End> {
        let pods = self.member.list("pods").into_iter().filter(|pod| has_begun(pod));
        let end = |pod: Arc<Value>| {
            let claim = self.member.get("persistentvolumeclaims", YARD, text(&pod, CLAIM))?;
            let volume = self.member.get("persistentvolumes", "", text(&claim, "/spec/volumeName"))?;
            Some(End { member: self.member.clone(), pod, folder: folder_of(&volume, &self.volumes)? })
        };
        pods.filter_map(end).collect()
    }
}

/// By its name alone: whatever somebody has written into a volume, nothing outside of the storage's folder is touched.
fn folder_of(volume: &Value, volumes: &Path) -> Option<PathBuf> {
    let directory = text(volume, &format!("/spec/csi/volumeAttributes/{DIRECTORY}"));
    Some(volumes.join(Path::new(directory).file_name()?))
}

fn has_begun(pod: &Value) -> bool {
    text(pod, "/metadata/namespace") == YARD
        && text(pod, "/metadata/deletionTimestamp").is_empty()
        && ["Running", "Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// The sender and the receiver of an attempt, of which one runs still: a process that is killed may have told the end of the other alone.
fn pair(ends: &[End]) -> Option<[&End; 2]> {
    let of = |role: &'static str| ends.iter().filter(move |end| text(&end.pod, ROLE) == role);
    let pairs = of("send").flat_map(|sender| of("receive").map(move |receiver| [sender, receiver]));
    let is_one = |[sender, receiver]: &[&End; 2]| sender.attempt() == receiver.attempt();
    pairs.filter(is_one).find(|ends| ends.iter().any(|end| text(&end.pod, "/status/phase") == "Running"))
}

impl End {
    fn attempt(&self) -> [&str; 2] {
        ATTEMPT.map(|label| text(&self.pod, label))
    }

    /// As a kubelet tells of a container that has ended.
    fn says(&self, outcome: &Result<Sum, Failure>) {
        let (phase, reason) = if outcome.is_ok() { ("Succeeded", "Completed") } else { ("Failed", "Error") };
        let terminated = json!({
            "exitCode": i32::from(outcome.is_err()), "reason": reason, "finishedAt": self.member.stamp(),
            "message": last_message(outcome).unwrap_or_default(),
        });
        let told = [
            ("/status/phase", json!(phase)),
            ("/status/containerStatuses/0/ready", json!(false)),
            ("/status/containerStatuses/0/state", json!({"terminated": terminated})),
        ];
        let edit = |pod: &mut Value| {
            let is_same = pod["metadata"]["uid"] == self.pod["metadata"]["uid"];
            for (place, value) in told.into_iter().filter(|_| is_same) {
                if let Some(there) = pod.pointer_mut(place) {
                    *there = value;
                }
            }
        };
        let name = text(&self.pod, "/metadata/name");
        ignore_conflict("the end of a mover", self.member.change("pods", YARD, name, edit));
    }
}

async fn copy(from: &Path, to: &Path) -> Result<Sum, Failure> {
    let filled = fill(from, to).await;
    filled.map_err(|error| Failure::new(Reason::CopyFailed, error.to_string()))?;
    let (from, to) = (walk(from), walk(to));
    let judged = spawn_blocking(move || compare(from?, to?)).await.map_err(io::Error::other).flatten();
    let judgement = judged.map_err(|error| Failure::unreadable(&error))?;
    if judgement.is_equal() { Ok(judgement.copy) } else { Err(Failure::differs(&judgement)) }
}

/// What a copy that was cut off has left goes first.
async fn fill(from: &Path, to: &Path) -> io::Result<()> {
    if from == to || !fs::symlink_metadata(from).await.is_ok_and(|found| found.is_dir()) {
        return Err(io::Error::other(format!("{} is no folder to be copied to {}", from.display(), to.display())));
    }
    fs::remove_dir_all(to).await?;
    fs::create_dir(to).await?;
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).kill_on_drop(true).output().await?;
    if copied.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&copied.stderr).into_owned()))
}

fn walk(folder: &Path) -> io::Result<Walk> {
    Ok(Walk::new(folder, Depth::Whole, Arc::default())?.agreed(true, GRANULARITY))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn end(role: &str, attempt: &str, phase: &str) -> End {
        let labels = json!({"kosmos.csi.io/move": "m", "kosmos.csi.io/attempt": attempt});
        let spec = json!({"containers": [{"args": ["mover", role]}]});
        let pod = json!({"metadata": {"labels": labels}, "spec": spec, "status": {"phase": phase}});
        End { member: Cluster::new("a", 1), pod: Arc::new(pod), folder: PathBuf::new() }
    }

    #[tokio::test]
    async fn ends_of_one_attempt_are_a_pair_until_both_have_ended() {
        let is_pair = |ends: &[End]| pair(ends).map(|pair| pair.map(|end| text(&end.pod, ROLE).to_owned()));
        let both = Some(["send".to_owned(), "receive".to_owned()]);
        assert_eq!(is_pair(&[end("receive", "1", "Running"), end("send", "1", "Running")]), both);
        assert_eq!(is_pair(&[end("receive", "1", "Running"), end("send", "1", "Succeeded")]), both);
        assert_eq!(is_pair(&[end("receive", "1", "Succeeded"), end("send", "1", "Succeeded")]), None);
        assert_eq!(is_pair(&[end("receive", "1", "Running"), end("send", "2", "Running")]), None);
        assert_eq!(is_pair(&[end("receive", "1", "Running"), end("receive", "1", "Running")]), None);
    }

    #[tokio::test]
    async fn copy_holds_what_the_source_holds_and_nothing_of_before() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("deep/run"), "text").unwrap();
        fs::set_permissions(from.join("deep/run"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("deep/run", from.join("link")).unwrap();
        fs::write(to.join("half"), "of before").unwrap();
        let sum = copy(&from, &to).await.unwrap();
        assert_eq!((sum.entries, sum.files, sum.bytes), (4, 1, 4));
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("deep/run"));
        assert_eq!(fs::metadata(to.join("link")).unwrap().permissions().mode() & 0o777, 0o750);
        assert!(!to.join("half").exists());
        let failure = copy(&place.path().join("none"), &to).await.unwrap_err();
        assert!(failure.reason() == Reason::CopyFailed && failure.message.contains("none"), "{failure:?}");
    }

    #[test]
    fn folder_of_a_volume_is_below_that_of_the_storage_whatever_the_volume_says() {
        let folder = |directory: &str| {
            let volume = json!({"spec": {"csi": {"volumeAttributes": {"directory": directory}}}});
            folder_of(&volume, Path::new("/volumes/a"))
        };
        for directory in ["/volumes/a/pvc-1", "/elsewhere/pvc-1", "pvc-1"] {
            assert_eq!(folder(directory), Some("/volumes/a/pvc-1".into()), "{directory}");
        }
        for directory in ["", "/", "..", "/volumes/a/.."] {
            assert_eq!(folder(directory), None, "{directory}");
        }
    }
}
