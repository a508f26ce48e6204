//! The report about a server as a table, for people who read it in a terminal.

use std::fmt::Write as _;

use super::{Report, WorkerReport};
use crate::format::{format_count, format_duration};
use crate::process_usage::{own_memory, own_pid, processor_time};
use crate::r_process::{RProcess, RStack};

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

impl Report {
    /// Returns the report as text for people.
    pub(crate) fn text(&self) -> String {
        let Report { about, server, queue, .. } = self;
        let up = server.started.map_or_else(String::new, |started| {
            format!(", up {}", format_duration(started.elapsed().unwrap_or_default()))
        });
        let spares = match server.spares {
            0 => String::new(),
            spares => format!(" and {}", format_count(spares as usize, "spare")),
        };
        let oldest = queue.oldest.filter(|_| queue.length > 0).map_or_else(String::new, |oldest| {
            format!(", the oldest for {}", format_duration(oldest))
        });
        let mut text = format!(
            "rookery {}, process {}{up}: {}, {}{spares}\n{} is at {}\n\
             {} ready, {}, {} waiting{oldest} (limit {}), generation {}{}\n",
            env!("CARGO_PKG_VERSION"),
            own_pid(),
            server.phase.name(),
            format_count(server.wanted as usize, "worker"),
            about.target,
            about.address,
            self.ready(),
            format_count(server.connections as usize, "connection"),
            format_count(queue.length as usize, "request"),
            self.pool.queue_limit.get(),
            server.generation,
            if server.reload.is_running { ", reloading" } else { "" },
        );
        if let Some(error) = &server.reload.last_error {
            let _ = writeln!(text, "the last reload failed: {error}");
        }
        text.push('\n');
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.workers.iter().map(row));
        let ends = std::iter::once(String::new()).chain(self.workers.iter().map(end));
        let widths: [usize; 12] =
            std::array::from_fn(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0));
        for (row, end) in rows.iter().zip(ends) {
            let cells: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            let line = format!("{}  {end}", cells.join("  "));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

fn row(worker: &WorkerReport) -> [String; 12] {
    let none = || "-".to_owned();
    let mut row = std::array::from_fn(|_| none());
    row[0] = worker.slot.to_string();
    row[11] = worker.restarts.to_string();
    let Some(it) = &worker.process else {
        row[2] = worker.starts_in.map_or_else(
            || "ended".to_owned(),
            |time| format!("starts in {}", format_duration(time)),
        );
        return row;
    };
    row[1] = it.pid.to_string();
    it.state.clone_into(&mut row[2]);
    it.does.clone_into(&mut row[3]);
    row[4] = format_duration(it.lasts);
    row[5] = it.requests.to_string();
    row[6] = it.in_flight.to_string();
    row[7] = it.sessions.to_string();
    row[8] = it.streams.to_string();
    row[9] = own_memory(it.pid).map_or_else(none, |bytes| format!("{} MB", bytes / 1_000_000));
    row[10] = processor_time(it.pid).map_or_else(none, format_duration);
    row
}

/// Returns the text after a row: what R is busy with, or how the previous process ended.
fn end(worker: &WorkerReport) -> String {
    worker.process.as_ref().and_then(task).unwrap_or_else(|| {
        worker.last_exit.as_ref().map_or_else(String::new, |last| {
            let ago = format_duration(last.at.elapsed().unwrap_or_default());
            format!("the previous process {} ({}), {ago} ago", last.how, last.reason.name())
        })
    })
}

/// Returns what R is busy with and in which functions, if it is known.
fn task(process: &RProcess) -> Option<String> {
    let stack = process.stack.as_ref().map(RStack::phrase);
    let parts: Vec<String> = process.task.clone().into_iter().chain(stack).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}
