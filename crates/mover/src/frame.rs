//! What the two ends say to one another.

use bytes::Bytes;
use domain::printable::one_line;

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
    /// The sender has read the judgement and agrees; the receiver's answer is that it has heard that.
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

    /// Texts of another cluster, as they may stand in a line of the log and in a last message.
    pub fn in_lines(self) -> Self {
        let line = |text: &String| one_line(text);
        match self {
            Self::Failed(failure) => Self::Failed(Failure { message: line(&failure.message), ..failure }),
            Self::Ended(ended) => Self::Ended(Ended { said: line(&ended.said), ..ended }),
            Self::Judged(judgement) => {
                let named = judgement.named.iter().map(line).collect();
                Self::Judged(Judgement { named, ..judgement })
            }
            other => other,
        }
    }
}

/// What the receiver has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ready {
    /// With what the copy takes the place of.
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
    /// An attempt before has left nothing in which two names are one file. Who does not know this field does not say so.
    #[prost(bool, tag = "5")]
    pub began_without_links: bool,
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

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{compare::compare, entry::FILE, line::LONGEST_FRAME, outcome::Reason};

    /// A line breaks that is to carry what is longer, and so does each one after it: the ends would compare for ever.
    #[test]
    fn differences_between_the_longest_paths_fit_into_one_frame() {
        let path = |last: u8| [vec![0x1b; 4000], vec![last]].concat();
        let tree = |first: u8| {
            let file =
                move |number| Entry { path: path(number), mode: FILE, same_file_as: path(first), ..Entry::default() };
            (0..30).map(move |number| Ok(file(number)))
        };
        let judgement = compare(tree(100), tree(101)).unwrap();
        assert_eq!((judgement.differences, judgement.named.len()), (30, 20));
        let length = Frame { body: Some(Body::Judged(judgement)) }.encoded_len();
        assert!(length < LONGEST_FRAME, "{length} bytes");
    }

    #[test]
    fn other_end_steers_no_terminal_and_forges_no_line() {
        let text = || "full\n2026 ERROR all is lost\u{1b}[2K".to_owned();
        let shown = "full 2026 ERROR all is lost\u{fffd}[2K";
        let failed = Body::Failed(Failure::new(Reason::NoSpace, text()));
        assert_eq!(failed.in_lines(), Body::Failed(Failure::new(Reason::NoSpace, shown)));
        let ended = Body::Ended(Ended { well: false, said: text() });
        assert_eq!(ended.in_lines(), Body::Ended(Ended { well: false, said: shown.to_owned() }));
        let judged = Body::Judged(Judgement { named: vec![text()], ..Judgement::default() });
        assert_eq!(
            judged.in_lines(),
            Body::Judged(Judgement { named: vec![shown.to_owned()], ..Judgement::default() })
        );
    }
}
