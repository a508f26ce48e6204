//! One picture of a server's status in a terminal.

use std::time::Duration;

use rookery_status::format_count;
use serde_json::Value;

use super::figures::{Figures, mean, percentile_95};
use super::json_text::{count, list, milliseconds, number, rate, seconds, text, whole};

/// The maximum number of lines for routes if there is little space.
const MIN_ROUTES: usize = 5;

/// The contents of one picture.
pub(super) struct Frame<'a> {
    pub(super) snapshot: &'a Value,
    pub(super) figures: &'a Figures,
    pub(super) errors: &'a Value,
}

/// A line of text with a style.
struct Line {
    style: Style,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Bold,
    Dim,
    Alert,
}

impl Frame<'_> {
    /// Returns the lines of the picture, cut to the size of the terminal.
    pub(super) fn lines(&self, columns: usize, rows: usize, is_coloured: bool) -> Vec<String> {
        let (workers, routes, errors) = (self.workers(), self.routes(), self.error_lines());
        let mut lines = self.head();
        lines.push(Line::plain(String::new()));
        lines.extend(workers);
        // What is left is for the routes and the errors, which come last.
        let left = rows.saturating_sub(lines.len());
        let for_routes = left.saturating_sub(errors.len() + 1).max(MIN_ROUTES + 2);
        if routes.len() > 1 {
            lines.push(Line::plain(String::new()));
            lines.extend(routes.into_iter().take(for_routes.saturating_sub(1)));
        }
        lines.push(Line::plain(String::new()));
        lines.extend(errors);
        lines.truncate(rows);
        lines.into_iter().map(|line| line.painted(columns, is_coloured)).collect()
    }

    fn head(&self) -> Vec<Line> {
        let report = &self.snapshot["report"];
        let workers = list(&report["workers"]);
        let sum = |name: &str| workers.iter().map(|worker| whole(&worker[name])).sum();
        let ready = workers.iter().filter(|worker| worker["state"] == "ready").count();
        let wanted = number(&report["wanted"]["workers"]);
        let queue = &report["queue"];
        let up = report["started"].as_f64().map(|at| number(&self.snapshot["at"]) - at);
        let reloads = report["reload"]["state"] == "running";
        let mut lines = vec![
            Line {
                style: Style::Bold,
                text: format!(
                    "rookery {}: {} is {}{}, up {}",
                    text(&report["version"]),
                    text(&report["target"]),
                    text(&report["state"]),
                    if reloads { ", reloading" } else { "" },
                    seconds(up)
                ),
            },
            Line::plain(format!(
                "{}, process {}, {ready} of {wanted} ready, {}, {}, {}, {} waiting (limit {}){}",
                text(&report["address"]),
                count(&report["pid"]),
                format_count(whole(&report["connections"]), "connection"),
                format_count(sum("sessions"), "session"),
                format_count(sum("streams"), "stream"),
                count(&queue["length"]),
                count(&queue["limit"]),
                match number(&queue["oldest_ms"]) {
                    0.0 => String::new(),
                    _ => format!(", the oldest for {}", milliseconds(&queue["oldest_ms"])),
                }
            )),
            Line::plain(format!("{} requests per second", rate(self.figures.rate()))),
        ];
        if let Some(error) = report["reload"]["last_error"].as_str() {
            let text = format!("the last reload failed: {}", text(&Value::from(error)));
            lines.push(Line { style: Style::Alert, text });
        }
        for certificate in list(&self.snapshot["certificates"]) {
            let left = number(&certificate["ends"]) - number(&self.snapshot["at"]);
            let days = Duration::try_from_secs_f64(left).map(|left| left.as_secs() / 86_400).ok();
            let hosts: Vec<String> = list(&certificate["hosts"]).iter().map(text).collect();
            let style = if days.is_none_or(|days| days < 14) { Style::Alert } else { Style::Plain };
            let ends = days.map_or_else(
                || "has expired".to_owned(),
                |days| format!("expires in {}", format_count(days as usize, "day")),
            );
            let text = format!("the certificate of {} {ends}", hosts.join(", "));
            lines.push(Line { style, text });
        }
        lines
    }

    fn workers(&self) -> Vec<Line> {
        let head = [
            "worker",
            "process",
            "state",
            "R",
            "for",
            "waiting",
            "in progress",
            "sessions",
            "streams",
            "memory",
            "CPU",
            "restarts",
            "with",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for worker in list(&self.snapshot["report"]["workers"]) {
            let queued = number(&worker["waiting_for_r"]) + number(&worker["queue"]["length"]);
            let memory = worker["memory"].as_u64();
            rows.push(vec![
                count(&worker["slot"]),
                count(&worker["pid"]),
                text(&worker["state"]),
                self.activity(worker),
                // An idle R process renews its state, so the time says nothing.
                match worker["r_state"].as_str() {
                    Some("idle") => "-".to_owned(),
                    _ => milliseconds(&worker["r_state_ms"]),
                },
                format!("{queued}"),
                count(&worker["in_flight"]),
                count(&worker["sessions"]),
                count(&worker["streams"]),
                memory.map_or_else(|| "-".to_owned(), |bytes| format!("{} MB", bytes / 1_000_000)),
                seconds(worker["cpu_s"].as_f64()),
                count(&worker["restarts"]),
                self.task(worker),
            ]);
        }
        table(&rows)
    }

    fn activity(&self, worker: &Value) -> String {
        let pid = worker["pid"].as_u64();
        let is_long = number(&worker["r_state_ms"]) >= 1000.0;
        match (worker["r_state"].as_str(), pid.and_then(|pid| self.figures.computes(pid))) {
            (Some("busy"), Some(true)) if is_long => "computing".to_owned(),
            (Some("busy"), Some(false)) if is_long => "waiting".to_owned(),
            (Some(state), _) => state.to_owned(),
            (None, _) => "-".to_owned(),
        }
    }

    /// Returns what a worker is busy with and in which functions, or how its previous process
    /// ended.
    fn task(&self, worker: &Value) -> String {
        let exit = &worker["last_exit"];
        if worker["stack"].is_object() {
            let route = match worker["route"].as_str() {
                Some(_) => text(&worker["route"]) + " ",
                None => String::new(),
            };
            let stack = &worker["stack"];
            let ago = milliseconds(&stack["ago_ms"]);
            return format!("{route}in {} ({ago} ago)", text(&stack["calls"]));
        }
        if worker["route"].is_string() || exit.is_null() {
            return text(&worker["route"]);
        }
        let ago = number(&self.snapshot["at"]) - number(&exit["at"]);
        format!("(the previous process: {}, {} ago)", text(&exit["reason"]), seconds(Some(ago)))
    }

    fn routes(&self) -> Vec<Line> {
        let report = &self.snapshot["report"];
        let bounds = list(&report["route_buckets"]);
        let head = ["route", "per second", "mean", "p95", "waited", "in R", "requests", "errors"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut routes: Vec<&Value> = list(&report["routes"]).iter().collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route["requests"].as_u64()));
        for route in routes {
            let name = text(&route["route"]);
            rows.push(vec![
                name.clone(),
                rate(self.figures.route_rate(&name)),
                seconds(mean(&route["duration"])),
                seconds(percentile_95(&route["duration"], bounds)),
                seconds(mean(&route["queue"])),
                seconds(mean(&route["r"])),
                count(&route["requests"]),
                count(&route["errors"]),
            ]);
        }
        table(&rows)
    }

    fn error_lines(&self) -> Vec<Line> {
        let errors = list(self.errors);
        if errors.is_empty() {
            return vec![Line { style: Style::Dim, text: "no errors in R".to_owned() }];
        }
        let mut lines = vec![Line { style: Style::Dim, text: "the last errors in R".to_owned() }];
        for error in errors {
            let ago = number(&self.snapshot["at"]) - number(&error["at"]);
            let id = text(&error["request_id"]);
            lines.push(Line {
                style: Style::Alert,
                text: format!(
                    "{} ago, worker {}{}: {}: {}",
                    seconds(Some(ago)),
                    count(&error["slot"]),
                    if id.is_empty() { String::new() } else { format!(", request {id}") },
                    [text(&error["route"]), text(&error["label"])].join(" ").trim(),
                    error["message"]
                        .as_str()
                        .unwrap_or_default()
                        .lines()
                        .next()
                        .map_or_else(String::new, |line| text(&Value::from(line))),
                ),
            });
            // The innermost calls say most.
            let calls: Vec<&str> = error["trace"].as_str().unwrap_or_default().lines().collect();
            for call in &calls[calls.len().saturating_sub(3)..] {
                let text = format!("    {}", text(&Value::from(*call)));
                lines.push(Line { style: Style::Plain, text });
            }
        }
        lines
    }
}

impl Line {
    fn plain(text: String) -> Line {
        Line { style: Style::Plain, text }
    }

    /// Returns the line, cut to a number of columns, with escape sequences for colour if
    /// `is_coloured`.
    fn painted(&self, columns: usize, is_coloured: bool) -> String {
        let text: String = self.text.chars().take(columns).collect();
        let code = match self.style {
            Style::Plain => return text,
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Alert => "31",
        };
        if is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
    }
}

/// Returns the lines of a table, whose first row is its head.
fn table(rows: &[Vec<String>]) -> Vec<Line> {
    let width_of = |text: &String| text.chars().count();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(width_of).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let styles = std::iter::once(Style::Dim).chain(std::iter::repeat(Style::Plain));
    rows.iter().zip(styles).map(|(row, style)| Line { style, text: line(row) }).collect()
}

#[cfg(test)]
mod tests;
