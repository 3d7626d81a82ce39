//! Whether the judge finds copies equal exactly where they are: trees of all that a filesystem holds, on the real kernel,
//! copied by the real rsync, in mount namespaces of their own (which needs root).
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod copies;
mod dress;
mod ground;
mod huge;
mod left_out;
mod make;
mod names;
mod plants;
mod refused;
mod rsync;
mod tree;
mod undisturbed;
mod witness;
mod wrong;
