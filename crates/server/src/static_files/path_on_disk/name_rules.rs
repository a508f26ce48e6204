//! The rules by which an operating system interprets file names. They decide which names of a
//! request may be looked up on disk, because one file can have several names.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// The rules by which an operating system interprets file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRules {
    /// Every sequence of bytes without `/` and NUL is the name of one file.
    Unix,
    /// Names that differ only in case or in the normal form of Unicode lead to the same file, as is
    /// usual on macOS. The file system HFS+ also ignores some characters without a width in names.
    IgnoringCase,
    /// As [`IgnoringCase`](Self::IgnoringCase). In addition, names that end with dots or spaces,
    /// short names (`PROGRA~1`) and names with a stream (`a.txt::$DATA`) lead to the files of other
    /// names, and reserved names (`CON`, `nul.txt`) lead to devices, in every folder.
    Windows,
}

impl NameRules {
    /// The rules of the system for which the program was compiled.
    pub const OF_SYSTEM: NameRules = if cfg!(windows) {
        NameRules::Windows
    } else if cfg!(target_vendor = "apple") {
        NameRules::IgnoringCase
    } else {
        NameRules::Unix
    };

    /// Returns true if names that differ only in case lead to the same file.
    pub(crate) fn is_ignoring_case(self) -> bool {
        self != NameRules::Unix
    }

    /// Returns true if a relative path has a segment that could lead to another file than the one
    /// of this name, or to a device. `path` has the segments of a decoded URL path.
    pub(crate) fn is_hazardous(self, path: &[u8]) -> bool {
        // Most paths have ASCII characters only, of which none is ignored.
        if self == NameRules::Unix || self == NameRules::IgnoringCase && path.is_ascii() {
            return false;
        }
        let Ok(path) = std::str::from_utf8(path) else { return true };
        path.contains(is_ignored)
            || self == NameRules::Windows && path.split('/').any(is_hazardous_on_windows)
    }
}

impl Default for NameRules {
    fn default() -> NameRules {
        NameRules::OF_SYSTEM
    }
}

/// Converts a URL path to a form that is equal for paths that differ only in case or in the normal
/// form of Unicode: to that of a canonical caseless match (Unicode Standard, D145), or a coarser
/// one. The number of segments stays the same.
///
/// A file system may tell names apart that are equal in this form. Conversely, the names that it
/// treats as equal are equal in this form, apart from the characters without a width that HFS+
/// ignores, for which [`NameRules::is_hazardous`] returns true.
pub(in crate::static_files) fn caseless(path: &[u8]) -> Cow<'_, [u8]> {
    if path.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(path);
    }
    let Some(text) = std::str::from_utf8(path).ok().filter(|text| !text.is_ascii()) else {
        return Cow::Owned(path.to_ascii_lowercase());
    };
    // Characters are decomposed before, because the case of marks depends on their order, and
    // after, because the other case of a character may be a composed one. Some characters share the
    // upper case but not the lower case, such as `ſ` and `s`, and others the lower case but not the
    // upper case, such as `ẞ` and `ß`.
    let decomposed: String = text.nfd().collect();
    let folded = decomposed.to_lowercase().to_uppercase().to_lowercase();
    Cow::Owned(folded.nfd().collect::<String>().into_bytes())
}

/// Returns true for the characters that HFS+ ignores in names: those that have no width and control
/// how their neighbours are joined, ordered and shaped. A disk of this kind can be shared with
/// Windows.
pub(in crate::static_files) fn is_ignored(character: char) -> bool {
    matches!(
        character,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    )
}

fn is_hazardous_on_windows(segment: &str) -> bool {
    let is_forbidden = |byte: u8| {
        byte < 0x20 || matches!(byte, b'<' | b'>' | b':' | b'"' | b'|' | b'?' | b'*' | b'\\')
    };
    segment.bytes().any(is_forbidden)
        || segment.ends_with(['.', ' '])
        || is_device(segment)
        || is_short_name(segment)
}

/// Returns true if a name is reserved for a device, with or without an extension.
fn is_device(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or_default().trim_end_matches(' ');
    let is = |name: &str| stem.eq_ignore_ascii_case(name);
    let is_numbered = |name: &str| {
        let start = stem.get(..name.len());
        let number = stem.get(name.len()..).unwrap_or_default();
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
            && matches!(
                number,
                "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"
            )
    };
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"].into_iter().any(is)
        || is_numbered("COM")
        || is_numbered("LPT")
}

