//! Copies a volume's files from one member to another, and judges the copy: the two ends of it, each a pod in its member.
//!
//! rsync carries the files; whether the copy is one is judged here, entry by entry, by what both disks hold. The ends speak
//! over one stream of bytes which somebody between them may break at any time, and cannot read.
//!
//! Its page: `docs/design/mover.md`.

pub mod attributes;
pub mod compare;
pub mod content;
mod end;
pub mod entry;
mod frame;
pub mod keys;
mod line;
pub mod outcome;
pub mod pipe;
mod progress;
mod receive;
mod rsync;
mod send;
mod storage;
pub mod walk;

pub use self::{end::Places, receive::receive, rsync::usable_version as rsync_version, send::send};
