//! What stands in the host for its members where nobody else does.

pub mod door;
