//! The counters of the pool (the part that assigns requests to workers), which other threads read
//! for metrics and reports. Only the pool's thread writes them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rookery_exchange::{Exchange, masked};
use rookery_status::{Counter, Histogram, StatusClassCounters};
use rookery_worker_protocol::{Scoreboard, Ticket};

/// The length of a queue of requests at one moment, and the waiting time of its oldest request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueReading {
    pub(crate) length: u64,
    /// The time that the oldest request in the queue has waited.
    pub(crate) oldest: Duration,
}

/// A gauge for a queue of requests. It stores the length of the queue and the time at which its
/// oldest request began to wait.
#[derive(Debug)]
pub(crate) struct QueueGauge {
    created: Instant,
    length: Counter,
    /// The time at which the oldest request began to wait, in nanoseconds after this gauge was
    /// created.
    first: Counter,
}

impl Default for QueueGauge {
    fn default() -> QueueGauge {
        QueueGauge {
            created: Instant::now(),
            length: Counter::default(),
            first: Counter::default(),
        }
    }
}

impl QueueGauge {
    pub(crate) fn set(&self, length: usize, first: Option<Instant>) {
        self.length.set(length as u64);
        if let Some(first) = first {
            let nanoseconds = first.duration_since(self.created).as_nanos();
            self.first.set(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn read(&self) -> QueueReading {
        let length = self.length.get();
        let first = self.created + Duration::from_nanos(self.first.get());
        QueueReading { length, oldest: if length == 0 { Duration::ZERO } else { first.elapsed() } }
    }
}

/// The counters of the pool, which assigns requests to workers.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// The gauge of the queue of requests that any worker may process.
    pub(crate) queue: QueueGauge,
    /// The maximum number of requests that may wait for workers in the queue.
    pub(crate) queue_limit: Counter,
    /// The number of responses by the class of their status code (such as 2xx).
    pub(crate) responses: StatusClassCounters,
    /// The times from the receipt of a request until it was sent to a worker.
    pub(crate) queue_time: Histogram,
    /// The times from sending a request to a worker until the head of its response arrived.
    pub(crate) upstream_time: Histogram,
    /// The times from the receipt of a request until the head of its response arrived from a
    /// worker.
    pub(crate) request_time: Histogram,
    /// The maximum number of sessions (WebSockets) that one worker may have; 0 for no limit.
    pub(crate) sessions_limit: Counter,
    /// The number of requests that were rejected because the queue for workers was full.
    pub(crate) rejected_full: Counter,
    /// The number of requests that were rejected because they had waited too long for a worker.
    pub(crate) rejected_timeout: Counter,
    /// The number of requests that were rejected because all workers had the maximum number of
    /// sessions.
    pub(crate) rejected_sessions: Counter,
    /// The number of times that a request was sent to another worker because its first worker ended
    /// before R had begun to process it.
    pub(crate) retries_unbegun: Counter,
    /// The number of times that a request was sent to another worker because its first worker ended
    /// while R was processing it.
    pub(crate) retries_begun: Counter,
    /// The number of times that a page lost its WebSocket and reconnected to the worker that had
    /// served the page.
    pub(crate) reconnected_same_worker: Counter,
    /// The number of times that a page lost its WebSocket and reconnected to another worker than
    /// the one that had served the page.
    pub(crate) reconnected_new_worker: Counter,
    /// The number of requests with a session cookie whose signature was invalid.
    pub(crate) invalid_cookies: Counter,
}

/// The maximum length in bytes of a request's method and path in reports. Longer text is truncated.
const MAX_ROUTE_LEN: usize = 90;

/// The method and the path of a request that a worker is processing, for reports. The query and the
/// secret tokens of sessions are left out.
#[derive(Clone, Copy)]
struct Route {
    ticket: Ticket,
    sent_at: Instant,
    length: u8,
    text: [u8; MAX_ROUTE_LEN],
}

/// The methods and paths of the requests to which one worker has not responded yet.
#[derive(Default)]
pub(crate) struct InFlightRoutes(Mutex<Vec<Route>>);

impl InFlightRoutes {
    pub(crate) fn add(&self, ticket: Ticket, sent_at: Instant, exchange: &Exchange) {
        let mut route = Route { ticket, sent_at, length: 0, text: [0; MAX_ROUTE_LEN] };
        let mut at = 0;
        for part in [exchange.method(), b" "].into_iter().chain(masked(exchange.path())) {
            let part = &part[..part.len().min(MAX_ROUTE_LEN - at)];
            route.text[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        route.length = at as u8;
        self.lock().push(route);
    }

    pub(crate) fn remove(&self, ticket: Ticket) {
        self.lock().retain(|route| route.ticket != ticket);
    }

    /// Returns the method and path of the most recently sent request that R has begun, and the time
    /// since it was sent to the worker. Returns `None` if R has begun none.
    pub(crate) fn last_begun(&self, scoreboard: &Scoreboard) -> Option<(String, Duration)> {
        let routes = self.lock();
        let route = routes.iter().rev().find(|route| scoreboard.has_begun(route.ticket))?;
        let text = String::from_utf8_lossy(&route.text[..route.length.into()]);
        // Control characters could change the state of a terminal that shows the route.
        let text = text
            .chars()
            .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
            .collect();
        Some((text, route.sent_at.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Route>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for InFlightRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InFlightRoutes").field(&self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use rookery_exchange::Version;
    use rookery_worker_protocol::SharedScoreboard;

    use super::*;

    #[test]
    fn an_empty_queue_has_no_oldest_request() {
        let gauge = QueueGauge::default();
        gauge.set(2, Some(Instant::now()));
        std::thread::sleep(Duration::from_millis(2));
        assert!(gauge.read().length == 2 && gauge.read().oldest >= Duration::from_millis(2));
        gauge.set(0, None);
        assert_eq!(gauge.read(), QueueReading { length: 0, oldest: Duration::ZERO });
    }

    #[test]
    fn shows_the_route_that_r_has_begun_last_without_secrets() {
        let (scoreboard, _) = SharedScoreboard::create().unwrap();
        let routes = InFlightRoutes::default();
        let ticket = |n| Ticket::new(n, n as usize).unwrap();
        let session = "/session/0123456789abcdef0123456789abcdef/download/x";
        let long = "/long/".to_owned() + &"x".repeat(200);
        for (n, path) in [(1, long), (2, "/b".to_owned()), (3, session.to_owned())] {
            let mut exchange = Exchange::new();
            exchange.begin(n, 1, 0);
            exchange.set_request_line(b"GET", (path + "?secret=1").as_bytes(), Version::Http11);
            exchange.end_head(None, None, false);
            routes.add(ticket(n), Instant::now(), &exchange);
        }
        assert_eq!(routes.last_begun(&scoreboard), None);
        assert!(scoreboard.begin(ticket(1)));
        let (route, _) = routes.last_begun(&scoreboard).unwrap();
        assert_eq!((route.len(), &route[..12]), (MAX_ROUTE_LEN, "GET /long/xx"));
        assert!(scoreboard.begin(ticket(2)));
        assert_eq!(routes.last_begun(&scoreboard).unwrap().0, "GET /b");
        assert!(scoreboard.begin(ticket(3)));
        assert_eq!(routes.last_begun(&scoreboard).unwrap().0, "GET /session/<...>/download/x");
        routes.remove(ticket(3));
        routes.remove(ticket(2));
        assert!(routes.last_begun(&scoreboard).unwrap().0.starts_with("GET /long"));
    }
}
