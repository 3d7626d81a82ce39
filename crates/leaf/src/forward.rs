//! A port-forward of a member's API server to a port on the loopback of a pod: a WebSocket, and what comes in its messages.

use std::{io, mem::replace};

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

/// The first byte of a message says which channel it is of: the port's data, or why there is none.
pub(super) const DATA: u8 = 0;
pub(super) const FAULT: u8 = 1;
/// Of one message, in bytes: what a kubelet reads from a pod at once is 32 KiB.
const LARGEST: usize = 1024 * 1024;
/// Of what a server says of a fault, in bytes.
pub(super) const MOST_WORDS: usize = 1024;

/// By a client for long conversations.
pub(super) async fn open(client: &Client, namespace: &str, pod: &str, port: u16) -> Result<Connection, kube::Error> {
    let pods = Request::new(Pod::url_path(&(), Some(namespace)));
    let request = pods.portforward(pod, &[port]).map_err(kube::Error::BuildRequest)?;
    client.connect(request).await
}

/// What a member sends is held in memory until somebody takes it. Nothing was read yet.
pub(super) async fn within_limits(opened: Connection) -> WebSocketStream<impl AsyncRead + AsyncWrite + Unpin> {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST))
        .max_write_buffer_size(4 * LARGEST);
    WebSocketStream::from_raw_socket(opened.into_stream().into_inner(), Role::Client, Some(limits)).await
}

/// The message, where it is data. Each channel begins with one that says for which port it is.
pub(super) fn data_of(message: Message, is_open: &mut [bool; 2]) -> websocket::Result<Option<Message>> {
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

    fn message(channel: u8, bytes: &[u8]) -> Message {
        Message::binary([&[channel], bytes].concat())
    }

    #[test]
    fn first_message_of_a_channel_names_the_port_and_what_follows_is_data_or_why_there_is_none() {
        let (mut is_open, port) = ([false; 2], 80_u16.to_le_bytes());
        let mut read = |message: Message| data_of(message, &mut is_open);
        for first in [message(DATA, &port), message(FAULT, &port), Message::Ping("?".into()), message(7, b"x")] {
            assert_eq!(read(first).unwrap(), None);
        }
        let data = message(DATA, b"x");
        assert_eq!(read(data.clone()).unwrap(), Some(data));
        let words = read(message(FAULT, b"connection refused")).unwrap_err().to_string();
        assert!(words.contains("connection refused"), "{words}");
    }
}
