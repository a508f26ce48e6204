//! The first bytes of a request head that hyper rejects, for the access log.
//!
//! If hyper rejects a head while it parses the lines, the head remains in hyper's buffer, which
//! then has the whole head, however its bytes have arrived. If hyper has parsed the lines and then
//! rejects the target, the `Content-Length` or the `Transfer-Encoding`, it drops the head. For
//! these heads only, [`HeadStart`] keeps a copy.

use std::cell::{Cell, RefCell};

/// The maximum number of bytes of a request head that are kept. They contain the method and as much
/// of the target as the access log shows.
const KEPT_BYTES: usize = 2100;

/// The first bytes of the last request head that an I/O thread has read, until hyper has accepted
/// this head. All connections share them, because hyper parses a head directly after the read. The
/// bytes of a head that arrives in pieces are lost if another connection reads in between, and
/// those that arrive together with the previous request are not kept.
#[derive(Debug, Default)]
pub(crate) struct HeadStart {
    /// The key of the head's connection in the connection table. `None` once the head was accepted.
    connection: Cell<Option<usize>>,
    bytes: RefCell<Vec<u8>>,
}

impl HeadStart {
    /// Keeps the first bytes of a head. `connection` is the key of its connection.
    pub(crate) fn keep(&self, connection: usize, read: &[u8]) {
        let mut bytes = self.bytes.borrow_mut();
        bytes.clear();
        bytes.extend_from_slice(&read[..read.len().min(KEPT_BYTES)]);
        self.connection.set(Some(connection));
    }

    /// Adds further bytes of the head, if the first bytes of this connection's head are kept.
    pub(crate) fn extend(&self, connection: usize, read: &[u8]) {
        if self.connection.get() == Some(connection) {
            let mut bytes = self.bytes.borrow_mut();
            let room = KEPT_BYTES.saturating_sub(bytes.len());
            bytes.extend_from_slice(&read[..read.len().min(room)]);
        }
    }

    /// Records that the head was accepted.
    pub(crate) fn forget(&self) {
        self.connection.set(None);
    }

    /// Calls `then` with the first bytes of the connection's head, or with none if they are not
    /// kept.
    pub(crate) fn with<T>(&self, connection: usize, then: impl FnOnce(&[u8]) -> T) -> T {
        let bytes = self.bytes.borrow();
        then(if self.connection.get() == Some(connection) { &bytes } else { &[] })
    }
}

/// Returns the first bytes of a head that hyper has rejected with the error text `error`. Returns
/// none if hyper has dropped the head and no copy of it was kept. `unparsed` has the bytes that
/// hyper has not dropped, and `kept` those of the [`HeadStart`].
pub(crate) fn rejected_head<'a>(error: &str, unparsed: &'a [u8], kept: &'a [u8]) -> &'a [u8] {
    let is_dropped = if error.contains("URI") {
        // hyper reports a target with an invalid byte with the same text, but keeps its head.
        let is_parsed = |head: &[u8]| request_line(head).is_some_and(|it| !has_invalid_byte(it.1));
        (kept.contains(&b'\n') && is_parsed(kept)) || is_parsed(unparsed)
    } else {
        error.contains("content-length") || error.contains("transfer-encoding")
    };
    match request_line(kept) {
        _ if !is_dropped => unparsed,
        // The beginning of a head may have arrived together with the previous request. Then `kept`
        // begins within the head.
        Some((method, _)) if is_known_method(method) => kept,
        _ => &[],
    }
}

fn is_known_method(method: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] =
        [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE"];
    METHODS.contains(&method)
}

/// Returns true if hyper cannot find the end of this request target, because it has a byte that no
/// target may have.
fn has_invalid_byte(target: &[u8]) -> bool {
    target.iter().any(|byte| matches!(byte, 0..=b' ' | 0x7f))
        || std::str::from_utf8(target).is_err()
}

/// Returns the method and the target in the first bytes of a request. Returns `None` unless they
/// begin with a method and a space.
pub(crate) fn request_line(read: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = read.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let read = &read[start..read.len().min(start + KEPT_BYTES)];
    let line = read.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (method, target) = (&line[..space], &line[space + 1..]);
    let target = without_version(target);
    let is_method = method.len() <= 32 && http::Method::from_bytes(method).is_ok();
    (is_method && !target.is_empty()).then_some((method, target))
}

/// Returns the part of a request line that follows the method, without the HTTP version, of which
/// only the first bytes may have arrived.
fn without_version(line: &[u8]) -> &[u8] {
    const VERSION: &[u8] = b" HTTP/";
    let version = line.windows(VERSION.len()).rposition(|bytes| bytes == VERSION);
    let partial = || (1..VERSION.len()).find(|len| line.ends_with(&VERSION[..*len]));
    let end = version.or_else(|| partial().map(|len| line.len() - len));
    &line[..end.unwrap_or(line.len())]
}

