//! What clients are told when no worker answers.

use rookery_exchange::{EVENTS_RETRY, Exchange, TerminationState, accepts_events};

/// Seconds a client is asked to wait when there was nobody to answer: a worker starts again within that.
const RETRY_SECONDS: &[u8] = b"1";

/// And when there were too many others: a session takes minutes, but some end every few seconds.
const RETRY_WHEN_FULL: &[u8] = b"5";

/// Why no worker answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorReply {
    /// No worker had time: 503.
    NoWorker,
    /// The workers that it was given to ended before they began with it: 503.
    Returned,
    /// The worker ended while it worked on it: 502.
    Died,
    /// The worker's answer is none: 502.
    Unreadable,
    /// Its R was busy with it for too long: 504.
    TookTooLong,
    /// All workers have as many sessions as they may: 503.
    Full,
    /// It asks for something that has gone with its worker: 404.
    Gone,
    /// It cannot be sent on: 500.
    Unsendable,
}

impl ErrorReply {
    pub(super) fn text(self) -> &'static str {
        match self {
            ErrorReply::NoWorker => "503 Service Unavailable: no worker had time for it\n",
            ErrorReply::Returned => {
                "503 Service Unavailable: workers ended before they began with it\n"
            }
            ErrorReply::Died => "502 Bad Gateway: the worker ended before it had answered\n",
            ErrorReply::Unreadable => "502 Bad Gateway: the worker's answer could not be read\n",
            ErrorReply::TookTooLong => "504 Gateway Timeout: the worker took too long\n",
            ErrorReply::Full => {
                "503 Service Unavailable: all workers have as many sessions as they may\n"
            }
            ErrorReply::Gone => "404 Not Found: the session has ended\n",
            ErrorReply::Unsendable => "500 Internal Server Error\n",
        }
    }

    /// What the access log has for it.
    pub(super) fn ended(self) -> Option<TerminationState> {
        match self {
            ErrorReply::NoWorker | ErrorReply::Full => Some(TerminationState::Queue),
            ErrorReply::Returned | ErrorReply::Died => Some(TerminationState::WorkerDied),
            ErrorReply::TookTooLong => Some(TerminationState::Timeout),
            ErrorReply::Unreadable | ErrorReply::Gone | ErrorReply::Unsendable => None,
        }
    }

    /// Writes the reply.
    pub(super) fn answer(self, exchange: &mut Exchange) {
        let text = self.text();
        let status = text[..3].parse().unwrap_or(500);
        let is_temporary = status == 503;
        // At any status but 200 a browser gives up on events for good.
        let is_for_events = is_temporary && exchange.header(b"accept").is_some_and(accepts_events);
        let (status, kind, body) = if is_for_events {
            (200, "text/event-stream", EVENTS_RETRY)
        } else {
            (status, "text/plain", text)
        };
        exchange.begin_response(status);
        // Names and values of ours: they are not refused.
        let _ = exchange.push_response_header(b"Content-Type", kind.as_bytes());
        if is_temporary {
            let _ = exchange.push_response_header(b"Cache-Control", b"no-store");
            let seconds = if self == ErrorReply::Full { RETRY_WHEN_FULL } else { RETRY_SECONDS };
            let _ = exchange.push_response_header(b"Retry-After", seconds);
        }
        exchange.set_response_body(body.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_happened_and_when_to_come_again() {
        for (refusal, accept, status, retries) in [
            (ErrorReply::NoWorker, "*/*", 503, true),
            (ErrorReply::NoWorker, "text/event-stream", 200, true),
            (ErrorReply::Returned, "*/*", 503, true),
            (ErrorReply::Died, "text/event-stream", 502, false),
            (ErrorReply::Unreadable, "*/*", 502, false),
            (ErrorReply::TookTooLong, "*/*", 504, false),
            (ErrorReply::Full, "*/*", 503, true),
            (ErrorReply::Gone, "*/*", 404, false),
            (ErrorReply::Unsendable, "*/*", 500, false),
        ] {
            let mut exchange = Exchange::new();
            exchange.begin(1, 1, 0);
            exchange.push_header(b"accept", accept.as_bytes());
            exchange.end_head(None, None, false);
            refusal.answer(&mut exchange);
            assert_eq!(exchange.response().status(), status, "{refusal:?}");
            let told = exchange.response_headers().any(|(name, _)| name == b"Retry-After");
            assert_eq!(told, retries, "{refusal:?}");
        }
    }
}
