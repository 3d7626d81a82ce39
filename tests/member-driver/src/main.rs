//! A small CSI driver that plays a member cluster's storage in the tests.
//!
//! A call's way: `identity`, `controller`, `group`, `node` and `registration` speak gRPC; `convert` turns messages into
//! the types of `volume`; `provision`, `snapshots`, `attachment`, `staging` and `publishing` do what is asked, with
//! `data`, `device` and `mounts` as their hands; `table` keeps the records; `error` chooses the code.

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
mod identity;
mod inflight;
mod mountinfo;
mod mounts;
mod node;
mod parameters;
mod placement;
mod proto;
mod provision;
mod publishing;
mod quantity;
mod registration;
mod rpc;
mod server;
mod snapshots;
mod staging;
mod table;
mod volume;

use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::Args;
use crate::driver::Driver;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let driver = Driver::open(&args)
        .with_context(|| format!("reading the state in {}", args.state.display()))?;
    driver
        .recover()
        .await
        .context("finishing what a crash left")?;
    server::serve(&args, Arc::new(driver)).await
}
