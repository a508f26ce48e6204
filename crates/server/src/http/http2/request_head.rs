//! The validation of HTTP/2 request heads, and their conversion into the form of HTTP/1.1.

use h2::ext::Protocol;
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::rejection::Rejection;
use crate::websocket::handshake::KEY;

/// Converts an HTTP/2 request head into the form of HTTP/1.1: a request target without a host, a
/// Host header and a single Cookie header (RFC 9113, 8.2.3 and 8.3.1). An extended CONNECT becomes
/// a WebSocket opening handshake without the header `Sec-WebSocket-Key` (RFC 8441, 5). Returns true
/// for an extended CONNECT.
///
/// # Errors
/// Returns the rejection to respond with if the head is malformed (RFC 9113, 8.1.1). Malformed
/// heads are not repaired, because other programs may interpret them differently.
pub(super) fn normalize(head: &mut Parts, max_headers: usize) -> Result<bool, Rejection> {
    if head.headers.len() > max_headers {
        return Err(Rejection::HeadTooLarge);
    }
    if head.headers.values().any(|value| has_outer_whitespace(value.as_bytes()))
        || head.headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some()
    {
        return Err(Rejection::Unreadable);
    }
    let host = host(head)?;
    let protocol = head.extensions.remove::<Protocol>();
    if let Some(protocol) = &protocol {
        if !protocol.as_str().eq_ignore_ascii_case("websocket") {
            return Err(Rejection::Protocol);
        }
        head.method = Method::GET;
        head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        head.headers.remove(KEY);
    }
    // CONNECT has no path and is rejected later, as over HTTP/1.1.
    if head.method != Method::CONNECT {
        // `path_and_query` is `Some` even if `:path` has no path, as in `?x`. Such a target is
        // rejected here. All other targets are checked later, as over HTTP/1.1.
        let target = head.uri.path_and_query().filter(|_| !head.uri.path().is_empty());
        head.uri = target.cloned().map(Uri::from).ok_or(Rejection::Target)?;
    }
    head.headers.insert(HOST, host);
    join_cookies(&mut head.headers);
    Ok(protocol.is_some())
}

/// Returns true if a header value begins or ends with whitespace, which HTTP/2 does not allow (RFC
/// 9113, 8.2.1).
fn has_outer_whitespace(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.first()) || is_space(value.last())
}

/// Returns the host of an HTTP/2 request. If it has both `:authority` and a Host header, they must
/// be equal.
fn host(head: &Parts) -> Result<HeaderValue, Rejection> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    match (authority, hosts.next(), hosts.next()) {
        (_, _, Some(_)) | (None, None, None) => Err(Rejection::Host),
        (None, Some(host), None) => Ok(host.clone()),
        (Some(authority), host, None) => {
            if host.is_some_and(|host| !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()))
            {
                return Err(Rejection::Host);
            }
            HeaderValue::from_str(authority).map_err(|_| Rejection::Host)
        }
    }
}

/// Joins several Cookie headers of a request into one.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (cookies.next(), cookies.next()) {
        let all = [first, second].into_iter().chain(cookies).map(HeaderValue::as_bytes);
        let joined = all.collect::<Vec<_>>().join(&b"; "[..]);
        if let Ok(joined) = HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)) {
            headers.insert(COOKIE, joined);
        }
    }
}

/// Returns the size in bytes of a request's header list, as defined in RFC 9113, 6.5.2. Counts the
/// method and the scheme with their usual lengths.
pub(super) fn header_list_size(head: &Parts) -> usize {
    let field = |name: &str, len: usize| name.len() + len + 32;
    let fields = head.headers.iter().map(|(name, value)| field(name.as_str(), value.len()));
    let authority =
        head.uri.authority().map(|authority| field(":authority", authority.as_str().len()));
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    field(":method", 3)
        + field(":scheme", 5)
        + field(":path", path)
        + authority.unwrap_or_default()
        + fields.sum::<usize>()
}

