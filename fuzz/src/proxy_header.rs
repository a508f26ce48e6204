//! The target of the PROXY protocol's header.

use rookery_server::proxy_header::{ParseResult, MAX_HEADER_SIZE, parse};

/// The first bytes of a connection.
///
/// A header has one end, wherever it is cut and whatever follows; what is none stays none; and nothing is waited for beyond the
/// longest header.
pub fn proxy_header(data: &[u8]) {
    match parse(data) {
        ParseResult::Incomplete => assert!(data.len() < MAX_HEADER_SIZE),
        ParseResult::Complete(header) => {
            assert!(header.len <= data.len().min(MAX_HEADER_SIZE));
            assert_eq!(parse(&data[..header.len]), ParseResult::Complete(header));
            for end in 0..header.len {
                assert_eq!(parse(&data[..end]), ParseResult::Incomplete, "{end} of {data:?}");
            }
            assert_eq!(parse(&[data, b"GET / HTTP/1.1\r\n"].concat()), ParseResult::Complete(header));
        }
        ParseResult::Invalid => {
            for more in [&b"\r\n"[..], b"0", &[0; 16]] {
                assert_eq!(parse(&[data, more].concat()), ParseResult::Invalid);
            }
        }
    }
}
