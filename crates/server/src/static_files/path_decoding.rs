//! Decodes and normalizes URL paths for static files. The same decoded path is compared with the
//! static paths and is used to open the file. An alternative spelling of a URL path therefore
//! cannot evade the option `exclude`.

use smallvec::SmallVec;

/// A decoded URL path. It is either `/`, or a sequence of segments with a `/` before each segment.
/// No segment is empty or `.`.
#[derive(Debug)]
pub(crate) struct DecodedPath<'a> {
    /// The URL path as the client sent it, if it needs no decoding.
    as_sent: Option<&'a [u8]>,
    /// The decoded URL path, if decoding was necessary.
    decoded: SmallVec<[u8; INLINE]>,
    hazard: bool,
}

/// The length in bytes up to which a path is decoded without an allocation. Few request targets are
/// longer.
const INLINE: usize = 256;

impl<'a> DecodedPath<'a> {
    /// Decodes the path in the request target `raw`, which ends at the first `?`. Returns `None` if
    /// only the application can interpret the target: if it is `*`, is in absolute form, or
    /// contains a backslash, raw or encoded.
    ///
    /// An invalid escape sequence, such as `%zz` or a `%` near the end, is left as it is, and so is
    /// `+`.
    #[inline]
    pub(crate) fn decode(raw: &'a [u8]) -> Option<DecodedPath<'a>> {
        let rest = raw.strip_prefix(b"/")?;
        match plain_len(rest) {
            Some(len) => Some(DecodedPath {
                as_sent: Some(&raw[..=len]),
                decoded: SmallVec::new(),
                hazard: false,
            }),
            None => DecodedPath::decode_each(rest),
        }
    }

    /// Decodes a URL path that contains escape sequences or needs to be normalized. `rest` is the
    /// request target without the first `/`.
    fn decode_each(rest: &[u8]) -> Option<DecodedPath<'a>> {
        let mut rest = rest.split(|byte| *byte == b'?').next().unwrap_or_default();
        let mut target = DecodedPath { as_sent: None, decoded: SmallVec::new(), hazard: false };
        target.decoded.push(b'/');
        let mut start = 1;
        while let Some((&first, tail)) = rest.split_first() {
            let byte;
            (byte, rest) = match first {
                b'%' => escape(tail).map_or((first, tail), |decoded| (decoded, &tail[2..])),
                _ => (first, tail),
            };
            match byte {
                b'\\' => return None,
                b'/' => start = target.end_segment(start, Some(b'/')),
                _ => {
                    target.hazard |= byte == 0;
                    target.decoded.push(byte);
                }
            }
        }
        target.end_segment(start, None);
        if target.decoded.len() > 1 && target.decoded.ends_with(b"/") {
            target.decoded.pop();
        }
        Some(target)
    }

    pub(crate) fn path(&self) -> &[u8] {
        self.as_sent.unwrap_or(&self.decoded)
    }

    /// Returns true if the decoded path is dangerous to open: a `..` segment could lead out of a
    /// directory, and a NUL would end the path early in a system call.
    pub(crate) fn is_hazardous(&self) -> bool {
        self.hazard
    }

    /// Ends the path segment that begins at `start`. Appends `separator`, if there is one, or
    /// removes the segment if it is empty or `.`. Returns the start of the next segment.
    fn end_segment(&mut self, start: usize, separator: Option<u8>) -> usize {
        match &self.decoded[start..] {
            b"" => {}
            b"." => self.decoded.truncate(start),
            segment => {
                self.hazard |= segment == b"..";
                self.decoded.extend(separator);
            }
        }
        self.decoded.len()
    }
}

/// Returns the length of a URL path if it needs no decoding. This is the case if it has no escape
/// sequence, backslash or NUL, and no segment that is empty or begins with a dot. `rest` is the
/// request target without the first `/`.
fn plain_len(rest: &[u8]) -> Option<usize> {
    let mut previous = b'/';
    let mut len = 0;
    for &byte in rest {
        match byte {
            b'?' => break,
            b'%' | b'\\' | 0 => return None,
            b'/' | b'.' if previous == b'/' => return None,
            _ => {}
        }
        previous = byte;
        len += 1;
    }
    (previous != b'/' || len == 0).then_some(len)
}

