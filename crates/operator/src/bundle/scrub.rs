//! Credentials are taken out of every text, whoever wrote them there: those that are known, and what looks like one.

use serde_json::Value;

const INSTEAD: &str = "<taken out: a credential>";
/// What is shorter is a word of its own in too many texts.
const SHORTEST: usize = 8;
/// No word of a language is so long.
const LONG: usize = 16;
/// A line of a key that is not its last one.
const WHOLE_LINE: usize = 40;
const KEY: &str = "PRIVATE KEY-----";
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";

/// What is secret in a kubeconfig.
pub fn credentials(kubeconfig: &str) -> Vec<String> {
    let kubeconfig: Value = serde_saphyr::from_str(kubeconfig).unwrap_or_default();
    let users = kubeconfig["users"].as_array().into_iter().flatten().map(|user| &user["user"]);
    let found = users.flat_map(|user| {
        let fields = ["token", "password", "client-key-data"].map(|field| &user[field]);
        let env = user["exec"]["env"].as_array().into_iter().flatten().map(|one| &one["value"]);
        let provider = user["auth-provider"]["config"].as_object().into_iter().flat_map(|config| config.values());
        fields.into_iter().chain(env).chain(provider).collect::<Vec<_>>()
    });
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    found.filter_map(text).collect()
}

#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// The longest first: one may be the beginning of another.
    known: Vec<String>,
}

impl Scrub {
    pub(super) fn new(mut known: Vec<String>) -> Self {
        // Of a thousand members nearly all have tokens, which are found by their looks.
        known.retain(|secret| secret.len() >= SHORTEST && without_tokens(secret) == *secret);
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        known.dedup();
        Self { known }
    }

    pub(super) fn text(&self, text: &str) -> String {
        let text = self.known.iter().fold(text.to_owned(), |text, secret| text.replace(secret, INSTEAD));
        without_shown(&without_users(&without_tokens(&without_keys(&text))))
    }

    pub(super) fn object(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.object(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.object(field)),
            _ => {}
        }
    }
}

/// Keys in PEM, also where line breaks are escaped, where something stands before each line, and where the head or the foot is cut
/// off. Nothing else is taken but lines that could be a key's: whoever writes a head alone into a message hides no more than
/// that.
fn without_keys(text: &str) -> String {
    if !text.contains(KEY) {
        return text.to_owned();
    }
    let mut left: Vec<&str> = Vec::new();
    // The end of the line in which the key began.
    let mut inside: Option<&str> = None;
    for line in text.split_inclusive('\n').flat_map(|line| line.split_inclusive("\\n")) {
        let Some(marks) = Marks::find(line) else {
            if inside.is_some() && is_of_key(line) {
                continue;
            }
            if let Some(before) = before_key(line).filter(|_| inside.is_some()) {
                left.extend([before, INSTEAD, &line[without_end(line).len()..]]);
                continue;
            }
            left.extend(inside.take());
            left.push(line);
            continue;
        };
        if marks.is_cut && inside.is_none() {
            while left.last().is_some_and(|line| is_of_key(line)) {
                left.pop();
            }
        }
        left.push(marks.before);
        if inside.take().is_none() || !marks.is_cut {
            left.push(INSTEAD);
        }
        if marks.goes_on { inside = Some(marks.after) } else { left.push(marks.after) }
    }
    left.concat()
}

/// Line breaks however often they were escaped.
fn without_end(line: &str) -> &str {
    let line = line.trim_end();
    line.strip_suffix('n').map_or(line, |rest| {
        let bare = rest.trim_end_matches(['\\', 'r']);
        if rest.ends_with('\\') { bare } else { line }
    })
}

fn is_key_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=')
}

fn is_of_key(line: &str) -> bool {
    let line = without_end(line).trim();
    !line.is_empty() && line.chars().all(is_key_letter)
}

/// Of a line that ends with what only a key has, what stands before that.
fn before_key(line: &str) -> Option<&str> {
    let line = without_end(line);
    let before = line.trim_end_matches(is_key_letter);
    (line.len() - before.len() >= WHOLE_LINE).then_some(before)
}

