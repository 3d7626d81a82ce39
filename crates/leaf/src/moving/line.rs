//! The two ends of a copy are joined, by a port-forward of each member's API server to the port at which the mover listens, on the
//! loopback of its pod alone. What comes from one is handed on in the messages in which it came.

use std::{
    io,
    mem::replace,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use futures::{Sink, SinkExt, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, client::Connection, core::Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self as websocket, Message,
        protocol::{Role, WebSocketConfig},
    },
};

use super::ends::Mover;
use crate::MemberClient;
use domain::{error::Result, volume::moving::YARD};

/// Where a mover listens.
const PORT: u16 = 7740;
/// The first byte of a message says which channel it is of: the port's data, or why there is none.
const DATA: u8 = 0;
const FAULT: u8 = 1;
/// Of one message, in bytes: what a kubelet reads from a pod at once is 32 KiB.
const LARGEST: usize = 1024 * 1024;
/// Of what a server says of a fault, in bytes.
const MOST_WORDS: usize = 1024;

/// It ends with this.
pub struct ToMover(Connection);

impl std::fmt::Debug for ToMover {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ToMover").finish_non_exhaustive()
    }
}

/// By a client for long conversations.
pub async fn reach(leaf: &MemberClient, client: Client, mover: &Mover) -> Result<ToMover> {
    let pods = Request::new(Pod::url_path(&(), Some(YARD)));
    let opened = match pods.portforward(&mover.name, &[PORT]) {
        Ok(request) => client.connect(request).await,
        Err(error) => Err(kube::Error::BuildRequest(error)),
    };
    opened.map(ToMover).map_err(|error| leaf.outcome(&format!("forward to pod {}", mover.name), &error))
}

/// Hands on what both say, until one of them has ended: then the other may hang for ever. What the sender has said is counted.
pub async fn join(sender: ToMover, receiver: ToMover, carried: &AtomicU64) -> websocket::Result<()> {
    let (to_sender, from_sender) = within_limits(sender).await.split();
    let (to_receiver, from_receiver) = within_limits(receiver).await.split();
    let back = AtomicU64::default();
    tokio::select! {
        ended = hand_on(from_sender, to_receiver, carried) => ended,
        ended = hand_on(from_receiver, to_sender, &back) => ended,
    }
}

/// What a member sends is held in memory until the other one takes it. Nothing was read yet.
async fn within_limits(to: ToMover) -> WebSocketStream<impl AsyncRead + AsyncWrite + Unpin> {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST))
        .max_write_buffer_size(4 * LARGEST);
    WebSocketStream::from_raw_socket(to.0.into_stream().into_inner(), Role::Client, Some(limits)).await
}

/// What was said before the end is sent, whatever the end is.
async fn hand_on<From, To>(from: From, to: To, carried: &AtomicU64) -> websocket::Result<()>
where
    From: Stream<Item = websocket::Result<Message>>,
    To: Sink<Message, Error = websocket::Error>,
{
    let (mut from, mut to, mut is_open) = (pin!(from), pin!(to), [false; 2]);
    let ended = loop {
        let said = match from.try_next().await {
            Ok(Some(message)) => data_of(message, &mut is_open),
            Ok(None) => break Ok(()),
            Err(fault) => Err(fault),
        };
        match said {
            Ok(Some(message)) => {
                let length = message.len() as u64 - 1;
                to.send(message).await?;
                carried.fetch_add(length, Ordering::Relaxed);
            }
            Ok(None) => {}
            Err(fault) => break Err(fault),
        }
    };
    to.close().await?;
    ended
}

/// The message, where it is for the other end. Each channel begins with one that says for which port it is.
fn data_of(message: Message, is_open: &mut [bool; 2]) -> websocket::Result<Option<Message>> {
    let Message::Binary(bytes) = &message else { return Ok(None) };
    let channel = bytes.first().copied().unwrap_or(u8::MAX);
    let Some(opened) = is_open.get_mut(usize::from(channel)) else { return Ok(None) };
    match (replace(opened, true), channel) {
        (true, DATA) => Ok(Some(message)),
        (true, FAULT) => {
            let words = String::from_utf8_lossy(&bytes[1..bytes.len().min(MOST_WORDS)]).into_owned();
            Err(io::Error::other(words).into())
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{future::ready, sink, stream};

    const NAMES_THE_PORT: [u8; 2] = PORT.to_le_bytes();

    fn message(channel: u8, bytes: &[u8]) -> Message {
        Message::binary([&[channel], bytes].concat())
    }

    /// What is handed on of these, how it ends, and what was counted.
    async fn handed_on(said: impl IntoIterator<Item = Message>) -> (Vec<Message>, websocket::Result<()>, u64) {
        let (mut taken, carried) = (Vec::new(), AtomicU64::default());
        let to = sink::unfold(&mut taken, |taken: &mut Vec<Message>, message| {
            taken.push(message);
            ready(Ok::<_, websocket::Error>(taken))
        });
        let ended = hand_on(stream::iter(said.into_iter().map(Ok)), Box::pin(to).sink_err_into(), &carried).await;
        (taken, ended, carried.into_inner())
    }

    #[tokio::test]
    async fn data_is_handed_on_as_it_came_and_counted_without_what_opens_the_channels() {
        let data = [message(DATA, b"two"), message(DATA, &NAMES_THE_PORT)];
        let opened = [message(DATA, &NAMES_THE_PORT), message(FAULT, &NAMES_THE_PORT)];
        let (taken, ended, carried) =
            handed_on(opened.into_iter().chain(data.clone()).chain([Message::Ping("?".into())])).await;
        ended.unwrap();
        assert_eq!(taken, data);
        assert_eq!(carried, 5);
    }

    #[tokio::test]
    async fn line_ends_with_the_first_words_of_the_server_after_a_fault_and_with_what_was_said_before() {
        let opened = [message(DATA, &NAMES_THE_PORT), message(FAULT, &NAMES_THE_PORT)];
        let fault = message(FAULT, &b"connection refused ".repeat(MOST_WORDS));
        let said = [message(DATA, b"kept"), fault, message(DATA, b"lost")];
        let (taken, ended, _) = handed_on(opened.into_iter().chain(said)).await;
        assert_eq!(taken, [message(DATA, b"kept")]);
        let words = ended.unwrap_err().to_string();
        assert!(words.contains("connection refused") && words.len() < 2 * MOST_WORDS, "{words}");
    }

    #[tokio::test]
    async fn message_of_no_channel_is_nobodys() {
        let (taken, ended, carried) =
            handed_on([Message::binary(Vec::new()), message(7, b"?"), message(7, b"?")]).await;
        ended.unwrap();
        assert!(taken.is_empty() && carried == 0);
    }
}
