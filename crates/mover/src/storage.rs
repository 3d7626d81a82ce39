//! Whether the storage of an end answers. Who waits in the kernel for one that does not, such as a dead NFS server, may not even be ended, and his
//! end goes on saying that it is there. What only takes long is told apart by what moves on meanwhile.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    future::pending,
    io,
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::{fs::syncfs, process::Pid};
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    outcome::{Failure, Reason, Trouble},
    rsync::{PROGRAM, Running},
};

/// Storage that goes over from one machine to another is back by then, and an rsync that waits for the other end looks up each minute.
const PATIENCE: Duration = Duration::from_mins(10);
/// So many looks within that. They are counted, and not the time: an end that is stopped itself, as with its machine, moves nothing on either.
const LOOKS: u32 = 20;
/// So many times as long may it take to write what others have on the same filesystem: nobody tells how much is left of that.
const WITH_OTHERS: u32 = 6;
/// Less than this may be told to be unwritten where nothing is: kernels count for each processor apart.
const SURELY: u64 = 64 << 20;
/// Where it is told what is unwritten, of this pod or else of its machine, and under which names.
const TOLD: [&str; 3] = ["/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat", "/proc/meminfo"];
const UNWRITTEN: [&str; 6] = ["file_dirty", "file_writeback", "dirty", "writeback", "Dirty:", "Writeback:"];

/// Shared by all who read and write there.
#[derive(Clone, Debug)]
pub(crate) struct Storage(Arc<State>);

#[derive(Debug)]
struct State {
    /// Whose it is, as people are told.
    of: &'static str,
    patience: Duration,
    /// Entries and names that were read so far.
    met: Arc<AtomicU64>,
    /// What of files was read: in one it moves on too.
    bytes: Arc<AtomicU64>,
    /// Those that wait for the other end just now, and those that have everything written.
    waiting: AtomicUsize,
    syncing: AtomicUsize,
}

/// How many looks have found that something is as it was.
#[derive(Debug)]
struct Still<T> {
    what: T,
    looks: u32,
}

impl<T: PartialEq> Still<T> {
    fn new(what: T) -> Self {
        Self { what, looks: 0 }
    }

    /// With this one.
    fn noted(&mut self, now: T) -> u32 {
        if self.what == now {
            self.looks += 1;
        } else {
            *self = Self::new(now);
        }
        self.looks
    }
}

impl Storage {
    pub(crate) fn new(of: &'static str, bytes: Arc<AtomicU64>) -> Self {
        Self::with(of, bytes, PATIENCE)
    }

    fn with(of: &'static str, bytes: Arc<AtomicU64>, patience: Duration) -> Self {
        let (met, waiting, syncing) = (Arc::default(), AtomicUsize::default(), AtomicUsize::default());
        Self(Arc::new(State { of, patience, met, bytes, waiting, syncing }))
    }

