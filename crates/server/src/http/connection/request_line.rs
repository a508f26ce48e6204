//! Percent-encodes the characters of a request's query that hyper rejects, and keeps the query as
//! the client sent it.
//!
//! The characters are `"`, `<` and `>`. httpuv accepts them in a query, and R's own `url()`, curl
//! and jsonlite send them. All other characters that the URL standard leaves unchanged in a query,
//! such as `{`, `|` and `^`, are accepted by hyper. Spaces, control characters and bytes that are
//! not UTF-8 are left as they are, so that hyper rejects the request.

use std::cell::{Cell, RefCell};

/// The progress in reading the request line of an HTTP/1.1 connection's current request head.
#[derive(Debug, Default)]
pub(crate) struct RequestLine {
    part: Cell<Part>,
    /// The query that is being read, from the byte after the first `?`.
    query: RefCell<Vec<u8>>,
    /// The last query that was encoded, as the client sent it.
    sent_query: RefCell<Vec<u8>>,
}

/// The part of a request head to which the next byte belongs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    /// The blank lines before the request line.
    #[default]
    Start,
    /// The request line up to the first `?`.
    Target,
    Query,
    /// The rest of the head after the query or, in a head without a query, after its first line.
    Rest,
}

/// The bytes that hyper reads in place of those that the client sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes up to the next line that may be a request line whose query must be
    /// encoded as well. Whether it is one depends on whether hyper then expects a request head.
    pub(crate) ready: usize,
}

impl RequestLine {
    /// Encodes the query in a part of a request head. `is_start` is true for the first part of a
    /// head. Returns `None` if hyper can read the bytes as they are.
    pub(crate) fn encode(&self, is_start: bool, bytes: &[u8]) -> Option<Encoded> {
        if is_start {
            self.part.set(Part::Start);
        }
        if !has_rejected(bytes) {
            match self.part.get() {
                Part::Rest => {}
                // Nearly all heads arrive with their whole first line.
                Part::Start if bytes.first() > Some(&b'\r') && bytes.contains(&b'\n') => {
                    self.part.set(Part::Rest);
                }
                _ => {
                    self.advance(bytes, &mut Vec::new());
                }
            }
            return None;
        }
        let mut encoded = Vec::with_capacity(bytes.len() + 16);
        let rest = &bytes[self.advance(bytes, &mut encoded)..];
        let is_encoded = encoded.len() + rest.len() > bytes.len();
        let next = next_request_line(rest);
        if !is_encoded && next.is_none() {
            return None;
        }
        let ready = encoded.len() + next.unwrap_or(rest.len());
        encoded.extend_from_slice(rest);
        Some(Encoded { bytes: encoded, ready })
    }

    /// Reads bytes up to the end of the query or of the request line, and appends them to
    /// `encoded`, with the rejected characters of the query encoded. Returns the number of bytes
    /// that it has read.
    fn advance(&self, bytes: &[u8], encoded: &mut Vec<u8>) -> usize {
        let mut query = self.query.borrow_mut();
        let mut part = self.part.get();
        let mut read = 0;
        for &byte in bytes {
            part = match (part, byte) {
                (Part::Rest, _) => break,
                (Part::Start, b'\r' | b'\n') => Part::Start,
                (Part::Target, b'\n') | (Part::Query, ..=b' ') => Part::Rest,
                (Part::Start | Part::Target, b'?') => {
                    query.clear();
                    Part::Query
                }
                (Part::Start | Part::Target, _) => Part::Target,
                (Part::Query, _) => {
                    query.push(byte);
                    Part::Query
                }
            };
            if part == Part::Query && is_rejected(byte) {
                percent_encode(byte, encoded);
            } else {
                encoded.push(byte);
            }
            read += 1;
        }
        if part == Part::Rest {
            let read = std::mem::take(&mut *query);
            // A head that hyper parses again has been encoded already.
            if has_rejected(&read) {
                self.sent_query.replace(read);
            }
        }
        self.part.set(part);
        read
    }

    /// Returns the query of a request as the client sent it, if it was encoded. `parsed` is the
    /// query that hyper has read.
    pub(crate) fn take_sent_query(&self, parsed: Option<&str>) -> Option<Vec<u8>> {
        if self.sent_query.borrow().is_empty() {
            return None;
        }
        let mut sent = self.sent_query.take();
        // hyper drops the fragment.
        let end = sent.iter().position(|byte| *byte == b'#').unwrap_or(sent.len());
        sent.truncate(end);
        // The comparison fails if the query is that of a head which hyper did not accept.
        let mut encoded = Vec::with_capacity(sent.len() + 16);
        for &byte in &sent {
            if is_rejected(byte) {
                percent_encode(byte, &mut encoded);
            } else {
                encoded.push(byte);
            }
        }
        (Some(&*encoded) == parsed.map(str::as_bytes)).then_some(sent)
    }
}

