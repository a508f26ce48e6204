//! The samples of the last minutes, with which the charts of the live page begin.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rookery_worker_protocol::{HISTOGRAM_BOUNDS, Histogram, now};
use serde_json::{Value, json};

use crate::report::Report;

/// The interval between two samples while nobody looks at the live page.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// The number of samples that are kept: those of ten minutes.
const MAX_SAMPLES: usize = 120;

/// The maximum number of routes that a sample names: those with most requests. The page has lines
/// for fewer routes, and one for the others.
const MAX_ROUTES: usize = 8;

/// The maximum number of R processes that a sample has one by one. The page shows the average of
/// more than this number.
const MAX_PROCESSES: usize = 6;

/// The samples of the last ten minutes. They take at most about 60 kB.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
    /// The counts of each route at the last sample.
    before: HashMap<String, Counts>,
    /// The time of the last sample in seconds.
    last: Option<f64>,
}

/// The figures of the time between two samples.
#[derive(Debug)]
struct Sample {
    /// The time of the sample, in seconds of the clock [`now`].
    at: f64,
    seconds: f64,
    /// The number of all requests and messages.
    count: u64,
    /// The name, the number of requests and the 95th percentile of the durations of each route.
    routes: Vec<(String, u64, Option<f64>)>,
    /// The number of the slot of each R process, and the share of the time in which it was busy.
    busy: Vec<(u32, f64)>,
}

/// The number of requests of a route, and the cumulated buckets of their durations.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: u64,
    buckets: [u64; HISTOGRAM_BOUNDS.len()],
    durations: u64,
}

impl Counts {
    fn of(requests: u64, durations: &Histogram) -> Counts {
        let (buckets, count, _) = durations.read();
        Counts { requests, buckets, durations: count }
    }

    /// Returns the increase since `before`. A counter begins again at 0 when its process does.
    fn since(&self, before: &Counts) -> Counts {
        if self.requests < before.requests || self.durations < before.durations {
            return *self;
        }
        Counts {
            requests: self.requests - before.requests,
            buckets: std::array::from_fn(|at| self.buckets[at].saturating_sub(before.buckets[at])),
            durations: self.durations - before.durations,
        }
    }

    /// Returns the duration within which 95 % of the requests were complete, interpolated within a
    /// bucket, or `None` if there were none. The page computes it in the same way.
    #[allow(clippy::cast_precision_loss, reason = "the numbers of requests of a few seconds")]
    fn p95(&self) -> Option<f64> {
        let rank = 0.95 * self.durations as f64;
        let (mut before, mut lower) = (0.0, 0.0);
        for (bound, until) in HISTOGRAM_BOUNDS.iter().zip(self.buckets) {
            let until = until as f64;
            if until >= rank && until > before {
                return Some(lower + (bound - lower) * (rank - before) / (until - before));
            }
            (before, lower) = (until, *bound);
        }
        (self.durations > 0).then_some(lower)
    }
}

impl History {
    /// Adds a sample of what has happened since the last one.
    pub(super) fn add(&mut self, report: &Report) {
        self.add_at(report, Duration::from_nanos(now()).as_secs_f64());
    }

    fn add_at(&mut self, report: &Report, at: f64) {
        let counts: HashMap<String, Counts> = report
            .traffic()
            .into_iter()
            .map(|(name, requests, durations)| (name, Counts::of(requests, &durations)))
            .collect();
        if let Some(last) = self.last {
            self.samples.push_back(self.sample(report, &counts, (last, at)));
            while self.samples.len() > MAX_SAMPLES {
                self.samples.pop_front();
            }
        }
        self.before = counts;
        self.last = Some(at);
    }

