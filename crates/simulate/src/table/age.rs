//! How long something has been, as people read it: two units at most, and the smaller one only while it matters.

use std::time::{Duration, SystemTime};

/// Since a time as objects carry it.
pub(super) fn since(stamp: &str, now: SystemTime) -> String {
    if stamp.is_empty() {
        return "<unknown>".to_owned();
    }
    humantime::parse_rfc3339(stamp).map_or_else(|_| "<invalid>".to_owned(), |begun| between(begun, now))
}

pub(super) fn between(begun: SystemTime, ended: SystemTime) -> String {
    match ended.duration_since(begun) {
        Ok(time) => human(time),
        // Clocks differ a little.
        Err(error) if error.duration() < Duration::from_secs(2) => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let (text, rest, unit) = match () {
        () if seconds < 120 => (format!("{seconds}s"), 0, ""),
        () if minutes < 10 => (format!("{minutes}m"), seconds % 60, "s"),
        () if minutes < 180 => (format!("{minutes}m"), 0, ""),
        () if hours < 8 => (format!("{hours}h"), minutes % 60, "m"),
        () if hours < 48 => (format!("{hours}h"), 0, ""),
        () if hours < 192 => (format!("{days}d"), hours % 24, "h"),
        () if days < 730 => (format!("{days}d"), 0, ""),
        () if days < 2920 => (format!("{}y", days / 365), days % 365, "d"),
        () => (format!("{}y", days / 365), 0, ""),
    };
    if rest == 0 { text } else { format!("{text}{rest}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_with_the_length() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn what_is_to_come_has_no_age() {
        let now = SystemTime::UNIX_EPOCH;
        assert_eq!(between(now + Duration::from_secs(1), now), "0s");
        assert_eq!(between(now + Duration::from_secs(9), now), "<invalid>");
        assert_eq!(since("never", now), "<invalid>");
        assert_eq!(since("1970-01-01T00:00:00Z", now + Duration::from_secs(5)), "5s");
    }
}
