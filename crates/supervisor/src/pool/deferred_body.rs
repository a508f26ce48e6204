//! Deferred bodies: request bodies that the server does not receive until the app has seen the head
//! of the request. The app's function `onHeaders` can therefore refuse a large body before it is
//! received, as Shiny's does above its upload limit.

use rookery_exchange::Exchange;
use rookery_worker_protocol::{
    BodyLength, BodyState, HEAD_ACCEPTED, HEAD_UNDECIDED, WORKER_HEADER,
};

use super::balancing::queue::QueuedRequest;

/// The length in bytes up to which a request body is sent to the worker together with its head.
/// Sending the head first is only worthwhile for a longer body, because it costs a second round
/// trip to R.
const MAX_UNASKED_BODY: u64 = 1 << 20;

/// Returns true if an app that inspects request heads (`onHeaders`) should see the head of this
/// request before the server receives the body. This applies if the body is long or of unknown
/// length, or if the client has sent an `Expect` header and waits for a decision.
pub(super) fn is_deferred(exchange: &Exchange) -> bool {
    match body_length(exchange) {
        BodyLength::Bytes(len) => len > MAX_UNASKED_BODY || exchange.header(b"expect").is_some(),
        BodyLength::Chunked | BodyLength::Unknown => true,
    }
}

fn body_length(exchange: &Exchange) -> BodyLength {
    let text = |name| exchange.header(name).and_then(|value| std::str::from_utf8(value).ok());
    if exchange.header(b"transfer-encoding").is_some() {
        return BodyLength::Chunked;
    }
    text(b"content-length")
        .and_then(|len| len.trim().parse().ok())
        .map_or(BodyLength::Unknown, BodyLength::Bytes)
}

/// Returns the state of the request's body, for example that it will follow later. The supervisor
/// sends this state to the worker in the worker header.
pub(super) fn body_state(request: &QueuedRequest) -> BodyState {
    match request.is_head_only {
        true => BodyState::Deferred(body_length(&request.exchange)),
        false if request.exchange.is_head_seen() => BodyState::HeadSeen,
        false => BodyState::Included,
    }
}

/// Returns true if the worker has responded to the head of a request by asking for the body, and
/// false if the response is the app's.
pub(super) fn wants_body(exchange: &Exchange) -> bool {
    has_worker_header(exchange, HEAD_ACCEPTED) || has_worker_header(exchange, HEAD_UNDECIDED)
}

/// Prepares a request whose head the worker has seen, so that the server can receive the body.
/// Removes the worker's response and returns the exchange (the request with its response).
pub(super) fn into_exchange_for_body(request: QueuedRequest) -> Box<Exchange> {
    let mut exchange = request.exchange;
    if has_worker_header(&exchange, HEAD_ACCEPTED) {
        exchange.set_head_seen();
    }
    exchange.begin_response(0);
    exchange
}

fn has_worker_header(exchange: &Exchange, expected: &str) -> bool {
    exchange.response_headers().any(|(name, value)| {
        name.eq_ignore_ascii_case(WORKER_HEADER.as_bytes()) && value == expected.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(headers: &[(&str, &str)]) -> QueuedRequest {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, None, false);
        QueuedRequest::new(exchange, true)
    }

    #[test]
    fn defers_large_bodies_and_bodies_of_unknown_length() {
        for (headers, is_first, length) in [
            (&[("content-length", "0")][..], false, BodyLength::Bytes(0)),
            (&[("content-length", "1048576")], false, BodyLength::Bytes(1 << 20)),
            (&[("content-length", "1048577")], true, BodyLength::Bytes((1 << 20) + 1)),
            (&[("content-length", "5"), ("expect", "100-continue")], true, BodyLength::Bytes(5)),
            (&[("transfer-encoding", "chunked")], true, BodyLength::Chunked),
            (&[], true, BodyLength::Unknown),
        ] {
            let mut waiting = queued(headers);
            assert_eq!(is_deferred(&waiting.exchange), is_first, "{headers:?}");
            assert_eq!(body_state(&waiting), BodyState::Deferred(length), "{headers:?}");
            waiting.is_head_only = false;
            assert_eq!(body_state(&waiting), BodyState::Included);
            waiting.exchange.set_head_seen();
            assert_eq!(body_state(&waiting), BodyState::HeadSeen);
        }
    }

    #[test]
    fn tells_a_request_for_the_body_from_a_response_of_the_app() {
        for (value, wants, is_seen) in [
            (HEAD_ACCEPTED, true, true),
            (HEAD_UNDECIDED, true, false),
            ("what", false, false),
            ("", false, false),
        ] {
            let mut waiting = queued(&[]);
            waiting.exchange.begin_response(204);
            waiting.exchange.push_response_header(b"Rookery-Call", value.as_bytes()).unwrap();
            assert_eq!(wants_body(&waiting.exchange), wants, "{value}");
            let exchange = into_exchange_for_body(waiting);
            assert_eq!(
                (exchange.is_head_seen(), exchange.response_headers().count()),
                (is_seen, 0),
                "{value}"
            );
        }
    }
}
