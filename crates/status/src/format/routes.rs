//! The metrics by route, as JSON and in Prometheus's text format.

use std::fmt::Write as _;

use rookery_worker_protocol::{Histogram, RouteCounters, RouteTable, SeriesReading};
use serde_json::{Value, json};

use super::{Metrics, label_value};

/// The metric `http.server.request.duration` of OpenTelemetry's semantic conventions, as exporters
/// for Prometheus name it.
const HTTP_DURATION: &str = "http_server_request_duration_seconds";

/// Returns the metrics of all routes as a JSON array, sorted by route. The buckets of a histogram
/// are cumulative: each is the number of requests that took at most as long as its bound.
pub(crate) fn routes_json(table: &RouteTable) -> Vec<Value> {
    let route = |(name, counters): (String, &RouteCounters)| {
        json!({
            "route": name,
            "requests": counters.requests.get(),
            "errors": counters.errors.get(),
            "duration": histogram_json(&counters.duration),
            "queue": histogram_json(&counters.queue),
            "r": histogram_json(&counters.r),
        })
    };
    table.routes().into_iter().map(route).collect()
}

/// The name by which reports show the messages of WebSockets among the routes.
pub(crate) const MESSAGES: &str = "messages of WebSockets";

/// Returns the messages of WebSockets in the form of a route, or `None` if there were none. `all`
/// has the times in which R was busy with them.
pub(crate) fn messages_json(all: &Histogram) -> Option<Value> {
    let (_, count, _) = all.read();
    (count > 0).then(|| {
        json!({
            "route": MESSAGES,
            "requests": count,
            "errors": 0,
            "duration": histogram_json(all),
            "queue": histogram_json(&Histogram::new()),
            "r": histogram_json(all),
        })
    })
}

/// Returns the outputs of Shiny as a JSON array, sorted by name, with the times that their
/// computations took.
pub(crate) fn outputs_json(table: &RouteTable) -> Vec<Value> {
    let output =
        |(name, times): (String, &Histogram)| json!({ "output": name, "r": histogram_json(times) });
    table.outputs().into_iter().map(output).collect()
}

fn histogram_json(histogram: &Histogram) -> Value {
    let (buckets, count, sum) = histogram.read();
    json!({ "count": count, "sum": sum, "buckets": buckets })
}

impl Metrics {
    /// Adds the metrics of each route, and the durations of requests under the name that
    /// OpenTelemetry gives them.
    pub(crate) fn routes(&mut self, table: &RouteTable) {
        let routes: Vec<(String, &RouteCounters)> = table
            .routes()
            .into_iter()
            .map(|(name, counters)| (format!("route=\"{}\"", label_value(&name)), counters))
            .collect();
        let mut counter = |name: &str, help: &str, value: fn(&RouteCounters) -> u64| {
            self.family(name, "counter", help);
            for (label, counters) in &routes {
                self.value(name, label, value(counters));
            }
        };
        let help = "Requests for the app, by route.";
        counter("route_requests_total", help, |it| it.requests.get());
        let help = "Responses with a status code of 500 or higher, by route.";
        counter("route_errors_total", help, |it| it.errors.get());
        let mut histogram = |name: &str, help: &str, of: fn(&RouteCounters) -> &Histogram| {
            self.family(name, "histogram", help);
            for (label, counters) in &routes {
                self.full_histogram(&format!("rookery_{name}"), label, of(counters));
            }
        };
        let help = "Seconds for which requests have waited until R began with them, by route.";
        histogram("route_queue_seconds", help, |it| &it.queue);
        let help = "Seconds from the moment when R began with a request until its response, by \
                    route.";
        histogram("route_r_seconds", help, |it| &it.r);
        let help = "Seconds from the end of the head of a request to the end of its response, by \
                    route.";
        histogram("route_seconds", help, |it| &it.duration);
        let help = "Seconds that R took to compute an output of Shiny, by output.";
        self.family("output_seconds", "histogram", help);
        for (output, times) in table.outputs() {
            let label = format!("output=\"{}\"", label_value(&output));
            self.full_histogram("rookery_output_seconds", &label, times);
        }
        self.http_durations(table);
    }

    fn http_durations(&mut self, table: &RouteTable) {
        self.full_family(HTTP_DURATION, "histogram", "Duration of HTTP server requests.");
        for (series, route) in table.series() {
            let labels = attributes(&series, route.as_deref());
            self.full_histogram(HTTP_DURATION, &labels, series.duration);
        }
        if table.overflow().read().1 > 0 {
            let labels = "otel_metric_overflow=\"true\"";
            self.full_histogram(HTTP_DURATION, labels, table.overflow());
        }
    }
}

