//! Names, labels and the like: which are valid, and how an API server says that one is not.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const LONGEST_LABEL: usize = 63;
const LONGEST_SUBDOMAIN: usize = 253;

/// Begins and ends with one of the letters, and has nothing but those and the inner ones between.
fn is_word(text: &str, is_edge: fn(u8) -> bool, inner: &str) -> bool {
    let bytes = text.as_bytes();
    let edges = bytes.first().is_some_and(|byte| is_edge(*byte)) && bytes.last().is_some_and(|byte| is_edge(*byte));
    edges && bytes.iter().all(|byte| is_edge(*byte) || inner.as_bytes().contains(byte))
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_any(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

/// Each of these says what is wrong, if something is.
pub fn label(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, LONGEST_LABEL, "characters");
    if !is_word(text, is_lower, "-") {
        wrong.push(LABEL.to_owned());
    }
    wrong
}

pub fn subdomain(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, LONGEST_SUBDOMAIN, "characters");
    if !text.split('.').all(|part| is_word(part, is_lower, "-")) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// Names of roles and the like: whatever can stand in a path.
pub fn path_segment(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text == "." || text == ".." {
        wrong.push(format!("may not be '{text}'"));
    }
    for letter in ['/', '%'] {
        if text.contains(letter) {
            wrong.push(format!("may not contain '{letter}'"));
        }
    }
    wrong
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, LONGEST_LABEL, "bytes");
    if !text.is_empty() && !is_word(text, is_any, "-_.") {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// A key of labels or annotations, or a finalizer: a name with a domain before it or not.
pub fn qualified(text: &str) -> Vec<String> {
    let key = |problem: &str| format!("a valid label key {problem}");
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            let tail = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("{}{tail}", key(QUALIFIED))];
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => wrong.extend(subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}"))),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else {
        wrong.extend(too_long(name, LONGEST_LABEL, "bytes").into_iter().map(|problem| format!("name part {problem}")));
    }
    if !is_word(name, is_any, "-_.") {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

fn too_long(text: &str, longest: usize, unit: &str) -> Vec<String> {
    if text.len() > longest { vec![format!("must be no more than {longest} {unit}")] } else { Vec::new() }
}
