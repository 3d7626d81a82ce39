//! Texts of others, as they may reach the terminal of a person. Pure.

use std::borrow::Cow;

/// Without the characters that steer a terminal: whoever writes events, names and messages in a member could hide lines, forge
/// them, or do worse.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if text.contains(steers) { text.replace(steers, "\u{fffd}").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_replaced_and_lines_stay() {
        assert_eq!(printable("a\tb\nc ä €"), "a\tb\nc ä €");
        assert_eq!(printable("\u{1b}[2K\rno volume is lost\u{8}\u{9b}1A"), "�[2K�no volume is lost��1A");
    }
}
