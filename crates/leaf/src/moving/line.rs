//! The two ends of a copy are joined, by a port-forward of each member's API server to the port at which the mover listens, on the
//! loopback of its pod alone. What comes from one is handed on in the messages in which it came.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use futures::{Sink, SinkExt, Stream, StreamExt, TryStreamExt};
use kube::{Client, client::Connection};
use tokio_tungstenite::tungstenite::{self as websocket, Message};

use super::ends::Mover;
use crate::{
    MemberClient,
    forward::{self, data_of, within_limits},
};
use domain::{error::Result, volume::moving::YARD};

/// Where a mover listens.
const PORT: u16 = 7740;

/// It ends with this.
pub struct ToMover(Connection);

impl std::fmt::Debug for ToMover {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ToMover").finish_non_exhaustive()
    }
}

/// By a client for long conversations.
pub async fn reach(leaf: &MemberClient, client: Client, mover: &Mover) -> Result<ToMover> {
    let opened = forward::open(&client, YARD, &mover.name, PORT).await;
    opened.map(ToMover).map_err(|error| leaf.outcome(&format!("forward to pod {}", mover.name), &error))
}

/// Hands on what both say, until one of them has ended: then the other may hang for ever. What the sender has said is counted, and what the
/// receiver has said back.
pub async fn join(sender: ToMover, receiver: ToMover, [carried, back]: [&AtomicU64; 2]) -> websocket::Result<()> {
    let (to_sender, from_sender) = within_limits(sender.0).await.split();
    let (to_receiver, from_receiver) = within_limits(receiver.0).await.split();
    tokio::select! {
        ended = hand_on(from_sender, to_receiver, carried) => ended,
        ended = hand_on(from_receiver, to_sender, back) => ended,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::{DATA, FAULT, MOST_WORDS};
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
