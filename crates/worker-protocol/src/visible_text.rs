//! The replacement of characters that could change how a terminal or a page shows the text around
//! them. The characters of texts from clients or workers are replaced before the texts are shown.

/// Returns the character to show for `char`: U+FFFD for a control character, which could change the
/// state of a terminal, and for a character that changes the direction of the following text
/// (Unicode Annex 9, 2.1 to 2.4) or separates lines, and otherwise `char` itself.
pub fn visible_char(char: char) -> char {
    let is_hidden =
        matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') || char.is_control();
    if is_hidden { char::REPLACEMENT_CHARACTER } else { char }
}

/// Returns a text in which each character is replaced by its [`visible_char`].
pub fn visible_text(text: &str) -> String {
    text.chars().map(visible_char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_changes_of_direction_are_replaced() {
        let hidden = "\0\t\n\u{1b}\u{7f}\u{9b}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}";
        assert_eq!(visible_text(hidden), "\u{fffd}".repeat(hidden.chars().count()));
        let shown = "GET /\u{e9}\u{5d0}\u{200f}\u{65e5}\u{1f600} <b>";
        assert_eq!(visible_text(shown), shown);
    }
}