    fn sample(
        &self,
        report: &Report,
        counts: &HashMap<String, Counts>,
        (last, at): (f64, f64),
    ) -> Sample {
        let none = Counts::default();
        let mut routes: Vec<(String, u64, Option<f64>)> = counts
            .iter()
            .map(|(name, now)| {
                let increase = now.since(self.before.get(name).unwrap_or(&none));
                (name.clone(), increase.requests, increase.p95())
            })
            .filter(|(_, count, _)| *count > 0)
            .collect();
        let count = routes.iter().map(|(_, count, _)| count).sum();
        routes.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        routes.truncate(MAX_ROUTES);
        let mut busy: Vec<(u32, f64)> = report.busy_ratios().collect();
        if busy.len() > MAX_PROCESSES {
            let (sum, count) =
                busy.iter().fold((0.0, 0.0), |(sum, count), (_, ratio)| (sum + ratio, count + 1.0));
            busy = vec![(0, sum / count)];
        }
        Sample { at, seconds: at - last, count, routes, busy }
    }

    /// Returns the samples as JSON, the oldest first.
    pub(super) fn json(&self) -> Value {
        let sample = |sample: &Sample| {
            json!({
                "at": sample.at,
                "seconds": sample.seconds,
                "count": sample.count,
                "routes": sample.routes,
                "busy": sample.busy,
            })
        };
        Value::Array(self.samples.iter().map(sample).collect())
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::{RouteName, RouteSample};

    use super::*;

    fn record(report: &Report, route: &str, duration: Duration) {
        report.routes.record(&RouteSample {
            route: RouteName::of_pattern(route.as_bytes()),
            is_route_set: true,
            method: b"GET",
            is_https: false,
            status: 200,
            queue: None,
            r: None,
            duration: Some(duration),
        });
    }

    #[test]
    fn a_sample_has_the_increase_since_the_last_one() {
        let (mut history, report) = (History::default(), Report::default());
        record(&report, "/before", Duration::from_secs(1));
        history.add_at(&report, 10.0);
        assert_eq!(history.json(), json!([]));
        for _ in 0..3 {
            record(&report, "/a", Duration::from_millis(20));
        }
        record(&report, "/before", Duration::from_millis(80));
        history.add_at(&report, 15.0);
        history.add_at(&report, 20.0);
        let samples = history.json();
        assert_eq!(samples[0]["at"], 15.0);
        assert_eq!((&samples[0]["seconds"], &samples[0]["count"]), (&json!(5.0), &json!(4)));
        let routes = &samples[0]["routes"];
        assert_eq!((&routes[0][0], &routes[0][1]), (&json!("/a"), &json!(3)));
        let p95 = |route: &Value| route[2].as_f64().unwrap();
        assert!((0.01..0.025).contains(&p95(&routes[0])), "{routes}");
        // The first request is not part of the sample, although it took longer.
        assert!((0.075..0.1).contains(&p95(&routes[1])), "{routes}");
        assert_eq!((&samples[1]["count"], &samples[1]["routes"]), (&json!(0), &json!([])));
    }

    #[test]
    fn counters_that_begin_again_and_many_routes_do_no_harm() {
        let mut history = History::default();
        let old = Report::default();
        for at in 0..500 {
            for _ in 0..2 {
                record(&old, &format!("/{at}"), Duration::from_secs(60));
            }
        }
        history.add_at(&old, 0.0);
        for at in 1..500 {
            let new = Report::default();
            record(&new, "/0", Duration::from_secs(60));
            history.add_at(&new, f64::from(at));
        }
        assert_eq!(history.samples.len(), MAX_SAMPLES);
        let last = &history.samples[MAX_SAMPLES - 1];
        assert_eq!((last.at, last.count), (499.0, 0));
        history.add_at(&old, 500.0);
        let last = &history.samples[MAX_SAMPLES - 1];
        assert_eq!((last.routes.len(), last.count), (MAX_ROUTES, 999));
        // The largest duration is that of the last bound.
        assert_eq!(last.routes[0].2, Some(10.0));
        assert!(history.json().to_string().len() < 60_000);
    }
}
