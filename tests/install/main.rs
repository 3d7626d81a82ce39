//! The chart: what it renders, and what it installs on real clusters, in containers and with no right too many.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../clusters/mod.rs"]
mod clusters;
#[path = "../rights/rare.rs"]
mod rare;

mod chart;
mod demo;
mod examples;
mod helm;
mod readme;
mod release;
mod rights;
mod volumes;
