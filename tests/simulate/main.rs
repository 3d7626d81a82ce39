//! A simulated cluster as people meet it: through a stock kubectl.
#![allow(unreachable_pub, dead_code, reason = "a binary of its own, which uses a part of what tests share")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

#[path = "../clusters/tools.rs"]
mod tools;
#[path = "../clusters/tools_table.rs"]
mod tools_table;

mod client;
mod custom;
mod kubectl;
mod person;
