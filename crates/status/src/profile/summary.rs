//! The summary of a profile: the time that each route and each function took.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

/// The maximum number of functions in a list of a summary.
const MOST_FUNCTIONS: usize = 15;

/// The methods and the other prefixes with which names of routes begin.
const PREFIXES: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "OTHER", "WEBSOCKET"];

/// Returns true if the name of a function in a sample is that of a route, such as `GET:/report`, by
/// which the handler was called during the profile.
fn is_route(name: &str) -> bool {
    let Some((prefix, rest)) = name.split_once(':') else { return false };
    PREFIXES.contains(&prefix) && (rest.starts_with('/') || name == "WEBSOCKET:message")
}

/// Returns what the function with this name computes in a sample: a route, such as `GET:/report`,
/// or what Shiny computes, such as `output$plot` or `observeEvent(input$go)`. Shiny names the
/// function of an observer after it, such as `<observer:output$plot>`, if the observer has a label.
fn work_of(name: &str) -> Option<&str> {
    if is_route(name) {
        return Some(name);
    }
    let label = name.strip_prefix("<observer")?.strip_suffix('>')?;
    match label.strip_prefix(':') {
        None => label.is_empty().then_some("observer"),
        Some(label) => Some(label),
    }
}

/// The time that each route and each function took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The number of samples.
    pub samples: u64,
    /// The interval of the samples in microseconds.
    pub interval: u64,
    /// The routes, and the outputs and observers of Shiny, each with the number of its samples. The
    /// name is `None` for samples outside of handlers and observers.
    pub routes: Vec<(Option<String>, u64)>,
    /// The functions that took most time themselves.
    pub by_self: Vec<FunctionTime>,
    /// The functions that took most time with those that they called.
    pub by_total: Vec<FunctionTime>,
}

/// The samples of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionTime {
    /// The name of the function.
    pub name: String,
    /// The number of samples in which the function was the innermost one.
    pub own: u64,
    /// The number of samples that contain the function.
    pub total: u64,
}

impl Summary {
    /// Returns the summary as JSON, with times in seconds.
    pub fn json(&self) -> Value {
        let seconds = |samples: u64| {
            Duration::from_micros(samples.saturating_mul(self.interval)).as_secs_f64()
        };
        let functions = |list: &[FunctionTime]| -> Vec<Value> {
            let one = |it: &FunctionTime| json!({ "name": it.name, "self": seconds(it.own), "total": seconds(it.total) });
            list.iter().map(one).collect()
        };
        let routes: Vec<Value> = self
            .routes
            .iter()
            .map(|(name, samples)| json!({ "route": name, "seconds": seconds(*samples) }))
            .collect();
        json!({
            "samples": self.samples,
            "seconds": seconds(self.samples),
            "routes": routes,
            "by_self": functions(&self.by_self),
            "by_total": functions(&self.by_total),
        })
    }
}

/// Counts samples for a [`Summary`].
#[derive(Debug, Default)]
pub(super) struct SummaryBuilder {
    samples: u64,
    routes: HashMap<Option<String>, u64>,
    functions: HashMap<String, Count>,
}

#[derive(Debug, Default)]
struct Count {
    own: u64,
    total: u64,
    /// The number of the last sample that contains the function, so that a function that calls
    /// itself counts once.
    last: u64,
}

impl SummaryBuilder {
    /// Counts a sample, whose functions are given from the innermost on. In the sample of a handler
    /// or an observer, only the functions that it calls count, because the functions outside are
    /// the same for all of them.
    pub(super) fn add_sample(&mut self, names: impl Iterator<Item = String>) {
        self.samples += 1;
        let mut route = None;
        let mut inner = Vec::new();
        for name in names {
            if let Some(work) = work_of(&name) {
                route = Some(work.to_owned());
                break;
            }
            inner.push(name);
        }
        // The function with the name of the route calls the handler in this way, see profile.c.
        for caller in [".Call", "<Anonymous>"] {
            if route.as_deref().is_some_and(is_route)
                && inner.last().is_some_and(|name| name == caller)
            {
                inner.pop();
            }
        }
        for (at, name) in inner.into_iter().enumerate() {
            let count = self.functions.entry(name).or_default();
            count.own += u64::from(at == 0);
            count.total += u64::from(count.last != self.samples);
            count.last = self.samples;
        }
        *self.routes.entry(route).or_default() += 1;
    }