/// Returns true for the characters of a query that hyper rejects and httpuv accepts.
fn is_rejected(byte: u8) -> bool {
    // `<` and `>` differ in one bit.
    byte == b'"' || byte | 2 == b'>'
}

/// Returns true if one of the bytes is a rejected character. The loop is free of branches, so that
/// the compiler vectorizes it.
fn has_rejected(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_rejected(*byte))
}

fn percent_encode(byte: u8, encoded: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    encoded.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Returns the start of the first line that could be a request line with a rejected character. The
/// first line of `bytes` does not count.
pub(crate) fn next_request_line(bytes: &[u8]) -> Option<usize> {
    // Most bodies with these characters are searched only once.
    if !bytes.windows(VERSION.len()).any(|window| window == VERSION) {
        return None;
    }
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut start = lines.next()?.len();
    for line in lines {
        let end = line.trim_ascii_end();
        // The last digit is that of the minor version.
        let is_request_line = end.len() > VERSION.len() && line.ends_with(b"\n") && {
            end[..end.len() - 1].ends_with(VERSION)
        };
        if is_request_line && has_rejected(line) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

/// The end of a request line without the minor version.
const VERSION: &[u8] = b" HTTP/1.";

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a head that arrives in two parts, and returns what hyper reads.
    fn encode(line: &RequestLine, parts: [&[u8]; 2]) -> Vec<u8> {
        let mut read = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            match line.encode(index == 0, part) {
                Some(encoded) => read.extend(encoded.bytes),
                None => read.extend(part),
            }
        }
        read
    }

    #[test]
    fn a_query_is_encoded_wherever_its_head_is_divided() {
        for rest in [" HTTP/1.1\r\nA: \"<>?\"\r\n\r\n", " HTTP/1.1\r\nHost: a\r\n\r\n"] {
            encodes_wherever_divided(rest);
        }
    }

    fn encodes_wherever_divided(rest: &str) {
        for (target, encoded, sent) in [
            ("GET /?", "GET /?", None),
            ("GET /a?b=c", "GET /a?b=c", None),
            ("GET /a?{\"b\":<1>}", "GET /a?{%22b%22:%3C1%3E}", Some("{\"b\":<1>}")),
            ("\r\n\r\nGET /?\"", "\r\n\r\nGET /?%22", Some("\"")),
            ("GET /?%22\"", "GET /?%22%22", Some("%22\"")),
            ("GET /a?\"?<", "GET /a?%22?%3C", Some("\"?<")),
            ("GET /a?\"#<", "GET /a?%22#%3C", Some("\"")),
            ("GET /<a>\"", "GET /<a>\"", None),
            ("GET http://a/?\"", "GET http://a/?%22", Some("\"")),
            ("GET /?\u{e9}\"", "GET /?\u{e9}%22", Some("\u{e9}\"")),
        ] {
            let head = format!("{target}{rest}");
            for at in 0..head.len() {
                let line = RequestLine::default();
                let (first, second) = head.as_bytes().split_at(at);
                let read = encode(&line, [first, second]);
                let read = String::from_utf8(read).unwrap();
                assert_eq!(read, format!("{encoded}{rest}"), "{at}");
                let query = encoded.split('#').next().unwrap().split_once('?');
                let query = query.map(|(_, query)| query);
                let found = line.take_sent_query(query);
                if let Some(sent) = sent {
                    assert_eq!(found.as_deref(), Some(sent.as_bytes()), "{target} {at}");
                } else if let Some(found) = found {
                    assert_eq!(Some(&*found), query.map(str::as_bytes), "{target} {at}");
                }
                assert_eq!(line.take_sent_query(query), None);
            }
        }
    }

    #[test]
    fn the_query_of_another_head_is_not_used() {
        let line = RequestLine::default();
        line.encode(true, b"GET /?\"a HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(line.take_sent_query(Some("b")), None);
        line.encode(true, b"GET /?\"a HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(line.take_sent_query(None), None);
    }

    #[test]
    fn a_later_line_that_may_be_a_request_line_is_held_back() {
        let line = RequestLine::default();
        let head = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
        for after in [
            &b""[..],
            b"abc",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\"<>",
            b"GET /?\" HTTP/1.1",
            b"\" HTTP\n",
        ] {
            assert_eq!(line.encode(true, &[head, after].concat()), None);
        }
        for end in ["\r\n\r\n", "\n\n", "\n"] {
            let bytes = [head, &b"GET /?\" HTTP/1.1"[..], end.as_bytes()].concat();
            assert_eq!(line.encode(true, &bytes), Some(Encoded { bytes, ready: head.len() }));
        }
    }
}
