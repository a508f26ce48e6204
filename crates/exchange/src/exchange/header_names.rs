//! The names of request headers in the two forms that applications use: in lower case (`x-foo`),
//! and in CGI form (`HTTP_X_FOO`).
//!
//! A table contains the names that clients commonly send. The server looks up each name once, and
//! the application can keep one R object for each name in the table.

use super::arena_slice::ArenaSlice;

/// A header of a request. If the request has several lines with this name, their values have been
/// joined.
#[derive(Debug, Clone, Copy)]
pub struct HeaderLine<'a> {
    /// The name of the request header in lower case.
    pub name: &'a [u8],
    /// The name of the request header in CGI form: `HTTP_` and the name in upper case with `_` for
    /// `-` (RFC 3875, 4.1.18). Empty if the name contains a `_`, because `x_user` and `x-user`
    /// would have the same CGI name.
    pub cgi: &'a [u8],
    /// The value of the request header. The values of several lines with the same name are joined
    /// with `,` (RFC 9110, 5.2), those of `Cookie` with `; ` (RFC 6265, 5.4).
    pub value: &'a [u8],
    /// The index of the header's name in the table of common names ([`KNOWN_HEADERS`]), or `None`
    /// for any other name.
    pub known: Option<u8>,
}

/// A header name in the table of common names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHeader {
    /// The header name in lower case.
    pub name: &'static str,
    /// The header name in CGI form, such as `HTTP_USER_AGENT`.
    pub cgi: &'static str,
}

/// A request header as an exchange stores it. Its name and value are slices of the exchange's
/// arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredHeader {
    pub(crate) name: ArenaSlice,
    pub(crate) cgi: ArenaSlice,
    pub(crate) value: ArenaSlice,
    pub(crate) known: u8,
}

/// The value of [`StoredHeader::known`] for a header name that is not in the table of common names.
pub(crate) const UNKNOWN: u8 = u8::MAX;

macro_rules! known_headers {
    ($($index:literal $name:literal $cgi:literal)*) => {
        /// The table of the header names that clients commonly send.
        pub const KNOWN_HEADERS: &[KnownHeader] = &[$(KnownHeader { name: $name, cgi: $cgi }),*];

        /// Returns the index of a lower-case header name in [`KNOWN_HEADERS`], or `None` if the
        /// name is not common.
        pub fn known_header(name: &[u8]) -> Option<u8> {
            // The compiler turns these comparisons into a switch on the length and one comparison.
            const fn bytes(s: &str) -> &[u8] { s.as_bytes() }
            $(if name == const { bytes($name) } { return Some($index); })*
            None
        }
    };
}

