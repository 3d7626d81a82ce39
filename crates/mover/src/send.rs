//! The end at the source: it leads.

use std::{ffi::OsStr, io, path::PathBuf, pin::pin, process::Stdio};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use crate::{
    compare::{Adding, Judgement, Sum},
    end::{Places, carry, or_known, over_lines, survey},
    frame::{Body, Ended, Ready, Start},
    keys::Keys,
    line::{Line, Outgoing, unexpected},
    outcome::{Failure, Reason, Trouble},
    pipe::{self, Call, Pipe},
    progress::{Phase, Progress, say},
    rsync::{self, Pass, Running},
    storage::Storage,
    walk::{Depth, Survey, Walk},
};

/// Bytes of what rsync prints: read at once, and kept of one line.
const PRINTED: usize = 4 << 10;

/// What the sender remembers from one line to the next.
#[derive(Debug)]
struct Sender {
    folder: PathBuf,
    storage: Storage,
    survey: Survey,
    /// How rsync calls this program to be its shell.
    shell: String,
    progress: Progress,
    passes: u32,
    next_pass: Pass,
    /// What the source came to when it was last compared.
    sum: Option<Sum>,
    /// What the other end was told to be done with.
    done: Option<Sum>,
}

/// Sends until the other end has judged the copy to be one.
pub async fn send(places: &Places) -> Result<Sum, Failure> {
    let progress = Progress::new(Phase::Surveying);
    let storage = Storage::new("the source", progress.counter());
    let folder = places.folder(&storage).await?;
    let version = rsync::check().await?;
    tracing::info!(version, folder, "the sender starts");
    let lines = places.lines(Keys::of_sender(&places.keys)).await?;
    let telling = progress.tell();
    let survey = survey(PathBuf::from(&folder), &storage).await?;
    progress.set_total(survey.bytes);
    say("ready", &serde_json::json!({ "entries": survey.entries, "bytes": survey.bytes, "stored": survey.stored }));
    progress.begin(Phase::WaitingForLine);
    let shell = shell().map_err(|error| Failure::new(Reason::Misconfigured, error.to_string()))?;
    let folder = folder.into();
    let (next_pass, sum, done) = (Pass::First, None, None);
    let mut sender = Sender { folder, storage, survey, shell, progress, passes: 0, next_pass, sum, done };
    let outcome = over_lines(lines, async |line| sender.over(line).await).await;
    drop(telling);
    or_known(outcome, sender.done)
}

/// rsync splits it at spaces, so there must be none in the program's path.
fn shell() -> io::Result<String> {
    let program = std::env::current_exe()?;
    let program = program.to_str().filter(|program| !program.contains(' '));
    let program = program.ok_or_else(|| io::Error::other("the program lies at a path with spaces"))?;
    Ok(format!("{program} mover pipe"))
}

impl Sender {
    async fn over(&mut self, line: &mut Line) -> Result<Sum, Trouble> {
        match self.lead(line).await {
            Err(Trouble::Line(why)) if self.done.is_some() => Err(Trouble::Unheard(why)),
            outcome => outcome,
        }
    }

    async fn lead(&mut self, line: &mut Line) -> Result<Sum, Trouble> {
        line.outgoing.send(Body::Offer(self.survey)).await?;
        let ready = match line.incoming.next().await? {
            Body::Ready(ready) => ready,
            other => return Err(unexpected(&other)),
        };
        if let Some(judgement) = &ready.judgement
            && let Some(sum) = self.agreed(judgement)
        {
            return self.agree(sum, line).await;
        }
        if self.next_pass == Pass::First {
            self.check_room(&ready)?;
        }
        loop {
            let pass = self.next_pass;
            self.copy(pass, ready.began_without_links, line).await?;
            let judgement = self.compare(&ready, line).await?;
            if let Some(sum) = self.agreed(&judgement) {
                return self.agree(sum, line).await;
            }
            if pass == Pass::Repair {
                return Err(Failure::differs(&judgement).into());
            }
            tracing::warn!("{judgement}: copying once more, and comparing every byte");
            self.next_pass = Pass::Repair;
        }
    }

