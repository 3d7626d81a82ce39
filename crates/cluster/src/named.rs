//! Which object a text is about that cannot be read, as it is too long or is not as it should be, and where.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

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

/// Name, namespace and labels, as far as they are as they should be.
pub fn metadata_in(text: &[u8]) -> ObjectMeta {
    let object: Value = serde_json::from_slice(text).unwrap_or_default();
    let metadata = &object["metadata"];
    let word = |key: &str| metadata[key].as_str().filter(|word| is_name(word)).map(str::to_owned);
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    ObjectMeta {
        namespace: word("namespace"),
        name: word("name"),
        labels: Some(labels.collect()),
        ..ObjectMeta::default()
    }
}

/// Where a text could not be read, as `spec.accessModes`.
pub fn field_in(text: &[u8], error: &serde_json::Error) -> String {
    let lines = text.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    let end = lines.map(<[u8]>::len).sum::<usize>() + error.column();
    let mut path = path(&text[..end.min(text.len())]);
    path.retain(|letter| letter.is_ascii_graphic());
    path.truncate(LONGEST_NAME);
    path
}

/// The names of the fields within which a text ends.
fn path(text: &[u8]) -> String {
    let (mut names, mut word, mut in_text, mut escaped) = (Vec::<String>::new(), Vec::new(), false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => {
                in_text = !in_text;
                if in_text {
                    word.clear();
                }
            }
            _ if in_text => word.push(*byte),
            b'{' | b'[' => names.push(String::new()),
            b'}' | b']' => drop(names.pop()),
            b':' => {
                if let Some(name) = names.last_mut() {
                    *name = String::from_utf8_lossy(&word).into_owned();
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names.join(".")
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

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

    #[test]
    fn field_that_is_not_as_it_should_be_is_named() {
        for (text, field) in [
            (r#"{"metadata":{"name":"db","labels":{"a\"{":"x"}},"spec":{"accessModes":"x"}}"#, "spec.accessModes"),
            ("{\"metadata\": {},\n \"spec\": {\"volumeName\": [1]}}", "spec.volumeName"),
            (r#"{"spec":{"accessModes":["a",{"b":"c"}]}}"#, "spec.accessModes"),
            (r#"{"spec":7}"#, "spec"),
        ] {
            let error = serde_json::from_str::<PersistentVolumeClaim>(text).unwrap_err();
            assert_eq!(field_in(text.as_bytes(), &error), field, "{text}: {error}");
        }
    }

    #[test]
    fn metadata_is_read_of_what_cannot_be_read_else_and_holds_nothing_that_is_no_name() {
        let text = br#"{"metadata":{"name":"db","namespace":"a b","labels":{"a":"1","b":2}},"spec":7}"#;
        let read = metadata_in(text);
        assert_eq!((read.name.as_deref(), read.namespace), (Some("db"), None));
        assert_eq!(read.labels, Some([("a".to_owned(), "1".to_owned())].into()));
        assert_eq!(metadata_in(b"bad gateway").name, None);
    }
}
