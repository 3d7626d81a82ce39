//! What becomes of a watch's events on the way.

use hyper::body::Bytes;
use serde_json::json;

use super::body::half;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// None arrives, and the watch stays.
    Silent,
    /// Each arrives twice.
    Twice,
    /// After each, the watch's first one arrives once more, with its old version.
    Back,
    /// In place of the first one comes that the version is too old.
    Expired,
    /// Half of the first one, and then the connection is gone.
    Cut,
}

/// What becomes of one event.
#[derive(Debug, PartialEq, Eq)]
pub struct Fate {
    pub said: Vec<Bytes>,
    pub then: Then,
    /// It is not what the API server has sent.
    pub spoiled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    GoesOn,
    Ends,
    Breaks,
}

/// The events of one watch.
#[derive(Debug)]
pub struct Events {
    how: Watched,
    first: Option<Bytes>,
    /// Of an event that is not complete yet.
    begun: Vec<u8>,
}

impl Events {
    pub fn new(how: Watched) -> Self {
        Self { how, first: None, begun: Vec::new() }
    }

    /// Those that are complete with this piece. Each is a line.
    pub fn take(&mut self, piece: &[u8]) -> Vec<Fate> {
        self.begun.extend_from_slice(piece);
        let mut fates = Vec::new();
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            fates.push(self.fate(line.into()));
        }
        fates
    }

    fn fate(&mut self, line: Bytes) -> Fate {
        let spoiled = |said, then| Fate { said, then, spoiled: true };
        match self.how {
            Watched::Silent => spoiled(Vec::new(), Then::GoesOn),
            Watched::Twice => spoiled(vec![line.clone(), line], Then::GoesOn),
            Watched::Back => {
                if let Some(first) = &self.first {
                    return spoiled(vec![line, first.clone()], Then::GoesOn);
                }
                self.first = Some(line.clone());
                Fate { said: vec![line], then: Then::GoesOn, spoiled: false }
            }
            Watched::Expired => spoiled(vec![expired()], Then::Ends),
            Watched::Cut => spoiled(vec![half(&line)], Then::Breaks),
        }
    }
}

fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version: 1 (2)",
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}
