//! Kubernetes quantities: whole bytes, rounded up, as far as storage needs them, thousandths for what pods ask for, and
//! billionths for what they use.

/// The bytes a quantity stands for: `1Gi`, `500M`, `1e3`, `1.5Ti`, `1500m`. A fraction of a byte counts as a byte.
pub fn parse(text: &str) -> Option<u64> {
    u64::try_from(scaled(text, 1)?).ok()
}

/// A thousand times what a quantity stands for: 250 of `250m`, 1000 of `1`. Less than a thousandth counts as one.
pub fn thousandths(text: &str) -> Option<u128> {
    scaled(text, 1000)
}

/// The same of a thousand millionths, as which use of processors is measured.
pub fn billionths(text: &str) -> Option<u128> {
    scaled(text, 1_000_000_000)
}

fn scaled(text: &str, scale: u128) -> Option<u128> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = text.split_at(digits);
    let (mantissa, decimals) = decimal(number)?;
    let (factor, extra_decimals) = unit(suffix)?;
    let divisor = 10_u128.checked_pow(decimals.checked_add(extra_decimals)?)?;
    Some(mantissa.checked_mul(factor)?.checked_mul(scale)?.div_ceil(divisor))
}

/// The digits without their point, and how many stood behind it.
fn decimal(number: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    Some((digits.parse().ok()?, u32::try_from(fraction.len()).ok()?))
}

/// What a suffix multiplies by, and by how many powers of ten it divides.
fn unit(suffix: &str) -> Option<(u128, u32)> {
    let factor = match suffix {
        "" => 1,
        "n" => return Some((1, 9)),
        "u" => return Some((1, 6)),
        "m" => return Some((1, 3)),
        "k" => 1000,
        "M" => 1000_u128.pow(2),
        "G" => 1000_u128.pow(3),
        "T" => 1000_u128.pow(4),
        "P" => 1000_u128.pow(5),
        "E" => 1000_u128.pow(6),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        _ => return exponent(suffix),
    };
    Some((factor, 0))
}

fn exponent(suffix: &str) -> Option<(u128, u32)> {
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    if power < 0 {
        return Some((1, power.unsigned_abs()));
    }
    Some((10_u128.checked_pow(power.unsigned_abs())?, 0))
}

/// The shortest exact way to write a number of bytes: `1Gi` rather than `1073741824`.
pub fn print(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut value, mut unit) = (bytes, 0);
    while value != 0 && value.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_mean_what_kubernetes_means() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("500M", 500_000_000),
            ("10k", 10_000),
            ("1e3", 1000),
            ("1E3", 1000),
            ("1500m", 2),
            ("1n", 1),
            ("12E", 12_000_000_000_000_000_000),
            (".5Ki", 512),
            ("5.", 5),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", ".", "Gi", "-1", "1gi", "1 Gi", "1.2.3", "1e", "1e99", "16Ei", "1GiB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn thousandths_are_what_processors_are_shared_by() {
        for (text, thousandths) in [("250m", 250), ("1", 1000), ("1.5", 1500), ("1u", 1), ("1Ki", 1_024_000), ("0", 0)]
        {
            assert_eq!(super::thousandths(text), Some(thousandths), "{text}");
        }
        assert_eq!(super::thousandths("many"), None);
    }

    #[test]
    fn billionths_are_what_use_of_processors_is_measured_in() {
        for (text, billionths) in [("12345678n", 12_345_678), ("3u", 3000), ("250m", 250_000_000), ("2", 2_000_000_000)]
        {
            assert_eq!(super::billionths(text), Some(billionths), "{text}");
        }
        assert_eq!(super::billionths("-1n"), None);
    }

    proptest! {
        #[test]
        fn printing_is_exact(bytes: u64) {
            prop_assert_eq!(parse(&print(bytes)), Some(bytes));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
