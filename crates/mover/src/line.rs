//! One line between the two ends: frames over TLS, and silence that means something.

use std::{io, time::Duration};

use futures::StreamExt;
use prost::Message;
use tokio::{
    io::{AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};
use tokio_util::{
    codec::{FramedRead, LengthDelimitedCodec},
    sync::CancellationToken,
    task::AbortOnDropHandle,
};

use crate::{
    frame::{Body, Frame},
    keys::{Keys, Stream},
    outcome::{Failure, Reason, Trouble},
};

/// Who has nothing to say for so long says that he is there.
const STILL_HERE: Duration = Duration::from_secs(15);
/// Who hears nothing for so long takes the line for dead, for streams that are forwarded may hang without an end.
const SILENCE: Duration = Duration::from_mins(1);
/// For whoever connects to show who he is: the other end may be reached half a minute later.
const HANDSHAKE: Duration = Duration::from_secs(45);
/// For the last words to be written.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// An entry has a path of 4 KiB and attributes whose names take 64 KiB.
pub(crate) const LONGEST_FRAME: usize = 1 << 20;
/// Frames that wait to be written.
const WAITING: usize = 64;
/// Once so many bytes of frames are together, they are written.
const TOGETHER: usize = 256 << 10;

#[derive(Debug)]
pub struct Line {
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    writing: AbortOnDropHandle<Option<io::Result<()>>>,
}

#[derive(Clone, Debug)]
pub struct Outgoing(mpsc::Sender<Body>);

#[derive(Debug)]
pub struct Incoming {
    frames: FramedRead<ReadHalf<Stream>, LengthDelimitedCodec>,
    replaced: CancellationToken,
}

impl Line {
    fn new(stream: Stream, replaced: CancellationToken) -> Self {
        let (reading, writing) = split(stream);
        let codec = LengthDelimitedCodec::builder().max_frame_length(LONGEST_FRAME).new_codec();
        let (sender, receiver) = mpsc::channel(WAITING);
        let writing = write(receiver, writing);
        // Whoever waits for room on it waits no longer then: it may hang for ever.
        let writing = AbortOnDropHandle::new(tokio::spawn(replaced.clone().run_until_cancelled_owned(writing)));
        let incoming = Incoming { frames: FramedRead::new(reading, codec), replaced };
        Self { outgoing: Outgoing(sender), incoming, writing }
    }

    /// Says what its end has failed of, as far as the other end takes it. Whether that is written.
    pub async fn fail(self, failure: Failure) -> bool {
        let said = timeout(LAST_WORDS, self.outgoing.send(Body::Failed(failure))).await;
        self.close().await && matches!(said, Ok(Ok(())))
    }

    /// Lets what was said be written, as far as the other end takes it.
    pub async fn close(self) -> bool {
        let Self { outgoing, writing, .. } = self;
        drop(outgoing);
        let ended = timeout(LAST_WORDS, writing).await;
        tracing::debug!(?ended, "the line is closed");
        matches!(ended, Ok(Ok(Some(Ok(())))))
    }
}

impl Outgoing {
    pub async fn send(&self, body: Body) -> Result<(), Trouble> {
        self.0.send(body).await.map_err(|_| Trouble::Line("nothing can be written any more".to_owned()))
    }

    pub fn blocking_send(&self, body: Body) -> Result<(), Trouble> {
        self.0.blocking_send(body).map_err(|_| Trouble::Line("nothing can be written any more".to_owned()))
    }
}

impl Incoming {
    /// For who is busy and does not listen.
    pub fn replaced(&self) -> impl Future<Output = Trouble> + use<> {
        let replaced = self.replaced.clone();
        async move {
            replaced.cancelled().await;
            taken()
        }
    }

    /// What the other end says next. That it has failed is our failure too.
    pub async fn next(&mut self) -> Result<Body, Trouble> {
        loop {
            let frame = tokio::select! {
                () = self.replaced.cancelled() => return Err(taken()),
                frame = timeout(SILENCE, self.frames.next()) => frame,
            };
            let bytes = frame
                .map_err(|_| Trouble::Line(format!("silence for {} seconds", SILENCE.as_secs())))?
                .ok_or_else(|| Trouble::Line("the other end closed it".to_owned()))?
                .map_err(|error| Trouble::Line(why(&error)))?;
            let frame = Frame::decode(bytes).map_err(|error| confused(&format!("no frame: {error}")))?;
            match frame.body.map(Body::in_lines) {
                Some(Body::StillHere(())) => {}
                Some(Body::Failed(failure)) => return Err(failure.into()),
                Some(body) => return Ok(body),
                None => return Err(confused("a frame of a kind that is not known here")),
            }
        }
    }
}

fn taken() -> Trouble {
    Trouble::Line("another one took its place".to_owned())
}

fn why(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof { "it was cut".to_owned() } else { error.to_string() }
}

fn confused(what: &str) -> Trouble {
    Failure::new(Reason::PeerConfused, format!("the other end said what it must not: {what}")).into()
}

/// What came is not what has to come now.
pub(crate) fn unexpected(body: &Body) -> Trouble {
    confused(body.name())
}

async fn write(mut waiting: mpsc::Receiver<Body>, mut stream: WriteHalf<Stream>) -> io::Result<()> {
    let mut frames = Vec::new();
    loop {
        let body = match timeout(STILL_HERE, waiting.recv()).await {
            Ok(Some(body)) => body,
            Ok(None) => return stream.shutdown().await,
            Err(_) => Body::StillHere(()),
        };
        add(body, &mut frames)?;
        while frames.len() < TOGETHER
            && let Ok(body) = waiting.try_recv()
        {
            add(body, &mut frames)?;
        }
        stream.write_all(&frames).await?;
        stream.flush().await?;
        frames.clear();
    }
}

fn add(body: Body, frames: &mut Vec<u8>) -> io::Result<()> {
    let frame = Frame { body: Some(body) };
    let length = u32::try_from(frame.encoded_len()).map_err(io::Error::other)?;
    frames.extend(length.to_be_bytes());
    Ok(frame.encode(frames)?)
}

/// The lines that come, one after the other.
#[derive(Debug)]
pub struct Lines {
    arrived: mpsc::Receiver<Line>,
    _accepting: AbortOnDropHandle<()>,
}

impl Lines {
    pub fn accept(listener: TcpListener, keys: Keys) -> Self {
        let (sender, arrived) = mpsc::channel(1);
        Self { arrived, _accepting: AbortOnDropHandle::new(tokio::spawn(accept(listener, keys, sender))) }
    }

    pub async fn next(&mut self) -> Option<Line> {
        self.arrived.recv().await
    }
}

/// A line that is there gives way to a new one: who joins the ends does that when the old one is of no use, whatever it looks
/// like from here. Only who has the key can do so.
async fn accept(listener: TcpListener, keys: Keys, sender: mpsc::Sender<Line>) {
    let mut replaced = CancellationToken::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        match timeout(HANDSHAKE, keys.over(stream)).await {
            Ok(Ok(stream)) => {
                replaced.cancel();
                replaced = CancellationToken::new();
                if sender.send(Line::new(stream, replaced.clone())).await.is_err() {
                    return;
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "somebody connected who is not the other end"),
            Err(_) => tracing::warn!("somebody connected and did not show who he is"),
        }
    }
}
