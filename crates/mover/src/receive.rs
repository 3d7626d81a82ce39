//! The end at the destination: it does what it is asked for, and judges.

use std::{
    fs::DirEntry,
    io,
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use rustix::{fs::fstatvfs, pipe::fcntl_setpipe_size};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    compare::{Judgement, Sum, compare},
    end::{Places, carry, or_known, over_lines, survey},
    entry::Entry,
    frame::{Body, Ended, Ready},
    keys::Keys,
    line::{Line, unexpected},
    outcome::{Failure, Reason, Trouble},
    progress::{Phase, Progress, say},
    rsync::{self, Running},
    storage::Storage,
    walk::{Depth, Survey, Walk},
};

/// Entries of the source that wait to be compared.
const AHEAD: usize = 256;

/// Begins the name of a file by which it is found out how exactly times are kept.
const TRIAL: &str = ".kosmos-csi-trial-";

/// Bytes that may wait for rsync to read them. The more there may be, the less often the two wake one another.
const UNREAD: usize = 256 << 10;

/// Letters of what the other end should not have asked for.
const SHOWN: usize = 1000;

/// What the receiver remembers from one line to the next.
#[derive(Debug)]
struct Receiver {
    folder: String,
    storage: Storage,
    granularity: u32,
    /// What an attempt before this one has left: the copy takes its place.
    left: Survey,
    progress: Progress,
    /// Of what is there now.
    judgement: Option<Judgement>,
}

/// Receives until the sender agrees that the copy is one.
pub async fn receive(places: &Places, must_be_empty: bool) -> Result<Sum, Failure> {
    let progress = Progress::new(Phase::WaitingForLine);
    let storage = Storage::new("the copy", progress.counter());
    let folder = places.folder(&storage).await?;
    let version = rsync::check().await?;
    tracing::info!(version, folder, "the receiver starts");
    let path = PathBuf::from(&folder);
    if must_be_empty {
        let (path, met) = (path.clone(), storage.met());
        storage.work(move || check_empty(&path, met)).await??;
    }
    let lines = places.lines(Keys::of_receiver(&places.keys)).await?;
    let granularity = {
        let path = path.clone();
        storage.work(move || granularity(&path)).await?.map_err(|error| unwritable(&error))?
    };
    let left = survey(path, &storage).await?;
    let mut receiver = Receiver { folder, storage, granularity, left, progress: progress.clone(), judgement: None };
    let ready = receiver.ready().await?;
    say("ready", &serde_json::json!({ "freeBytes": ready.free_bytes, "freeInodes": ready.free_inodes }));
    let telling = progress.tell();
    let outcome = over_lines(lines, async |line| receiver.over(line).await).await;
    drop(telling);
    or_known(outcome, receiver.judgement.filter(Judgement::is_equal).map(|judgement| judgement.copy))
}

/// What rsync does not find at the source it removes here, so the volume has to be one that was made for this.
fn check_empty(folder: &Path, met: Arc<AtomicU64>) -> Result<(), Failure> {
    let trials = trials(folder).map_err(|error| Failure::unreadable(&error))?;
    let there = Survey::noted(folder, met).map_err(|error| Failure::unreadable(&error))?;
    let own = 1 + u64::from(folder.join("lost+found").is_dir()) + trials.len() as u64;
    if there.entries > own || there.with_lost_and_found {
        let text = format!("the destination must be a new volume, but has {} entries", there.entries - own);
        return Err(Failure::new(Reason::NotEmpty, text));
    }
    trials.iter().try_for_each(std::fs::remove_file).map_err(|error| unwritable(&error))
}

/// Those of a receiver that was killed.
fn trials(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_trial = |one: &DirEntry| {
        let is_called_so = one.file_name().as_encoded_bytes().starts_with(TRIAL.as_bytes());
        is_called_so && one.metadata().is_ok_and(|found| found.is_file() && found.len() == 0)
    };
    let found: Vec<DirEntry> = std::fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    Ok(found.iter().filter(|one| is_trial(one)).map(DirEntry::path).collect())
}

fn unwritable(error: &io::Error) -> Failure {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let reason = if is_full { Reason::NoSpace } else { Reason::Misconfigured };
    Failure::new(reason, format!("the mover cannot write to the destination: {error}"))
}

/// Of which of these parts of a second the filesystem keeps all, in nanoseconds.
fn granularity(folder: &Path) -> io::Result<u32> {
    const TRIED: u32 = 123_456_789;
    // By its name: not every storage behind FUSE knows a file that has none.
    let named = tempfile::Builder::new().prefix(TRIAL).tempfile_in(folder)?;
    let file = named.as_file();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_001, TRIED);
    file.set_modified(time)?;
    let kept = file.metadata()?.modified()?.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
    named.close()?;
    let is_it = |unit: &u32| kept.subsec_nanos() == TRIED / unit * unit;
    Ok([1, 100, 1_000, 1_000_000].into_iter().find(is_it).unwrap_or(1_000_000_000))
}

impl Receiver {
    async fn ready(&self) -> Result<Ready, Failure> {
        let folder = self.folder.clone();
        let look = move || std::fs::File::open(folder).and_then(|folder| Ok(fstatvfs(folder)?));
        let room = self.storage.work(look).await?.map_err(|error| Failure::unreadable(&error))?;
        Ok(Ready {
            free_bytes: room.f_bavail.saturating_mul(room.f_frsize).saturating_add(self.left.stored),
            free_inodes: (room.f_files > 0).then_some(room.f_favail.saturating_add(self.left.inodes)),
            granularity: self.granularity,
            judgement: self.judgement.clone(),
            began_without_links: !self.left.has_hard_links,
        })
    }

