//! The figures of the time between two snapshots: requests per second, and latencies.

use std::collections::HashMap;

use serde_json::Value;

use super::json_text::{list, number, text};

/// The counters of the last two snapshots of a server.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The time of the last snapshot by the server's monotonic clock.
    clock: f64,
    pid: u64,
    /// The time between the snapshots in seconds; `None` before the second one.
    seconds: Option<f64>,
    /// The requests of each route, in all and since the snapshot before.
    routes: HashMap<String, (f64, f64)>,
    /// The requests and the processor time of R in milliseconds of each R process, in all and since
    /// the snapshot before.
    workers: HashMap<u64, ([f64; 2], [f64; 2])>,
}

impl Figures {
    /// Adds a snapshot. A snapshot that follows the one before at once, because another viewer has
    /// come, is left out.
    pub(super) fn update(&mut self, snapshot: &Value) {
        let clock = number(&snapshot["clock"]);
        let report = &snapshot["report"];
        let pid = report["pid"].as_u64().unwrap_or_default();
        if pid != self.pid || clock < self.clock {
            *self = Figures { pid, ..Figures::default() };
        }
        let passed = clock - self.clock;
        if self.clock > 0.0 && passed < 0.5 {
            return;
        }
        self.seconds = (self.clock > 0.0).then_some(passed);
        self.clock = clock;
        let routes = list(&report["routes"]).iter().map(|route| {
            let (name, all) = (text(&route["route"]), number(&route["requests"]));
            let before = self.routes.get(&name).map_or(0.0, |(before, _)| *before);
            (name, (all, increase(all, before)))
        });
        self.routes = routes.collect();
        let workers = list(&report["workers"]).iter().filter_map(|worker| {
            let pid = worker["pid"].as_u64()?;
            let all = [number(&worker["requests"]), number(&worker["r_cpu_ms"])];
            let before = self.workers.get(&pid).map_or([0.0; 2], |(before, _)| *before);
            Some((pid, (all, [increase(all[0], before[0]), increase(all[1], before[1])])))
        });
        self.workers = workers.collect();
    }

    /// Returns the requests per second of all routes, or of all R processes if the report has no
    /// routes.
    pub(super) fn rate(&self) -> Option<f64> {
        let seconds = self.seconds?;
        let of_routes: f64 = self.routes.values().map(|(_, since)| since).sum();
        let of_workers: f64 = self.workers.values().map(|(_, [since, _])| since).sum();
        Some(of_routes.max(of_workers) / seconds)
    }

    /// Returns the requests per second of a route.
    pub(super) fn route_rate(&self, route: &str) -> Option<f64> {
        Some(self.routes.get(route)?.1 / self.seconds?)
    }

    /// Returns true if a busy R process has used its processor since the snapshot before, and false
    /// if it waits. On a busy machine, even a process that computes all the time gets only a part
    /// of a processor.
    pub(super) fn computes(&self, pid: u64) -> Option<bool> {
        let (_, [_, used]) = self.workers.get(&pid)?;
        Some(used / 1000.0 / self.seconds? >= 0.1)
    }
}

/// Returns the increase of a counter, which begins again at 0 when its process does.
fn increase(now: f64, before: f64) -> f64 {
    if now < before { now } else { now - before }
}

/// Returns the mean of a histogram's observations in seconds.
pub(super) fn mean(histogram: &Value) -> Option<f64> {
    let count = number(&histogram["count"]);
    (count > 0.0).then(|| number(&histogram["sum"]) / count)
}

/// Returns the value below which 95 % of a histogram's observations lie, interpolated within a
/// bucket. The buckets are cumulative.
pub(super) fn percentile_95(histogram: &Value, bounds: &[Value]) -> Option<f64> {
    let rank = 0.95 * number(&histogram["count"]);
    let (mut before, mut lower) = (0.0, 0.0);
    for (bound, bucket) in
        bounds.iter().map(number).zip(list(&histogram["buckets"]).iter().map(number))
    {
        if bucket >= rank && bucket > before {
            return Some(lower + (bound - lower) * (rank - before) / (bucket - before));
        }
        (before, lower) = (bucket, bound);
    }
    (rank > 0.0).then_some(lower)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(clock: f64, pid: u64, requests: u64, cpu: u64) -> Value {
        json!({ "clock": clock, "report": {
            "pid": pid,
            "routes": [{ "route": "/a", "requests": requests }],
            "workers": [{ "pid": 7, "requests": requests, "r_cpu_ms": cpu }],
        }})
    }

    #[test]
    fn rates_are_those_between_two_snapshots() {
        let mut figures = Figures::default();
        figures.update(&snapshot(10.0, 1, 100, 0));
        assert_eq!((figures.rate(), figures.route_rate("/a")), (None, None));
        figures.update(&snapshot(12.0, 1, 150, 500));
        assert_eq!((figures.rate(), figures.route_rate("/a")), (Some(25.0), Some(25.0)));
        assert_eq!((figures.computes(7), figures.computes(8)), (Some(true), None));
        figures.update(&snapshot(12.2, 1, 500, 500));
        assert_eq!(figures.rate(), Some(25.0), "too early");
        figures.update(&snapshot(13.0, 1, 160, 500));
        assert_eq!((figures.rate(), figures.computes(7)), (Some(10.0), Some(false)));
        // The worker was replaced, and then the server.
        figures.update(&snapshot(14.0, 1, 3, 0));
        assert_eq!(figures.rate(), Some(3.0));
        figures.update(&snapshot(15.0, 2, 9, 0));
        assert_eq!(figures.rate(), None);
    }

    #[test]
    fn the_percentile_lies_within_its_bucket() {
        let bounds = [json!(0.1), json!(1.0), json!(10.0)];
        let of = |buckets: [u64; 3], count: u64| {
            percentile_95(&json!({ "buckets": buckets, "count": count }), &bounds)
        };
        assert_eq!(of([0, 0, 0], 0), None);
        assert_eq!(of([100, 100, 100], 100), Some(0.095));
        assert_eq!(of([90, 100, 100], 100), Some(0.55));
        assert_eq!(of([0, 0, 0], 5), Some(10.0), "all are above the last bound");
        assert_eq!(percentile_95(&Value::Null, &bounds), None);
    }
}
