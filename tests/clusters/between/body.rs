//! How an answer's body arrives that is read as a whole.

use std::{collections::VecDeque, time::Duration};

use hyper::body::Bytes;

/// What was said before the end of a connection is to leave before it.
pub const BEFORE_THE_END: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Half of it, and then the connection is gone.
    Cut,
    /// Half of it, as if that were all.
    Half,
    /// In pieces of so many bytes, with a pause before each.
    Drip { piece: usize, pause: Duration },
}

/// What is sent one after the other.
#[derive(Debug, PartialEq, Eq)]
pub struct Pieces {
    pub left: VecDeque<Bytes>,
    /// Before each, and before the end.
    pub pause: Duration,
    /// In the end, the connection.
    pub breaks: bool,
}

impl Delivery {
    pub fn of(self, body: &Bytes) -> Pieces {
        match self {
            Self::Cut => Pieces { left: [half(body)].into(), pause: BEFORE_THE_END, breaks: true },
            Self::Half => Pieces { left: [half(body)].into(), pause: Duration::ZERO, breaks: false },
            Self::Drip { piece, pause } => {
                let left = body.chunks(piece.max(1)).map(|part| body.slice_ref(part)).collect();
                Pieces { left, pause, breaks: false }
            }
        }
    }
}

pub fn half(text: &Bytes) -> Bytes {
    text.slice(..text.len() / 2)
}