    pub(super) fn finish(self, interval: u64) -> Summary {
        let mut routes: Vec<_> = self.routes.into_iter().collect();
        routes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut functions: Vec<FunctionTime> = self
            .functions
            .into_iter()
            .map(|(name, Count { own, total, .. })| FunctionTime { name, own, total })
            .collect();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        let mut most = |of: fn(&FunctionTime) -> u64| {
            functions.sort_by_key(|it| std::cmp::Reverse(of(it)));
            functions.iter().filter(|it| of(it) > 0).take(MOST_FUNCTIONS).cloned().collect()
        };
        let (by_self, by_total) = (most(|it| it.own), most(|it| it.total));
        Summary { samples: self.samples, interval, routes, by_self, by_total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_count_once_in_a_sample_and_only_within_the_handler() {
        let mut builder = SummaryBuilder::default();
        for sample in [
            &["sort", "f", "f", "GET:/a", "service"][..],
            &["f", "<Anonymous>", ".Call", "GET:/a", "service"],
            &["g", "POST:/b", "service"],
            &["service"],
            &["h", "WEBSOCKET:message", "service"],
            &[],
        ] {
            builder.add_sample(sample.iter().map(|name| (*name).to_owned()));
        }
        let summary = builder.finish(10_000);
        let routes: Vec<_> =
            summary.routes.iter().map(|(name, count)| (name.as_deref(), *count)).collect();
        assert_eq!(
            routes,
            [(None, 2), (Some("GET:/a"), 2), (Some("POST:/b"), 1), (Some("WEBSOCKET:message"), 1)]
        );
        let of = |name: &str| {
            let found = summary.by_total.iter().find(|it| it.name == name);
            found.map(|it| (it.own, it.total))
        };
        assert_eq!(
            (of("f"), of("sort"), of("service")),
            (Some((1, 2)), Some((1, 1)), Some((1, 1)))
        );
        assert_eq!((of("<Anonymous>"), of(".Call")), (None, None));
        assert_eq!(summary.by_total[0].name, "f");
        assert!((summary.json()["seconds"].as_f64().unwrap() - 0.06).abs() < 1e-9);
    }

    #[test]
    fn the_outputs_and_observers_of_shiny_count_like_routes() {
        let mut builder = SummaryBuilder::default();
        for sample in [
            &["sort", "total", "<reactive:total>", "<observer:output$plot>", "flushReact"][..],
            &["fit", "<Anonymous>", "<observer:observeEvent(input$go)>", "flushReact"],
            &["fit", "observe", "<observer>", "flushReact"],
            &["flushReact"],
        ] {
            builder.add_sample(sample.iter().map(|name| (*name).to_owned()));
        }
        let summary = builder.finish(10_000);
        let routes: Vec<_> = summary.routes.iter().map(|(name, _)| name.as_deref()).collect();
        assert_eq!(
            routes,
            [None, Some("observeEvent(input$go)"), Some("observer"), Some("output$plot")]
        );
        let has = |name: &str| summary.by_total.iter().any(|it| it.name == name);
        assert!(has("total") && has("<reactive:total>") && has("<Anonymous>"));
    }

    #[test]
    fn names_of_functions_are_not_taken_for_routes() {
        for (name, is) in [
            ("GET:/", true),
            ("OTHER:/x", true),
            ("WEBSOCKET:message", true),
            ("WEBSOCKET:x", false),
            ("stats::sd", false),
            ("compiler:::tryCmpfun", false),
            ("GET", false),
            ("BREW:/pot", false),
        ] {
            assert_eq!(is_route(name), is, "{name}");
        }
    }
}