/// Calls [`rejected_head`] and [`request_line`] with bytes from the fuzzer.
#[doc(hidden)]
pub fn rejected_head_for_fuzzer(bytes: &[u8]) {
    let (at, bytes) = bytes.split_first().map_or((0, bytes), |(at, rest)| (usize::from(*at), rest));
    let (kept, unparsed) = bytes.split_at(at.min(bytes.len()));
    for error in ["invalid URI", "invalid content-length parsed", "invalid HTTP header parsed"] {
        let head = rejected_head(error, unparsed, kept);
        assert!(head.is_empty() || head == unparsed || head == kept);
        if let Some((method, target)) = request_line(head) {
            assert!(method.len() + target.len() < KEPT_BYTES && !method.contains(&b' '));
            assert!(!target.is_empty() && !target.iter().any(|byte| matches!(byte, b'\r' | b'\n')));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_request_line_of_a_rejected_head() {
        for (read, expected) in [
            ("GET /a\"b HTTP/1.1\r\nHost: a\r\n\r\n", Some(("GET", "/a\"b"))),
            ("\r\nGET /a b?c HTTP/1.1\n", Some(("GET", "/a b?c"))),
            ("GET /a\0b HTTP/9.9\r\n", Some(("GET", "/a\0b"))),
            ("POST /cut-off", Some(("POST", "/cut-off"))),
            ("GET /\u{1} ", Some(("GET", "/\u{1}"))),
            ("GET /\u{1} HTT", Some(("GET", "/\u{1}"))),
            ("GET /\u{1} a HTTP", Some(("GET", "/\u{1} a"))),
            ("GET  HTTP/1.1\r\n", None),
            ("nonsense\r\n\r\n", None),
            ("a(b /c HTTP/1.1\r\n", None),
            ("", None),
            ("\r\n", None),
            ("\u{16}\u{3}\u{1} \r\n", None),
        ] {
            let expected = expected.map(|(method, target)| (method.as_bytes(), target.as_bytes()));
            assert_eq!(request_line(read.as_bytes()), expected, "{read:?}");
        }
    }

    #[test]
    fn a_request_line_has_a_method_of_at_most_32_bytes() {
        for (len, is_method) in [(32, true), (33, false)] {
            let line = format!("{} /a HTTP/1.1\r\n", "M".repeat(len));
            assert_eq!(request_line(line.as_bytes()).is_some(), is_method, "{len} bytes");
        }
    }

    #[test]
    fn any_bytes_have_a_request_line_of_limited_length_or_none() {
        let any: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        for method in [&b"GET "[..], b"\r\n\r\nGET ", b" ", b"GET", b""] {
            for byte in 0..=255 {
                for rest in [&[byte, b'x'][..], &[b'/', byte, b' '], &any[usize::from(byte)..]] {
                    let read = [method, rest].concat();
                    let Some((method, target)) = request_line(&read) else { continue };
                    assert_eq!(method, b"GET", "{byte}");
                    assert!(!target.is_empty() && target.len() < KEPT_BYTES, "{byte}");
                    assert!(!target.contains(&b'\n') && !target.contains(&b'\r'), "{byte}");
                }
            }
        }
    }

    #[test]
    fn a_head_that_hyper_has_dropped_is_that_which_was_kept() {
        let uri = "invalid URI";
        let (length, other) = ("invalid content-length parsed", "invalid HTTP version parsed");
        let coding = "unexpected transfer-encoding parsed";
        let (bad, fine, next) =
            ("GET /\u{1} HTTP/1.1\r\n", "GET /< HTTP/1.1\r\n", "GET /n HTTP/1.1\r\n");
        for (error, unparsed, kept, expected) in [
            (uri, bad, bad, bad),
            (uri, bad, "", bad),
            (uri, bad, "GET /", bad),
            // The end of the head, whose beginning has arrived together with the previous request.
            (uri, bad, "T /\u{1} HTTP/1.1\r\n", bad),
            (uri, "", fine, fine),
            (uri, next, fine, fine),
            (uri, bad, fine, fine),
            (uri, next, "", ""),
            (length, next, fine, fine),
            (coding, next, fine, fine),
            (length, next, "", ""),
            (length, next, "T /< HTTP/1.1\r\n", ""),
            (other, next, fine, next),
            (other, next, "", next),
        ] {
            let head = rejected_head(error, unparsed.as_bytes(), kept.as_bytes());
            assert_eq!(head, expected.as_bytes(), "{error}: {unparsed:?} {kept:?}");
        }
    }

    #[test]
    fn keeps_the_head_of_one_connection_until_it_is_accepted() {
        let start = HeadStart::default();
        let kept = |key| start.with(key, <[u8]>::to_vec);
        assert_eq!(kept(1), b"");
        start.keep(1, b"GET /");
        assert_eq!((kept(1), kept(2)), (b"GET /".to_vec(), Vec::new()));
        start.extend(1, b"a");
        start.extend(2, b"b");
        assert_eq!(kept(1), b"GET /a");
        start.keep(2, &[b'x'; 5000]);
        start.extend(2, b"b");
        assert_eq!((kept(1).len(), kept(2).len()), (0, KEPT_BYTES));
        start.forget();
        assert_eq!(kept(2), b"");
    }
}
