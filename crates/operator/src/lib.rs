//! What an operator's commands decide and say. Pure: from what was observed to what is made, refused, or told.
//!
//! Its page: `docs/design/operating.md`.

pub mod backup;
pub mod bundle;
pub mod compare;
pub mod doctor;
pub mod import;
pub mod kubeconfig;
pub mod listing;
pub mod narrow;
pub mod objects;
pub mod reader;
pub mod rights;
pub mod status;
pub mod table;
pub mod verify;
pub mod volumes;
