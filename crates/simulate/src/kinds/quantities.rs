//! Quantities in the one form in which the API gives them back: `1024Mi` is `1Gi`, `0.5` is `500m`.

use serde_json::{Value, json};

pub(super) const WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

/// As precise as quantities are.
const NANO: i128 = 1_000_000_000;

/// In billionths.
pub(super) fn nanos(text: &str) -> Option<i128> {
    read(text).map(|(value, _)| value)
}

pub(super) fn is_zero_or_less(text: &str) -> bool {
    nanos(text).is_some_and(|value| value <= 0)
}

/// What a quantity of storage is given back as; none where it is none.
pub(super) fn canonical(text: &str) -> Option<String> {
    let (value, form) = read(text)?;
    let small = value.abs() < 1024 * NANO;
    Some(match form {
        Form::Binary if !small => binary(value),
        Form::Exponent => decimal(value, |thousands| format!("e{}", 3 * thousands)),
        _ => decimal(value, suffix),
    })
}

fn read(text: &str) -> Option<(i128, Form)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && !"+-.".contains(letter)).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = format!("{fraction:0<9}");
    if digits.trim_matches('.').is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let value = whole.checked_mul(NANO)?.checked_add(fraction.get(..9)?.parse().ok()?)?;
    let (times, over, form) = unit_of(unit)?;
    let value = value.checked_mul(times)? / over;
    Some((if negative { -value } else { value }, form))
}

fn unit_of(unit: &str) -> Option<(i128, i128, Form)> {
    if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|name| *name == unit) {
        return Some((1 << (10 * (power + 1)), 1, Form::Binary));
    }
    if let Some(power) = unit.strip_prefix(['e', 'E']).and_then(|power| power.parse::<u32>().ok()) {
        return Some((10_i128.checked_pow(power)?, 1, Form::Exponent));
    }
    let (times, over) = match unit {
        "n" => (1, NANO),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "" => (1, 1),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (NANO, 1),
        "T" => (1000 * NANO, 1),
        "P" => (1_000_000 * NANO, 1),
        "E" => (NANO * NANO, 1),
        _ => return None,
    };
    Some((times, over, Form::Decimal))
}

fn binary(value: i128) -> String {
    let mut number = value.div_euclid(NANO) + i128::from(value.rem_euclid(NANO) > 0);
    let mut units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while number != 0
        && number % 1024 == 0
        && let Some(next) = units.next()
    {
        number /= 1024;
        unit = next;
    }
    format!("{number}{unit}")
}

fn decimal(value: i128, suffix: impl Fn(i32) -> String) -> String {
    let (mut number, mut thousands) = (value, -3);
    while number != 0 && number % 1000 == 0 && thousands < 6 {
        number /= 1000;
        thousands += 1;
    }
    if number == 0 {
        return "0".to_owned();
    }
    if thousands == 0 { number.to_string() } else { format!("{number}{}", suffix(thousands)) }
}

fn suffix(thousands: i32) -> String {
    const NAMES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let name = usize::try_from(thousands + 3).ok().and_then(|index| NAMES.get(index));
    (*name.unwrap_or(&"")).to_owned()
}

/// Puts every quantity of a list of resources into its form; says what is wrong where one is none.
pub(super) fn tidy(list: &mut Value) -> Result<(), String> {
    for value in list.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        *value = json!(canonical(&text).ok_or(WRONG)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_form() {
        for (given, expected) in [
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            ("1e9", "1e9"),
            ("1000000000000", "1T"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("100k", "100k"),
            ("1073741824", "1073741824"),
            ("0", "0"),
            ("-1Gi", "-1Gi"),
            ("0.5Ki", "512"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(expected), "{given}");
        }
        for wrong in ["", "big", "1GB", "1 Gi", "Gi", "1.2.3"] {
            assert_eq!(canonical(wrong), None, "{wrong}");
        }
    }
}
