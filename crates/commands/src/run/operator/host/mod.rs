//! What a host knows of its volumes, kept outside of it and given to a new one.

pub(super) mod adopt;
pub(super) mod backup;
mod free;
mod make;
mod nodes;
