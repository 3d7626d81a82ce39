//! The one place that prints: results to standard output, and what takes its time to standard error.

use std::{io::Write as _, pin::pin, time::Duration};

use domain::printable::printable;

/// Who waits for longer wants to know for what.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn out(text: &str) {
    // Who has closed the other end does not want to know.
    let _ = write!(std::io::stdout(), "{}", printable(text));
}

/// What goes on, for who waits.
pub(super) fn progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
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
