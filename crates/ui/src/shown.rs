//! Values as they are shown: for people in their words, for programs as numbers.

use std::fmt;

use domain::{printable::one_line, volume::quantity};
use k8s_openapi::jiff::Timestamp;
use operator::kubeconfig::span;
use serde::Serialize;

/// Of a text of others, in letters.
const LONGEST: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&quantity::print(self.0))
    }
}

/// A time that has passed, or is to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct Seconds(pub(crate) i64);

impl Seconds {
    /// Since a moment, in seconds of the epoch; by clocks that may differ.
    pub(crate) fn since(moment: i64) -> Self {
        Self((Timestamp::now().as_second() - moment).max(0))
    }

    pub(crate) fn until(moment: i64) -> Self {
        Self((moment - Timestamp::now().as_second()).max(0))
    }
}

impl From<std::time::Duration> for Seconds {
    fn from(time: std::time::Duration) -> Self {
        Self(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&span(self.0))
    }
}

/// A text of others: in one line, and no longer than somebody reads.
pub(crate) fn text(text: &str) -> String {
    let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(end, _)| end);
    let cut = if end < text.len() { "…" } else { "" };
    format!("{}{cut}", one_line(&text[..end]))
}

/// As part of an address.
pub(crate) fn encoded(text: &str) -> String {
    askama::filters::urlencode_strict(text).map(|safe| safe.to_string()).unwrap_or_default()
}

/// How something stands. Never told by a colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Level {
    Well,
    Waits,
    Wrong,
}

impl Level {
    /// The class of its look.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Waits => "waits",
            Self::Wrong => "wrong",
        }
    }
}

/// "1 claim", "2 claims".
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_one_line_and_no_longer_than_somebody_reads() {
        assert_eq!(text("a\nb\u{202e}"), "a b\u{fffd}");
        let long = text(&"ä".repeat(1 << 20));
        assert_eq!((long.chars().count(), long.ends_with('…')), (LONGEST + 1, true));
    }
}
