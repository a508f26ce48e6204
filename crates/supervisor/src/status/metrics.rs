//! The report as Prometheus reads it: text, version 0.0.4. Workers are told apart by slot, of which there are few, and not by process.

use std::time::SystemTime;

use rookery_status::{CLASSES, Metrics, Tally, open_descriptors, own_memory, processor_time};

use super::json::what_r_does;
use super::report::{Process, READY, Report};
use crate::roster::Roster;

/// All that a worker's state may be, so that none is missing while nobody is in it.
const STATES: [&str; 8] =
    ["starting", "warming", "spare", READY, "draining", "stopping", "backing_off", "suspended"];

pub(super) fn of(report: &Report, roster: &Roster) -> String {
    let mut text = Metrics::default();
    let counts = &roster.counts;
    let all = answered(report, roster);
    let classes = CLASSES.into_iter().zip(all.answered.read());
    text.family("requests_total", "counter", "Requests of the app that were answered, by class of status.")
        .values("requests_total", "class", classes);
    text.histogram("queue_seconds", "From a request's coming to its going to a worker.", &counts.waited);
    text.histogram("upstream_seconds", "From there to the head of the worker's reply.", &counts.took);
    text.histogram(
        "request_seconds",
        "Both together: from a request's coming to the head of the reply.",
        &all.answered_in,
    );
    let queue = counts.queue.read();
    let own: u64 = report.processes.iter().map(|it| it.member.load.queue.read().length).sum();
    text.gauge("queue_length", "Requests that wait for a worker.", queue.length + own);
    text.gauge("queue_limit", "How many may wait for any.", counts.queue_limit.get());
    text.gauge("queue_oldest_seconds", "How long the first of them has waited.", queue.oldest.as_secs_f64());
    let refused = [
        ("full", counts.refused_full.get()),
        ("timeout", counts.refused_late.get()),
        ("sessions", counts.refused_sessions.get()),
    ];
    text.family(
        "queue_rejected_total",
        "counter",
        "Requests that were refused with 503, for no worker had time or a place.",
    )
    .values("queue_rejected_total", "reason", refused);
    text.family("retries_total", "counter", "Requests given to another worker, since theirs ended first.")
        .values(
            "retries_total",
            "reason",
            [("not_begun", counts.returned.get()), ("begun", counts.begun_again.get())],
        );
    text.family(
        "cookie_invalid_total",
        "counter",
        "Requests whose cookie names no worker of this start: of an earlier one, or forged.",
    )
    .value("cookie_invalid_total", "", counts.cookies_invalid.get());
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
        [("same", counts.reconnected_same.get()), ("new", counts.reconnected_new.get())],
    );
    text.family(
        "log_lines_lost_total",
        "counter",
        "Lines of the access log, of messages and of workers' output that could not be written, or not fast enough.",
    );
    text.value("log_lines_lost_total", "", report.log_lines_lost);
    text.family("reloads_total", "counter", "Reloads that have ended.");
    text.values(
        "reloads_total",
        "result",
        [("done", report.reload.succeeded), ("failed", report.reload.failed)],
    );
    text.gauge("generation", "How often it was asked to reload.", report.generation);
    text.gauge("connections", "Connections of clients.", report.connections);
    if let Some(open) = open_descriptors() {
        text.gauge("open_fds", "Descriptors that the supervisor has open.", open);
    }
    if let Some(since) = report.started.and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok()) {
        text.gauge(
            "start_time_seconds",
            "When the supervisor started, since the epoch.",
            since.as_secs_f64(),
        );
    }
    text.into_text()
}

/// Sums up the requests of the front end, and those of clients whose connections workers have accepted themselves.
fn answered(report: &Report, roster: &Roster) -> Tally {
    let (all, counts) = (Tally::default(), &roster.counts);
    all.answered.add_all(&counts.answered);
    all.waited.add_all(&counts.waited);
    all.took.add_all(&counts.took);
    all.answered_in.add_all(&counts.answered_in);
    all.add_all(&report.past);
    for process in &report.processes {
        all.add_all(process.member.board.tally());
    }
    all
}

fn workers(text: &mut Metrics, report: &Report, sessions_limit: u64) {
    let without = report.slots.iter().enumerate().filter(|(slot, told)| {
        told.start_at.is_some() && !report.processes.iter().any(|it| it.member.slot as usize == *slot)
    });
    let backing_off = without.count();
    text.family("workers", "gauge", "Workers, by state.");
    for state in STATES {
        let count = report.processes.iter().filter(|it| it.state == state).count();
        let count = if state == "backing_off" { backing_off } else { count };
        text.value("workers", &format!("state=\"{state}\""), count);
    }
    // A slot may have two while one takes the other's place: the one that came last.
    let mut latest: Vec<&Process> = Vec::new();
    for process in &report.processes {
        match latest.iter_mut().find(|other| other.member.slot == process.member.slot) {
            Some(other) if other.member.epoch < process.member.epoch => *other = process,
            Some(_) => {}
            None => latest.push(process),
        }
    }
    latest.sort_by_key(|process| process.member.slot);
    let mut each = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Process) -> Option<String>| {
        text.family(name, kind, help);
        for process in &latest {
            if let Some(value) = value(process) {
                text.value(name, &format!("slot=\"{}\"", process.member.slot), value);
            }
        }
    };
    let busy = |process: &Process| {
        let does = what_r_does(process);
        if does.state == "busy" { does.lasts.as_secs_f64() } else { 0.0 }
    };
    each(
        "worker_requests",
        "gauge",
        "Requests that the worker of a slot has answered since its start.",
        &|it| Some(it.member.answered().to_string()),
    );
    let share = "For which share of the last 5 to 10 seconds its R was busy, from 0 to 1.";
    each("worker_busy_ratio", "gauge", share, &|it| Some(it.busy_ratio.to_string()));
    each("worker_in_flight", "gauge", "Requests that it has and has not answered.", &|it| {
        Some(it.member.load().0.to_string())
    });
    each("sessions", "gauge", "WebSockets that it has.", &|it| Some(it.member.load().1.to_string()));
    let most = match sessions_limit {
        0 => "+Inf".to_owned(),
        most => most.to_string(),
    };
    each("sessions_limit", "gauge", "How many it may have.", &|_| Some(most.clone()));
    each("worker_busy_seconds", "gauge", "How long its R has been busy, 0 where it is not.", &|it| {
        Some(busy(it).to_string())
    });
    let memory = "Memory of its processes that is anonymous, swapped or shared.";
    each("worker_memory_bytes", "gauge", memory, &|it| Some(own_memory(it.pid)?.to_string()));
    each("worker_cpu_seconds", "gauge", "Processor time since its start.", &|it| {
        Some(processor_time(it.pid)?.as_secs_f64().to_string())
    });
    let longest = latest.iter().map(|process| busy(process)).fold(0.0, f64::max);
    text.gauge("worker_busy_seconds_max", "How long the R has been busy that has been for longest.", longest);
}