/// Returns the byte that an escape sequence such as `%2F` represents. `tail` begins with its two
/// hexadecimal digits.
fn escape(tail: &[u8]) -> Option<u8> {
    let digit = |index: usize| tail.get(index).and_then(|byte| char::from(*byte).to_digit(16));
    Some((digit(0)? << 4 | digit(1)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a URL path in a simple and slow way, with which the test compares the real decoder.
    fn naive(raw: &str) -> Option<(Vec<u8>, bool)> {
        let raw = raw.split('?').next().unwrap();
        if !raw.starts_with('/') {
            return None;
        }
        let mut decoded = Vec::new();
        let mut index = 0;
        while index < raw.len() {
            let hex = raw
                .get(index + 1..index + 3)
                .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            match hex {
                Some(hex) if raw.as_bytes()[index] == b'%' => {
                    decoded.push(u8::from_str_radix(hex, 16).unwrap());
                    index += 3;
                }
                _ => {
                    decoded.push(raw.as_bytes()[index]);
                    index += 1;
                }
            }
        }
        if decoded.contains(&b'\\') {
            return None;
        }
        let hazard = decoded.contains(&0)
            || [&decoded[..], b"/"].concat().windows(4).any(|window| window == b"/../");
        let kept: Vec<&[u8]> = decoded
            .split(|byte| *byte == b'/')
            .filter(|segment| !matches!(*segment, b"" | b"."))
            .collect();
        Some(([b"/", &kept.join(&b'/')[..]].concat(), hazard))
    }

    /// Checks that the real decoder and a simple one agree on all combinations of up to six strings
    /// that need special treatment.
    #[test]
    fn decoding_agrees_with_a_naive_decoder_on_every_short_target() {
        const PIECES: [&str; 10] = ["/", ".", "a", "%2e", "%2F", "%00", "%5c", "%", "2", "?"];
        let mut checked = 0;
        for length in 0..=6u32 {
            for number in 0..10u32.pow(length) {
                let mut raw = String::from("/");
                (0..length).for_each(|place| {
                    raw.push_str(PIECES[(number / 10u32.pow(place) % 10) as usize]);
                });
                let ours = DecodedPath::decode(raw.as_bytes())
                    .map(|target| (target.path().to_vec(), target.is_hazardous()));
                assert_eq!(ours, naive(&raw), "{raw:?}");
                checked += 1;
            }
        }
        assert_eq!(checked, 1_111_111);
    }

    #[test]
    fn decoding_table() {
        let table: &[(&str, Option<(&str, bool)>)] = &[
            ("/", Some(("/", false))),
            ("/a%20b?x=%5c", Some(("/a b", false))),
            ("/a+b", Some(("/a+b", false))),
            ("/%73/a", Some(("/s/a", false))),
            ("/s%2fa", Some(("/s/a", false))),
            ("/a%zz%4", Some(("/a%zz%4", false))),
            ("/%252e%252e/x", Some(("/%2e%2e/x", false))),
            ("//a///b//", Some(("/a/b", false))),
            ("/./a/./.", Some(("/a", false))),
            ("/..foo/foo../...", Some(("/..foo/foo../...", false))),
            ("/a/%2e%2E/b", Some(("/a/../b", true))),
            ("/..", Some(("/..", true))),
            ("/a.txt%00", Some(("/a.txt\0", true))),
            ("/%c3%a9", Some(("/\u{e9}", false))),
            ("/a\\b", None),
            ("/a%5Cb", None),
            ("*", None),
            ("", None),
            ("http://h/a", None),
        ];
        for (raw, expected) in table {
            let ours = DecodedPath::decode(raw.as_bytes());
            let seen = ours
                .as_ref()
                .map(|target| (std::str::from_utf8(target.path()).unwrap(), target.is_hazardous()));
            assert_eq!(seen, *expected, "{raw}");
        }
        assert!(!DecodedPath::decode(&vec![b'/'; INLINE * 400]).unwrap().decoded.spilled());
        assert!(
            !DecodedPath::decode(b"/a/long/but/ordinary/path%20to/some/file.js")
                .unwrap()
                .decoded
                .spilled()
        );
    }
}