    /// It ends when the other end has heard it, which waits for it.
    async fn agree(&mut self, sum: Sum, line: &mut Line) -> Result<Sum, Trouble> {
        self.done = Some(sum.clone());
        line.outgoing.send(Body::Done(())).await?;
        match line.incoming.next().await? {
            Body::Done(()) => Ok(sum),
            other => Err(unexpected(&other)),
        }
    }

    /// Equal, and of what was sent.
    fn agreed(&self, judgement: &Judgement) -> Option<Sum> {
        let sum = self.sum.as_ref().filter(|sum| judgement.is_equal() && judgement.source == **sum);
        sum.cloned()
    }

    fn check_room(&self, ready: &Ready) -> Result<(), Failure> {
        let Survey { stored, inodes, .. } = self.survey;
        let lacks = |what: &str, needed: u64, free: u64| {
            let text = format!("the source needs {needed} {what}, but the destination has room for {free}");
            Err(Failure::new(Reason::NoSpace, text))
        };
        match ready.free_inodes {
            _ if stored > ready.free_bytes => lacks("bytes", stored, ready.free_bytes),
            Some(free) if inodes > free => lacks("inodes", inodes, free),
            _ => Ok(()),
        }
    }

    async fn copy(&mut self, pass: Pass, in_place: bool, line: &mut Line) -> Result<(), Trouble> {
        self.progress.begin(Phase::Copying);
        self.done = None;
        self.passes += 1;
        let pipe = Pipe::listen(self.passes).map_err(|error| unspoken(&error))?;
        let folder = self.folder.to_str().unwrap_or_default();
        let arguments = rsync::arguments(&self.survey, pass, in_place, &self.shell, folder);
        let environment = [(pipe::SOCKET, OsStr::new(pipe.name()))];
        let mut running = Running::start(&arguments, &environment, Stdio::null())?;
        tokio::spawn(follow(running.child.stdout.take(), self.progress.clone()));
        let storage = self.storage.clone();
        let mut hangs = pin!(storage.hangs_under(running.group));
        // It may end before it has called its shell.
        let called = tokio::select! {
            called = pipe.accept() => Ok(Some(called)),
            _ = running.child.wait() => Ok(None),
            failure = &mut hangs => Err(failure),
        };
        // What calls later would wait for an answer for ever, and the end of rsync with it, whose standard error it has too.
        drop(pipe);
        let there = match called {
            Ok(Some(Ok(called))) => {
                self.next_pass = Pass::Again;
                tokio::select! {
                    there = converse(called, line) => there,
                    failure = &mut hangs => Err(failure.into()),
                }
            }
            Ok(Some(Err(error))) => Err(unspoken(&error).into()),
            Ok(None) => Ok(Ended::default()),
            Err(failure) => Err(failure.into()),
        };
        let there = match there {
            Ok(there) => there,
            Err(trouble) => return Err(storage.kill(running, trouble).await),
        };
        let ended = tokio::select! {
            ended = running.ended() => ended,
            failure = hangs => return Err(failure.into()),
        };
        let (well, said) = ended.map_err(|error| unspoken(&error))?;
        match (well, there.well) {
            (true, true) => Ok(()),
            (true, false) => Err(rsync::failure(&there.said).into()),
            (false, _) => Err(rsync::failure(&[said, there.said].join(rsync::BETWEEN)).into()),
        }
    }

    async fn compare(&mut self, ready: &Ready, line: &mut Line) -> Result<Judgement, Trouble> {
        self.progress.begin(Phase::Comparing);
        self.sum = None;
        line.outgoing.send(Body::Compare(())).await?;
        let (folder, counter, outgoing) = (self.folder.clone(), self.progress.counter(), line.outgoing.clone());
        let (with_lost_and_found, granularity) = (self.survey.with_lost_and_found, ready.granularity);
        let (stop, storage) = (CancellationToken::new(), self.storage.clone());
        let (stopped, noting) = (stop.clone(), storage.clone());
        // Where the line breaks before all is sent, it is read anew.
        let _stopping = stop.drop_guard();
        let mut sending = pin!(storage.work(move || {
            let walk = Walk::new(&folder, Depth::Whole, counter).map_err(|error| Failure::unreadable(&error))?;
            let walk = walk.agreed(with_lost_and_found, granularity).noted(noting.met()).until(stopped);
            send_entries(walk, &outgoing, &noting)
        }));
        // Either end may fail while the other one waits for what does not come.
        let early = tokio::select! {
            said = line.incoming.next() => Some(said?),
            sent = &mut sending => match all_of(sent) {
                // The other end judges it, and may tell that over the next line.
                Ok(sum) => {
                    self.sum = Some(sum);
                    None
                }
                // It may have said why.
                Err(Trouble::Line(_)) => None,
                Err(trouble) => return Err(trouble),
            },
        };
        let said = match early {
            Some(said) => {
                self.sum = Some(all_of(sending.as_mut().await)?);
                said
            }
            None => line.incoming.next().await?,
        };
        match said {
            Body::Judged(judgement) => Ok(judgement),
            other => Err(unexpected(&other)),
        }
    }
}

