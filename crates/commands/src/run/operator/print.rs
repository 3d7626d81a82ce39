//! The one place that prints: results to standard output, and what takes its time to standard error.

use std::{
    io::{ErrorKind, Write as _},
    pin::pin,
    time::Duration,
};

use anyhow::Context;

use crate::args::operator::Output;
use domain::printable::printable;
use operator::{listing::Listing, table::Table};

/// Who waits for longer wants to know for what.
const PATIENCE: Duration = Duration::from_secs(1);

/// An error where it cannot be written, as on a disk that is full: half a list is not to be taken for all of it.
pub fn out(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match write!(out, "{}", printable(text)).and_then(|()| out.flush()) {
        // Who has closed the other end does not want to know.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("write to standard output"),
    }
}

/// What goes on, for who waits.
pub(super) fn progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// What was found; of nothing, people are told so beside it, and programs get an empty list.
pub(super) fn listed(listing: &Listing, output: Output, nothing: &str) -> String {
    if listing.is_empty() && matches!(output, Output::Table | Output::Wide) {
        progress(nothing);
    }
    listing.print(output.into())
}

/// What an error on the way leaves behind. Who types the command again has the rest done.
pub(super) fn not_all(done: &Table) -> String {
    let done = if done.is_empty() { String::new() } else { format!("{done}\n") };
    format!("{done}Not all was done: correct what the error says, and type this again")
}

/// Says what is waited for, once it takes its time.
pub(super) async fn patiently<T>(doing: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let _ = writeln!(std::io::stderr(), "{doing} …");
    work.await
}
