//! Copies of a volume's files by the real rsync: whether the judge finds them equal exactly where they are (`trees`, which needs
//! root), and the two ends as processes, with somebody between them who breaks the line.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod bench;
mod ends;
mod kills;
mod lines;
#[path = "../namespace.rs"]
mod namespace;
mod pipe;
mod refusals;
mod tree;
mod trees;