known_headers! {
    0 "host" "HTTP_HOST"
    1 "user-agent" "HTTP_USER_AGENT"
    2 "accept" "HTTP_ACCEPT"
    3 "accept-encoding" "HTTP_ACCEPT_ENCODING"
    4 "accept-language" "HTTP_ACCEPT_LANGUAGE"
    5 "connection" "HTTP_CONNECTION"
    6 "content-type" "HTTP_CONTENT_TYPE"
    7 "content-length" "HTTP_CONTENT_LENGTH"
    8 "cookie" "HTTP_COOKIE"
    9 "referer" "HTTP_REFERER"
    10 "origin" "HTTP_ORIGIN"
    11 "cache-control" "HTTP_CACHE_CONTROL"
    12 "pragma" "HTTP_PRAGMA"
    13 "authorization" "HTTP_AUTHORIZATION"
    14 "upgrade" "HTTP_UPGRADE"
    15 "upgrade-insecure-requests" "HTTP_UPGRADE_INSECURE_REQUESTS"
    16 "transfer-encoding" "HTTP_TRANSFER_ENCODING"
    17 "expect" "HTTP_EXPECT"
    18 "range" "HTTP_RANGE"
    19 "if-modified-since" "HTTP_IF_MODIFIED_SINCE"
    20 "if-none-match" "HTTP_IF_NONE_MATCH"
    21 "te" "HTTP_TE"
    22 "dnt" "HTTP_DNT"
    23 "x-forwarded-for" "HTTP_X_FORWARDED_FOR"
    24 "x-forwarded-proto" "HTTP_X_FORWARDED_PROTO"
    25 "x-forwarded-host" "HTTP_X_FORWARDED_HOST"
    26 "x-real-ip" "HTTP_X_REAL_IP"
    27 "x-requested-with" "HTTP_X_REQUESTED_WITH"
    28 "x-request-id" "HTTP_X_REQUEST_ID"
    29 "sec-websocket-key" "HTTP_SEC_WEBSOCKET_KEY"
    30 "sec-websocket-version" "HTTP_SEC_WEBSOCKET_VERSION"
    31 "sec-websocket-extensions" "HTTP_SEC_WEBSOCKET_EXTENSIONS"
    32 "sec-websocket-protocol" "HTTP_SEC_WEBSOCKET_PROTOCOL"
    33 "sec-fetch-dest" "HTTP_SEC_FETCH_DEST"
    34 "sec-fetch-mode" "HTTP_SEC_FETCH_MODE"
    35 "sec-fetch-site" "HTTP_SEC_FETCH_SITE"
    36 "sec-fetch-user" "HTTP_SEC_FETCH_USER"
    37 "sec-ch-ua" "HTTP_SEC_CH_UA"
    38 "sec-ch-ua-mobile" "HTTP_SEC_CH_UA_MOBILE"
    39 "sec-ch-ua-platform" "HTTP_SEC_CH_UA_PLATFORM"
    40 "forwarded" "HTTP_FORWARDED"
    41 "via" "HTTP_VIA"
    42 "traceparent" "HTTP_TRACEPARENT"
    43 "tracestate" "HTTP_TRACESTATE"
    44 "priority" "HTTP_PRIORITY"
    45 "keep-alive" "HTTP_KEEP_ALIVE"
    46 "date" "HTTP_DATE"
}

/// Writes a header name in CGI form to `out`: `HTTP_`, followed by `name` in upper case and with
/// `_` for `-`. Returns false if `name` contains a `_`. It then has no CGI form, and `out` is not
/// to be used.
pub(crate) fn write_cgi(name: &[u8], out: &mut [u8]) -> bool {
    out[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut marks = 0;
    for (to, from) in out[PREFIX.len()..].iter_mut().zip(name) {
        *to = CGI_BYTES[usize::from(*from)];
        marks |= *to;
    }
    marks & NO_CGI_BYTE == 0
}

/// The mark of a byte that a header name with a CGI form cannot contain. Header names are ASCII.
const NO_CGI_BYTE: u8 = 0x80;

/// The byte in a CGI name for each byte of a header name. A table takes a third of the time of
/// comparisons, because names are too short for vector instructions.
static CGI_BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = match byte as u8 {
            b'-' => b'_',
            b'_' => NO_CGI_BYTE,
            byte => byte.to_ascii_uppercase(),
        };
        byte += 1;
    }
    bytes
};

/// The prefix of header names in CGI form.
pub(crate) const PREFIX: &[u8] = b"HTTP_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_header_names_is_consistent() {
        for (index, known) in KNOWN_HEADERS.iter().enumerate() {
            assert_eq!(
                known_header(known.name.as_bytes()),
                Some(u8::try_from(index).unwrap()),
                "{}",
                known.name
            );
            let mut cgi = vec![0; PREFIX.len() + known.name.len()];
            write_cgi(known.name.as_bytes(), &mut cgi);
            assert_eq!(cgi, known.cgi.as_bytes());
        }
        assert_eq!(known_header(b"x-nobody-sends-this"), None);
        assert!(KNOWN_HEADERS.len() < usize::from(UNKNOWN));
    }
}
