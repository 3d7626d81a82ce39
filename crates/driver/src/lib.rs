//! The use-cases, which see clusters only through the crates below. [`provision`] holds what the CSI calls ask for, [`attach`] which
//! nodes a volume is on, and [`reconcile`] what nobody asks for, on the replica that holds the lease.
//!
//! State lives in API objects alone: process memory holds what the watches saw, and a restart loses nothing.
//!
//! Its page: `docs/design/volumes.md`.

pub mod attach;
pub mod moving;
pub mod provision;
pub mod reconcile;
