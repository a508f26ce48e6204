//! The opening handshake, from its request to the answer.

use http::header::{HOST, HeaderMap, HeaderValue, ORIGIN, UPGRADE};
use http::request::Parts;
use rookery_exchange::Exchange;
use rookery_websocket::protocol::accept_key;
use rookery_websocket::protocol::deflate::Agreed;
use rookery_websocket::protocol::handshake::OriginPolicy;

/// Whether a request opens a WebSocket, as leniently as clients of httpuv need: any method, any version, and
/// whatever a proxy has made of `Connection` (docs/SECURITY-MODEL.md).
pub(crate) fn is_opening(head: &Parts) -> bool {
    head.headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && head.headers.contains_key("sec-websocket-key")
}

/// Whether the page that opens a WebSocket may do so (RFC 6455, 10.2); who is no page says no origin.
pub(crate) fn is_allowed(policy: &OriginPolicy, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    // Two origins: neither is believed.
    let is_one = origins.next().is_none();
    is_one && policy.allows(origin.as_bytes(), headers.get(HOST).map_or(b"", HeaderValue::as_bytes))
}

/// The answer that accepts a handshake (RFC 6455, 4.2.2), with the application's headers and what was agreed on.
pub(super) fn switching_protocols(exchange: &Exchange, agreed: Option<Agreed>) -> Vec<u8> {
    let key = exchange.header(b"sec-websocket-key").unwrap_or_default();
    let mut head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nDate: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n",
        httpdate::fmt_http_date(std::time::SystemTime::now()),
        String::from_utf8_lossy(&accept_key(key)),
    )
    .into_bytes();
    if let Some(agreed) = agreed {
        head.extend_from_slice(format!("Sec-WebSocket-Extensions: {agreed}\r\n").as_bytes());
    }
    for (name, value) in exchange.reply_headers() {
        let ours: [&[u8]; 6] = [
            b"date",
            b"connection",
            b"upgrade",
            b"sec-websocket-accept",
            b"sec-websocket-extensions",
            b"content-length",
        ];
        let is_ours = ours.iter().any(|ours| name.eq_ignore_ascii_case(ours));
        if !is_ours {
            for part in [name, b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}
