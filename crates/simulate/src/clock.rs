//! The time that objects are stamped with. It follows tokio's clock, so that a test that pauses the one pauses the other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    at: SystemTime,
}

impl Clock {
    pub fn start() -> Self {
        // Whole seconds: when stamps change must not depend on when a test was started.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), at: UNIX_EPOCH + Duration::from_secs(since.as_secs()) }
    }

    pub fn now(self) -> SystemTime {
        self.at + self.began.elapsed()
    }

    /// As in `creationTimestamp`.
    pub fn stamp(self) -> String {
        humantime::format_rfc3339_seconds(self.now()).to_string()
    }

    pub fn stamp_in(self, later: Duration) -> String {
        humantime::format_rfc3339_seconds(self.now() + later).to_string()
    }
}
