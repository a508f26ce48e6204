//! The error responses that clients get if no worker responds to their requests.

use rookery_exchange::{EVENTS_RETRY, Exchange, TerminationState, accepts_events};

/// The value of `Retry-After`, in seconds, in a response with status 503 because no worker was
/// free.
const RETRY_SECONDS: &[u8] = b"1";

/// The value of `Retry-After`, in seconds, in a response with status 503 because all workers have
/// the maximum number of sessions. It is longer than [`RETRY_SECONDS`], because sessions last for
/// minutes.
const RETRY_SECONDS_WHEN_FULL: &[u8] = b"5";

/// The reason why a client gets an error response from the pool instead of a worker's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorReply {
    /// No worker began to process the request in time. The client gets 503.
    NoWorker,
    /// The workers to which the request was sent ended before they began to process it. The client
    /// gets 503.
    WorkersEnded,
    /// The worker ended while it processed the request. The client gets 502.
    WorkerDied,
    /// The worker's response is invalid, or could not be sent to this process. The client gets 502.
    Malformed,
    /// R was busy with the request for longer than the worker timeout. The client gets 504.
    Timeout,
    /// The request would begin a session, but all workers have the maximum number of sessions. The
    /// client gets 503.
    SessionsFull,
    /// The request belongs to a session that ended with its worker. The client gets 404.
    SessionEnded,
    /// The request cannot be sent to its worker, because the system provides no descriptor for its
    /// body. The client gets 500.
    Unsendable,
    /// The worker's response is a file, and this process can open no more descriptors. The client
    /// gets 503.
    NoDescriptor,
}

impl ErrorReply {
    /// Returns the text of the error response. It begins with the status.
    pub(super) fn text(self) -> &'static str {
        match self {
            ErrorReply::NoWorker => "503 Service Unavailable: no worker is available\n",
            ErrorReply::WorkersEnded => {
                "503 Service Unavailable: the worker ended before it started the request\n"
            }
            ErrorReply::WorkerDied => "502 Bad Gateway: the worker ended before it responded\n",
            ErrorReply::Malformed => "502 Bad Gateway: the worker sent an invalid response\n",
            ErrorReply::Timeout => "504 Gateway Timeout: the worker took too long\n",
            ErrorReply::SessionsFull => {
                "503 Service Unavailable: all workers have the maximum number of sessions\n"
            }
            ErrorReply::SessionEnded => "404 Not Found: the session has ended\n",
            ErrorReply::Unsendable => "500 Internal Server Error\n",
            ErrorReply::NoDescriptor => "503 Service Unavailable: too many open files\n",
        }
    }

    /// Returns the termination state of the request, by which the access log states why the request
    /// failed. Returns `None` if the access log has no termination state for this error.
    pub(super) fn termination_state(self) -> Option<TerminationState> {
        match self {
            ErrorReply::NoWorker | ErrorReply::SessionsFull => Some(TerminationState::Queue),
            ErrorReply::WorkersEnded | ErrorReply::WorkerDied => Some(TerminationState::WorkerDied),
            ErrorReply::Timeout => Some(TerminationState::Timeout),
            ErrorReply::Malformed
            | ErrorReply::SessionEnded
            | ErrorReply::Unsendable
            | ErrorReply::NoDescriptor => None,
        }
    }

    /// Writes the error response into the exchange (the request with its response).
    pub(super) fn write(self, exchange: &mut Exchange) {
        let text = self.text();
        let status = text[..3].parse().unwrap_or(500);
        let is_temporary = status == 503;
        // After any status other than 200, a browser never reconnects an `EventSource`. The
        // response therefore has status 200 and a `retry` field.
        let is_for_events = is_temporary && exchange.header(b"accept").is_some_and(accepts_events);
        let (status, kind, body) = if is_for_events {
            (200, "text/event-stream", EVENTS_RETRY)
        } else {
            (status, "text/plain", text)
        };
        exchange.begin_response(status);
        // The exchange accepts these names and values, so no error can occur.
        let _ = exchange.push_response_header(b"Content-Type", kind.as_bytes());
        if is_temporary {
            let _ = exchange.push_response_header(b"Cache-Control", b"no-store");
            let seconds = if self == ErrorReply::SessionsFull {
                RETRY_SECONDS_WHEN_FULL
            } else {
                RETRY_SECONDS
            };
            let _ = exchange.push_response_header(b"Retry-After", seconds);
        }
        exchange.set_response_body(body.as_bytes());
        if !is_for_events {
            exchange.response_mut().set_server_error();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responds_with_a_status_and_says_when_to_retry() {
        for (error, accept, status, has_retry) in [
            (ErrorReply::NoWorker, "*/*", 503, true),
            (ErrorReply::NoWorker, "text/event-stream", 200, true),
            (ErrorReply::WorkersEnded, "*/*", 503, true),
            (ErrorReply::WorkerDied, "text/event-stream", 502, false),
            (ErrorReply::Malformed, "*/*", 502, false),
            (ErrorReply::Timeout, "*/*", 504, false),
            (ErrorReply::SessionsFull, "*/*", 503, true),
            (ErrorReply::SessionEnded, "*/*", 404, false),
            (ErrorReply::Unsendable, "*/*", 500, false),
            (ErrorReply::NoDescriptor, "*/*", 503, true),
        ] {
            let mut exchange = Exchange::new();
            exchange.begin(1, 1, 0);
            exchange.push_header(b"accept", accept.as_bytes());
            exchange.end_head(None, None, false);
            error.write(&mut exchange);
            assert_eq!(exchange.response().status(), status, "{error:?}");
            let retries = exchange.response_headers().any(|(name, _)| name == b"Retry-After");
            assert_eq!(retries, has_retry, "{error:?}");
        }
    }
}
