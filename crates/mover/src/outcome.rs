//! How an end of the copy ends: what its pod leaves as its last message.

use std::{fs, io, path::Path};

use serde::Serialize;
use serde_json::json;

use crate::compare::{Judgement, Sum};

/// Kubernetes keeps 4,096 bytes of a last message.
const LONGEST: usize = 3 << 10;

/// Why there is no copy that is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, prost::Enumeration)]
#[repr(i32)]
pub enum Reason {
    /// Keys, folders or programs of the pod are not what they have to be.
    Misconfigured = 0,
    /// A disk does not let itself be read.
    Unreadable = 1,
    NoSpace = 2,
    /// The destination was to be a new volume, and something is in it.
    NotEmpty = 3,
    /// rsync ended with an error.
    CopyFailed = 4,
    CopyDiffers = 5,
    /// Nobody has joined the two ends for a long time.
    NoLine = 6,
    /// The other end says what it must not.
    PeerConfused = 7,
    /// The storage of one end does not answer, for long.
    StorageHangs = 8,
}

#[derive(Clone, PartialEq, Eq, prost::Message, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    #[prost(enumeration = "Reason", tag = "1")]
    pub reason: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

impl Failure {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    pub fn differs(judgement: &Judgement) -> Self {
        Self::new(Reason::CopyDiffers, judgement.to_string())
    }

    pub fn unreadable(error: &io::Error) -> Self {
        Self::new(Reason::Unreadable, error.to_string())
    }
}

/// What ends the work over a line.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Another line may come.
    #[error("the line broke: {0}")]
    Line(String),
    /// So it may, unless the other end had heard that all is done.
    #[error("the line broke at the end: {0}")]
    Unheard(String),
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// The last message.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Message<'a> {
    Copied { digest: String, entries: u64, files: u64, bytes: u64 },
    Failed { reason: Reason, message: &'a str },
}

pub fn write(file: &Path, outcome: &Result<Sum, Failure>) -> io::Result<()> {
    fs::write(file, last_message(outcome)?)
}

/// Both ends have to say the same, or nobody believes either.
pub fn last_message(outcome: &Result<Sum, Failure>) -> serde_json::Result<String> {
    let message = match outcome {
        Ok(sum) => Message::Copied {
            digest: format!("sha256:{}", sum.hex()),
            entries: sum.entries,
            files: sum.files,
            bytes: sum.bytes,
        },
        Err(failure) => Message::Failed { reason: failure.reason(), message: shortened(&failure.message) },
    };
    serde_json::to_string(&message)
}

/// What JSON escapes takes more room than it has letters.
fn shortened(message: &str) -> &str {
    let mut end = message.floor_char_boundary(LONGEST);
    while json!(message[..end]).to_string().len() > LONGEST {
        end = message.floor_char_boundary(end - end / 16 - 1);
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(outcome: &Result<Sum, Failure>) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), outcome).unwrap();
        fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn last_message_says_what_was_copied_or_why_not() {
        let sum = Sum { digest: vec![0xab; 32], entries: 3, files: 2, bytes: 8 };
        let digest = "ab".repeat(32);
        assert_eq!(
            written(&Ok(sum)),
            format!(r#"{{"copied":{{"digest":"sha256:{digest}","entries":3,"files":2,"bytes":8}}}}"#)
        );
        assert_eq!(
            written(&Err(Failure::new(Reason::NoSpace, "the volume is full"))),
            r#"{"failed":{"reason":"NoSpace","message":"the volume is full"}}"#
        );
    }

    #[test]
    fn last_message_fits_into_what_kubernetes_keeps() {
        for letter in ["a", "ä", "\"", "\\"] {
            let message = written(&Err(Failure::new(Reason::CopyDiffers, letter.repeat(5_000))));
            assert!(message.len() < 4_096, "{letter}: {}", message.len());
            assert!(message.len() > 1_000 && message.ends_with("\"}}"), "{letter}");
        }
    }
}
