//! Functions that forward the headers of a worker's response to the client.

use httparse::Header;
use rookery_exchange::Exchange;
use rookery_server::session_cookie;

/// The hop-by-hop headers of a worker's response. They apply only to the connection between the
/// worker and this process, so they are not forwarded to the client.
const HOP_BY_HOP: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "trailer", "transfer-encoding", "upgrade"];

/// Copies the head of a worker's response into the exchange (the request with its response),
/// without hop-by-hop headers.
pub(super) fn write(exchange: &mut Exchange, status: u16, lines: &[Header<'_>]) {
    exchange.begin_response(status);
    // Few responses have a `Connection` header. If a response has none, this check avoids a search
    // of all header lines for each header.
    let has_connection = lines.iter().any(|line| line.name.eq_ignore_ascii_case("connection"));
    for line in lines {
        let is_hop_by_hop = HOP_BY_HOP.iter().any(|name| name.eq_ignore_ascii_case(line.name))
            || (has_connection && is_named_by_connection(lines, line.name));
        if !is_hop_by_hop {
            // The exchange accepts every header that httparse accepts, so no error can occur.
            let _ = exchange.push_response_header(line.name.as_bytes(), line.value);
        }
    }
}

/// Returns true if the response's `Connection` header names this header. The header then applies
/// only to the connection to the worker (RFC 9110, 7.6.1).
fn is_named_by_connection(lines: &[Header<'_>], name: &str) -> bool {
    let lines = lines.iter().filter(|line| line.name.eq_ignore_ascii_case("connection"));
    let mut words = lines.flat_map(|line| line.value.split(|byte| *byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
}

/// Adds a `Set-Cookie` header to the response. Returns false and adds nothing if shared caches may
/// store the response, because they would send the cookie to other clients.
pub(in crate::pool) fn set_cookie(exchange: &mut Exchange, cookie: &str) -> bool {
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
