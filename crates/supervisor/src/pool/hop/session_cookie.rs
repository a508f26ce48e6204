//! The session cookie in the responses of workers.

use rookery_exchange::Exchange;

/// Adds a `Set-Cookie` header to the response. Returns false and adds nothing if shared caches may
/// store the response, because they would send the cookie to other clients.
pub(super) fn set_cookie(exchange: &mut Exchange, cookie: &str) -> bool {
    // The cookie consists of digits and fixed words, which the exchange accepts.
    !is_publicly_cacheable(exchange)
        && exchange.push_response_header(b"Set-Cookie", cookie.as_bytes()).is_ok()
}

/// Returns true if its `Cache-Control` headers allow shared caches to store the response (RFC 9111,
/// 5.2.2).
fn is_publicly_cacheable(exchange: &Exchange) -> bool {
    let mut lines =
        exchange.response_headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control"));
    lines.any(|(_, value)| {
        value.split(|byte| *byte == b',').any(|word| {
            let name = word.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
            name.eq_ignore_ascii_case(b"public") || name.eq_ignore_ascii_case(b"s-maxage")
        })
    })
}
