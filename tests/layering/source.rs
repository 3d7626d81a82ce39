//! Enough of a Rust reader to find the paths in a file: comments and strings are left out, `use` trees are spread, and
//! every path knows its line and the inline modules around it.

/// A path as it is written: `crate::leaf::claim`, `super::Host`, `kube::Api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub line: usize,
    pub segments: Vec<String>,
    /// Inline modules around it, outermost first.
    pub inside: Vec<String>,
}

struct Token {
    line: usize,
    text: String,
}

impl Token {
    fn is_name(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

/// Every path in a source text.
pub fn paths(source: &str) -> Vec<Written> {
    let tokens = tokens(source);
    let text = |place: usize| tokens.get(place).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    let mut modules: Vec<(String, usize)> = Vec::new();
    let (mut depth, mut place) = (0, 0);
    while place < tokens.len() {
        let inside = || modules.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        match text(place) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                modules.pop_if(|(_, outside)| *outside == depth);
            }
            "mod" if text(place + 2) == "{" => modules.push((text(place + 1).to_owned(), depth)),
            "use" if text(place + 1) != "<" => {
                let end = (place..tokens.len()).find(|end| text(*end) == ";").unwrap_or(tokens.len());
                spread(&tokens[place + 1..end], &[], &inside(), &mut found);
                place = end;
            }
            "crate" if text(place.wrapping_sub(1)) == "extern" => {
                let segments = vec![text(place + 1).to_owned()];
                found.push(Written { line: tokens[place].line, segments, inside: inside() });
            }
            _ if tokens[place].is_name() && text(place + 1) == "::" => {
                let line = tokens[place].line;
                let mut segments = vec![text(place).to_owned()];
                while text(place + 1) == "::" && tokens.get(place + 2).is_some_and(Token::is_name) {
                    place += 2;
                    segments.push(text(place).to_owned());
                }
                found.push(Written { line, segments, inside: inside() });
            }
            _ => {}
        }
        place += 1;
    }
    found
}

/// `a::{b, c::{self, d}}` into `a::b`, `a::c`, `a::c::d`.
fn spread(tree: &[Token], before: &[String], inside: &[String], found: &mut Vec<Written>) {
    let mut path = before.to_vec();
    for (place, token) in tree.iter().enumerate() {
        match token.text.as_str() {
            "::" => {}
            "{" => {
                for branch in branches(&tree[place + 1..]) {
                    spread(branch, &path, inside, found);
                }
                return;
            }
            "as" => break,
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
    }
    if let Some(first) = tree.first() {
        found.push(Written { line: first.line, segments: path, inside: inside.to_vec() });
    }
}

/// The parts between the commas of a group, up to its end.
fn branches(group: &[Token]) -> Vec<&[Token]> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (place, token) in group.iter().enumerate() {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => {
                parts.push(&group[begin..place]);
                break;
            }
            "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&group[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    parts
}

fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let name = rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len());
        let (length, is_code) = match first {
            _ if let Some(length) = string(rest) => (length, false),
            _ if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            _ if rest.starts_with("/*") => (comment(rest), false),
            _ if rest.starts_with("::") => (2, true),
            _ if name > 0 => (name, true),
            '\'' => (character(rest), false),
            _ => (first.len_utf8(), !first.is_whitespace()),
        };
        let (text, after) = rest.split_at(length);
        if is_code {
            tokens.push(Token { line, text: text.to_owned() });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length of a block comment; they nest.
fn comment(text: &str) -> usize {
    let (mut depth, mut place) = (0, 0);
    while place < text.len() {
        let rest = &text.as_bytes()[place..];
        match rest {
            [b'/', b'*', ..] => (depth, place) = (depth + 1, place + 2),
            [b'*', b'/', ..] => (depth, place) = (depth - 1, place + 2),
            _ => place += 1,
        }
        if depth == 0 {
            break;
        }
    }
    place
}

/// The length of the string literal that begins here, of any kind.
fn string(text: &str) -> Option<usize> {
    let bare = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - bare.len();
    if prefix > 1 {
        return None;
    }
    if let Some(raw) = bare.strip_prefix('r') {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[marks..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(marks));
        return Some(text.len() - body.len() + body.find(&end)? + end.len());
    }
    let body = bare.strip_prefix('"')?;
    let mut escaped = false;
    let end = body.find(|next| {
        let ends = next == '"' && !escaped;
        escaped = next == '\\' && !escaped;
        ends
    })?;
    Some(prefix + 1 + end + 1)
}

/// The length of a character literal, or of a lifetime's mark.
fn character(text: &str) -> usize {
    let body = &text[1..];
    if let Some(escaped) = body.strip_prefix('\\') {
        return escaped.char_indices().skip(1).find(|(_, next)| *next == '\'').map_or(1, |(end, _)| end + 3);
    }
    let first = body.chars().next().map_or(0, char::len_utf8);
    if body[first..].starts_with('\'') { first + 2 } else { 1 }
}
