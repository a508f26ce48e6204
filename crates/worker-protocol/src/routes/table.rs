//! The table of routes with their counters and histograms.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use super::name::{MAX_ROUTE_LEN, RouteName, StoredName};
use super::series::{HttpSeries, SeriesKey, SeriesReading};
use crate::counters::{Counter, Histogram};

/// The maximum number of routes that are counted on their own. Requests of all further routes are
/// counted as [`OTHER_ROUTE`].
pub const MAX_ROUTES: u64 = 200;

/// The name under which the requests of all routes beyond [`MAX_ROUTES`] are counted.
pub const OTHER_ROUTE: &str = "other";

/// The beginning of the name under which an output of Shiny is stored, which no route has: the
/// routes of requests begin with a slash, or are patterns of the app.
const OUTPUT_PREFIX: &str = "output$";

/// The number of places in the hash table of routes. It is a power of two and larger than
/// [`MAX_ROUTES`], so that few places need to be searched.
const PLACES: usize = 256;

/// The bit in the word of a route that shows that its place is in use.
const IN_USE: u64 = 1 << 8;

/// The number of bits in the word of a route for the length of its name.
const LEN_MASK: u64 = 0xFF;

/// A request, as the metrics count it.
#[derive(Debug, Clone, Copy)]
pub struct RouteSample<'a> {
    /// The route of the request.
    pub route: RouteName<'a>,
    /// Whether the application has set the route. If not, the route is the first segment of the
    /// path.
    pub is_route_set: bool,
    /// The method of the request.
    pub method: &'a [u8],
    /// Whether the client used `https`.
    pub is_https: bool,
    /// The status code of the response; 0 if the client disconnected before it was sent.
    pub status: u16,
    /// The time for which the request waited for R, if known.
    pub queue: Option<Duration>,
    /// The time from the moment when R began with the request until its response, if known.
    pub r: Option<Duration>,
    /// The time from the end of the request's head to the end of the response; `None` if the
    /// response has no natural end, as a stream of events.
    pub duration: Option<Duration>,
}

impl RouteSample<'_> {
    /// Returns true if the request may add a route to the table. Requests that the application does
    /// not accept are often those of scanners, whose invented paths would fill the table. So would
    /// the requests that the server refuses while it is overloaded: R has not begun with them.
    fn may_add_route(&self) -> bool {
        let is_accepted = self.status != 0 && !(400..500).contains(&self.status);
        self.is_route_set || self.r.is_some() && is_accepted
    }
}

/// The counters and histograms of one route.
#[derive(Debug)]
#[repr(C)]
pub struct RouteCounters {
    /// The number of requests.
    pub requests: Counter,
    /// The number of responses with a status code of 500 or higher.
    pub errors: Counter,
    /// The times for which requests waited for R.
    pub queue: Histogram,
    /// The times that R took for its responses.
    pub r: Histogram,
    /// The times from the end of a request's head to the end of the response.
    pub duration: Histogram,
}

impl RouteCounters {
    const fn new() -> RouteCounters {
        RouteCounters {
            requests: Counter::new(),
            errors: Counter::new(),
            queue: Histogram::new(),
            r: Histogram::new(),
            duration: Histogram::new(),
        }
    }

    fn record(&self, sample: &RouteSample<'_>) {
        self.requests.add(1);
        if sample.status >= 500 {
            self.errors.add(1);
        }
        for (histogram, time) in
            [(&self.queue, sample.queue), (&self.r, sample.r), (&self.duration, sample.duration)]
        {
            if let Some(time) = time {
                histogram.add(time);
            }
        }
    }

    fn add_all(&self, other: &RouteCounters) {
        self.requests.add(other.requests.get());
        self.errors.add(other.errors.get());
        self.queue.add_all(&other.queue);
        self.r.add_all(&other.r);
        self.duration.add_all(&other.duration);
    }
}

/// The metrics of requests by route. One thread writes the table, and others may read it. A reader
/// must not trust a table that another process writes, and accepts every value in it.
#[derive(Debug)]
#[repr(C)]
pub struct RouteTable {
    count: Counter,
    other: RouteCounters,
    places: [Place; PLACES],
    series: HttpSeries,
}

#[derive(Debug)]
#[repr(C)]
struct Place {
    /// The length of the name, [`IN_USE`], and a part of the name's hash; 0 if the place is free.
    word: AtomicU64,
    name: StoredName,
    counters: RouteCounters,
}

impl Place {
    const fn new() -> Place {
        Place { word: AtomicU64::new(0), name: StoredName::new(), counters: RouteCounters::new() }
    }
}

// The tables of all workers and of the front end are read together for a report.
const _: () = assert!(size_of::<RouteTable>() < 400 << 10);

impl Default for RouteTable {
    fn default() -> RouteTable {
        RouteTable::new()
    }
}

impl AsRef<RouteTable> for RouteTable {
    fn as_ref(&self) -> &RouteTable {
        self
    }
}