/// A line in which a key begins, ends, or both.
struct Marks<'a> {
    before: &'a str,
    after: &'a str,
    /// It has a foot and no head.
    is_cut: bool,
    /// It has a head, and nothing after that but what is a key's.
    goes_on: bool,
}

impl<'a> Marks<'a> {
    fn find(line: &'a str) -> Option<Self> {
        let last = line.rfind(KEY)? + KEY.len();
        let (begin, end) = (line[..last].find(BEGIN), line[..last].rfind(END));
        let first = begin.into_iter().chain(end).min().unwrap_or(last - KEY.len());
        let mut after = line[last..].trim_start_matches(is_key_letter);
        while let Some(rest) = after.strip_prefix(' ').map(str::trim_start) {
            let word = rest.len() - rest.trim_start_matches(is_key_letter).len();
            if word < LONG {
                break;
            }
            after = &rest[word..];
        }
        let goes_on = begin > end && without_end(after).is_empty();
        Some(Self { before: &line[..first], after, is_cut: begin.is_none() && end.is_some(), goes_on })
    }
}

/// JSON Web Tokens, which begin with `{"` in base64; these in base64 once more, as Secrets have them; and so keys in PEM.
fn without_tokens(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '=');
    let text = without(text, "eyJ", is_part, |word| word.len() >= 20 && word.matches('.').count() >= 2);
    let text = without(&text, "ZXlK", is_key_letter, |word| word.len() >= WHOLE_LINE);
    without(&text, "LS0tLS1CRUdJTi", is_key_letter, |word| word.len() >= WHOLE_LINE)
}

/// Words that begin so, if they are of these letters and that is true of them.
fn without(text: &str, head: &str, is_part: impl Fn(char) -> bool, is_secret: impl Fn(&str) -> bool) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(head) {
        let end = rest[at..].find(|letter| !is_part(letter)).map_or(rest.len(), |length| at + length);
        left.push_str(&rest[..at]);
        left.push_str(if is_secret(&rest[at..end]) { INSTEAD } else { &rest[at..end] });
        rest = &rest[end..];
    }
    left + rest
}

/// Who asks, in the address of what he asks for.
fn without_users(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        left.push_str(before);
        left.push_str("://");
        let end =
            after.find(|letter: char| letter.is_whitespace() || "/?#\"<>\\".contains(letter)).unwrap_or(after.len());
        rest = match after[..end].rsplit_once('@') {
            Some((user, _)) => {
                left.push_str(INSTEAD);
                &after[user.len()..]
            }
            None => after,
        };
    }
    left + rest
}

