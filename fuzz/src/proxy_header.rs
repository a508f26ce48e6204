//! The fuzz target of the PROXY protocol's header.

use rookery_server::proxy_header::{MAX_HEADER_SIZE, ParseResult, parse};

/// Checks that a header ends at one place, wherever the input is cut and whatever follows; that an
/// invalid beginning stays invalid; and that the parser never waits for more than the longest
/// header.
pub fn proxy_header(data: &[u8]) {
    match parse(data) {
        ParseResult::Incomplete => assert!(data.len() < MAX_HEADER_SIZE),
        ParseResult::Complete(header) => {
            assert!(header.len <= data.len().min(MAX_HEADER_SIZE));
            assert_eq!(parse(&data[..header.len]), ParseResult::Complete(header));
            for end in 0..header.len {
                assert_eq!(parse(&data[..end]), ParseResult::Incomplete, "{end} of {data:?}");
            }
            assert_eq!(
                parse(&[data, b"GET / HTTP/1.1\r\n"].concat()),
                ParseResult::Complete(header)
            );
        }
        ParseResult::Invalid => {
            for more in [&b"\r\n"[..], b"0", &[0; 16]] {
                assert_eq!(parse(&[data, more].concat()), ParseResult::Invalid);
            }
        }
    }
}
