//! What the pool counts, for whoever asks from another thread. One thread writes: plain loads and stores, nothing that locks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rookery_exchange::{Exchange, masked};
use rookery_status::{Counter, Histogram, StatusClassCounters};
use rookery_worker_protocol::{Scoreboard, Ticket};

/// What waits in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueReading {
    pub(crate) length: u64,
    /// How long the first has waited.
    pub(crate) oldest: Duration,
}

/// How long a queue is, and since when its first waits.
#[derive(Debug)]
pub(crate) struct QueueGauge {
    made: Instant,
    length: Counter,
    /// Nanoseconds from `made` on.
    first: Counter,
}

impl Default for QueueGauge {
    fn default() -> QueueGauge {
        QueueGauge { made: Instant::now(), length: Counter::default(), first: Counter::default() }
    }
}

impl QueueGauge {
    pub(crate) fn set(&self, length: usize, first: Option<Instant>) {
        self.length.set(length as u64);
        if let Some(first) = first {
            self.first
                .set(u64::try_from(first.duration_since(self.made).as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn read(&self) -> QueueReading {
        let length = self.length.get();
        let first = self.made + Duration::from_nanos(self.first.get());
        QueueReading { length, oldest: if length == 0 { Duration::ZERO } else { first.elapsed() } }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// The queue that all workers take from.
    pub(crate) queue: QueueGauge,
    /// How many may wait.
    pub(crate) queue_limit: Counter,
    /// Replies of each class.
    pub(crate) answered: StatusClassCounters,
    /// From a request's coming to its going to a worker.
    pub(crate) waited: Histogram,
    /// From there to the head of the reply.
    pub(crate) took: Histogram,
    /// Both together.
    pub(crate) answered_in: Histogram,
    /// WebSockets that a worker may have; 0: as many as it likes.
    pub(crate) sessions_limit: Counter,
    /// Requests that were refused because too many waited; because they had for too long; and because workers have as many sessions as they
    /// may.
    pub(crate) refused_full: Counter,
    pub(crate) refused_late: Counter,
    pub(crate) refused_sessions: Counter,
    /// Requests that were given to another worker, because theirs ended before it had begun with them.
    pub(crate) returned: Counter,
    /// The same after it had begun with them.
    pub(crate) begun_again: Counter,
    /// Pages that have lost their WebSocket and opened another: with the R that has made them, or with another.
    pub(crate) reconnected_same: Counter,
    pub(crate) reconnected_new: Counter,
    /// Requests with a cookie that should name a worker, and was not made here.
    pub(crate) cookies_invalid: Counter,
}

/// Bytes of a [`Route`]; of longer ones the beginning.
const MOST_ROUTE: usize = 90;

/// A readable form of the request that a worker is handling: the method and the path. The query and
/// the tokens of sessions, which are secrets, are left out.
#[derive(Clone, Copy)]
struct Route {
    ticket: Ticket,
    since: Instant,
    length: u8,
    text: [u8; MOST_ROUTE],
}

/// What a worker has been asked and has not answered.
#[derive(Default)]
pub(crate) struct InFlightRoutes(Mutex<Vec<Route>>);

impl InFlightRoutes {
    pub(crate) fn add(&self, ticket: Ticket, since: Instant, exchange: &Exchange) {
        let mut route = Route { ticket, since, length: 0, text: [0; MOST_ROUTE] };
        let mut at = 0;
        for part in [exchange.method(), b" "].into_iter().chain(masked(exchange.path())) {
            let part = &part[..part.len().min(MOST_ROUTE - at)];
            route.text[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        route.length = at as u8;
        self.lock().push(route);
    }

    pub(crate) fn remove(&self, ticket: Ticket) {
        self.lock().retain(|route| route.ticket != ticket);
    }

    /// The one that R has begun last, and how long ago it was given.
    pub(crate) fn begun(&self, scoreboard: &Scoreboard) -> Option<(String, Duration)> {
        let asked = self.lock();
        let route = asked.iter().rev().find(|route| scoreboard.has_begun(route.ticket))?;
        let text = String::from_utf8_lossy(&route.text[..route.length.into()]);
        // It is shown in terminals.
        let text = text
            .chars()
            .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
            .collect();
        Some((text, route.since.elapsed()))
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

    use super::*;

    #[test]
    fn an_empty_queue_has_nobody_who_waits() {
        let gauge = QueueGauge::default();
        gauge.set(2, Some(Instant::now()));
        std::thread::sleep(Duration::from_millis(2));
        assert!(gauge.read().length == 2 && gauge.read().oldest >= Duration::from_millis(2));
        gauge.set(0, None);
        assert_eq!(gauge.read(), QueueReading { length: 0, oldest: Duration::ZERO });
    }

    #[test]
    fn a_route_is_what_r_has_begun_without_its_query_and_cut() {
        let (scoreboard, asked) = (Scoreboard::new(), InFlightRoutes::default());
        let ticket = |n| Ticket::new(n, n as usize).unwrap();
        let session = "/session/0123456789abcdef0123456789abcdef/download/x";
        let long = "/long/".to_owned() + &"x".repeat(200);
        for (n, path) in [(1, long), (2, "/b".to_owned()), (3, session.to_owned())] {
            let mut exchange = Exchange::new();
            exchange.begin(n, 1, 0);
            exchange.set_request_line(b"GET", (path + "?secret=1").as_bytes(), Version::Http11);
            exchange.end_head(None, None, false);
            asked.add(ticket(n), Instant::now(), &exchange);
        }
        assert_eq!(asked.begun(&scoreboard), None);
        assert!(scoreboard.begin(ticket(1)));
        let (route, _) = asked.begun(&scoreboard).unwrap();
        assert_eq!((route.len(), &route[..12]), (MOST_ROUTE, "GET /long/xx"));
        assert!(scoreboard.begin(ticket(2)));
        assert_eq!(asked.begun(&scoreboard).unwrap().0, "GET /b");
        assert!(scoreboard.begin(ticket(3)));
        assert_eq!(asked.begun(&scoreboard).unwrap().0, "GET /session/<...>/download/x");
        asked.remove(ticket(3));
        asked.remove(ticket(2));
        assert!(asked.begun(&scoreboard).unwrap().0.starts_with("GET /long"));
    }
}
