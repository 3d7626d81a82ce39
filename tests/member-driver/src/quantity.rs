//! Sizes as people and Kubernetes write them.

use std::str::FromStr;

/// A number of bytes, written as `10Gi`, `500M` or `4096`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity(pub(crate) u64);

const UNITS: [(&str, u64); 9] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("", 1),
];

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let suffix = &text[digits.len()..];
        let unit = UNITS
            .iter()
            .find(|(name, _)| *name == suffix)
            .map(|(_, factor)| *factor);
        let bytes = digits
            .parse::<u64>()
            .ok()
            .zip(unit)
            .and_then(|(count, unit)| count.checked_mul(unit));
        bytes
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size such as 10Gi, 500M or 4096"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("10Gi", 10 << 30),
            ("1k", 1000),
            ("3Mi", 3 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Quantity(bytes)), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "Gi", "-1", "1.5Gi", "1gi", "1 Gi", "99999999Ti"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
