//! Texts of others, as they may reach the terminal of a person. Pure.

use std::borrow::Cow;

/// Without the characters that steer a terminal, break lines unseen, or turn round the order of what follows: whoever writes events,
/// names and messages in a member could hide lines, forge them, or do worse.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |letter: char| letter.is_control() && letter != '\n' && letter != '\t' || turns_or_breaks(letter);
    if text.contains(steers) { text.replace(steers, "\u{fffd}").into() } else { text.into() }
}

fn turns_or_breaks(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same where another line would be another entry of a log, or another row of a table, in anybody's name.
pub fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// The same in so many bytes at most.
pub fn short(text: &str, most: usize) -> String {
    let mut line = one_line(text);
    line.truncate(line.floor_char_boundary(most));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_replaced_and_lines_stay() {
        assert_eq!(printable("a\tb\nc ä €"), "a\tb\nc ä €");
        assert_eq!(printable("\u{1b}[2K\rno volume is lost\u{8}\u{9b}1A"), "�[2K�no volume is lost��1A");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{2028}"), "a�b�c�");
    }

    #[test]
    fn one_line_is_one() {
        assert_eq!(one_line("x\n  Normal\tScheduled \u{1b}[8m"), "x   Normal Scheduled �[8m");
        assert_eq!((short("a\nb", 9), short("aäb", 2)), ("a b".to_owned(), "a".to_owned()));
    }
}
