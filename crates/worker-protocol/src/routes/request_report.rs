//! What a worker reports about a request to the process that has forwarded it: the route and the
//! times that only the worker knows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::name::{MAX_ROUTE_LEN, RouteName, StoredName};

/// The number of bits in the first word of a stored report for the length of the route.
const LEN_BITS: u32 = 8;

/// A worker's report about a request that it has responded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestReport {
    /// The time for which the request waited for R within the worker.
    pub queue: Duration,
    /// The time from the moment when R began with the request until its response.
    pub r: Duration,
    route: [u8; MAX_ROUTE_LEN],
    route_len: usize,
}

impl RequestReport {
    /// Makes a report. `route` is empty if the application has not set the route of the request.
    pub fn new(queue: Duration, r: Duration, route: RouteName<'_>) -> RequestReport {
        let (bytes, mut copy) = (route.as_bytes(), [0; MAX_ROUTE_LEN]);
        copy[..bytes.len()].copy_from_slice(bytes);
        RequestReport { queue, r, route: copy, route_len: bytes.len() }
    }

    /// Returns the route that the application has set; empty if it has not.
    pub fn route(&self) -> &[u8] {
        &self.route[..self.route_len]
    }
}

/// A report in the shared memory of a worker and its supervisor. The supervisor reads it after it
/// has received the response over a socket, so that the worker has written it before.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StoredReport {
    /// The sequence number of the request's ticket, and the length of the route; 0 if there is no
    /// report.
    word: AtomicU64,
    queue: AtomicU64,
    r: AtomicU64,
    route: StoredName,
}

impl StoredReport {
    pub(crate) const fn new() -> StoredReport {
        StoredReport {
            word: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            r: AtomicU64::new(0),
            route: StoredName::new(),
        }
    }

    /// Stores a report. Does nothing if there is one about a later request, which has got the place
    /// of a request that the supervisor has given up.
    pub(crate) fn store(&self, sequence: u64, queue: u64, r: u64, route: RouteName<'_>) {
        if self.word.load(Relaxed) >> LEN_BITS > sequence & (u64::MAX >> LEN_BITS) {
            return;
        }
        self.queue.store(queue, Relaxed);
        self.r.store(r, Relaxed);
        self.route.store(route);
        let len = route.as_bytes().len() as u64;
        self.word.store(sequence << LEN_BITS | len, Relaxed);
    }

    /// Returns the report about the request with this sequence number, or `None` if R has
    /// not responded to that request.
    pub(crate) fn read(&self, sequence: u64) -> Option<RequestReport> {
        let word = self.word.load(Relaxed);
        if word >> LEN_BITS != sequence & (u64::MAX >> LEN_BITS) {
            return None;
        }
        let mut route = [0; MAX_ROUTE_LEN];
        let route_len = self.route.read((word & ((1 << LEN_BITS) - 1)) as usize, &mut route);
        let [queue, r] =
            [&self.queue, &self.r].map(|time| Duration::from_nanos(time.load(Relaxed)));
        Some(RequestReport { queue, r, route, route_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_belongs_to_one_request() {
        let stored = StoredReport::new();
        assert_eq!(stored.read(5), None);
        stored.store(5, 1, 2, RouteName::of_pattern(b"/users/<id>"));
        let report = stored.read(5).unwrap();
        assert_eq!((report.queue, report.r), (Duration::from_nanos(1), Duration::from_nanos(2)));
        assert_eq!(report.route(), b"/users/<id>");
        assert_eq!((stored.read(4), stored.read(6)), (None, None));
        stored.store(6, 3, 4, RouteName::of_pattern(b""));
        assert_eq!(stored.read(6).unwrap().route(), b"");
    }

    #[test]
    fn a_late_report_does_not_replace_that_of_a_later_request() {
        let stored = StoredReport::new();
        stored.store(6, 3, 4, RouteName::of_pattern(b"/new"));
        stored.store(5, 1, 2, RouteName::of_pattern(b"/old"));
        let report = stored.read(6).unwrap();
        assert_eq!((report.queue, report.route()), (Duration::from_nanos(3), &b"/new"[..]));
        assert_eq!(stored.read(5), None);
    }

    #[test]
    fn a_length_that_no_route_has_is_read_as_the_maximum() {
        let stored = StoredReport::new();
        stored.word.store(7 << LEN_BITS | 0xFF, Relaxed);
        stored.queue.store(u64::MAX, Relaxed);
        assert_eq!(stored.read(7).unwrap().route().len(), MAX_ROUTE_LEN);
    }
}
