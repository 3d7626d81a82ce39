//! The agent's side: what a reader says, bounded, for a member answers.

use std::{pin::pin, time::Duration};

use futures::{Stream, TryStreamExt};
use kube::Client;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::{self as websocket, Message};

use super::{NAMESPACE, PORT, ReaderAnswer, is_of_all};
use crate::forward::{self, data_of, within_limits};
use cluster::with_causes;

/// Of what it says, in bytes: some ten thousand volumes.
const MOST: usize = 4 << 20;

/// What the first of these readers says that tells of anything, and its name; else what there is to say of why none does. `silent`: each that
/// was asked in vain. By a client for long conversations, as a reader may never say anything.
pub async fn ask(
    client: &Client,
    readers: &[String],
    patience: Duration,
    mut silent: impl FnMut(&str),
) -> Result<(String, ReaderAnswer), String> {
    let (until, mut unable, mut reasons) = (Instant::now() + patience, None, Vec::new());
    for reader in readers {
        let left = until.saturating_duration_since(Instant::now());
        // Whoever is asked has the time to answer, or it says nothing of him.
        if left < patience / 2 {
            break;
        }
        let late = |_| Err(format!("no answer within {:.0} s", left.as_secs_f64()));
        match timeout(left, said(client, reader)).await.unwrap_or_else(late) {
            Ok(told) if tells(&told) => return Ok((reader.clone(), told)),
            Ok(told) => {
                unable.get_or_insert_with(|| (reader.clone(), told));
            }
            Err(reason) => reasons.push(format!("pod {NAMESPACE}/{reader}: {reason}")),
        }
        silent(reader);
    }
    unable.ok_or_else(|| reasons.into_iter().next().unwrap_or_default())
}

/// The same for who asks once, and has the patience for each: one that says nothing, or can tell of nothing, keeps no other from being asked.
pub async fn ask_each(
    client: &Client,
    readers: &[String],
    patience: Duration,
) -> Result<(String, ReaderAnswer), String> {
    let (mut left, mut unable, mut first) = (readers.to_vec(), None, None);
    loop {
        let mut silent = Vec::new();
        let said = ask(client, &left, patience, |reader| silent.push(reader.to_owned())).await;
        left.retain(|reader| !silent.contains(reader));
        match said {
            Ok((reader, told)) if tells(&told) => return Ok((reader, told)),
            Ok(told) => {
                unable.get_or_insert(told);
            }
            Err(reason) => {
                first.get_or_insert(reason);
            }
        }
        if left.is_empty() {
            return unable.ok_or_else(|| first.unwrap_or_default());
        }
    }
}

/// Also that there are no volumes.
fn tells(told: &ReaderAnswer) -> bool {
    !told.volumes.is_empty() || told.unread.is_empty()
}

async fn said(client: &Client, reader: &str) -> Result<ReaderAnswer, String> {
    let opened = forward::open(client, NAMESPACE, reader, PORT).await.map_err(|error| unopened(reader, &error))?;
    let line = line(within_limits(opened).await).await?;
    serde_json::from_slice(&line).map_err(|error| format!("it says what cannot be read: {error}"))
}

/// The member's own word on a refusal is about its namespace, which is not to be opened for that.
fn unopened(reader: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 && is_of_all(reader) => {
            "it tells of the volumes of all hosts, so the account of one host may not ask it: `kosmos-csi member add` with --volume-stats \
             makes one that tells of this host's"
                .to_owned()
        }
        _ => format!("port-forward: {}", with_causes(error)),
    }
}

/// All that comes up to the end of a line.
async fn line(said: impl Stream<Item = websocket::Result<Message>>) -> Result<Vec<u8>, String> {
    let (mut said, mut is_open, mut line) = (pin!(said), [false; 2], Vec::new());
    loop {
        let message = said.try_next().await.map_err(|fault| fault.to_string())?;
        let message = message.ok_or_else(|| "it has ended before it has said all".to_owned())?;
        let Some(data) = data_of(message, &mut is_open).map_err(|fault| fault.to_string())? else { continue };
        let data = data.into_data();
        // The first byte says of which channel it is.
        let piece = data.get(1..).unwrap_or_default();
        let end = piece.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if line.len() > MOST {
            return Err(format!("it says more than {} MiB", MOST >> 20));
        }
        if end.is_some() {
            return Ok(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use kube::core::Status;

    use super::*;
    use crate::forward::{DATA, FAULT};

    fn message(channel: u8, bytes: &[u8]) -> Message {
        Message::binary([&[channel], bytes].concat())
    }

    async fn read(said: impl IntoIterator<Item = Message>) -> Result<String, String> {
        let port = PORT.to_le_bytes();
        let opened = [message(DATA, &port), message(FAULT, &port)];
        let said = stream::iter(opened.into_iter().chain(said).map(Ok)).chain(stream::pending());
        line(said).await.map(|line| String::from_utf8(line).unwrap())
    }

    #[tokio::test]
    async fn line_is_read_in_whatever_pieces_it_comes_and_nothing_after_it_is_waited_for() {
        let pieces = [message(DATA, b"{\"a\":"), message(DATA, b""), message(DATA, b"1}\nmore")];
        assert_eq!(read(pieces).await.unwrap(), "{\"a\":1}");
    }

    #[tokio::test]
    async fn reader_that_never_ends_its_line_is_not_read_to_its_end_and_one_that_is_not_there_is_named() {
        let endless = std::iter::repeat_with(|| message(DATA, &b"x".repeat(1 << 20)));
        assert!(read(endless).await.unwrap_err().contains("more than 4 MiB"));
        let refused = read([message(FAULT, b"connection refused")]).await.unwrap_err();
        assert!(refused.contains("connection refused"), "{refused}");
        let ended = line(stream::iter([Ok(message(DATA, b"{"))])).await.unwrap_err();
        assert!(ended.contains("has ended"), "{ended}");
    }

    #[test]
    fn account_of_one_host_that_may_not_ask_the_reader_of_all_is_told_what_to_do_and_not_to_open_its_namespace() {
        let message = "this namespace was not made for that host: label it kosmos.csi.io/pods=baseline".to_owned();
        let refusal = kube::Error::Api(Box::new(Status { code: 403, message, ..Status::default() }));
        let told = unopened("kosmos-csi-stats-7d9f-x2x", &refusal);
        assert!(told.contains("--volume-stats") && !told.contains("baseline"), "{told}");
        let told = unopened("kosmos-csi-stats-host-h1x7d2k", &refusal);
        assert!(told.starts_with("port-forward: HTTP 403: this namespace"), "{told}");
    }
}
