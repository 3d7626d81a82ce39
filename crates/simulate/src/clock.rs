//! The time that objects are stamped with. It follows tokio's clock, so that a test that pauses the one pauses the other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// From the first day that is counted.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

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

    /// As the head of an answer says when it was given, so much earlier.
    pub fn date(self, behind: Duration) -> String {
        let at = self.now() - behind;
        let stamp = humantime::format_rfc3339_seconds(at).to_string();
        let days = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / (24 * 60 * 60);
        let day = DAYS[usize::try_from(days % 7).unwrap_or_default()];
        let month = MONTHS[stamp[5..7].parse::<usize>().unwrap_or(1) - 1];
        format!("{day}, {} {month} {} {} GMT", &stamp[8..10], &stamp[..4], &stamp[11..19])
    }

    pub fn stamp_in(self, later: Duration) -> String {
        humantime::format_rfc3339_seconds(self.now() + later).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn date_is_that_of_the_head_of_an_answer() {
        // The example of RFC 9110.
        let at = humantime::parse_rfc3339("1994-11-06T08:50:37Z").unwrap();
        let clock = Clock { began: Instant::now(), at };
        assert_eq!(clock.date(Duration::from_mins(1)), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
