//! The target of the PROXY protocol's header.

use rookery_server::proxy_header::{Begin, MOST, begin};

/// The first bytes of a connection.
///
/// A header has one end, wherever it is cut and whatever follows; what is none stays none; and nothing is waited for beyond the
/// longest header.
pub fn proxy_header(data: &[u8]) {
    match begin(data) {
        Begin::Part => assert!(data.len() < MOST),
        Begin::Whole(header) => {
            assert!(header.len <= data.len().min(MOST));
            assert_eq!(begin(&data[..header.len]), Begin::Whole(header));
            for end in 0..header.len {
                assert_eq!(begin(&data[..end]), Begin::Part, "{end} of {data:?}");
            }
            assert_eq!(begin(&[data, b"GET / HTTP/1.1\r\n"].concat()), Begin::Whole(header));
        }
        Begin::Other => {
            for more in [&b"\r\n"[..], b"0", &[0; 16]] {
                assert_eq!(begin(&[data, more].concat()), Begin::Other);
            }
        }
    }
}
