//! The status of the supervisor and its workers as Prometheus metrics, in version 0.0.4 of the text
//! format. The metrics of a worker are labelled with the number of its slot (its numbered place). A
//! replacement takes over the slot of the old worker, so the number of time series does not grow.

use std::collections::BTreeMap;

use rookery_server::{Rejection, RejectionReports};
use rookery_status::{Metrics, RProcess, RequestCounters};

use super::data::{Process, READY, Report};
use crate::backend_registry::BackendRegistry;
use crate::supervise::ExitReason;

/// The names of all states of workers. The number of workers in each state is reported, even if it
/// is 0.
const STATES: [&str; 8] =
    ["starting", "warming", "spare", READY, "draining", "stopping", "backing_off", "suspended"];

/// Returns the metrics. `rejections` are those of the front end.
pub(super) fn of(
    report: &Report,
    registry: &BackendRegistry,
    rejections: Option<&RejectionReports>,
) -> String {
    let mut text = Metrics::default();
    let counts = &registry.counters;
    let all = answered(report, registry);
    if let Some(rejections) = rejections {
        for (index, rejection) in Rejection::all().iter().enumerate() {
            all.rejections.add(index, rejections.count(*rejection));
        }
    }
    text.requests(&all.responses, &counts.queue_time, &counts.upstream_time, &all.request_time);
    let queue = counts.queue.read();
    let own: u64 = report.processes.iter().map(|it| it.backend.load.queue.read().length).sum();
    text.gauge("queue_length", "Requests that wait for a worker.", queue.length + own);
    text.gauge(
        "queue_limit",
        "Maximum length of the queue that all workers share, and of each worker's own queue.",
        counts.queue_limit.get(),
    );
    text.gauge(
        "queue_oldest_seconds",
        "Seconds for which the oldest request in the shared queue has waited.",
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
        "Requests refused with 503 because a queue was full, no worker was free in time, or all \
         workers had the maximum number of sessions.",
    )
    .values("queue_rejected_total", "reason", refused);
    text.family(
        "retries_total",
        "counter",
        "Requests sent to another worker because their worker ended before R had begun them.",
    )
    .value("retries_total", "", counts.retries_unbegun.get());
    text.family(
        "cookie_invalid_total",
        "counter",
        "Requests with an invalid session cookie: from before the last server start, or forged.",
    )
    .value("cookie_invalid_total", "", counts.invalid_cookies.get());
    workers(&mut text, report, counts.sessions_limit.get());
    text.gauge("workers_wanted", "Workers that should serve, without spares.", report.wanted);
    text.family("worker_starts_total", "counter", "Workers that were started.").value(
        "worker_starts_total",
        "",
        report.starts,
    );
    text.family("worker_exits_total", "counter", "Workers that have ended, by reason.").values(
        "worker_exits_total",
        "reason",
        by_exit_reason(&report.exits),
    );
    let help = "Seconds from the start of a worker until it is ready.";
    text.family("worker_start_seconds", "summary", help);
    text.value("worker_start_seconds_sum", "", report.readied.1);
    text.value("worker_start_seconds_count", "", report.readied.0);
    text.family(
        "sessions_lost_total",
        "counter",
        "WebSockets that were lost because their worker ended, by the reason for its end.",
    );
    text.values("sessions_lost_total", "reason", by_exit_reason(&report.sessions_lost));
    text.family(
        "reconnects_total",
        "counter",
        "Shiny pages that have reconnected after the end of their WebSocket, to the same R process \
         or to a new one.",
    );
    text.values(
        "reconnects_total",
        "result",
        [
            ("same", counts.reconnected_same_worker.get()),
            ("new", counts.reconnected_new_worker.get()),
        ],
    );
    text.family("reloads_total", "counter", "Reloads that have ended, by result.");
    text.values(
        "reloads_total",
        "result",
        [("done", report.reload.succeeded), ("failed", report.reload.failed)],
    );
    let help =
        "Number of the current generation of workers. Each requested reload begins the next.";
    text.gauge("generation", help, report.generation);
    text.rejections(&all.rejections);
    text.spans(&all.spans);
    text.routes(&super::routes(report, registry));
    text.accepting_process(report.connections as u64, report.log_lines_lost, report.started);
    text.into_text()
}

/// Returns the counts for all exit reasons of workers, also for those that have not occurred. A
/// series that began with its first event would show no increase at that event.
fn by_exit_reason(
    counts: &BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = (&'static str, u64)> {
    let count = |name| (name, counts.get(name).copied().unwrap_or(0));
    ExitReason::ALL.iter().map(move |reason| count(reason.name()))
}

/// Returns the request counters of the whole server. They include requests through the front end
/// and requests on connections that workers have accepted themselves.
fn answered(report: &Report, registry: &BackendRegistry) -> RequestCounters {
    let (all, counts) = (RequestCounters::default(), &registry.counters);
    all.responses.add_all(&counts.responses);
    all.queue_time.add_all(&counts.queue_time);
    all.upstream_time.add_all(&counts.upstream_time);
    all.request_time.add_all(&counts.request_time);
    if let Some(tracer) = registry.tracer() {
        all.spans.set(tracer.counters().read());
    }
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
    text.family("sessions_limit", "gauge", "Maximum number of WebSockets of the worker in a slot.");
    for process in &latest {
        text.value("sessions_limit", &format!("slot=\"{}\"", process.slot), &most);
    }
}
