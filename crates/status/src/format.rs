//! Formats for the numbers and times in status reports and metrics, and for text in HTML.

pub(crate) mod certificates;
pub(crate) mod routes;

use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime};

use rookery_worker_protocol::{HISTOGRAM_BOUNDS, Histogram, visible_char};

/// The metrics of a server, written in Prometheus's text format (version 0.0.4). The name of each
/// metric begins with `rookery_`.
#[derive(Debug, Default)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Returns the metrics in the text format of Prometheus.
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    /// Adds the `HELP` and `TYPE` lines of a metric, which precede the metric's values. `kind` is
    /// the type, such as `gauge`.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Metrics {
        self.full_family(&format!("rookery_{name}"), kind, help)
    }

    /// Adds the `HELP` and `TYPE` lines of a metric whose name is complete.
    pub(crate) fn full_family(&mut self, name: &str, kind: &str, help: &str) -> &mut Metrics {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// Adds one value of a metric. `labels` has the form `name="value",...` and is empty for a
    /// metric without labels.
    pub(crate) fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.0, "rookery_{name}{braces} {value}");
    }

    /// Adds several values of a metric, which differ in the value of the label `label`.
    pub(crate) fn values<'a>(
        &mut self,
        name: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        for (of, value) in values {
            self.value(name, &format!("{label}=\"{of}\""), value);
        }
    }

    /// Adds a counter without labels.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help).value(name, "", value);
    }

    /// Adds a gauge, which is a metric whose value goes up and down.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help).value(name, "", value);
    }

    /// Adds a histogram with its buckets, its sum and its count.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        self.full_histogram(&format!("rookery_{name}"), "", histogram);
    }

    /// Adds one series of a histogram whose name is complete. `labels` is empty or has the form
    /// `name="value",...`.
    pub(crate) fn full_histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let (counts, all, seconds) = histogram.read();
        let (comma, braces) = match labels {
            "" => ("", String::new()),
            labels => (",", format!("{{{labels}}}")),
        };
        for (bound, count) in HISTOGRAM_BOUNDS.into_iter().zip(counts) {
            let _ = writeln!(self.0, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(self.0, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {all}");
        let _ = writeln!(self.0, "{name}_sum{braces} {seconds}\n{name}_count{braces} {all}");
    }
}

/// Returns text as the value of a label, with the escapes of Prometheus's text format.
pub(crate) fn label_value(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Returns a count followed by a noun, for example `3 workers`. The noun is in the plural unless
/// the count is one.
pub fn format_count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats a duration for people, in at most two units, such as `3 h 20 min`.
pub fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Returns a point in time as seconds since the Unix epoch, rounded down to milliseconds.
pub(crate) fn seconds(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(milliseconds(since)).as_secs_f64()
}

/// Returns a duration in whole milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Escapes text for HTML, also within quotes. Replaces characters that are not
/// [visible](visible_char), except line breaks and tabs.
pub fn html_text(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\n' | '\t' => html.push(char),
            _ => html.push(visible_char(char)),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_the_most() {
        for (milliseconds, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), shown);
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(html_text("<a b='\"'>&\u{1b}\u{202e}\n"), {
            "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}\u{fffd}\n"
        });
    }
}