/// Has the other end start its rsync, and carries what the two say.
async fn converse(Call { arguments, said, heard }: Call, line: &mut Line) -> Result<Ended, Trouble> {
    line.outgoing.send(Body::Start(Start { arguments })).await?;
    carry(said, heard, line).await?;
    match line.incoming.next().await? {
        Body::Ended(ended) => Ok(ended),
        other => Err(unexpected(&other)),
    }
}

/// What the entries came to that a thread of its own has sent.
fn all_of(sent: Result<Result<Sum, Trouble>, Failure>) -> Result<Sum, Trouble> {
    sent?
}

fn send_entries(walk: Walk, outgoing: &Outgoing, storage: &Storage) -> Result<Sum, Trouble> {
    let send = |body| storage.while_waiting(|| outgoing.blocking_send(body));
    let mut adding = Adding::default();
    for entry in walk {
        let entry = entry.map_err(|error| Failure::unreadable(&error))?;
        adding.add(&entry);
        send(Body::Entry(entry))?;
    }
    send(Body::LastEntry(()))?;
    Ok(adding.finish())
}

/// rsync writes each line of its progress over the one before, and ends none of them until it is done itself.
async fn follow(stdout: Option<impl AsyncRead + Unpin>, progress: Progress) {
    let Some(mut stdout) = stdout else { return };
    let (mut piece, mut line) = (vec![0; PRINTED], Vec::new());
    while let Ok(length @ 1..) = stdout.read(&mut piece).await {
        for byte in &piece[..length] {
            if !matches!(byte, b'\r' | b'\n') {
                line.extend((line.len() < PRINTED).then_some(*byte));
                continue;
            }
            if let Some(bytes) = std::str::from_utf8(&line).ok().and_then(rsync::progress) {
                progress.set(bytes);
            }
            line.clear();
        }
    }
}

fn unspoken(error: &io::Error) -> Failure {
    Failure::new(Reason::CopyFailed, format!("rsync cannot be spoken to: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::Ordering, time::Duration};

    use tokio::{
        io::{AsyncWriteExt, duplex},
        time::{sleep, timeout},
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(10);
    const AGAIN: Duration = Duration::from_millis(1);

    /// A copy of hours prints a single line, of some hundred megabytes where there are millions of files.
    #[tokio::test]
    async fn progress_is_told_while_rsync_is_still_in_its_only_line() {
        let progress = Progress::new(Phase::Copying);
        let (mut rsync, stdout) = duplex(64);
        tokio::spawn(follow(Some(stdout), progress.clone()));
        let told = |bytes: u64| format!("\r{bytes:15}  10%   10.00MB/s    0:00:01 (xfr#1, to-chk=1/3)");
        let is_set_to = async |bytes: u64| {
            while progress.counter().load(Ordering::Relaxed) != bytes {
                sleep(AGAIN).await;
            }
        };
        rsync.write_all([told(5), told(7)].concat().as_bytes()).await.unwrap();
        timeout(SOON, is_set_to(5)).await.unwrap();
        rsync.write_all(&vec![0xff; 1 << 20]).await.unwrap();
        rsync.write_all([told(8), told(9)].concat().as_bytes()).await.unwrap();
        timeout(SOON, is_set_to(8)).await.unwrap();
        rsync.write_all(b"\n").await.unwrap();
        timeout(SOON, is_set_to(9)).await.unwrap();
    }
}
