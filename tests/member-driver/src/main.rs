//! A small CSI driver that plays a member cluster's storage in the tests.
//!
//! A call's way: `identity`, `controller`, `group` and `node` speak gRPC; `convert` turns messages into
//! the types of `volume`; `provision`, `snapshots`, `attachment`, `staging` and `publishing` do what is asked, with
//! `data`, `device` and `mounts` as their hands; `questions` and `health` say how things are; `table` keeps the
//! records; `error` chooses the code.

mod args;
mod attachment;
mod capacity;
mod command;
mod controller;
mod convert;
mod copies;
mod data;
mod device;
mod driver;
mod error;
mod faults;
mod group;
mod health;
mod identity;
mod inflight;
mod mounts;
mod node;
mod parameters;
mod placement;
mod proto;
mod provision;
mod publishing;
mod quantity;
mod questions;
mod rpc;
mod server;
mod snapshots;
mod staging;
mod table;
mod volume;

use std::io::IsTerminal;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    server::run(&args).await
}