impl RouteTable {
    /// Creates an empty table. The table has 275 kB, so keep it in a box.
    #[allow(clippy::large_stack_arrays, reason = "the stacks of all threads have 2 MiB")]
    pub const fn new() -> RouteTable {
        RouteTable {
            count: Counter::new(),
            other: RouteCounters::new(),
            places: [const { Place::new() }; PLACES],
            series: HttpSeries::new(),
        }
    }

    /// Counts a request that is complete.
    pub fn record(&self, sample: &RouteSample<'_>) {
        let place = self.place(sample.route, sample.may_add_route());
        self.counters(place).record(sample);
        if let Some(duration) = sample.duration {
            let route = place.filter(|_| sample.is_route_set);
            let key = SeriesKey::new(sample.method, sample.status, sample.is_https, route);
            self.series.histogram(key).add(duration);
        }
    }

    /// Counts the computation of an output of Shiny. Outputs and routes share the [`MAX_ROUTES`]
    /// names; further outputs are not counted.
    pub fn record_output(&self, output: &[u8], time: Duration) {
        let name = [OUTPUT_PREFIX.as_bytes(), output].concat();
        if let Some(place) = self.place(RouteName::of_pattern(&name), true) {
            self.places[place].counters.r.add(time);
        }
    }

    /// Returns the outputs of Shiny with the times that their computations took, sorted by name.
    pub fn outputs(&self) -> Vec<(String, &Histogram)> {
        let mut outputs: Vec<_> = (0..PLACES)
            .filter_map(|at| {
                let name = self.name(at)?;
                Some((name.strip_prefix(OUTPUT_PREFIX)?.to_owned(), &self.places[at].counters.r))
            })
            .collect();
        outputs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        outputs
    }

    /// Returns the index of the place of a route, or `None` for [`OTHER_ROUTE`]. Adds the route to
    /// the table if `may_add` is true and there are fewer than [`MAX_ROUTES`].
    fn place(&self, name: RouteName<'_>, may_add: bool) -> Option<usize> {
        if name.as_bytes() == OTHER_ROUTE.as_bytes() {
            return None;
        }
        let hash = name.hash();
        let word = hash << 9 | IN_USE | name.as_bytes().len() as u64;
        for at in 0..PLACES {
            let at = (hash as usize).wrapping_add(at) % PLACES;
            let place = &self.places[at];
            let stored = place.word.load(Acquire);
            if stored == word && place.name.begins_with(name) {
                return Some(at);
            }
            if stored == 0 {
                if !may_add || self.count.get() >= MAX_ROUTES {
                    return None;
                }
                self.count.add(1);
                place.name.store(name);
                place.word.store(word, Release);
                return Some(at);
            }
        }
        None
    }

    fn counters(&self, place: Option<usize>) -> &RouteCounters {
        place.map_or(&self.other, |at| &self.places[at].counters)
    }

    /// Returns the name of the route at a place, or `None` if the place is free.
    fn name(&self, at: usize) -> Option<String> {
        let place = self.places.get(at)?;
        let word = place.word.load(Acquire);
        if word & IN_USE == 0 {
            return None;
        }
        let mut bytes = [0; MAX_ROUTE_LEN];
        let len = place.name.read((word & LEN_MASK) as usize, &mut bytes);
        Some(RouteName::of_pattern(&bytes[..len]).to_text())
    }

    /// Adds the counts of another table to this one. Reports add up the tables of all processes, so
    /// that each route occurs once.
    pub fn add_all(&self, other: &RouteTable) {
        self.other.add_all(&other.other);
        let mut places = [None; PLACES];
        for (at, place) in places.iter_mut().enumerate() {
            if let Some(name) = other.name(at) {
                *place = self.place(RouteName::of_pattern(name.as_bytes()), true);
                self.counters(*place).add_all(&other.places[at].counters);
            }
        }
        self.series.add_all(&other.series, |at| places.get(at).copied().flatten());
    }

    /// Returns the routes with their counters, sorted by name. [`OTHER_ROUTE`] comes last, if it
    /// has any requests.
    pub fn routes(&self) -> Vec<(String, &RouteCounters)> {
        let mut routes: Vec<_> = (0..PLACES)
            .filter_map(|at| Some((self.name(at)?, &self.places[at].counters)))
            .filter(|(name, _)| !name.starts_with(OUTPUT_PREFIX))
            .collect();
        routes.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if self.other.requests.get() > 0 {
            routes.push((OTHER_ROUTE.to_owned(), &self.other));
        }
        routes
    }

    /// Returns the series of `http.server.request.duration`, each with the route that the
    /// application has set. The order is that of method, route and status code.
    pub fn series(&self) -> Vec<(SeriesReading<'_>, Option<String>)> {
        let mut all: Vec<_> = self
            .series
            .read()
            .map(|series| (series, series.route.and_then(|at| self.name(at))))
            .collect();
        all.sort_by(|(a, a_route), (b, b_route)| {
            (a.method, a_route, a.status, a.is_https)
                .cmp(&(b.method, b_route, b.status, b.is_https))
        });
        all
    }

    /// Returns the durations of the requests of all series beyond the maximum number.
    pub fn overflow(&self) -> &Histogram {
        self.series.overflow()
    }
}

#[cfg(test)]
mod tests;
