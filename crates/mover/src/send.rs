//! The end at the source: it leads.

use std::{ffi::OsStr, io, path::PathBuf, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::UnixStream,
    process::ChildStdout,
    task::{JoinError, spawn_blocking},
};
use tokio_util::sync::CancellationToken;

use crate::{
    compare::{Adding, Judgement, Sum},
    end::{Places, carry, or_known, over_lines, survey},
    frame::{Body, Ended, Ready, Start},
    keys::Keys,
    line::{Line, Outgoing, unexpected},
    outcome::{Failure, Reason, Trouble},
    pipe::{self, Pipe},
    progress::{Phase, Progress, say},
    rsync::{self, Pass, Running},
    walk::{Depth, Survey, Walk},
};

/// What the sender remembers from one line to the next.
#[derive(Debug)]
struct Sender {
    folder: PathBuf,
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
    let folder = places.folder()?.to_owned();
    let version = rsync::check().await?;
    tracing::info!(version, folder, "the sender starts");
    let lines = places.lines(Keys::of_sender(&places.keys)).await?;
    let progress = Progress::new(Phase::Surveying);
    let telling = progress.tell();
    let survey = survey(PathBuf::from(&folder)).await?;
    progress.set_total(survey.bytes);
    say("ready", &serde_json::json!({ "entries": survey.entries, "bytes": survey.bytes, "stored": survey.stored }));
    progress.begin(Phase::WaitingForLine);
    let shell = shell().map_err(|error| Failure::new(Reason::Misconfigured, error.to_string()))?;
    let folder = folder.into();
    let mut sender =
        Sender { folder, survey, shell, progress, passes: 0, next_pass: Pass::First, sum: None, done: None };
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
            self.copy(pass, line).await?;
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

    async fn copy(&mut self, pass: Pass, line: &mut Line) -> Result<(), Trouble> {
        self.progress.begin(Phase::Copying);
        self.done = None;
        self.passes += 1;
        let pipe = Pipe::listen(self.passes).map_err(|error| unspoken(&error))?;
        let folder = self.folder.to_str().unwrap_or_default();
        let arguments = rsync::arguments(&self.survey, pass, &self.shell, folder);
        let environment = [(pipe::SOCKET, OsStr::new(pipe.name()))];
        let mut running = Running::start(&arguments, &environment, Stdio::null())?;
        tokio::spawn(follow(running.child.stdout.take(), self.progress.clone()));
        // It may end before it has called its shell.
        let called = tokio::select! {
            called = pipe.accept() => Some(called),
            _ = running.child.wait() => None,
        };
        // What calls later would wait for an answer for ever, and the end of rsync with it, whose standard error it has too.
        drop(pipe);
        let there = match called {
            Some(Ok(called)) => {
                self.next_pass = Pass::Again;
                converse(called, line).await
            }
            Some(Err(error)) => Err(unspoken(&error).into()),
            None => Ok(Ended::default()),
        };
        let there = match there {
            Ok(there) => there,
            Err(trouble) => {
                running.kill().await;
                return Err(trouble);
            }
        };
        let (well, said) = running.ended().await.map_err(|error| unspoken(&error))?;
        match (well, there.well) {
            (true, true) => Ok(()),
            (true, false) => Err(rsync::failure(&there.said).into()),
            (false, _) => Err(rsync::failure(&format!("{said} {}", there.said)).into()),
        }
    }

    async fn compare(&mut self, ready: &Ready, line: &mut Line) -> Result<Judgement, Trouble> {
        self.progress.begin(Phase::Comparing);
        self.sum = None;
        line.outgoing.send(Body::Compare(())).await?;
        let walk = Walk::new(&self.folder, Depth::Whole, self.progress.counter());
        let walk = walk.map_err(|error| Failure::unreadable(&error))?;
        let stop = CancellationToken::new();
        let walk = walk.agreed(self.survey.with_lost_and_found, ready.granularity).until(stop.clone());
        // Where the line breaks before all is sent, it is read anew.
        let _stopping = stop.drop_guard();
        let outgoing = line.outgoing.clone();
        let mut sending = spawn_blocking(move || send_entries(walk, &outgoing));
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
                self.sum = Some(all_of(sending.await)?);
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
async fn converse((arguments, stream): (Vec<String>, UnixStream), line: &mut Line) -> Result<Ended, Trouble> {
    line.outgoing.send(Body::Start(Start { arguments })).await?;
    let (said, heard) = stream.into_split();
    carry(said, heard, line).await?;
    match line.incoming.next().await? {
        Body::Ended(ended) => Ok(ended),
        other => Err(unexpected(&other)),
    }
}

/// What the entries came to that a thread of its own has sent.
fn all_of(sent: Result<Result<Sum, Trouble>, JoinError>) -> Result<Sum, Trouble> {
    sent.map_err(|error| Failure::unreadable(&io::Error::other(error)))?
}

fn send_entries(walk: Walk, outgoing: &Outgoing) -> Result<Sum, Trouble> {
    let mut adding = Adding::default();
    for entry in walk {
        let entry = entry.map_err(|error| Failure::unreadable(&error))?;
        adding.add(&entry);
        outgoing.blocking_send(Body::Entry(entry))?;
    }
    outgoing.blocking_send(Body::LastEntry(()))?;
    Ok(adding.finish())
}

async fn follow(stdout: Option<ChildStdout>, progress: Progress) {
    let Some(stdout) = stdout else { return };
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(bytes) = rsync::progress(&line) {
            progress.set(bytes);
        }
    }
}

fn unspoken(error: &io::Error) -> Failure {
    Failure::new(Reason::CopyFailed, format!("rsync cannot be spoken to: {error}"))
}
