//! The session cookie in the responses of workers.

use rookery_exchange::Exchange;
use rookery_server::session_cookie;

/// Adds a `Set-Cookie` header to the response. Returns false and adds nothing if shared caches may
/// store the response, because they would send the cookie to other clients.
pub(super) fn set_cookie(exchange: &mut Exchange, cookie: &str) -> bool {
    // The cookie consists of digits and fixed words, which the exchange accepts.
    !is_publicly_cacheable(exchange)
        && exchange.push_response_header(b"Set-Cookie", cookie.as_bytes()).is_ok()
}

/// Returns true if shared caches may store the response (RFC 9111, 5.2.2).
fn is_publicly_cacheable(exchange: &Exchange) -> bool {
    let mut lines =
        exchange.response_headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control"));
    lines.any(|(_, value)| session_cookie::is_publicly_cacheable(value))
}