/// Returns true if a name has the form of the short names that Windows gives to files with longer
/// names, such as `PROGRA~1` or `INDEX~12.HTM`.
fn is_short_name(segment: &str) -> bool {
    let (stem, extension) = segment.split_once('.').unwrap_or((segment, ""));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    stem.chars().count() <= 8
        && extension.chars().count() <= 3
        && stem.rsplit_once('~').is_some_and(|(_, digits)| is_number(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that Windows would interpret otherwise than they are written, and why.
    const HAZARDS: [&str; 54] = [
        // Devices, also with an extension, in any case and in any folder.
        "CON",
        "con",
        "Con.txt",
        "NUL",
        "nul",
        "nul.tar.gz",
        "PRN",
        "AUX",
        "aux.css",
        "COM1",
        "com1.txt",
        "COM0",
        "COM9",
        "COM¹",
        "lpt³.log",
        "LPT1",
        "LPT9",
        "CONIN$",
        "conout$",
        "CON .txt",
        "nul  .a",
        "a/CON",
        "a/nul.js/b",
        // Streams and drive letters.
        "a.txt::$DATA",
        "a.txt:stream",
        "a::$INDEX_ALLOCATION/b",
        ":$I30:$INDEX_ALLOCATION/a",
        "C:",
        "c:/windows/win.ini",
        "C:a.txt",
        // Dots and spaces at the end.
        "a.txt.",
        "a.txt ",
        "a.txt. .",
        "private./a",
        "private /a",
        "...",
        " ",
        // Short names.
        "PROGRA~1",
        "progra~1/a",
        "INDEX~12.HTM",
        "A~1",
        "~1",
        "a/LONGNA~1.TXT",
        // Characters that no name has: wildcards, separators, control characters.
        "*",
        "a?",
        "a<b",
        "a>b",
        "a\"b",
        "a|b",
        "a\\b",
        "a\x01",
        "a\x1f/b",
        "a\nb",
        "?",
    ];

    #[test]
    fn windows_rules_refuse_names_with_another_meaning() {
        for path in HAZARDS {
            assert!(NameRules::Windows.is_hazardous(path.as_bytes()), "{path:?}");
            assert!(!NameRules::Unix.is_hazardous(path.as_bytes()), "{path:?}");
            assert!(!NameRules::IgnoringCase.is_hazardous(path.as_bytes()), "{path:?}");
        }
    }

    #[test]
    fn names_that_are_no_text_or_have_ignored_characters_are_hazardous_except_on_unix() {
        let ignored = ['\u{200c}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{206a}', '\u{206f}'];
        for rules in [NameRules::IgnoringCase, NameRules::Windows] {
            assert!(rules.is_hazardous(b"\xff"), "no name has such bytes");
            for character in ignored.into_iter().chain(['\u{feff}']) {
                let path = format!("a/pri{character}vate/b");
                assert!(rules.is_hazardous(path.as_bytes()), "{path:?}");
                assert!(!NameRules::Unix.is_hazardous(path.as_bytes()));
            }
            for path in ["a\u{200b}b", "\u{2010}", "\u{2029}", "\u{202f}", "\u{2070}", "\u{fefe}"] {
                assert!(!rules.is_hazardous(path.as_bytes()), "{path:?}");
            }
        }
        assert!(!NameRules::Unix.is_hazardous(b"\xff"));
    }

    #[test]
    fn windows_rules_accept_ordinary_names() {
        for path in [
            "",
            "a",
            "a.txt",
            "a/b.c/d",
            ".hidden",
            " a",
            "a b.txt",
            "..a",
            "a..b",
            "a~b",
            "~",
            "a~",
            "a~1b",
            "averylongname~1",
            "jquery~1.min.js",
            "a.html~1",
            "CONS",
            "icon",
            "console.txt",
            "COM",
            "COM10",
            "COMX",
            "LPT",
            "com12.txt",
            "nully",
            "auxiliary.js",
            "äöü.txt",
            "日本/語",
            "COMé",
            "a.b.c",
        ] {
            assert!(!NameRules::Windows.is_hazardous(path.as_bytes()), "{path:?}");
        }
    }

    #[test]
    fn paths_that_differ_in_case_or_normal_form_have_one_form_with_as_many_segments() {
        for (one, other) in [
            ("/private/a", "/PRIVATE/A"),
            ("/É/x", "/é/X"),
            ("/straße", "/STRASSE"),
            ("/straẞe", "/STRASSE"),
            ("/\u{17f}ecret", "/SECRET"),
            ("/ǆ", "/ǅ"),
            ("/\u{e9}", "/e\u{301}"),
            ("/\u{c9}", "/e\u{301}"),
            ("/\u{1e69}", "/S\u{307}\u{323}"),
            ("/\u{212b}", "/a\u{30a}"),
            ("/\u{ac01}", "/\u{1100}\u{1161}\u{11a8}"),
            // A mark of which the upper case is a letter, before and after another mark.
            ("/\u{1fb3}\u{301}", "/\u{3b1}\u{301}\u{345}"),
            ("/\u{1fb3}\u{301}", "/\u{391}\u{345}\u{301}"),
        ] {
            assert_eq!(caseless(one.as_bytes()), caseless(other.as_bytes()), "{one}");
        }
        assert_ne!(caseless(b"/a"), caseless(b"/b"));
        assert_eq!(caseless(b"/A\xff"), &b"/a\xff"[..]);
        // No character after these three planes has another case or normal form.
        for code in 0..0x3_0000 {
            let Some(one) = char::from_u32(code).filter(|one| *one != '/') else { continue };
            let path = format!("/{one}/a");
            let segments = caseless(path.as_bytes()).split(|byte| *byte == b'/').count();
            assert_eq!(segments, 3, "{one:?}");
            for other in [
                one.to_lowercase().to_string(),
                one.to_uppercase().to_string(),
                one.nfd().to_string(),
                one.nfc().to_string(),
                one.to_uppercase().nfd().to_string(),
                one.nfd().to_string().to_lowercase(),
            ] {
                let other = format!("/{other}/a");
                // Most characters have no other spelling, and the test is long anyway.
                if other != path {
                    assert_eq!(caseless(path.as_bytes()), caseless(other.as_bytes()), "{one:?}");
                }
            }
        }
    }
}
