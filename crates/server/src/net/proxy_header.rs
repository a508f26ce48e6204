//! The parser of the PROXY protocol header (`HAProxy`'s specification, versions 1 and 2). A proxy
//! that forwards bytes sends this header first on each connection, to pass on the client's address.
//! A listener either requires the header on every connection or does not accept it, because the
//! specification forbids guessing whether it is present.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum size of a PROXY protocol header that the server accepts, in bytes. The specification
/// allows about 64 KiB for version 2.
pub const MAX_HEADER_SIZE: usize = 4 << 10;

/// The maximum length of a version 1 header line of the PROXY protocol, including its CR and LF.
const MAX_LINE_SIZE: usize = 107;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// A complete PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The length of the PROXY protocol header in bytes.
    pub len: usize,
    /// The address of the client, and the address that the client has connected to. `None` if the
    /// proxy does not know them, or if the connection is the proxy's own, such as a health check.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
}

/// The result of parsing a PROXY protocol header from the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseResult {
    /// The bytes are the beginning of a PROXY protocol header, and more bytes are needed.
    Incomplete,
    /// The bytes begin with a complete PROXY protocol header. More bytes may follow it.
    Complete(Header),
    /// The bytes are not a PROXY protocol header.
    Invalid,
}

/// Parses a PROXY protocol header from all bytes that have arrived so far. Once the result is
/// complete or invalid, further bytes do not change it. Allocates no memory.
pub fn parse(bytes: &[u8]) -> ParseResult {
    let starts_with = |with: &[u8]| bytes.iter().zip(with).all(|(a, b)| a == b);
    if starts_with(SIGNATURE) {
        parse_version_2(bytes)
    } else if starts_with(b"PROXY ") {
        parse_version_1(bytes)
    } else {
        ParseResult::Invalid
    }
}

fn parse_version_1(bytes: &[u8]) -> ParseResult {
    let within = &bytes[..bytes.len().min(MAX_LINE_SIZE)];
    let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < MAX_LINE_SIZE {
            ParseResult::Incomplete
        } else {
            ParseResult::Invalid
        };
    };
    let Some(text) =
        within[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok())
    else {
        return ParseResult::Invalid;
    };
    let mut fields = text.split(' ').skip(1);
    let addresses = match fields.next() {
        Some("UNKNOWN") => None,
        Some(family @ ("TCP4" | "TCP6")) => match parse_addresses(family, &mut fields) {
            None => return ParseResult::Invalid,
            addresses => addresses,
        },
        _ => return ParseResult::Invalid,
    };
    ParseResult::Complete(Header { len: end + 1, addresses })
}

fn parse_addresses<'a>(
    family: &str,
    fields: &mut impl Iterator<Item = &'a str>,
) -> Option<(SocketAddr, SocketAddr)> {
    let mut address = || -> Option<IpAddr> {
        let field = fields.next()?;
        if family == "TCP4" {
            field.parse().ok().map(IpAddr::V4)
        } else {
            field.parse().ok().map(IpAddr::V6)
        }
    };
    let (from, to) = (address()?, address()?);
    let mut port = || {
        let field = fields.next()?;
        let is_plain = field.bytes().all(|byte| byte.is_ascii_digit())
            && (field == "0" || !field.starts_with('0'));
        field.parse().ok().filter(|_| is_plain)
    };
    let addresses = (SocketAddr::new(from, port()?), SocketAddr::new(to, port()?));
    fields.next().is_none().then_some(addresses)
}

fn parse_version_2(bytes: &[u8]) -> ParseResult {
    const FIXED: usize = 16;
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else { return ParseResult::Incomplete };
    let len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if FIXED + len > MAX_HEADER_SIZE {
        return ParseResult::Invalid;
    }
    let Some(rest) = rest.get(..len) else { return ParseResult::Incomplete };
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let v4 =
        |at: usize| IpAddr::V4(Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]));
    let v6 = |at: usize| {
        let octets: [u8; 16] = rest[at..at + 16].try_into().expect("the slice has 16 bytes");
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let addresses = match (fixed[12], fixed[13]) {
        // LOCAL means that the proxy made the connection for itself. The unspecified family and
        // Unix sockets have no IP address.
        (0x20, _) | (0x21, 0x00) => None,
        (0x21, 0x31) if len >= 216 => None,
        (0x21, 0x11) if len >= 12 => {
            Some((SocketAddr::new(v4(0), port(8)), SocketAddr::new(v4(4), port(10))))
        }
        (0x21, 0x21) if len >= 36 => {
            Some((SocketAddr::new(v6(0), port(32)), SocketAddr::new(v6(16), port(34))))
        }
        _ => return ParseResult::Invalid,
    };
    ParseResult::Complete(Header { len: FIXED + len, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(from: &str, to: &str) -> (SocketAddr, SocketAddr) {
        (from.parse().unwrap(), to.parse().unwrap())
    }

    /// Builds a PROXY protocol header of version 2 for the tests, from its command, address family
    /// and content.
    fn version_2(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, content].concat()
    }

    #[test]
    fn parses_both_versions_whole_and_split_at_every_byte() {
        let four = [&[192, 0, 2, 1, 198, 51, 100, 1][..], &[0x30, 0x39, 1, 0xBB], b"TLVs"].concat();
        let (client, server): (Ipv6Addr, Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), Ipv6Addr::LOCALHOST);
        let six = [&client.octets()[..], &server.octets(), &[0, 1, 0, 2]].concat();
        for (header, expected) in [
            (
                b"PROXY TCP4 192.0.2.1 198.51.100.1 12345 443\r\n".to_vec(),
                Some(addresses("192.0.2.1:12345", "198.51.100.1:443")),
            ),
            (
                b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n".to_vec(),
                Some(addresses("[2001:db8::1]:1", "[::1]:2")),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 whatever 1\r\n".to_vec(), None),
            (version_2(0x21, 0x11, &four), Some(addresses("192.0.2.1:12345", "198.51.100.1:443"))),
            (version_2(0x21, 0x21, &six), Some(addresses("[2001:db8::1]:1", "[::1]:2"))),
            (version_2(0x21, 0x31, &[0; 216]), None),
            (version_2(0x21, 0x00, b""), None),
            (version_2(0x20, 0x11, &four), None),
            (version_2(0x20, 0x00, &[7; MAX_HEADER_SIZE - 16]), None),
        ] {
            for end in 0..header.len() {
                assert_eq!(parse(&header[..end]), ParseResult::Incomplete, "{end} of {header:?}");
            }
            let whole = ParseResult::Complete(Header { len: header.len(), addresses: expected });
            assert_eq!(parse(&header), whole);
            assert_eq!(parse(&[&header[..], b"GET / HTTP/1.1\r\n"].concat()), whole);
        }
    }

    #[test]
    fn rejects_malformed_headers() {
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x16\x03\x01",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 12345 443\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 012 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY \r\n",
            &[&b"PROXY UNKNOWN "[..], &[b'x'; MAX_LINE_SIZE]].concat(),
            &version_2(0x11, 0x11, &[0; 12]),
            &version_2(0x22, 0x11, &[0; 12]),
            &version_2(0x21, 0x12, &[0; 12]),
            &version_2(0x21, 0x11, &[0; 11]),
            &version_2(0x21, 0x21, &[0; 35]),
            &version_2(0x21, 0x31, &[0; 215]),
            &version_2(0x20, 0x00, &[0; MAX_HEADER_SIZE - 15])[..16],
        ] {
            assert_eq!(parse(wrong), ParseResult::Invalid, "{wrong:?}");
        }
    }
}
