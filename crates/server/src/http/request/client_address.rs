//! The address of a request's client behind trusted proxies, and the parser of the forwarding
//! headers that contain it: `X-Forwarded-For` and `Forwarded` (RFC 7239).
//!
//! Each proxy appends the address from which it got the request, so only the last addresses come
//! from proxies that the server knows. The lines are therefore read from right to left. What a
//! client has sent is at the left, and cannot change how the rest is read.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::net::trusted_proxies::TrustedProxies;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the address of a request's client. `peer` is the client of the connection. If it is a
/// trusted proxy, the client is the last address in `X-Forwarded-For` (or without that header, in
/// `Forwarded`) that is not a trusted proxy itself. If all are trusted proxies, it is the first
/// address. An element that is no address hides the clients of the proxy that has added it, so that
/// this proxy counts as the client.
pub(crate) fn client_address(
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
    proxies: &TrustedProxies,
) -> Option<SocketAddr> {
    let is_proxy = |address: Option<SocketAddr>| proxies.contains(address.map(|it| it.ip()));
    if !is_proxy(peer) {
        return peer;
    }
    // Clients of proxies that set only one of the headers can send the other. Proxies that set
    // `Forwarded` only are rare.
    if headers.contains_key(&X_FORWARDED_FOR) {
        let lines = headers.get_all(&X_FORWARDED_FOR).iter().rev();
        first_untrusted(peer, lines.map(HeaderValue::as_bytes).flat_map(x_forwarded_for), is_proxy)
    } else {
        let lines = headers.get_all(FORWARDED).iter().rev();
        first_untrusted(peer, lines.map(HeaderValue::as_bytes).flat_map(forwarded), is_proxy)
    }
}

/// Returns the first address that is no proxy, or else the last address before the end or before an
/// unreadable one.
fn first_untrusted(
    peer: Option<SocketAddr>,
    mut addresses: impl Iterator<Item = Option<SocketAddr>>,
    is_proxy: impl Fn(Option<SocketAddr>) -> bool,
) -> Option<SocketAddr> {
    let mut client = peer;
    while is_proxy(client) {
        match addresses.next() {
            Some(address @ Some(_)) => client = address,
            Some(None) | None => break,
        }
    }
    client
}

/// Returns the addresses in a line of `X-Forwarded-For`, the last one first. An element that is no
/// address gives `None`. The port is 0 if the element has none. Allocates no memory.
pub fn x_forwarded_for(line: &[u8]) -> impl Iterator<Item = Option<SocketAddr>> {
    let elements = line.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty()).map(node)
}

/// Returns the addresses in the `for` parameters of a line of `Forwarded`, the last one first. An
/// element without an address gives `None`. The port is 0 if the element has none. Allocates no
/// memory.
pub fn forwarded(line: &[u8]) -> impl Iterator<Item = Option<SocketAddr>> {
    let elements = rsplit_unquoted(line, b',').map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty()).map(|element| {
        let mut nodes = rsplit_unquoted(element, b';').filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (pair[..at].trim_ascii(), &pair[at + 1..]);
            name.eq_ignore_ascii_case(b"for").then(|| value.trim_ascii())
        });
        let node_text = nodes.next()?;
        if nodes.next().is_some() { None } else { node(node_text) }
    })
}

/// Splits a line at the separators outside quoted strings, from right to left.
fn rsplit_unquoted(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        let at = text.iter().rposition(|byte| {
            is_quoted ^= *byte == b'"';
            *byte == separator && !is_quoted
        });
        rest = at.map(|at| &text[..at]);
        Some(&text[at.map_or(0, |at| at + 1)..])
    })
}

