//! The roles and commands of the program: what can be typed, and [`run`], which puts the other crates together for it.
//!
//! Its page: `docs/design/operating.md`.

pub mod admin;
pub mod args;
pub mod run;
pub mod telemetry;