    /// For who counts what he reads.
    pub(crate) fn met(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.met)
    }

    /// Reads or writes there, on a thread of its own, which nobody waits for where it hangs.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            done = spawn_blocking(work) => done.map_err(|error| Failure::unreadable(&io::Error::other(error))),
            failure = self.hangs() => Err(failure),
        }
    }

    /// In the middle of such work: it waits for the other end, and not for its storage.
    pub(crate) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let waited = within(&self.0.waiting, wait);
        self.0.met.fetch_add(1, Ordering::Relaxed);
        waited
    }

    /// Has the kernel write all that it has of a filesystem.
    pub(crate) fn sync(&self, folder: &Path) -> io::Result<()> {
        let folder = File::open(folder)?;
        within(&self.0.syncing, || Ok(syncfs(folder.as_fd())?))
    }

    async fn hangs(&self) -> Failure {
        let mut still = Still::new(self.moved());
        loop {
            sleep(self.0.patience / LOOKS).await;
            let now = self.moved();
            if self.0.waiting.load(Ordering::Relaxed) > 0 {
                still = Still::new(now);
                continue;
            }
            let (most, looks) = (self.most(now.2), still.noted(now));
            if looks >= most {
                return self.silent(looks);
            }
        }
    }

    /// Who has everything written makes a single call, in which what is unwritten gets less.
    fn moved(&self) -> (u64, u64, Option<u64>) {
        let unwritten = if self.is_syncing() { unwritten() } else { None };
        (self.0.met.load(Ordering::Relaxed), self.0.bytes.load(Ordering::Relaxed), unwritten)
    }

    fn is_syncing(&self) -> bool {
        self.0.syncing.load(Ordering::Relaxed) > 0
    }

    /// So many looks may find the same. A filesystem is written as a whole: a folder of it may be the volume, and others have theirs.
    fn most(&self, unwritten: Option<u64>) -> u32 {
        let is_of_others = self.is_syncing() && unwritten.is_none_or(|bytes| bytes < SURELY);
        if is_of_others { LOOKS * WITH_OTHERS } else { LOOKS }
    }

    /// Ends where an rsync of this group comes out of no call to the kernel. One that has written more than there may be unwritten is let go on
    /// and stopped again and again in such a call: then nothing is carried, and what is unwritten stays as much as it is.
    pub(crate) async fn hangs_under(&self, group: Option<Pid>) -> Failure {
        let Some(group) = group else { return pending().await };
        let mut asleep = BTreeMap::<u32, Still<Option<u64>>>::new();
        let mut stopped = Still::new(None);
        loop {
            sleep(self.0.patience / LOOKS).await;
            let there = processes(group.as_raw_nonzero().get());
            // One that has a processor for itself runs, and is never switched.
            let sleepers = there.iter().filter(|process| process.state != "R");
            asleep.retain(|id, _| sleepers.clone().any(|process| process.id == *id));
            let slept = sleepers.map(|process| {
                let still = asleep.entry(process.id).or_insert_with(|| Still::new(None));
                still.noted(Some(process.switches))
            });
            let slept = slept.max().unwrap_or_default();
            let carried: Option<u64> = there.iter().map(|process| process.carried).sum();
            let carried = carried.filter(|_| there.iter().any(|process| process.state == "D"));
            let looks = stopped.noted(carried.zip(unwritten().filter(|bytes| *bytes >= SURELY)));
            let looks = if stopped.what.is_some() { looks.max(slept) } else { slept };
            if looks >= LOOKS {
                return self.silent(looks);
            }
        }
    }

    /// Ends rsync where the work is over, and says of what it is. What it has written may have to be written to the storage before it is over. Who
    /// hangs in the kernel is not waited for: nobody else writes there before his pod has gone, and with it all that is left of him.
    pub(crate) async fn kill(&self, running: Running, trouble: Trouble) -> Trouble {
        if matches!(&trouble, Trouble::Failed(failure) if failure.reason() == Reason::StorageHangs) {
            running.strike();
            return trouble;
        }
        let group = running.group;
        tokio::select! {
            biased;
            () = running.kill() => trouble,
            failure = self.hangs_under(group) => failure.into(),
        }
    }

    fn silent(&self, looks: u32) -> Failure {
        let since = self.0.patience / LOOKS * looks;
        let text = format!("the storage of {} has not answered for {} seconds", self.0.of, since.as_secs());
        Failure::new(Reason::StorageHangs, text)
    }
}

fn within<T>(count: &AtomicUsize, work: impl FnOnce() -> T) -> T {
    count.fetch_add(1, Ordering::Relaxed);
    let done = work();
    count.fetch_sub(1, Ordering::Relaxed);
    done
}

/// Bytes that programs have written and no storage has yet.
fn unwritten() -> Option<u64> {
    TOLD.iter().find_map(|file| unwritten_by(&fs::read_to_string(file).ok()?))
}

fn unwritten_by(told: &str) -> Option<u64> {
    let bytes = told.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        if !UNWRITTEN.contains(&name) {
            return None;
        }
        let number: u64 = words.next()?.parse().ok()?;
        Some(number.saturating_mul(if words.next() == Some("kB") { 1024 } else { 1 }))
    });
    bytes.reduce(u64::saturating_add)
}

/// An rsync that runs.
#[derive(Debug)]
struct Process {
    id: u32,
    /// How often it has gone to sleep or made way for another one: each time it has run before.
    switches: u64,
    /// As the kernel tells it: `D` is one that waits for storage, and not for the other end.
    state: String,
    /// Bytes that it has read and written.
    carried: Option<u64>,
}

fn processes(group: i32) -> Vec<Process> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|one| Process::of_group(&one.path(), group)).collect()
}

impl Process {
    fn of_group(folder: &Path, group: i32) -> Option<Self> {
        let id = folder.file_name()?.to_str()?.parse().ok()?;
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let stat = read("stat")?;
        // The name stands in brackets, and may have some itself. Its state follows, and its parent and group.
        let (before, after) = stat.rsplit_once(')')?;
        let mut words = after.split_whitespace();
        let state = words.next()?;
        let is_of_group = words.nth(1)?.parse::<i32>() == Ok(group);
        if before.split_once('(')?.1 != PROGRAM || ["Z", "X"].contains(&state) || !is_of_group {
            return None;
        }
        let status = read("status")?;
        let switches = number(&status, "voluntary_ctxt_switches")? + number(&status, "nonvoluntary_ctxt_switches")?;
        let carried = read("io").and_then(|io| number(&io, "rchar")?.checked_add(number(&io, "wchar")?));
        Some(Self { id, switches, state: state.to_owned(), carried })
    }
}

fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::fs::PermissionsExt, pin::pin, process::Stdio, sync::mpsc, thread};

    use futures::FutureExt;
    use tokio::{
        io::AsyncReadExt,
        time::{advance, timeout},
    };

    use super::*;

    const SHORT: Duration = Duration::from_secs(1);

    fn storage() -> Storage {
        Storage::with("the copy", Arc::default(), SHORT)
    }

    #[tokio::test]
    async fn work_that_does_nothing_any_more_is_given_up_and_says_whose_storage_it_waits_for() {
        let (holds, held) = mpsc::channel::<()>();
        let failure = storage().work(move || held.recv()).await.unwrap_err();
        drop(holds);
        assert_eq!(failure.reason(), Reason::StorageHangs);
        assert!(failure.message.starts_with("the storage of the copy has not answered for "), "{failure}");
    }

    /// A large file, many entries, or an other end that reads for hours.
    #[tokio::test]
    async fn work_that_takes_long_is_waited_for_where_it_moves_on_or_waits_for_the_other_end() {
        const STEP: Duration = Duration::from_millis(50);
        let storage = storage();
        let counters = [storage.met(), Arc::clone(&storage.0.bytes)];
        for counter in counters {
            let reads = move || {
                for _ in 0..50 {
                    thread::sleep(STEP);
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            };
            assert_eq!(storage.work(reads).await, Ok(()));
        }
        let waits = storage.clone();
        assert_eq!(storage.work(move || waits.while_waiting(|| thread::sleep(STEP * 50))).await, Ok(()));
    }

    /// The clock goes on meanwhile.
    #[tokio::test(start_paused = true)]
    async fn end_that_was_stopped_itself_for_long_does_not_take_its_storage_for_one_that_hangs() {
        let storage = storage();
        let mut hangs = pin!(storage.hangs());
        for _ in 0..LOOKS {
            assert!(hangs.as_mut().now_or_never().is_none());
            advance(SHORT * 2).await;
        }
        assert_eq!(hangs.await.reason(), Reason::StorageHangs);
    }

    /// One that runs such a script, and where that lies.
    fn rsync(script: &str) -> (tempfile::TempDir, Running) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(PROGRAM);
        fs::write(&program, ["#!/bin/sh", script, ""].join("\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let running = Running::start(&[], &[("PATH", OsStr::new(&path))], Stdio::null()).unwrap();
        (folder, running)
    }

    async fn is_taken_to_hang(script: &str) -> bool {
        let (_folder, running) = rsync(script);
        let hangs = timeout(SHORT * 3, storage().hangs_under(running.group)).await.is_ok();
        running.kill().await;
        hangs
    }

    /// As for what it has written to a slow server; and as in such a call, it goes on when all of its group are killed.
    #[tokio::test]
    async fn rsync_that_is_killed_and_ends_slowly_is_waited_for() {
        let (_folder, mut running) = rsync("setsid sh -c 'echo; exec > /dev/null; sleep 2' & exec sleep 600");
        running.child.stdout.as_mut().unwrap().read_u8().await.unwrap();
        let trouble = storage().kill(running, Trouble::Line("it was cut".to_owned())).await;
        assert!(matches!(trouble, Trouble::Line(_)), "{trouble}");
    }

    /// As one that is in a single call to the kernel; and what it has started may wait for what it likes.
    #[tokio::test]
    async fn rsync_that_never_runs_is_taken_to_hang_and_one_that_looks_up_is_not() {
        assert!(is_taken_to_hang("sleep 600; :").await);
        assert!(!is_taken_to_hang("sleep 600 & while :; do sleep 0.05; done").await);
    }

    /// As with classes whose volumes are folders of one disk of a node.
    #[test]
    fn filesystem_in_which_only_others_have_something_unwritten_is_given_longer_to_write_all() {
        let storage = storage();
        assert_eq!(storage.most(None), LOOKS, "nothing is written there now");
        within(&storage.0.syncing, || {
            assert_eq!(storage.most(Some(SURELY)), LOOKS);
            for of_others in [Some(SURELY - 1), None] {
                assert_eq!(storage.most(of_others), LOOKS * WITH_OTHERS);
            }
        });
    }

    #[test]
    fn unwritten_is_told_by_the_pods_own_group_or_by_the_machine() {
        let group = "anon 7\nfile_dirty 4096\nfile_writeback 8192\nfile_mapped 1\n";
        assert_eq!(unwritten_by(group), Some(12_288));
        assert_eq!(unwritten_by("MemFree: 7 kB\nDirty:   2 kB\nWriteback:  1 kB\nWritebackTmp: 9 kB\n"), Some(3072));
        assert_eq!(unwritten_by("anon 7\n"), None);
    }
}