/// Parses an address with an optional port (RFC 7239, 6). IPv6 addresses without brackets are
/// accepted as well, because `X-Forwarded-For` has no brackets. Returns `None` for anything else,
/// such as `unknown`.
fn node(text: &[u8]) -> Option<SocketAddr> {
    let quoted = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let text = std::str::from_utf8(quoted.unwrap_or(text)).ok()?;
    let (address, port) = if let Some(text) = text.strip_prefix('[') {
        let (address, port) = text.split_once(']')?;
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
        (IpAddr::V6(address.parse().ok()?), port)
    } else if let Ok(address) = text.parse() {
        (address, None)
    } else {
        let (address, port) = text.split_once(':')?;
        (IpAddr::V4(address.parse().ok()?), Some(port))
    };
    let port = match port {
        None => 0,
        // An obfuscated port (RFC 7239, 6.2).
        Some(port) if port.starts_with('_') => 0,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok()?,
        Some(_) => return None,
    };
    Some(SocketAddr::new(address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxy() {
        let proxies =
            TrustedProxies::parse(["127.0.0.1", "10.0.0.0/8", "2001:db8::/32", "unix"]).unwrap();
        let xff = "x-forwarded-for";
        let lists: &[(&[(&str, &str)], &str)] = &[
            (&[], "peer"),
            (&[(xff, "192.0.2.1")], "192.0.2.1:0"),
            // What a client sends is before what the proxies add.
            (&[(xff, "9.9.9.9, 192.0.2.1")], "192.0.2.1:0"),
            (&[(xff, "127.0.0.1, 192.0.2.1, 10.0.0.2, 10.0.0.1")], "192.0.2.1:0"),
            (
                &[(xff, "9.9.9.9"), (xff, "192.0.2.1:5000, 10.0.0.2"), (xff, "10.0.0.1")],
                "192.0.2.1:5000",
            ),
            (&[(xff, "2001:db9::1, 2001:db8::1")], "[2001:db9::1]:0"),
            (&[(xff, "::ffff:10.0.0.3")], "10.0.0.3:0"),
            // All are proxies.
            (&[(xff, "10.0.0.3, 10.0.0.2")], "10.0.0.3:0"),
            // An element that is no address.
            (&[(xff, "unknown")], "peer"),
            (&[(xff, "192.0.2.1, unknown, 10.0.0.2")], "10.0.0.2:0"),
            (&[(xff, "garbage, 192.0.2.1")], "192.0.2.1:0"),
            (&[(xff, "")], "peer"),
            (&[("forwarded", "for=9.9.9.9, for=\"192.0.2.1:80\", for=10.0.0.1")], "192.0.2.1:80"),
            (&[("forwarded", "for=192.0.2.1"), ("forwarded", "for=10.0.0.1")], "192.0.2.1:0"),
            (&[("forwarded", "proto=https")], "peer"),
            (&[(xff, "192.0.2.1"), ("forwarded", "for=9.9.9.9")], "192.0.2.1:0"),
            (&[(xff, "unknown"), ("forwarded", "for=9.9.9.9")], "peer"),
        ];
        for (list, expected) in lists {
            let mut headers = HeaderMap::new();
            for (name, value) in *list {
                headers.append(*name, HeaderValue::from_static(value));
            }
            for peer in [Some("127.0.0.1:1".parse().unwrap()), None] {
                let client = client_address(&headers, peer, &proxies);
                let expected = expected.parse().ok().or(peer);
                assert_eq!(client, expected, "{list:?}");
            }
            // A client that is no proxy, and an empty list.
            let peer = Some("198.51.100.1:1".parse().unwrap());
            assert_eq!(client_address(&headers, peer, &proxies), peer);
            assert_eq!(client_address(&headers, None, &TrustedProxies::default()), None);
        }
    }

    fn text(addresses: impl Iterator<Item = Option<SocketAddr>>) -> String {
        let texts: Vec<_> =
            addresses.map(|it| it.map_or_else(|| "-".to_owned(), |it| it.to_string())).collect();
        texts.join(" ")
    }

    #[test]
    fn reads_x_forwarded_for_from_the_right() {
        for (line, expected) in [
            ("192.0.2.1", "192.0.2.1:0"),
            ("192.0.2.1, 10.0.0.1", "10.0.0.1:0 192.0.2.1:0"),
            (" 192.0.2.1 ,,10.0.0.1:80,", "10.0.0.1:80 192.0.2.1:0"),
            (
                "2001:db8::1, [2001:db8::2], [2001:db8::3]:443",
                "[2001:db8::3]:443 [2001:db8::2]:0 [2001:db8::1]:0",
            ),
            ("::ffff:192.0.2.1, \"[::1]:80\"", "[::1]:80 192.0.2.1:0"),
            ("", ""),
            (" , ", ""),
            ("unknown, _hidden", "- -"),
            ("192.0.2.1:, 192.0.2.1:x, 192.0.2.1:+1, 192.0.2.1:65536", "- - - -"),
            ("192.0.2.1:_x, 192.0.2.1:65535", "192.0.2.1:65535 192.0.2.1:0"),
            ("192.0.2, 192.0.2.1.1, 256.0.0.1, 192.0.2.1/8, 0xC0.0.2.1", "- - - - -"),
            ("[::1, ::1], [::1]80, [192.0.2.1], [fe80::1%eth0], \"", "- - - - - -"),
            ("for=192.0.2.1, \u{e9}", "- -"),
        ] {
            assert_eq!(text(x_forwarded_for(line.as_bytes())), expected, "{line}");
        }
        assert_eq!(text(x_forwarded_for(b"192.0.2.1, \xff")), "- 192.0.2.1:0");
    }

    #[test]
    fn reads_forwarded_from_the_right() {
        for (line, expected) in [
            ("for=192.0.2.1", "192.0.2.1:0"),
            ("For=192.0.2.1;proto=https;by=203.0.113.1", "192.0.2.1:0"),
            ("by=a;FOR=\"192.0.2.1:8080\" , for=10.0.0.1", "10.0.0.1:0 192.0.2.1:8080"),
            ("for=\"[2001:db8:cafe::17]:4711\", for=\"[::1]\"", "[::1]:0 [2001:db8:cafe::17]:4711"),
            ("for=\"192.0.2.1:_port\", for = 192.0.2.2", "192.0.2.2:0 192.0.2.1:0"),
            ("for=unknown, for=_secret, proto=https, for", "- - - -"),
            ("for=192.0.2.1;for=192.0.2.2", "-"),
            // Separators in quoted strings belong to the string.
            ("for=192.0.2.1;ext=\"a, for=9.9.9.9; for=9.9.9.9\"", "192.0.2.1:0"),
            // A quote that a client has left open does not change what a proxy has appended.
            ("for=\"9.9.9.9, for=192.0.2.1;proto=https", "192.0.2.1:0 -"),
            ("for=9.9.9.9;x=\"\\, for=\"192.0.2.1\"", "192.0.2.1:0 -"),
            ("", ""),
            (", ;,", "-"),
        ] {
            assert_eq!(text(forwarded(line.as_bytes())), expected, "{line}");
        }
    }
}
