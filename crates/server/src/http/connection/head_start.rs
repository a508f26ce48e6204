//! The first bytes of the request head that was read last, for the access log. hyper drops a head
//! whose target it rejects.

use std::cell::{Cell, RefCell};

/// The maximum number of bytes of a request head that are kept. They contain the method and as much
/// of the target as the access log shows.
const KEPT_BYTES: usize = 2100;

/// The first bytes of the last request head that an I/O thread has read, until hyper has parsed
/// this head. All connections share them, because hyper parses a head directly after the read.
#[derive(Debug, Default)]
pub(crate) struct HeadStart {
    /// The key of the head's connection in the connection table. `None` once the head was parsed.
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

    /// Records that the head was parsed.
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

/// Returns the method and the target in the first bytes of a request. Returns `None` unless they
/// begin with a method and a space.
pub(crate) fn request_line(read: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = read.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let line = read[start..].split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (method, target) = (&line[..space], &line[space + 1..]);
    let version = target.windows(6).rposition(|six| six == b" HTTP/");
    let target = &target[..version.unwrap_or(target.len())];
    let is_method = method.len() <= 32 && http::Method::from_bytes(method).is_ok();
    (is_method && !target.is_empty()).then_some((method, target))
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
    fn keeps_the_head_of_one_connection_until_it_is_parsed() {
        let start = HeadStart::default();
        let kept = |key| start.with(key, <[u8]>::to_vec);
        assert_eq!(kept(1), b"");
        start.keep(1, b"GET /");
        assert_eq!((kept(1), kept(2)), (b"GET /".to_vec(), Vec::new()));
        start.keep(2, &[b'x'; 5000]);
        assert_eq!((kept(1).len(), kept(2).len()), (0, KEPT_BYTES));
        start.forget();
        assert_eq!(kept(2), b"");
    }
}
