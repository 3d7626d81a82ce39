//! What a volume is, what is known of it, and what is to be done next: pure, without clusters, gRPC, clocks, input or output.
//! [`error`] holds the outcomes that all layers speak of, [`printable`] what others say, [`some_of`] what is said of many, and
//! [`compact_text`] texts of which many are kept.
//!
//! Its page: `docs/design/volumes.md`.

pub mod compact_text;
pub mod error;
pub mod printable;
pub mod some_of;
pub mod volume;
