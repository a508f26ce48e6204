//! Deferred bodies: request bodies that the server does not receive until the app has seen the head
//! of the request. The app's function `onHeaders` can therefore refuse a large body before it is
//! received, as Shiny's does above its upload limit.

use rookery_exchange::Exchange;

/// The length in bytes up to which a request body is sent to the worker together with its head.
/// Sending the head first is only worthwhile for a longer body, because it costs a second round
/// trip to R.
const MAX_UNASKED_BODY: u64 = 1 << 20;

/// Returns true if an app that inspects request heads (`onHeaders`) should see the head of this
/// request before the server receives the body. This applies if the body is long or of unknown
/// length, or if the client has sent an `Expect` header and waits for a decision.
pub(super) fn is_deferred(exchange: &Exchange) -> bool {
    if exchange.header(b"transfer-encoding").is_some() || exchange.header(b"expect").is_some() {
        return true;
    }
    let len = exchange.header(b"content-length").and_then(|len| std::str::from_utf8(len).ok());
    let len = len.and_then(|len| len.trim().parse().ok());
    len.is_none_or(|len: u64| len > MAX_UNASKED_BODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defers_large_bodies_and_bodies_of_unknown_length() {
        for (headers, is_first) in [
            (&[("content-length", "0")][..], false),
            (&[("content-length", "1048576")], false),
            (&[("content-length", "1048577")], true),
            (&[("content-length", "5"), ("expect", "100-continue")], true),
            (&[("transfer-encoding", "chunked")], true),
            (&[], true),
        ] {
            let mut exchange = Exchange::new();
            exchange.begin(1, 1, 0);
            for (name, value) in headers {
                exchange.push_header(name.as_bytes(), value.as_bytes());
            }
            exchange.end_head(None, None, false);
            assert_eq!(is_deferred(&exchange), is_first, "{headers:?}");
        }
    }
}
