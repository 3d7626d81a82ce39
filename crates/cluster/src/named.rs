//! Which object a text is about that is too long to be read.

/// How much of it is looked at: kind, version and the first fields of the metadata.
pub(super) const HEAD: usize = 2 << 10;
/// Of Kubernetes.
const LONGEST_NAME: usize = 253;

/// `NAMESPACE/NAME`, or the name alone, where the text begins as API servers write an object: its name comes before what its writer chooses.
pub fn object_in(text: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&text[..text.len().min(HEAD)]);
    let (_, metadata) = head.split_once(r#""metadata":{"#)?;
    let value = |key: &str| {
        let (_, rest) = metadata.split_once(&format!(r#""{key}":""#))?;
        rest.split_once('"').map(|(value, _)| value).filter(|value| is_name(value))
    };
    let name = value("name")?;
    Some(value("namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_named_by_the_beginning_of_its_text() {
        let claim =
            r#""kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"db","namespace":"shop","uid":"u""#;
        for (text, named) in [
            (format!(r#"{{"type":"ADDED","object":{{{claim},"#), Some("shop/db")),
            (format!("{{{claim},"), Some("shop/db")),
            (r#"{"metadata":{"name":"pvc-1","generateName":"x","uid":"u"}"#.to_owned(), Some("pvc-1")),
            (r#"{"metadata":{"name":"db; rm","namespace":"shop"}"#.to_owned(), None),
            (format!(r#"{{"spec":"{}","metadata":{{"name":"db"}}"#, "x".repeat(HEAD)), None),
            ("xxxx".to_owned(), None),
        ] {
            assert_eq!(object_in(text.as_bytes()).as_deref(), named, "{text}");
        }
    }
}
