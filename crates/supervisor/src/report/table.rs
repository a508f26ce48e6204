//! The status of the supervisor and its workers as a table, for people who read it in a terminal.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use rookery_status::{RProcess, ServerInfo, format_count, format_duration, r_stack};

use super::data::{Process, Report, SlotReport};
use crate::backend_registry::BackendRegistry;

const HEAD: [&str; 12] = [
    "worker",
    "process",
    "state",
    "R",
    "for",
    "answered",
    "in progress",
    "sessions",
    "streams",
    "memory",
    "CPU",
    "restarts",
];

pub(super) fn of(about: &ServerInfo, report: &Report, registry: &BackendRegistry) -> String {
    let mut text = String::new();
    let up = report
        .started
        .map_or_else(String::new, |started| format!(", up {}", format_duration(since(started))));
    let queue = registry.counters.queue.read();
    let _ = writeln!(
        text,
        "rookery {}, process {}{up}: {}, {}\n{} is at {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        report.course.name(),
        workers_wanted(report),
        about.target,
        about.address,
    );
    let oldest = if queue.length == 0 {
        String::new()
    } else {
        format!(", the oldest for {}", format_duration(queue.oldest))
    };
    let _ = writeln!(
        text,
        "{} ready, {}, {} waiting{oldest} (limit {}), generation {}{}",
        report.ready(),
        format_count(report.connections, "connection"),
        format_count(queue.length as usize, "request"),
        registry.counters.queue_limit.get(),
        report.generation,
        if report.reload.is_running { ", reloading" } else { "" },
    );
    if let Some(error) = &report.reload.last_error {
        let _ = writeln!(text, "the last reload failed: {error}");
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    let mut ends = vec![String::new()];
    for (slot, told) in report.slots.iter().enumerate() {
        let mut processes =
            report.processes.iter().filter(|it| it.backend.slot as usize == slot).peekable();
        if processes.peek().is_none() && !told.is_given_up {
            rows.push(waiting(slot, told));
            ends.push(last_end(told));
        }
        for process in processes {
            let seen = process.seen();
            ends.push(task(process, &seen).unwrap_or_else(|| last_end(told)));
            rows.push(row(&seen, told));
        }
    }
    text.push('\n');
    let widths: [usize; 12] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
    for (row, end) in rows.iter().zip(&ends) {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let line = format!("{}  {end}", cells.join("  "));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Returns what R is busy with and in which functions, if it is known.
fn task(process: &Process, seen: &RProcess) -> Option<String> {
    let stack = r_stack(&process.backend.scoreboard).map(|stack| stack.phrase());
    let parts: Vec<String> = process.route(seen).into_iter().chain(stack).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn workers_wanted(report: &Report) -> String {
    let workers = format_count(report.wanted as usize, "worker");
    match report.spares {
        0 => workers,
        spares => format!("{workers} and {}", format_count(spares as usize, "spare")),
    }
}

fn row(seen: &RProcess, told: &SlotReport) -> [String; 12] {
    let [memory, cpu] = seen.used();
    [
        seen.slot.to_string(),
        seen.pid.to_string(),
        seen.state.to_owned(),
        seen.does.to_owned(),
        format_duration(seen.lasts),
        seen.requests.to_string(),
        seen.in_flight.to_string(),
        seen.sessions.to_string(),
        seen.streams.to_string(),
        memory,
        cpu,
        told.restarts.to_string(),
    ]
}

fn waiting(slot: usize, told: &SlotReport) -> [String; 12] {
    let mut row = std::array::from_fn(|_| "-".to_owned());
    row[0] = slot.to_string();
    row[2] = match told.start_at {
        Some(at) => {
            format!("starts in {}", format_duration(at.saturating_duration_since(Instant::now())))
        }
        None => "ended".to_owned(),
    };
    row[11] = told.restarts.to_string();
    row
}

fn last_end(told: &SlotReport) -> String {
    told.last_exit.as_ref().map_or_else(String::new, |last| {
        let ago = format_duration(since(last.at));
        format!("the previous process {} ({}), {ago} ago", last.exit, last.reason)
    })
}

fn since(at: SystemTime) -> Duration {
    at.elapsed().unwrap_or_default()
}
