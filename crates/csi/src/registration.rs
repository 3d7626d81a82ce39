//! Makes the driver known to the kubelet, which finds the socket in its `plugins_registry` folder and asks.
//!
//! Served by hand, not by tonic: the kubelet dials with the socket's path as the authority of its requests, which the
//! HTTP/2 library refuses before any of our code is reached. Two calls are all there is, and their messages alone tell
//! them apart (the question is empty, the verdict never is), so that headers need not be understood.

use std::{collections::HashMap, io, path::PathBuf};

use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};
use tracing::{debug, error, info};

pub(super) use self::v1::{InfoRequest, registration_client::RegistrationClient};
use self::v1::{PluginInfo, RegistrationStatus};

/// The kubelet's side of it, generated from `proto/pluginregistration.proto`.
#[expect(clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("pluginregistration");
}

const PREFACE: usize = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// More than any message of the kubelet's, and less than would be a danger.
const LONGEST_FRAME: usize = 1 << 16;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;

/// Of data and headers: the last frame of its stream. Of settings and pings: an acknowledgement.
const END_OR_ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 200` and `content-type: application/grpc`, as HPACK writes them without a table.
const ANSWER_HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`
const ANSWER_END: &[u8] = b"\x00\x0bgrpc-status\x010";

#[derive(Debug)]
pub struct Registration {
    pub name: String,
    /// The CSI socket, as the kubelet sees it.
    pub endpoint: PathBuf,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Registration {
    /// Answers one kubelet after the other; it connects again whenever it looks.
    pub async fn serve(&self, listener: UnixListener) -> io::Result<()> {
        loop {
            let (connection, _) = listener.accept().await?;
            if let Err(error) = self.answer(connection).await {
                debug!(%error, "the kubelet's connection ended");
            }
        }
    }

    async fn answer(&self, mut connection: UnixStream) -> io::Result<()> {
        connection.read_exact(&mut [0; PREFACE]).await?;
        write(&mut connection, SETTINGS, 0, 0, &[]).await?;
        let mut messages: HashMap<u32, Vec<u8>> = HashMap::new();
        loop {
            let frame = read(&mut connection).await?;
            match frame.kind {
                SETTINGS | PING if frame.flags & END_OR_ACK == 0 => {
                    write(&mut connection, frame.kind, END_OR_ACK, 0, &frame.payload_back()).await?;
                }
                DATA => {
                    messages.entry(frame.stream).or_default().extend(&frame.payload);
                    if frame.flags & END_OR_ACK != 0 {
                        let message = messages.remove(&frame.stream).unwrap_or_default();
                        let answer = self.reply(&message)?;
                        reply(&mut connection, frame.stream, &answer).await?;
                    }
                }
                RESET => drop(messages.remove(&frame.stream)),
                GO_AWAY => return Ok(()),
                _ => {}
            }
        }
    }

    /// The answer to a message, which comes behind a byte for compression and four for its length.
    fn reply(&self, framed: &[u8]) -> io::Result<Vec<u8>> {
        let message = framed.get(5..).ok_or(io::ErrorKind::InvalidData)?;
        if message.is_empty() {
            let info = PluginInfo {
                r#type: "CSIPlugin".to_owned(),
                name: self.name.clone(),
                endpoint: self.endpoint.display().to_string(),
                supported_versions: vec!["1.0.0".to_owned()],
            };
            return Ok(info.encode_to_vec());
        }
        let status = RegistrationStatus::decode(message).map_err(io::Error::other)?;
        if status.plugin_registered {
            info!("registered with the kubelet");
        } else {
            // The kubelet asks again when the socket is recreated, or when it starts.
            error!(error = status.error, "the kubelet refused the registration");
        }
        Ok(Vec::new())
    }
}

impl Frame {
    /// An acknowledged ping carries its own bytes, acknowledged settings nothing.
    fn payload_back(&self) -> Vec<u8> {
        if self.kind == PING { self.payload.clone() } else { Vec::new() }
    }
}

async fn reply(connection: &mut UnixStream, stream: u32, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let framed = [&[0], &length.to_be_bytes()[..], message].concat();
    write(connection, HEADERS, END_HEADERS, stream, ANSWER_HEAD).await?;
    write(connection, DATA, 0, stream, &framed).await?;
    write(connection, HEADERS, END_HEADERS | END_OR_ACK, stream, ANSWER_END).await
}

async fn read(connection: &mut UnixStream) -> io::Result<Frame> {
    let mut head = [0; 9];
    connection.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > LONGEST_FRAME {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut payload = vec![0; length];
    connection.read_exact(&mut payload).await?;
    Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream) & (u32::MAX >> 1), payload })
}

async fn write(connection: &mut UnixStream, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    connection.write_all(&[&head, payload].concat()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client sends for one call whose message is `message`.
    async fn call(client: &mut UnixStream, stream: u32, message: &[u8]) -> Vec<u8> {
        let framed = [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()][..], message].concat();
        // headers that nobody here could read
        write(client, HEADERS, END_HEADERS, stream, b"\xff\xff").await.unwrap();
        write(client, DATA, END_OR_ACK, stream, &framed).await.unwrap();
        let mut answer = Vec::new();
        loop {
            let frame = read(client).await.unwrap();
            match frame.kind {
                DATA => answer.extend(frame.payload),
                HEADERS if frame.flags & END_OR_ACK != 0 => return answer,
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn the_kubelet_is_told_who_we_are_and_tells_how_it_went() {
        let registration = Registration { name: "driver".to_owned(), endpoint: "/csi.sock".into() };
        let (mut client, server) = UnixStream::pair().unwrap();
        tokio::spawn(async move { registration.answer(server).await });
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        write(&mut client, SETTINGS, 0, 0, &[]).await.unwrap();
        let info = call(&mut client, 1, &[]).await;
        let info = PluginInfo::decode(&info[5..]).unwrap();
        assert_eq!((info.name.as_str(), info.endpoint.as_str()), ("driver", "/csi.sock"));
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        assert_eq!(call(&mut client, 3, &status.encode_to_vec()).await, [0; 5]);
    }
}
