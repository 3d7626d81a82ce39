//! Bodies as kubectl sends them, byte by byte.

use super::*;

/// A field of bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw), bytes(3, b""), bytes(4, b"")].concat()
}

#[test]
fn namespace_of_kubectl_is_read() {
    let sent = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x19\x0a\x11\x0a\x01x\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\x12\x00\x1a\x02\x0a\x00\x1a\x00\x22\x00";
    assert_eq!(to_json(sent), Ok(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})));
}

#[test]
fn maps_lists_numbers_and_bytes_are_read() {
    let entry = |value: &[u8]| [bytes(1, b"key"), bytes(2, value)].concat();
    let secret =
        [bytes(1, &bytes(14, b"a/b")), bytes(2, &entry(b"value")), bytes(4, &entry(b"")), vec![5 << 3, 0]].concat();
    let expected = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"finalizers": ["a/b"]},
        "data": {"key": "dmFsdWU="}, "stringData": {"key": ""}, "immutable": false,
    });
    assert_eq!(to_json(&envelope("Secret", &secret)), Ok(expected));
    let quota = bytes(2, &bytes(1, &entry(&bytes(1, b"5"))));
    assert_eq!(to_json(&envelope("ResourceQuota", &quota)).unwrap()["spec"], json!({"hard": {"key": "5"}}));
    let port = [vec![3 << 3, 80], bytes(4, &[vec![1 << 3, 1], vec![2 << 3, 0], bytes(3, b"http")].concat())].concat();
    let service = bytes(2, &bytes(1, &port));
    let ports = to_json(&envelope("Service", &service)).unwrap()["spec"]["ports"].clone();
    assert_eq!(ports, json!([{"port": 80, "targetPort": "http"}]));
}

#[test]
fn bytes_are_written_as_text() {
    for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
        assert_eq!(base64(bytes.as_bytes()), text);
    }
}

#[test]
fn what_is_not_known_is_refused() {
    let unknown_field = envelope("ConfigMap", &bytes(9, b"x"));
    let empty_field = envelope("ConfigMap", &bytes(9, &bytes(1, b"")));
    assert_eq!(to_json(&unknown_field).unwrap_err().code, 415);
    assert_eq!(to_json(&empty_field), Ok(json!({"apiVersion": "v1", "kind": "ConfigMap"})));
    for body in [&b"{}"[..], b"k8s\0\x0a", b"k8s\0", &envelope("Lamp", b""), &envelope("ConfigMap", b"\x0a\xff")] {
        assert_eq!(to_json(body).unwrap_err().code, 415, "{body:?}");
    }
}
