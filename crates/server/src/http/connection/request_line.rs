//! The request lines that hyper rejects although clients send them. In a query, hyper rejects the
//! characters `"`, `<` and `>`. httpuv accepts them, and R's own `url()`, curl and jsonlite send
//! them. All other printable characters of ASCII are accepted by hyper.
//!
//! The server percent-encodes these characters before hyper reads them, and passes the query to the
//! application as the client sent it. It changes no other byte: [`encode_query`] is called only for
//! bytes that are known to begin with a request head, because hyper has parsed all earlier bytes of
//! the connection. The query of a request that a client sends without waiting for the previous
//! response (pipelining), and one whose line arrives in several parts, stay as they are, and hyper
//! rejects them with status 400.

/// A request head whose query was encoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EncodedHead {
    /// The bytes that hyper reads in place of those that the client sent.
    pub(crate) bytes: Vec<u8>,
    /// The query as the client sent it.
    pub(crate) query: Box<[u8]>,
}

/// Encodes the rejected characters in the query of the first request line of `bytes`, which begin
/// with a request head. Returns `None` if there is nothing to encode, or if the line is incomplete.
pub(crate) fn encode_query(bytes: &[u8]) -> Option<EncodedHead> {
    let (start, end) = rejected_query(bytes)?;
    let query = &bytes[start..end];
    let mut encoded = Vec::with_capacity(bytes.len() + 16);
    encoded.extend_from_slice(&bytes[..start]);
    percent_encode(query, &mut encoded);
    encoded.extend_from_slice(&bytes[end..]);
    Some(EncodedHead { bytes: encoded, query: query.into() })
}

/// Returns true if [`encode_query`] would change `bytes` if they began with a request head.
pub(crate) fn may_need_encoding(bytes: &[u8]) -> bool {
    rejected_query(bytes).is_some()
}

/// Returns where the query of the first line begins and ends if it has a rejected character.
fn rejected_query(bytes: &[u8]) -> Option<(usize, usize)> {
    query_range(bytes)
        .filter(|(start, end)| bytes[*start..*end].iter().any(|byte| is_rejected(*byte)))
}

/// Returns the query as the client sent it, without its fragment, if `parsed` is its encoded form.
pub(crate) fn sent_query(sent: &[u8], parsed: Option<&str>) -> Option<Vec<u8>> {
    // hyper drops the fragment.
    let end = sent.iter().position(|byte| *byte == b'#').unwrap_or(sent.len());
    let mut encoded = Vec::with_capacity(end + 16);
    percent_encode(&sent[..end], &mut encoded);
    (Some(&*encoded) == parsed.map(str::as_bytes)).then(|| sent[..end].to_vec())
}

/// Returns where the query of the first line after blank lines begins and ends. Returns `None` if
/// the line is incomplete or has no query.
fn query_range(bytes: &[u8]) -> Option<(usize, usize)> {
    let line = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    // The end of the target, which the first space after the method begins.
    let mut spaces = 0;
    let mut start = None;
    for (at, &byte) in bytes.iter().enumerate().skip(line) {
        match byte {
            b'?' if spaces == 1 && start.is_none() => start = Some(at + 1),
            b' ' if start.is_none() && spaces == 0 => spaces = 1,
            ..=b' ' => {
                let start = start?;
                // A line without a line end may be continued by further bytes.
                return bytes[at..].contains(&b'\n').then_some((start, at));
            }
            _ => {}
        }
    }
    None
}

/// Returns true for the characters of a query that hyper rejects and httpuv accepts.
fn is_rejected(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>')
}

fn percent_encode(query: &[u8], encoded: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in query {
        if is_rejected(byte) {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            encoded.extend([b'%', DIGITS[high], DIGITS[low]]);
        } else {
            encoded.push(byte);
        }
    }
}

/// Encodes bytes from the fuzzer, which begin with a request head. Returns the bytes that hyper
/// reads, and the query that the application gets if hyper parses this query.
#[doc(hidden)]
pub fn encode_query_for_fuzzer(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let encoded = encode_query(bytes);
    assert_eq!(encoded.is_some(), may_need_encoding(bytes));
    encoded.map(|head| (head.bytes, head.query.into_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_query_of_the_first_line_is_encoded() {
        const REST: &str = " HTTP/1.1\r\nA: \"<>?\"\r\n\r\nGET /?\" HTTP/1.1\r\n\r\n";
        for (target, expected, sent) in [
            ("GET /?", "GET /?", None),
            ("GET /a?b=c", "GET /a?b=c", None),
            ("GET /a?{\"b\":<1>}", "GET /a?{%22b%22:%3C1%3E}", Some("{\"b\":<1>}")),
            ("\r\n\r\nGET /?\"", "\r\n\r\nGET /?%22", Some("\"")),
            ("GET /?%22\"", "GET /?%22%22", Some("%22\"")),
            ("GET /a?\"?<", "GET /a?%22?%3C", Some("\"?<")),
            ("GET /a?\"#<", "GET /a?%22#%3C", Some("\"")),
            ("GET /<a>\"", "GET /<a>\"", None),
            ("G?\"T /", "G?\"T /", None),
            ("GET http://a/?\"", "GET http://a/?%22", Some("\"")),
            ("GET /?\u{e9}\"", "GET /?\u{e9}%22", Some("\u{e9}\"")),
        ] {
            let head = format!("{target}{REST}");
            let encoded = encode_query(head.as_bytes());
            assert_eq!(may_need_encoding(head.as_bytes()), encoded.is_some());
            let Some(encoded) = encoded else {
                assert_eq!((target, sent), (expected, None));
                continue;
            };
            assert_eq!(String::from_utf8(encoded.bytes).unwrap(), format!("{expected}{REST}"));
            let parsed = expected.split('#').next().unwrap().split_once('?').unwrap().1;
            let query = sent_query(&encoded.query, Some(parsed));
            assert_eq!(query.as_deref(), sent.map(str::as_bytes), "{target}");
            assert_eq!(sent_query(&encoded.query, Some("other")), None);
            assert_eq!(sent_query(&encoded.query, None), None);
        }
    }

    #[test]
    fn an_incomplete_line_is_not_encoded() {
        let head = b"GET /?\" HTTP/1.1\r\n";
        for len in 0..head.len() {
            assert_eq!(encode_query(&head[..len]), None, "{len}");
        }
        assert!(encode_query(head).is_some());
    }
}
