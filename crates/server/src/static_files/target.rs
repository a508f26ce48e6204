//! The path of a request, decoded and brought into the form in which it is compared with keys and given to the file
//! system: both see the same bytes, so that no spelling reaches a file past an exclusion.

use smallvec::SmallVec;

/// A decoded path: `/`, or segments with a `/` before each, none of them empty or `.`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    path: SmallVec<[u8; INLINE]>,
    hazard: bool,
}

/// Targets are seldom longer, and up to here decoding allocates nothing.
const INLINE: usize = 256;

impl Target {
    /// Decodes a raw request target, up to a `?` if there is one. `None` where the application alone can know what is
    /// meant: absolute form, `*`, and any backslash, raw or encoded.
    ///
    /// An invalid escape (`%zz`, a `%` near the end) stands for itself; `+` does too.
    pub(crate) fn decode(raw: &[u8]) -> Option<Target> {
        let raw = raw.split(|byte| *byte == b'?').next().unwrap_or_default();
        let mut rest = raw.strip_prefix(b"/")?;
        let mut target = Target { path: SmallVec::new(), hazard: false };
        target.path.push(b'/');
        let mut start = 1;
        while let Some((&first, tail)) = rest.split_first() {
            let byte;
            (byte, rest) = match (first, escape(tail)) {
                (b'%', Some(decoded)) => (decoded, &tail[2..]),
                _ => (first, tail),
            };
            match byte {
                b'\\' => return None,
                b'/' => start = target.end_segment(start, Some(b'/')),
                _ => {
                    target.hazard |= byte == 0;
                    target.path.push(byte);
                }
            }
        }
        target.end_segment(start, None);
        if target.path.len() > 1 && target.path.ends_with(b"/") {
            target.path.pop();
        }
        Some(target)
    }

    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether there is a `..` segment, which could lead out of a directory, or a NUL, which could cut the path short.
    pub(crate) fn is_hazardous(&self) -> bool {
        self.hazard
    }

    /// Ends the segment that begins at `start`; returns where the next one begins.
    fn end_segment(&mut self, start: usize, separator: Option<u8>) -> usize {
        match &self.path[start..] {
            b"" => {}
            b"." => self.path.truncate(start),
            segment => {
                self.hazard |= segment == b"..";
                self.path.extend(separator);
            }
        }
        self.path.len()
    }
}

/// The byte that two hexadecimal digits stand for.
fn escape(tail: &[u8]) -> Option<u8> {
    let digit = |index: usize| tail.get(index).and_then(|byte| char::from(*byte).to_digit(16));
    Some((digit(0)? << 4 | digit(1)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step at a time, on whole vectors, as the description reads.
    fn naive(raw: &str) -> Option<(Vec<u8>, bool)> {
        let raw = raw.split('?').next().unwrap();
        if !raw.starts_with('/') {
            return None;
        }
        let mut decoded = Vec::new();
        let mut index = 0;
        while index < raw.len() {
            let hex =
                raw.get(index + 1..index + 3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
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
        let hazard =
            decoded.contains(&0) || [&decoded[..], b"/"].concat().windows(4).any(|window| window == b"/../");
        let kept: Vec<&[u8]> =
            decoded.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b".")).collect();
        Some(([b"/", &kept.join(&b'/')[..]].concat(), hazard))
    }

    /// Every sequence of up to six of the pieces that mean something.
    #[test]
    fn decoding_agrees_with_a_naive_decoder_on_every_short_target() {
        const PIECES: [&str; 10] = ["/", ".", "a", "%2e", "%2F", "%00", "%5c", "%", "2", "?"];
        let mut checked = 0;
        for length in 0..=6u32 {
            for number in 0..10u32.pow(length) {
                let mut raw = String::from("/");
                (0..length).for_each(|place| raw.push_str(PIECES[(number / 10u32.pow(place) % 10) as usize]));
                let ours = Target::decode(raw.as_bytes())
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
            let ours = Target::decode(raw.as_bytes());
            let seen = ours
                .as_ref()
                .map(|target| (std::str::from_utf8(target.path()).unwrap(), target.is_hazardous()));
            assert_eq!(seen, *expected, "{raw}");
        }
        assert!(!Target::decode(&vec![b'/'; INLINE * 400]).unwrap().path.spilled());
        assert!(!Target::decode(b"/a/long/but/ordinary/path%20to/some/file.js").unwrap().path.spilled());
    }
}
