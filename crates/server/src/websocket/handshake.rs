//! The server's side of the WebSocket opening handshake.

use http::header::{HOST, HeaderMap, HeaderValue, ORIGIN, SEC_WEBSOCKET_EXTENSIONS, UPGRADE};
use http::request::Parts;
use http::{HeaderName, Version};
use rookery_exchange::Exchange;
use rookery_websocket::protocol::accept_key;
use rookery_websocket::protocol::deflate::Agreed;
use rookery_websocket::protocol::handshake::OriginPolicy;

/// Returns true if a request opens a WebSocket.
///
/// - Over HTTP/1.0, the Upgrade header is ignored (RFC 9110, 7.8).
/// - Over HTTP/1.1, a request with a key is accepted with any method, any WebSocket version, and
///   any value of `Connection`, because clients written for httpuv rely on it
///   (docs/SECURITY-MODEL.md).
/// - Over HTTP/2, a handshake has no key (RFC 8441, 5). The server has added the Upgrade header to
///   it.
pub(crate) fn is_opening_handshake(head: &Parts) -> bool {
    head.headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && match head.version {
            Version::HTTP_2 => true,
            Version::HTTP_11 => head.headers.contains_key(KEY),
            _ => false,
        }
}

/// Returns true if the web page that opens a WebSocket has an allowed origin (RFC 6455, 10.2).
/// Clients other than browsers send no origin, and are allowed.
pub(crate) fn is_origin_allowed(policy: &OriginPolicy, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map_or(&b""[..], HeaderValue::as_bytes);
    policy.allows_request(headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes), host)
}

/// The name of the request header with the client's key in a WebSocket handshake over HTTP/1.1.
pub(crate) const KEY: &str = "sec-websocket-key";

/// The WebSocket extensions that were negotiated in the opening handshake, or `None` if there are
/// none.
pub(crate) type Extensions = Option<Agreed>;

/// The headers that the application cannot set in a handshake response, because the server sets
/// them itself or because they have no meaning in it. The application's values are ignored.
const SERVER_HEADERS: [&[u8]; 10] = [
    b"date",
    b"connection",
    b"upgrade",
    b"sec-websocket-accept",
    b"sec-websocket-extensions",
    b"content-length",
    b"transfer-encoding",
    b"keep-alive",
    b"proxy-connection",
    b"trailer",
];

fn app_headers(exchange: &Exchange) -> impl Iterator<Item = (&[u8], &[u8])> {
    let is_set_by_server =
        |name: &[u8]| SERVER_HEADERS.iter().any(|ours| name.eq_ignore_ascii_case(ours));
    exchange.response_headers().filter(move |(name, _)| !is_set_by_server(name))
}

/// Returns the response that accepts a WebSocket handshake with the given key (RFC 6455, 4.2.2),
/// with the application's headers and the negotiated extensions.
pub(super) fn switching_protocols(
    exchange: &Exchange,
    key: &[u8],
    extensions: Extensions,
) -> Vec<u8> {
    let mut head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nDate: {}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n",
        httpdate::fmt_http_date(std::time::SystemTime::now()),
        String::from_utf8_lossy(&accept_key(key)),
    )
    .into_bytes();
    if let Some(agreed) = extensions {
        head.extend_from_slice(format!("Sec-WebSocket-Extensions: {agreed}\r\n").as_bytes());
    }
    for (name, value) in app_headers(exchange) {
        for part in [name, b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Returns the headers of the response with status 200 that accepts a WebSocket handshake over
/// HTTP/2 (RFC 8441, 5).
pub(crate) fn accepted_headers(exchange: &Exchange, extensions: Extensions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(agreed) = extensions {
        if let Ok(agreed) = HeaderValue::try_from(agreed.to_string()) {
            headers.insert(SEC_WEBSOCKET_EXTENSIONS, agreed);
        }
    }
    for (name, value) in app_headers(exchange) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}