/// What is shown in the head of a request.
fn without_shown(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-._~+/=".contains(letter);
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(' ') {
        let (before, after) = rest.split_at(at + 1);
        left.push_str(before);
        rest = after;
        if ["Bearer ", "bearer ", "Basic ", "basic "].iter().any(|scheme| before.ends_with(scheme)) {
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            if end >= LONG {
                left.push_str(INSTEAD);
                rest = &rest[end..];
            }
        }
    }
    left + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scrubbed(text: &str) -> String {
        let known = ["canary-of-a", "canary-of-all", "short", "S0VZS0VZ"].map(str::to_owned);
        Scrub::new(known.to_vec()).text(text).replace(INSTEAD, "§")
    }

    #[test]
    fn credentials_of_a_kubeconfig_are_whatever_a_user_proves_himself_by() {
        let kubeconfig = "users:\n- {name: a, user: {token: 1234567890, username: u, password: short}}\n- user:\n    client-key-data: |\n      \
             S0VZS0VZ\n    exec: {env: [{name: A, value: of-exec}]}\n    auth-provider: {config: {id: of-provider}}\n";
        assert_eq!(credentials(kubeconfig), ["1234567890", "short", "S0VZS0VZ", "of-exec", "of-provider"]);
        assert!(credentials("users: 7").is_empty() && credentials("[").is_empty());
    }

    #[test]
    fn credentials_are_taken_out_and_the_rest_stays() {
        for (text, expected) in [
            ("GET https://m0/: 401 canary-of-all, canary-of-a\n", "GET https://m0/: 401 §, §\n"),
            ("a short word of S0VZS0VZ", "a short word of §"),
            ("x eyJhbGciOi.eyJzdWIiOi.c2ln-_x, x", "x §, x"),
            (r#""a\neyJhbGciOi.eyJzdWIiOi.c2ln."ä"#, r#""a\n§"ä"#),
            ("token_eyJhbGciOi.eyJzdWIiOi.c2ln.a.b", "token_§"),
            ("eyJ is none, and file.eyJ.gz neither", "eyJ is none, and file.eyJ.gz neither"),
            ("token: ZXlKaGJHY2lPaUpTVXpJMU5pSXNJbXRwWkNJNkls", "token: §"),
            ("http://u:pa,s@proxy:3128/a@b, https://m0", "http://§@proxy:3128/a@b, https://m0"),
            ("Bearer Bearer Bearer 0123456789abcdef", "Bearer Bearer Bearer §"),
            ("tls.key: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1IY0M=", "tls.key: §"),
            (
                "Authorization: Basic dXNlcjpwYXNzd29yZA==; Bearer of bad news",
                "Authorization: Basic §; Bearer of bad news",
            ),
            ("", ""),
        ] {
            assert_eq!(scrubbed(text), expected, "{text}");
        }
    }

    #[test]
    fn private_key_is_taken_out_whole_or_cut_and_nothing_beside_it() {
        for (text, expected) in [
            ("a\n-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQEE\n-----END EC PRIVATE KEY-----\nb", "a\n§\nb"),
            (
                r#"{"a": "-----BEGIN PRIVATE KEY-----\nMHcC\n-----END PRIVATE KEY-----\n", "b": 1}"#,
                r#"{"a": "§\n", "b": 1}"#,
            ),
            ("a -----BEGIN PRIVATE KEY-----MHcC-----END PRIVATE KEY----- b", "a § b"),
            ("a: it -----BEGIN PRIVATE KEY-----\nMHcC", "a: it §"),
            ("a word.\nMHcC\nAQEE\n-----END PRIVATE KEY-----\nb", "a word.\n§\nb"),
            ("AQ\n-----END PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----\nMH\n-----END PRIVATE KEY-----", "§\n§"),
            ("he says -----BEGIN PRIVATE KEY-----\", and no more.\nall well.", "he says §\", and no more.\nall well."),
            ("he says -----BEGIN PRIVATE KEY-----\nall well.", "he says §\nall well."),
            ("a -----BEGIN PRIVATE KEY-----\r\nMIIE\r\n", "a §"),
            ("a -----BEGIN PRIVATE KEY----- \nMIIE", "a §"),
            ("a -----BEGIN PRIVATE KEY----- MIIEvQIBADANBgkq hkiG9w0BAQEFAASC", "a §"),
            (r#""-----BEGIN PRIVATE KEY-----\r\nMIIE\r\n-----END PRIVATE KEY-----\r\n" b"#, r#""§\r\n" b"#),
            (r#""-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n" b"#, r#""§\\n" b"#),
            (
                "1 -----BEGIN PRIVATE KEY-----\n2 MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n3 -----END PRIVATE KEY-----\n",
                "1 §2 §\n3 \n",
            ),
            ("PRIVATE KEY-----\nall well.", "§\nall well."),
            ("-----BEGIN CERTIFICATE-----\nMHcC", "-----BEGIN CERTIFICATE-----\nMHcC"),
        ] {
            assert_eq!(scrubbed(text), expected, "{text}");
        }
    }

    #[test]
    fn strings_of_objects_are_gone_through() {
        let mut object = json!({"a": [{"b": "canary-of-all"}, 1], "c": null});
        Scrub::new(vec!["canary-of-all".to_owned()]).object(&mut object);
        assert_eq!(object, json!({"a": [{"b": INSTEAD}, 1], "c": null}));
    }
}
