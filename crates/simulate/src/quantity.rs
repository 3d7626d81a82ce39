//! Kubernetes quantities as whole numbers.

/// Rounded up; none where it is no quantity.
pub fn parse(text: &str) -> Option<u64> {
    const UNITS: [(&str, u128, u128); 14] = [
        ("Ki", 1 << 10, 1),
        ("Mi", 1 << 20, 1),
        ("Gi", 1 << 30, 1),
        ("Ti", 1 << 40, 1),
        ("Pi", 1 << 50, 1),
        ("Ei", 1 << 60, 1),
        ("n", 1, 1_000_000_000),
        ("u", 1, 1_000_000),
        ("m", 1, 1000),
        ("k", 1000, 1),
        ("M", 1_000_000, 1),
        ("G", 1_000_000_000, 1),
        ("T", 1_000_000_000_000, 1),
        ("P", 1_000_000_000_000_000, 1),
    ];
    let unit = UNITS.iter().find_map(|(unit, times, over)| text.strip_suffix(unit).map(|rest| (rest, *times, *over)));
    let (digits, times, over) = unit.unwrap_or((text, 1, 1));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let number: u128 = format!("{whole}{fraction}").parse().ok()?;
    u64::try_from(number.checked_mul(times)?.div_ceil(over * scale)).ok()
}

/// With the largest binary unit that leaves no rest.
pub fn print(number: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = UNITS.iter().find(|(size, _)| number >= *size && number.is_multiple_of(*size));
    unit.map_or_else(|| number.to_string(), |(size, name)| format!("{}{name}", number / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_every_unit() {
        for (text, number) in
            [("1Gi", 1 << 30), ("1.5Ki", 1536), ("100m", 1), ("2G", 2_000_000_000), ("7", 7), ("0", 0)]
        {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in ["", "Gi", "-1", "1x", "1.2.3"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(
            (print(1 << 30), print(1536), print(1000)),
            ("1Gi".to_owned(), "1536".to_owned(), "1000".to_owned())
        );
    }
}
