//! What both ends have in common: how they are started, and how they go on over one line after the other.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use bytes::BytesMut;
use futures::future::try_join;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::{
    compare::Sum,
    frame::Body,
    keys::{Keys, Unusable},
    line::{Line, Lines, unexpected},
    outcome::{self, Failure, Reason, Trouble},
    storage::Storage,
    walk::Survey,
};

/// For a line that broke, to be recreated.
const PATIENCE: Duration = Duration::from_mins(10);
/// The same, where the other end may have ended well.
const FAREWELL: Duration = Duration::from_secs(30);
const PIECE: usize = 64 << 10;

/// Where an end finds things.
#[derive(Clone, Debug)]
pub struct Places {
    /// The volume.
    pub folder: PathBuf,
    /// The certificates and the key.
    pub keys: PathBuf,
    /// Where it is connected to.
    pub listen: SocketAddr,
    /// For its last message.
    pub result: PathBuf,
}

impl Places {
    pub async fn lines(&self, keys: Result<Keys, Unusable>) -> Result<Lines, Failure> {
        let unfit = |why: String| Failure::new(Reason::Misconfigured, why);
        let keys = keys.map_err(|error| unfit(error.to_string()))?;
        let listener = TcpListener::bind(self.listen).await;
        let listener = listener.map_err(|error| unfit(format!("{} cannot be listened on: {error}", self.listen)))?;
        Ok(Lines::accept(listener, keys))
    }

    pub(crate) async fn folder(&self, storage: &Storage) -> Result<String, Failure> {
        let path = self.folder.clone();
        let is_folder = storage.work(move || path.is_dir()).await?;
        let folder = self.folder.to_str().filter(|folder| folder.starts_with('/') && is_folder);
        let shown = self.folder.display();
        let unfit = || Failure::new(Reason::Misconfigured, format!("{shown} is no folder with a whole path"));
        folder.map(str::to_owned).ok_or_else(unfit)
    }

    /// Leaves the last message.
    pub fn leave(&self, outcome: &Result<Sum, Failure>) -> io::Result<()> {
        outcome::write(&self.result, outcome)
    }
}

/// What is in a volume.
pub(crate) async fn survey(folder: PathBuf, storage: &Storage) -> Result<Survey, Failure> {
    let met = storage.met();
    let survey = storage.work(move || Survey::noted(&folder, met)).await?;
    survey.map_err(|error| Failure::unreadable(&error))
}

/// Works over one line after the other until it is done or cannot be.
pub(crate) async fn over_lines<T>(
    mut lines: Lines,
    mut work: impl AsyncFnMut(&mut Line) -> Result<T, Trouble>,
) -> Result<T, Failure> {
    // The other end may be waited for as long as it takes to stop what uses the volume.
    let mut line = lines.next().await;
    while let Some(mut now) = line {
        let patience = match work(&mut now).await {
            Ok(done) => {
                now.close().await;
                return Ok(done);
            }
            Err(Trouble::Failed(failure)) => {
                tell(now, &mut lines, &failure).await;
                return Err(failure);
            }
            Err(Trouble::Line(why)) => {
                tracing::warn!("the line broke ({why}): waiting for another one");
                PATIENCE
            }
            Err(Trouble::Unheard(why)) => {
                tracing::info!("the line broke ({why}): waiting for another one, unless the other end is done");
                FAREWELL
            }
        };
        drop(now);
        let gone = || format!("the driver has not connected the two ends for {} seconds", patience.as_secs());
        line = timeout(patience, lines.next()).await.map_err(|_| Failure::new(Reason::NoLine, gone()))?;
    }
    Err(Failure::new(Reason::NoLine, "no connection is taken any more"))
}

/// What takes ten minutes to be found may be found when the line has broken: the other end is at another one by then. Nobody else may be left
/// to say it, for who hangs in the kernel leaves no last message that is read.
async fn tell(now: Line, lines: &mut Lines, failure: &Failure) {
    if now.fail(failure.clone()).await || failure.reason() != Reason::StorageHangs {
        return;
    }
    let over_another = async {
        while let Some(line) = lines.next().await {
            if line.fail(failure.clone()).await {
                return;
            }
        }
    };
    let told = timeout(FAREWELL, over_another).await;
    tracing::debug!(is_told = told.is_ok(), "another line is waited for to tell the other end");
}

/// Nobody joins the ends any more once one of them has ended, so the other one goes by what it knows. Whoever reads the last messages
/// believes neither alone.
pub(crate) fn or_known(outcome: Result<Sum, Failure>, known: Option<Sum>) -> Result<Sum, Failure> {
    match (outcome, known) {
        (Err(failure), Some(sum)) if failure.reason() == Reason::NoLine => Ok(sum),
        (outcome, _) => outcome,
    }
}

/// Carries what the rsync here and the one there say to one another, until both have said all.
pub(crate) async fn carry(
    mut said: impl AsyncRead + Unpin,
    heard: impl AsyncWrite + Unpin,
    line: &mut Line,
) -> Result<(), Trouble> {
    let Line { outgoing, incoming, .. } = line;
    let replaced = incoming.replaced();
    let saying = async {
        let mut piece = BytesMut::new();
        loop {
            piece.reserve(PIECE);
            // Of an rsync that died it is known by how it ended.
            if said.read_buf(&mut piece).await.unwrap_or(0) == 0 {
                return outgoing.send(Body::End(())).await;
            }
            outgoing.send(Body::Data(piece.split().freeze())).await?;
        }
    };
    let hearing = async {
        let (mut heard, mut listens) = (heard, true);
        loop {
            match incoming.next().await? {
                Body::Data(piece) => listens = listens && heard.write_all(&piece).await.is_ok(),
                Body::End(()) => {
                    let _ = heard.shutdown().await;
                    // Nothing else closes a pipe, and whoever reads from it would wait for ever for one that died.
                    drop(heard);
                    return Ok(());
                }
                other => return Err(unexpected(&other)),
            }
        }
    };
    // Who waits for an rsync that reads nothing does not listen, and that one may wait for this very line, or for its disk.
    tokio::select! {
        carried = try_join(saying, hearing) => carried.map(|_| ()),
        trouble = replaced => Err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_that_nobody_joins_any_more_goes_by_what_it_knows_and_any_other_by_how_it_ended() {
        let sum = |entries| Sum { digest: vec![1; 32], entries, files: 1, bytes: 1 };
        let failed = |reason| Err(Failure::new(reason, "why"));
        assert_eq!(or_known(failed(Reason::NoLine), Some(sum(2))), Ok(sum(2)));
        assert_eq!(or_known(failed(Reason::NoLine), None), failed(Reason::NoLine));
        assert_eq!(or_known(failed(Reason::CopyFailed), Some(sum(2))), failed(Reason::CopyFailed));
        assert_eq!(or_known(Ok(sum(3)), Some(sum(2))), Ok(sum(3)));
    }
}