/// Returns the attributes that OpenTelemetry's semantic conventions give to a duration, as labels.
fn attributes(series: &SeriesReading<'_>, route: Option<&str>) -> String {
    let scheme = if series.is_https { "https" } else { "http" };
    let mut labels = format!("http_request_method=\"{}\",url_scheme=\"{scheme}\"", series.method);
    // Writing to a string cannot fail.
    if let Some(status) = series.status {
        let _ = write!(labels, ",http_response_status_code=\"{status}\"");
    }
    if let Some(route) = route {
        let _ = write!(labels, ",http_route=\"{}\"", label_value(route));
    }
    match series.status {
        Some(status) if status >= 500 => {
            let _ = write!(labels, ",error_type=\"{status}\"");
        }
        Some(_) => {}
        None => labels += ",error_type=\"client_disconnected\"",
    }
    labels
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rookery_worker_protocol::{RouteName, RouteSample};

    use super::*;

    fn sample(route: &str) -> RouteSample<'_> {
        RouteSample {
            route: RouteName::of_pattern(route.as_bytes()),
            is_route_set: true,
            method: b"GET",
            is_https: true,
            status: 200,
            queue: Some(Duration::from_millis(1)),
            r: Some(Duration::from_millis(30)),
            duration: Some(Duration::from_millis(50)),
        }
    }

    fn metrics(table: &RouteTable) -> String {
        let mut text = Metrics::default();
        text.routes(table);
        text.into_text()
    }

    #[test]
    fn each_route_has_counters_and_histograms() {
        let table = Box::new(RouteTable::new());
        table.record(&sample("/users/<id>"));
        table.record(&RouteSample { status: 503, r: None, ..sample("/users/<id>") });
        let text = metrics(&table);
        for line in [
            "# TYPE rookery_route_requests_total counter",
            "rookery_route_requests_total{route=\"/users/<id>\"} 2",
            "rookery_route_errors_total{route=\"/users/<id>\"} 1",
            "rookery_route_queue_seconds_count{route=\"/users/<id>\"} 2",
            "rookery_route_r_seconds_bucket{route=\"/users/<id>\",le=\"0.025\"} 0",
            "rookery_route_r_seconds_bucket{route=\"/users/<id>\",le=\"0.05\"} 1",
            "rookery_route_r_seconds_sum{route=\"/users/<id>\"} 0.03",
            "rookery_route_seconds_bucket{route=\"/users/<id>\",le=\"+Inf\"} 2",
            "# TYPE http_server_request_duration_seconds histogram",
            "http_server_request_duration_seconds_count{http_request_method=\"GET\",\
             url_scheme=\"https\",http_response_status_code=\"200\",http_route=\"/users/<id>\"} 1",
            "http_server_request_duration_seconds_sum{http_request_method=\"GET\",\
             url_scheme=\"https\",http_response_status_code=\"503\",http_route=\"/users/<id>\",\
             error_type=\"503\"} 0.05",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
        assert!(!text.contains("otel_metric_overflow"), "{text}");
        let json = routes_json(&table);
        assert_eq!(json[0]["route"], "/users/<id>");
        assert_eq!((&json[0]["requests"], &json[0]["errors"]), (&json!(2), &json!(1)));
        assert_eq!(json[0]["r"]["buckets"], json!([0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]));
        assert_eq!(
            json[0]["duration"],
            json!({
                "count": 2, "sum": 0.1, "buckets": [0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
            })
        );
    }

    #[test]
    fn a_route_cannot_add_labels_or_lines() {
        let table = Box::new(RouteTable::new());
        table.record(&sample("/a\"} 1\nfake{x=\"\\"));
        let text = metrics(&table);
        let label = "route=\"/a\\\"} 1\u{fffd}fake{x=\\\"\\\\\"";
        assert!(text.contains(label), "{text}");
        assert!(!text.contains("\nfake"), "{text}");
        assert_eq!(label_value("a\nb"), "a\\nb");
    }

    #[test]
    fn a_request_without_a_response_has_no_status_code() {
        let table = Box::new(RouteTable::new());
        table.record(&RouteSample { status: 0, is_route_set: false, ..sample("/") });
        let labels = "_count{http_request_method=\"GET\",url_scheme=\"https\",\
                      error_type=\"client_disconnected\"} 1\n";
        assert!(metrics(&table).contains(labels));
    }
}
