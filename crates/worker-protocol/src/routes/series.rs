//! The histogram `http.server.request.duration` of OpenTelemetry's semantic conventions, with a
//! bounded number of series.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use crate::counters::{Counter, Histogram};

/// The maximum number of series: combinations of method, scheme, status code and route. Further
/// combinations are counted in one series of their own, as the SDKs of OpenTelemetry do.
const MAX_SERIES: u64 = 600;

/// The number of places in the hash table of series. It is a power of two and larger than
/// [`MAX_SERIES`], so that few places need to be searched.
const PLACES: usize = 1024;

/// The bit in a key that shows that its place is in use.
const IN_USE: u64 = 1 << 63;

/// The number of bits in a key for the route.
const ROUTE_BITS: u32 = 9;

/// The value for requests without a route, because the application has set none.
const NO_ROUTE: u64 = (1 << ROUTE_BITS) - 1;

/// The methods that have series of their own, as the semantic conventions list them. All others
/// are `_OTHER`, because clients can invent methods.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"];

/// The attributes of one series of `http.server.request.duration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeriesKey(u64);

impl SeriesKey {
    /// Makes the key of a series. `status` is 0 if no response was sent, and `route` is the index
    /// of the route that the application has set.
    pub(super) fn new(method: &[u8], status: u16, is_https: bool, route: Option<usize>) -> Self {
        let other = METHODS.len() - 1;
        let method = METHODS[..other].iter().position(|name| name.as_bytes() == method);
        let status = if (100..1000).contains(&status) { status } else { 0 };
        SeriesKey::of_parts(method.unwrap_or(other), status, is_https, route)
    }

    fn of_parts(method: usize, status: u16, is_https: bool, route: Option<usize>) -> SeriesKey {
        let route = route.map_or(NO_ROUTE, |route| route as u64 & NO_ROUTE);
        let (method, status) = ((method as u64) << 1, u64::from(status) << 5);
        SeriesKey(IN_USE | u64::from(is_https) | method | status | route << 21)
    }

    fn method(self) -> usize {
        ((self.0 >> 1 & 0xF) as usize).min(METHODS.len() - 1)
    }

    fn status(self) -> u16 {
        let status = (self.0 >> 5 & 0xFFFF) as u16;
        if (100..1000).contains(&status) { status } else { 0 }
    }

    fn is_https(self) -> bool {
        self.0 & 1 != 0
    }

    pub(super) fn route(self) -> Option<usize> {
        let route = self.0 >> 21 & NO_ROUTE;
        (route != NO_ROUTE).then_some(route as usize)
    }

    pub(super) fn with_route(self, route: Option<usize>) -> SeriesKey {
        SeriesKey::of_parts(self.method(), self.status(), self.is_https(), route)
    }

    /// Returns the place at which the search for the key begins.
    fn first_place(self) -> usize {
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
    }
}

/// A copy of one series of the metric `http.server.request.duration`.
#[derive(Debug, Clone, Copy)]
pub struct SeriesReading<'a> {
    /// The request method, or `_OTHER`.
    pub method: &'static str,
    /// The status code of the response; `None` if the client disconnected before it was sent.
    pub status: Option<u16>,
    /// Whether the client used `https`.
    pub is_https: bool,
    /// The index of the route in the table; `None` if the application has set no route.
    pub(super) route: Option<usize>,
    /// The durations of the requests.
    pub duration: &'a Histogram,
}

/// The histograms of `http.server.request.duration`: one for each combination of method, scheme,
/// status code and route, up to a maximum number.
#[derive(Debug)]
#[repr(C)]
pub(super) struct HttpSeries {
    count: Counter,
    overflow: Histogram,
    places: [Place; PLACES],
}

#[derive(Debug)]
#[repr(C)]
struct Place {
    key: AtomicU64,
    duration: Histogram,
}

impl HttpSeries {
    #[allow(clippy::large_stack_arrays, reason = "the stacks of all threads have 2 MiB")]
    pub(super) const fn new() -> HttpSeries {
        HttpSeries {
            count: Counter::new(),
            overflow: Histogram::new(),
            places: [const { Place { key: AtomicU64::new(0), duration: Histogram::new() } };
                PLACES],
        }
    }

    /// Returns the histogram of a series. Returns the histogram of all further series if there are
    /// too many.
    pub(super) fn histogram(&self, key: SeriesKey) -> &Histogram {
        let first = key.first_place();
        for at in 0..PLACES {
            let place = &self.places[first.wrapping_add(at) % PLACES];
            let stored = place.key.load(Acquire);
            if stored == key.0 {
                return &place.duration;
            }
            if stored == 0 {
                if self.count.get() >= MAX_SERIES {
                    break;
                }
                self.count.add(1);
                place.key.store(key.0, Release);
                return &place.duration;
            }
        }
        &self.overflow
    }

    /// Adds all durations of `other` to these series. `to_route` translates the index of a route.
    pub(super) fn add_all(
        &self,
        other: &HttpSeries,
        mut to_route: impl FnMut(usize) -> Option<usize>,
    ) {
        self.overflow.add_all(&other.overflow);
        for place in &other.places {
            let key = SeriesKey(place.key.load(Acquire));
            if key.0 & IN_USE != 0 {
                let key = key.with_route(key.route().and_then(&mut to_route));
                self.histogram(key).add_all(&place.duration);
            }
        }
    }

    pub(super) fn read(&self) -> impl Iterator<Item = SeriesReading<'_>> {
        self.places.iter().filter_map(|place| {
            let key = SeriesKey(place.key.load(Acquire));
            (key.0 & IN_USE != 0).then(|| SeriesReading {
                method: METHODS[key.method()],
                status: Some(key.status()).filter(|status| *status != 0),
                is_https: key.is_https(),
                route: key.route(),
                duration: &place.duration,
            })
        })
    }

    /// Returns the durations of the requests of all series beyond the maximum number.
    pub(super) fn overflow(&self) -> &Histogram {
        &self.overflow
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_has_its_attributes() {
        let key = SeriesKey::new(b"POST", 503, true, Some(7));
        assert_eq!((METHODS[key.method()], key.status()), ("POST", 503));
        assert_eq!((key.is_https(), key.route()), (true, Some(7)));
        let key = SeriesKey::new(b"get", 7, false, None);
        assert_eq!((METHODS[key.method()], key.status()), ("_OTHER", 0));
        assert_eq!((key.is_https(), key.route()), (false, None));
        assert_eq!(key.with_route(Some(255)).route(), Some(255));
    }

    #[test]
    fn series_beyond_the_maximum_share_one_histogram() {
        let series = Box::new(HttpSeries::new());
        for status in 100..1000 {
            let key = SeriesKey::new(b"GET", status, false, None);
            series.histogram(key).add(Duration::from_millis(1));
        }
        assert_eq!(series.read().count() as u64, MAX_SERIES);
        assert_eq!(series.overflow().read().1, 900 - MAX_SERIES);
        // A known series is found although there is no place for a new one.
        series.histogram(SeriesKey::new(b"GET", 100, false, None)).add(Duration::ZERO);
        let first = series.read().find(|series| series.status == Some(100)).unwrap();
        assert_eq!(first.duration.read().1, 2);
    }
}