    async fn over(&mut self, line: &mut Line) -> Result<Sum, Trouble> {
        let survey = match line.incoming.next().await? {
            Body::Offer(survey) => survey,
            other => return Err(unexpected(&other)),
        };
        self.progress.set_total(survey.bytes);
        line.outgoing.send(Body::Ready(self.ready().await?)).await?;
        loop {
            match (line.incoming.next().await?, &self.judgement) {
                (Body::Start(start), _) => self.copy(&start.arguments, line).await?,
                (Body::Compare(()), _) => self.compare(survey, line).await?,
                (Body::Done(()), Some(judgement)) if judgement.is_equal() => {
                    // The sender does not need it for long.
                    let _ = line.outgoing.send(Body::Done(())).await;
                    return Ok(judgement.copy.clone());
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    async fn copy(&mut self, asked: &[String], line: &mut Line) -> Result<(), Trouble> {
        self.judgement = None;
        self.progress.begin(Phase::Copying);
        let arguments = rsync::server_arguments(asked, &self.folder).ok_or_else(|| {
            let asked: String = format!("{asked:?}").chars().take(SHOWN).collect();
            Failure::new(Reason::PeerConfused, format!("rsync is asked for what it is not called with here: {asked}"))
        })?;
        let mut running = Running::start(&arguments, &[], Stdio::piped())?;
        let (Some(stdout), Some(stdin)) = (running.child.stdout.take(), running.child.stdin.take()) else {
            return Err(Failure::new(Reason::CopyFailed, "rsync has no standard input and output").into());
        };
        // A machine may grant each of its users only so much of that.
        if let Err(error) = fcntl_setpipe_size(&stdin, UNREAD) {
            tracing::debug!(%error, "rsync hears through a pipe of the usual size");
        }
        let storage = self.storage.clone();
        let mut hangs = pin!(storage.hangs_under(running.group));
        let carried = tokio::select! {
            carried = carry(stdout, stdin, line) => carried,
            failure = &mut hangs => Err(failure.into()),
        };
        if let Err(trouble) = carried {
            return Err(storage.kill(running, trouble).await);
        }
        let ended = tokio::select! {
            ended = running.ended() => ended,
            failure = hangs => return Err(failure.into()),
        };
        let (well, said) = ended.unwrap_or_else(|error| (false, error.to_string()));
        line.outgoing.send(Body::Ended(Ended { well, said })).await
    }

    /// Entries come as fast as they can be compared, and are compared as fast as both disks can be read.
    async fn compare(&mut self, survey: Survey, line: &mut Line) -> Result<(), Trouble> {
        self.judgement = None;
        self.progress.begin(Phase::Comparing);
        let (sender, source) = mpsc::channel(AHEAD);
        let counter = self.progress.counter();
        let (folder, granularity) = (PathBuf::from(&self.folder), self.granularity);
        let (stop, storage) = (CancellationToken::new(), self.storage.clone());
        let (stopped, noting) = (stop.clone(), storage.clone());
        // Where the source breaks off, the copy is read anew.
        let _stopping = stop.drop_guard();
        let mut judging = pin!(storage.work(move || {
            noting.sync(&folder)?;
            let copy = Walk::new(&folder, Depth::Whole, counter)?.agreed(survey.with_lost_and_found, granularity);
            let copy = copy.noted(noting.met()).until(stopped);
            compare(Incoming { entries: source, storage: noting }, copy)
        }));
        // Who compares no more takes no entries either.
        let early = tokio::select! {
            handed = hand_over(sender, line) => {
                handed?;
                None
            }
            judged = &mut judging => Some(judged),
        };
        // All of the source is here: what it comes to is told over the next line too.
        let judged = match early {
            Some(judged) => judged,
            None => judging.as_mut().await,
        };
        let judgement = judged?.map_err(|error| Failure::unreadable(&error))?;
        tracing::info!("{judgement}");
        self.judgement = Some(judgement.clone());
        line.outgoing.send(Body::Judged(judgement)).await
    }
}

/// Until the last entry, or until nobody compares any more, who says himself why.
async fn hand_over(sender: mpsc::Sender<Option<Entry>>, line: &mut Line) -> Result<(), Trouble> {
    loop {
        let entry = match line.incoming.next().await? {
            Body::Entry(entry) => Some(entry),
            Body::LastEntry(()) => None,
            other => return Err(unexpected(&other)),
        };
        let is_last = entry.is_none();
        let sent = tokio::select! {
            sent = sender.send(entry) => sent,
            trouble = line.incoming.replaced() => return Err(trouble),
        };
        if sent.is_err() || is_last {
            return Ok(());
        }
    }
}

/// The source's entries. A tree that breaks off is not one that ends.
struct Incoming {
    entries: mpsc::Receiver<Option<Entry>>,
    storage: Storage,
}

impl Iterator for Incoming {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        let Self { entries, storage } = self;
        match storage.while_waiting(|| entries.blocking_recv()) {
            Some(entry) => entry.map(Ok),
            None => Some(Err(io::Error::other("the line broke"))),
        }
    }
}
