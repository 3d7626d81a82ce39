//! The two ends of a copy as processes, with the real rsync, and somebody between them who breaks the line.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod bench;
mod ends;
mod kills;
mod lines;
mod refusals;
mod tree;
