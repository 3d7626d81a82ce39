//! What a volume is, what is known of it, and what is to be done next: pure, without clusters, gRPC, clocks, input or output.
//! [`error`] holds the outcomes that all layers speak of, [`printable`] what others say, and
//! [`some_of`] what is said of many.
//!
//! Its page: `docs/design/volumes.md`.

pub mod error;
pub mod printable;
pub mod some_of;
pub mod volume;
