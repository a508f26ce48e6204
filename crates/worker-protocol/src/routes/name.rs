//! The names of routes, as they are stored in shared memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::visible_text::visible_text;

/// The maximum length of a route's name in bytes. Longer names are truncated.
pub const MAX_ROUTE_LEN: usize = 120;

/// The number of machine words that a stored name occupies.
const WORDS: usize = MAX_ROUTE_LEN / 8;

/// The name of a route, such as `/users/<id>`. It has no query and at most [`MAX_ROUTE_LEN`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteName<'a>(&'a [u8]);

/// Returns the first segment of a path without its parameters, such as `/users` for `/users/7`. The
/// segment is the name of the route of a request for which the application has set none.
pub fn first_segment(path: &[u8]) -> &[u8] {
    let from = usize::from(path.starts_with(b"/"));
    let len = path[from..].iter().position(|byte| matches!(byte, b'/' | b';'));
    &path[..len.map_or(path.len(), |len| from + len)]
}

impl<'a> RouteName<'a> {
    /// Makes a name from the pattern that an application has set, such as `/users/<id>`. Removes a
    /// query, and truncates a long pattern.
    pub fn of_pattern(pattern: &'a [u8]) -> RouteName<'a> {
        let end = pattern.iter().position(|byte| *byte == b'?').unwrap_or(pattern.len());
        let mut end = end.min(MAX_ROUTE_LEN);
        // A character of UTF-8 is not cut in two.
        while end > 0 && end < pattern.len() && pattern[end] & 0xC0 == 0x80 {
            end -= 1;
        }
        RouteName(&pattern[..end])
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the name as text for reports: invalid UTF-8 and characters that are not
    /// [visible](crate::visible_char) become U+FFFD.
    pub fn to_text(self) -> String {
        visible_text(&String::from_utf8_lossy(self.0))
    }

    /// Returns the FNV-1a hash of the name.
    pub(super) fn hash(self) -> u64 {
        self.0.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
        })
    }

    fn words(self) -> impl Iterator<Item = u64> {
        self.0.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
    }
}

/// The bytes of a route's name in shared memory. The length is stored elsewhere.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct StoredName([AtomicU64; WORDS]);

impl StoredName {
    pub(crate) const fn new() -> StoredName {
        StoredName([const { AtomicU64::new(0) }; WORDS])
    }

    pub(crate) fn store(&self, name: RouteName<'_>) {
        for (stored, word) in self.0.iter().zip(name.words()) {
            stored.store(word, Relaxed);
        }
    }

    /// Returns true if the stored bytes begin with those of `name`.
    pub(super) fn begins_with(&self, name: RouteName<'_>) -> bool {
        self.0.iter().zip(name.words()).all(|(stored, word)| stored.load(Relaxed) == word)
    }

    /// Copies the first `len` bytes, or all if `len` is larger, to `out`, and returns the copy.
    pub(crate) fn read(&self, len: usize, out: &mut [u8; MAX_ROUTE_LEN]) -> usize {
        for (stored, word) in self.0.iter().zip(out.chunks_exact_mut(8)) {
            word.copy_from_slice(&stored.load(Relaxed).to_le_bytes());
        }
        len.min(MAX_ROUTE_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_route_is_named_by_its_first_segment() {
        for (path, name) in [
            ("/", "/"),
            ("/users", "/users"),
            ("/users/7/x", "/users"),
            ("/users;v=1/7", "/users"),
            ("/users?secret=1", "/users"),
            ("//a", "/"),
            ("*", "*"),
            ("", ""),
            ("host:443", "host:443"),
        ] {
            assert_eq!(
                RouteName::of_pattern(first_segment(path.as_bytes())).to_text(),
                name,
                "{path}"
            );
        }
    }

    #[test]
    fn a_pattern_keeps_neither_a_query_nor_more_than_the_maximum() {
        assert_eq!(RouteName::of_pattern(b"/users/<id>?token=1").as_bytes(), b"/users/<id>");
        let long = "ä".repeat(MAX_ROUTE_LEN);
        assert_eq!(RouteName::of_pattern(long.as_bytes()).to_text(), "ä".repeat(60));
        let odd = format!("/{long}");
        assert_eq!(RouteName::of_pattern(odd.as_bytes()).as_bytes().len(), 119);
        assert_eq!(RouteName::of_pattern(&[0x80; 300]).as_bytes().len(), 0);
    }

    #[test]
    fn text_has_no_control_characters() {
        let name = RouteName::of_pattern(b"/\x1b[2J\n\xff\x7f");
        assert_eq!(name.to_text(), "/\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_stored_name_is_compared_and_read_with_its_length() {
        let (stored, mut out) = (StoredName::new(), [0; MAX_ROUTE_LEN]);
        let name = RouteName::of_pattern(b"/users/<id>");
        stored.store(name);
        assert!(stored.begins_with(name));
        assert!(!stored.begins_with(RouteName::of_pattern(b"/users/<ie>")));
        let len = stored.read(name.as_bytes().len(), &mut out);
        assert_eq!(&out[..len], name.as_bytes());
        assert_eq!(stored.read(usize::MAX, &mut out), MAX_ROUTE_LEN);
    }
}