/// Returns true if the host of a request differs from `named`, the server name in the client's TLS
/// handshake (RFC 9110, 15.5.20).
pub(super) fn is_misdirected(headers: &HeaderMap, named: &str) -> bool {
    let host = headers.get(HOST).map_or(&b""[..], HeaderValue::as_bytes);
    // The server name in TLS is never an address and has no port.
    let name = host.split(|byte| *byte == b':').next().unwrap_or_default();
    !name.eq_ignore_ascii_case(named.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an HTTP/2 request head for the tests, in the form in which h2 provides it.
    fn head(authority: Option<&str>, path: &str, lines: &[(&'static str, &str)]) -> Parts {
        let uri = authority
            .map_or_else(|| path.to_owned(), |authority| format!("https://{authority}{path}"));
        let mut request = http::Request::builder().version(http::Version::HTTP_2).uri(uri);
        for (name, value) in lines {
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn converts_heads_to_the_form_of_http_1() {
        let lines = [
            ("accept", "a"),
            ("cookie", "a=1"),
            ("accept", "b"),
            ("cookie", "b=2"),
            ("cookie", "c=3"),
        ];
        for (authority, lines) in [
            (Some("example.org:81"), lines.to_vec()),
            (None, [&[("host", "example.org:81")][..], &lines].concat()),
            (Some("Example.org:81"), [&lines[..], &[("host", "example.org:81")]].concat()),
        ] {
            let mut head = head(authority, "/a?b=c", &lines);
            assert_eq!(normalize(&mut head, 100), Ok(false));
            assert_eq!(head.uri.to_string(), "/a?b=c");
            let mut found: Vec<_> = head
                .headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap().to_lowercase()))
                .collect();
            found.sort();
            assert_eq!(
                found,
                ["accept: a", "accept: b", "cookie: a=1; b=2; c=3", "host: example.org:81"]
            );
        }
    }

    #[test]
    fn extended_connect_becomes_a_handshake_without_a_key() {
        let connect = |protocol: &'static str| {
            let mut head =
                head(Some("a"), "/ws?x=1", &[("sec-websocket-key", "x"), ("origin", "https://a")]);
            head.method = Method::CONNECT;
            head.extensions.insert(Protocol::from_static(protocol));
            head
        };
        for name in ["websocket", "WebSocket"] {
            let mut head = connect(name);
            assert_eq!(normalize(&mut head, 3), Ok(true));
            assert_eq!((head.method.as_str(), head.uri.to_string().as_str()), ("GET", "/ws?x=1"));
            let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(
                (header("upgrade"), header("connection")),
                (Some("websocket"), Some("Upgrade"))
            );
            assert_eq!((header("sec-websocket-key"), header("host")), (None, Some("a")));
        }
        assert_eq!(normalize(&mut connect("connect-udp"), 3), Err(Rejection::Protocol));
    }

    #[test]
    fn rejects_ambiguous_heads() {
        let own = Some("a");
        for (authority, path, lines, expected) in [
            (own, "/", &[("x", " a")][..], Rejection::Unreadable),
            (own, "/", &[("x", "a\t")], Rejection::Unreadable),
            (own, "/", &[("content-length", "1"), ("content-length", "1")], Rejection::Unreadable),
            (own, "/", &[("host", "b")], Rejection::Host),
            (own, "/", &[("host", "a"), ("host", "a")], Rejection::Host),
            (None, "/", &[], Rejection::Host),
            (own, "/", &[("x", "1"), ("y", "2"), ("z", "3"), ("v", "4")], Rejection::HeadTooLarge),
        ] {
            assert_eq!(
                normalize(&mut head(authority, path, lines), 3),
                Err(expected),
                "{path} {lines:?}"
            );
        }
        let mut options = head(None, "*", &[("host", "a")]);
        options.method = Method::OPTIONS;
        normalize(&mut options, 3).unwrap();
        assert_eq!(options.uri, "*");
    }

    #[test]
    fn detects_misdirected_requests() {
        let of =
            |host: &'static str| HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
        for (host, expected) in [
            ("a.example", false),
            ("A.example:8443", false),
            ("b.example", true),
            ("a.example.", true),
        ] {
            assert_eq!(is_misdirected(&of(host), "a.example"), expected, "{host}");
        }
    }
}
