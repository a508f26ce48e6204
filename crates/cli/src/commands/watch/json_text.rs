//! Access to the fields of a server's report, and formats of their values.

use std::time::Duration;

use rookery_status::{format_duration, visible_text};
use serde_json::Value;

/// Returns a text of the report, in which characters that could change the state of a terminal are
/// replaced.
pub(super) fn text(value: &Value) -> String {
    visible_text(value.as_str().unwrap_or_default())
}

/// Returns a number of the report, or 0 if it is missing.
pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Returns a count of the report, or 0 if it is missing.
pub(super) fn whole(value: &Value) -> usize {
    value.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Formats a count, or `-` if it is missing.
pub(super) fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// Formats a number of seconds, or `-` if it is missing.
pub(super) fn seconds(value: Option<f64>) -> String {
    let time = value.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    time.map_or_else(|| "-".to_owned(), format_duration)
}

pub(super) fn milliseconds(value: &Value) -> String {
    seconds(value.as_f64().map(|milliseconds| milliseconds / 1000.0))
}

/// Formats a number of requests per second.
pub(super) fn rate(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        // The sum of no numbers is -0.
        Some(rate) if rate >= 10.0 || rate == 0.0 => format!("{:.0}", rate.abs()),
        Some(rate) => format!("{rate:.1}"),
    }
}
