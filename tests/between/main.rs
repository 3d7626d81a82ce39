//! The proxy that breaks things by request on real clusters, here before simulated ones: it does what its rules say, and counts
//! that.
#![allow(dead_code, unreachable_pub, reason = "a binary of its own, which uses a part of what tests share")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../clusters/between/mod.rs"]
mod between;
#[path = "../clusters/certificates.rs"]
mod certificates;
#[path = "../clusters/wait.rs"]
mod wait;

mod rules;
mod way;
