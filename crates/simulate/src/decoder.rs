//! How an API server words that a body cannot be read.

use serde_json::Value;

use super::status_error::StatusError;

/// As much of a body as is quoted.
const QUOTED: usize = 30;

/// What its JSON reader says.
pub fn problem(body: &[u8]) -> Option<String> {
    let error = serde_json::from_slice::<Value>(body).err()?;
    if error.is_eof() {
        return Some("unexpected end of JSON input".to_owned());
    }
    let at = |column: usize| body.get(column.saturating_sub(1)).map_or('?', |byte| char::from(*byte));
    let text = error.to_string();
    let letter = at(error.column());
    Some(if text.starts_with("trailing comma") {
        format!("invalid character '{letter}' looking for beginning of object key string")
    } else if text.starts_with("expected ident") {
        let word = ["null", "true", "false"].into_iter().find(|word| body.first() == word.as_bytes().first());
        let word = word.unwrap_or("null");
        let expected = word.chars().nth(error.column().saturating_sub(1)).unwrap_or('?');
        format!("invalid character '{letter}' in literal {word} (expecting '{expected}')")
    } else {
        format!("invalid character '{letter}' looking for beginning of value")
    })
}

/// A body that is to be an object of a kind.
pub fn object(kind: &str, body: &[u8]) -> Result<Value, StatusError> {
    let unrecognized = |problem: &str| {
        let quoted = quoted(body);
        StatusError::bad_request(&format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
            {problem} ({quoted})"
        ))
    };
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(fields)) => Ok(Value::Object(fields)),
        Ok(other) => Err(unrecognized(&format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
            \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            super::kinds::name_of(&other)
        ))),
        Err(_) => Err(unrecognized(&problem(body).unwrap_or_default())),
    }
}

/// JSON is quoted as it is, anything else in hexadecimal.
fn quoted(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let head = body.get(..QUOTED).unwrap_or(body);
    let shown = if body.first() == Some(&b'{') {
        String::from_utf8_lossy(head).into_owned()
    } else {
        head.iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect()
    };
    if body.len() > QUOTED { format!("{shown} ...") } else { shown }
}

/// Numbers in queries.
pub fn number(text: &str) -> Result<i64, StatusError> {
    text.parse().map_err(|_| StatusError::bad_request(&format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")))
}

/// Versions in queries.
pub fn version(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax");
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| wrong()) }
}

pub const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Without the letters that mean something in a path or a query.
pub const IN_PATHS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub fn base64(bytes: &[u8], letters: &[u8; 64]) -> String {
    let encode = |chunk: &[u8]| {
        let bits = (0..3).fold(0_u32, |bits, index| bits << 8 | u32::from(chunk.get(index).copied().unwrap_or(0)));
        let letter = |index: usize| {
            let bits = usize::try_from(bits >> (18 - 6 * index) & 63).unwrap_or_default();
            if index > chunk.len() { '=' } else { char::from(letters.get(bits).copied().unwrap_or(b'=')) }
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(encode).collect()
}

/// Of the letters for paths.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = IN_PATHS.iter().position(|one| *one == letter)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_written_and_read() {
        for text in ["", "a", "ab", "abc", "value?>~"] {
            assert_eq!(from_base64(&base64(text.as_bytes(), IN_PATHS)).unwrap(), text.as_bytes());
        }
        assert_eq!(base64(b"value", STANDARD), "dmFsdWU=");
        assert_eq!(from_base64("!"), None);
    }

    #[test]
    fn what_cannot_be_read_is_worded_as_the_api_server_words_it() {
        for (body, told) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            ("<a/>", "invalid character '<' looking for beginning of value"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ] {
            assert_eq!(problem(body.as_bytes()).as_deref(), Some(told), "{body}");
        }
        assert_eq!(problem(b"{}"), None);
    }
}
