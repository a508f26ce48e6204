//! Heads of requests that go to a worker before their bodies are taken. An app that has `onHeaders` may refuse what is to come, as Shiny
//! does above its limit: gigabytes would lie on the disk by then. R is held by none of it: it sees the head, as a call that is over at once,
//! and is called again when the body is there.

use rookery_exchange::Exchange;
use rookery_worker_protocol::{
    BodyLength, BodyState, HEAD_ACCEPTED, HEAD_UNDECIDED, WORKER_HEADER,
};

use super::queue::QueuedRequest;

/// Bytes of a body that is taken unasked: it stays in memory, and showing its head first would cost another way to R.
const TAKEN: u64 = 1 << 20;

/// Whether an app that sees heads is shown this one first. Whoever asks before he sends (`Expect`) is told what the app says.
pub(super) fn is_shown(exchange: &Exchange) -> bool {
    match announced(exchange) {
        BodyLength::Bytes(len) => len > TAKEN || exchange.header(b"expect").is_some(),
        BodyLength::Chunked | BodyLength::Unknown => true,
    }
}

fn announced(exchange: &Exchange) -> BodyLength {
    let text = |name| exchange.header(name).and_then(|value| std::str::from_utf8(value).ok());
    if exchange.header(b"transfer-encoding").is_some() {
        return BodyLength::Chunked;
    }
    text(b"content-length")
        .and_then(|len| len.trim().parse().ok())
        .map_or(BodyLength::Unknown, BodyLength::Bytes)
}

/// Where the body is of a request that goes to a worker now.
pub(super) fn body_is(waiting: &QueuedRequest) -> BodyState {
    match waiting.is_head {
        true => BodyState::Deferred(announced(&waiting.exchange)),
        false if waiting.exchange.is_head_seen() => BodyState::HeadSeen,
        false => BodyState::Included,
    }
}

/// Whether the reply is the worker's word that the body of a head is to be taken, and none of its app's.
pub(super) fn lets_body_come(exchange: &Exchange) -> bool {
    says(exchange, HEAD_ACCEPTED) || says(exchange, HEAD_UNDECIDED)
}

/// The exchange, for its body to come.
pub(super) fn goes_on(waiting: QueuedRequest) -> Box<Exchange> {
    let mut exchange = waiting.exchange;
    if says(&exchange, HEAD_ACCEPTED) {
        exchange.set_head_seen();
    }
    // What the worker has said is no reply.
    exchange.begin_response(0);
    exchange
}

fn says(exchange: &Exchange, word: &str) -> bool {
    exchange.response_headers().any(|(name, value)| {
        name.eq_ignore_ascii_case(WORKER_HEADER.as_bytes()) && value == word.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(headers: &[(&str, &str)]) -> QueuedRequest {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        for (name, value) in headers {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, None, false);
        QueuedRequest::new(exchange, true)
    }

    #[test]
    fn large_bodies_and_those_without_a_length_are_asked_for_first() {
        for (headers, shown, announced) in [
            (&[("content-length", "0")][..], false, BodyLength::Bytes(0)),
            (&[("content-length", "1048576")], false, BodyLength::Bytes(1 << 20)),
            (&[("content-length", "1048577")], true, BodyLength::Bytes((1 << 20) + 1)),
            (&[("content-length", "5"), ("expect", "100-continue")], true, BodyLength::Bytes(5)),
            (&[("transfer-encoding", "chunked")], true, BodyLength::Chunked),
            (&[], true, BodyLength::Unknown),
        ] {
            let mut waiting = waiting(headers);
            assert_eq!(is_shown(&waiting.exchange), shown, "{headers:?}");
            assert_eq!(body_is(&waiting), BodyState::Deferred(announced), "{headers:?}");
            waiting.is_head = false;
            assert_eq!(body_is(&waiting), BodyState::Included);
            waiting.exchange.set_head_seen();
            assert_eq!(body_is(&waiting), BodyState::HeadSeen);
        }
    }

    #[test]
    fn the_word_of_the_worker_is_not_the_reply() {
        for (said, lets, is_seen) in [
            (HEAD_ACCEPTED, true, true),
            (HEAD_UNDECIDED, true, false),
            ("what", false, false),
            ("", false, false),
        ] {
            let mut waiting = waiting(&[]);
            waiting.exchange.begin_response(204);
            waiting.exchange.push_response_header(b"Rookery-Call", said.as_bytes()).unwrap();
            assert_eq!(lets_body_come(&waiting.exchange), lets, "{said}");
            let exchange = goes_on(waiting);
            assert_eq!(
                (exchange.is_head_seen(), exchange.response_headers().count()),
                (is_seen, 0),
                "{said}"
            );
        }
    }
}
