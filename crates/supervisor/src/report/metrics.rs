//! The status of the supervisor and its workers as metrics for Prometheus, in version 0.0.4 of its
//! text format. A worker is labelled by the number of its slot, which its replacement takes over,
//! and not by its process id. The number of time series therefore stays small.

use rookery_status::{Metrics, RProcess, RequestCounters};

use super::data::{Process, READY, Report};
use crate::backend_registry::BackendRegistry;

/// The names of all states of workers. Each state is reported as a metric, even if no worker is in
/// it.
const STATES: [&str; 8] =
    ["starting", "warming", "spare", READY, "draining", "stopping", "backing_off", "suspended"];

pub(super) fn of(report: &Report, registry: &BackendRegistry) -> String {
    let mut text = Metrics::default();
    let counts = &registry.counters;
    let all = answered(report, registry);
    text.requests(&all.responses, &counts.queue_time, &counts.upstream_time, &all.request_time);
    let queue = counts.queue.read();
    let own: u64 = report.processes.iter().map(|it| it.backend.load.queue.read().length).sum();
    text.gauge("queue_length", "Requests that wait for a worker.", queue.length + own);
    text.gauge("queue_limit", "How many may wait for any.", counts.queue_limit.get());
    text.gauge(
        "queue_oldest_seconds",
        "How long the first of them has waited.",
        queue.oldest.as_secs_f64(),
    );
    let refused = [
        ("full", counts.rejected_full.get()),
        ("timeout", counts.rejected_timeout.get()),
        ("sessions", counts.rejected_sessions.get()),
    ];
    text.family(
        "queue_rejected_total",
        "counter",
        "Requests that were refused with 503, for no worker had time or a place.",
    )
    .values("queue_rejected_total", "reason", refused);
    text.family(
        "retries_total",
        "counter",
        "Requests given to another worker, since theirs ended first.",
    )
    .values(
        "retries_total",
        "reason",
        [("not_begun", counts.retries_unbegun.get()), ("begun", counts.retries_begun.get())],
    );
    text.family(
        "cookie_invalid_total",
        "counter",
        "Requests whose cookie names no worker of this start: of an earlier one, or forged.",
    )
    .value("cookie_invalid_total", "", counts.invalid_cookies.get());
    workers(&mut text, report, counts.sessions_limit.get());
    text.gauge("workers_wanted", "Workers that are to serve, spares not counted.", report.wanted);
    text.family("worker_starts_total", "counter", "Workers that were started.").value(
        "worker_starts_total",
        "",
        report.starts,
    );
    text.family("worker_exits_total", "counter", "Workers that have ended, by reason.").values(
        "worker_exits_total",
        "reason",
        report.exits.iter().map(|(reason, count)| (*reason, *count)),
    );
    text.family("worker_start_seconds", "summary", "From a worker's start until it answers.");
    text.value("worker_start_seconds_sum", "", report.readied.1);
    text.value("worker_start_seconds_count", "", report.readied.0);
    text.family(
        "sessions_lost_total",
        "counter",
        "WebSockets that ended with their worker, by the reason of that.",
    );
    let lost = report.sessions_lost.iter().map(|(reason, count)| (*reason, *count));
    text.values("sessions_lost_total", "reason", lost);
    text.family(
        "reconnects_total",
        "counter",
        "Shiny pages that have opened another WebSocket in place of one that has ended, with the same R or a new one.",
    );
    text.values(
        "reconnects_total",
        "result",
        [
            ("same", counts.reconnected_same_worker.get()),
            ("new", counts.reconnected_new_worker.get()),
        ],
    );
    text.family("reloads_total", "counter", "Reloads that have ended.");
    text.values(
        "reloads_total",
        "result",
        [("done", report.reload.succeeded), ("failed", report.reload.failed)],
    );
    text.gauge("generation", "How often it was asked to reload.", report.generation);
    text.accepting_process(report.connections as u64, report.log_lines_lost, report.started);
    text.into_text()
}

/// Returns the request counters of the whole server: the requests through the front end, and those
/// on connections that workers have accepted themselves.
fn answered(report: &Report, registry: &BackendRegistry) -> RequestCounters {
    let (all, counts) = (RequestCounters::default(), &registry.counters);
    all.responses.add_all(&counts.responses);
    all.queue_time.add_all(&counts.queue_time);
    all.upstream_time.add_all(&counts.upstream_time);
    all.request_time.add_all(&counts.request_time);
    all.add_all(&report.past);
    for process in &report.processes {
        all.add_all(process.backend.scoreboard.request_counters());
    }
    all
}

fn workers(text: &mut Metrics, report: &Report, sessions_limit: u64) {
    let without = report.slots.iter().enumerate().filter(|(slot, told)| {
        told.start_at.is_some()
            && !report.processes.iter().any(|it| it.backend.slot as usize == *slot)
    });
    let backing_off = without.count();
    text.family("workers", "gauge", "Workers, by state.");
    for state in STATES {
        let count = report.processes.iter().filter(|it| it.state == state).count();
        let count = if state == "backing_off" { backing_off } else { count };
        text.value("workers", &format!("state=\"{state}\""), count);
    }
    // A slot has two processes while one replaces the other. Only the newer one is reported.
    let mut latest: Vec<&Process> = Vec::new();
    for process in &report.processes {
        match latest.iter_mut().find(|other| other.backend.slot == process.backend.slot) {
            Some(other) if other.backend.epoch < process.backend.epoch => *other = process,
            Some(_) => {}
            None => latest.push(process),
        }
    }
    latest.sort_by_key(|process| process.backend.slot);
    let latest: Vec<RProcess> = latest.into_iter().map(Process::seen).collect();
    text.r_processes(&latest);
    let most = match sessions_limit {
        0 => "+Inf".to_owned(),
        most => most.to_string(),
    };
    text.family("sessions_limit", "gauge", "How many WebSockets the worker of a slot may have.");
    for process in &latest {
        text.value("sessions_limit", &format!("slot=\"{}\"", process.slot), &most);
    }
}
