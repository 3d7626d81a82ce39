//! What the two ends say to one another.

use bytes::Bytes;

use crate::{compare::Judgement, entry::Entry, outcome::Failure, walk::Survey};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Frame {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub body: Option<Body>,
}

/// The sender leads: it offers, has rsync started at the other end, and asks for the judgement.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// The first of every line, from the sender.
    #[prost(message, tag = "1")]
    Offer(Survey),
    /// Its answer.
    #[prost(message, tag = "2")]
    Ready(Ready),
    #[prost(message, tag = "3")]
    Start(Start),
    /// What one rsync says to the other.
    #[prost(bytes = "bytes", tag = "4")]
    Data(Bytes),
    /// That it says no more.
    #[prost(message, tag = "5")]
    End(()),
    /// How the receiver's rsync has ended.
    #[prost(message, tag = "6")]
    Ended(Ended),
    /// The entries of the source follow.
    #[prost(message, tag = "7")]
    Compare(()),
    #[prost(message, tag = "8")]
    Entry(Entry),
    #[prost(message, tag = "9")]
    LastEntry(()),
    #[prost(message, tag = "10")]
    Judged(Judgement),
    /// The sender has read the judgement and agrees.
    #[prost(message, tag = "11")]
    Done(()),
    #[prost(message, tag = "12")]
    Failed(Failure),
    /// So that silence means that nobody is there.
    #[prost(message, tag = "13")]
    StillHere(()),
}

impl Body {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Offer(_) => "Offer",
            Self::Ready(_) => "Ready",
            Self::Start(_) => "Start",
            Self::Data(_) => "Data",
            Self::End(()) => "End",
            Self::Ended(_) => "Ended",
            Self::Compare(()) => "Compare",
            Self::Entry(_) => "Entry",
            Self::LastEntry(()) => "LastEntry",
            Self::Judged(_) => "Judged",
            Self::Done(()) => "Done",
            Self::Failed(_) => "Failed",
            Self::StillHere(()) => "StillHere",
        }
    }
}

/// What the receiver has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ready {
    #[prost(uint64, tag = "1")]
    pub free_bytes: u64,
    /// None: its filesystem makes as many as are wanted.
    #[prost(uint64, optional, tag = "2")]
    pub free_inodes: Option<u64>,
    /// How exact its times are, in nanoseconds.
    #[prost(uint32, tag = "3")]
    pub granularity: u32,
    /// Of an earlier line, where nothing has been copied since.
    #[prost(message, optional, tag = "4")]
    pub judgement: Option<Judgement>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Start {
    #[prost(string, repeated, tag = "1")]
    pub arguments: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ended {
    #[prost(bool, tag = "1")]
    pub well: bool,
    /// The end of what it wrote on standard error.
    #[prost(string, tag = "2")]
    pub said: String,
}
