//! Values as they are shown: for people in their words, for programs as numbers.

use std::fmt;

use domain::volume::quantity;
use k8s_openapi::jiff::Timestamp;
use operator::kubeconfig::span;
use serde::Serialize;

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
