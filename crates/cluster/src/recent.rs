//! How new it is what a watch tells. A cluster numbers the versions of all its objects in one row, so one of them that was read lately says of
//! the others which versions are older.

use std::time::Duration;

use tokio::time::Instant;

use crate::is_before;

/// What is read of one object may overtake what a watch tells of others by so much.
const OVERTAKES: Duration = Duration::from_secs(1);

/// The versions of one object that is written again and again, as they were read last.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    last: Option<(String, Instant)>,
    before: String,
}

impl Recent {
    pub fn note(&mut self, version: &str) {
        if self.last.as_ref().is_some_and(|(last, _)| last == version) {
            return;
        }
        let before = self.last.replace((version.to_owned(), Instant::now()));
        self.before = before.map(|(version, _)| version).unwrap_or_default();
    }

    /// Whether a version that is told now had been passed some time ago: whoever tells it is behind.
    pub fn is_behind(&self, version: &str) -> bool {
        let passed = match &self.last {
            Some((last, read)) if read.elapsed() >= OVERTAKES => last,
            _ => &self.before,
        };
        is_before(version, passed)
    }

    /// Whether a version is older than the one that was read last. One that was told for what was asked after that is of another row then.
    pub fn is_ahead_of(&self, version: &str) -> bool {
        self.last.as_ref().is_some_and(|(last, _)| is_before(version, last))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn version_is_behind_that_had_been_passed_some_time_before_it_is_told() {
        let mut recent = Recent::default();
        assert!(!recent.is_behind("1"), "nothing was read yet");
        recent.note("10");
        assert!(!recent.is_behind("9"), "it may have been overtaken");
        sleep(OVERTAKES).await;
        assert!(recent.is_behind("9") && !recent.is_behind("10") && !recent.is_behind("11"));
        recent.note("10");
        assert!(recent.is_behind("9"), "it is the same one that is read again");
        recent.note("20");
        assert!(recent.is_behind("9") && !recent.is_behind("19"), "it may have been overtaken");
        sleep(OVERTAKES).await;
        assert!(recent.is_behind("19") && !recent.is_behind("20"));
        assert!(!recent.is_behind("no number"));
    }

    #[test]
    fn version_that_was_read_last_is_ahead_of_older_ones_at_once() {
        let mut recent = Recent::default();
        assert!(!recent.is_ahead_of("1"), "nothing was read yet");
        recent.note("10");
        recent.note("9");
        assert!(recent.is_ahead_of("8") && !recent.is_ahead_of("9"), "the cluster was restored from a backup");
        assert!(!recent.is_ahead_of("no number"));
    }
}
