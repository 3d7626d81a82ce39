//! An operator's commands on simulated clusters, in the test's process: what they print, refuse, make and leave alone.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod again;
#[path = "../authority.rs"]
mod authority;
mod bundle;
mod clusters;
mod forms;
mod hosts;
mod leaving;
mod members;
mod moves;
mod orphans;
mod ui;
mod verify;
mod volumes;
