//! The status of the supervisor and its workers as JSON.

use rookery_status::{HISTOGRAM_BOUNDS, ServerInfo, milliseconds, r_stack, routes_json, seconds};
use serde_json::{Value, json};

use super::data::{LastExit, Process, Report, SlotReport};
use crate::backend_registry::BackendRegistry;
use crate::process::Exit;

pub(super) fn of(about: &ServerInfo, report: &Report, registry: &BackendRegistry) -> String {
    let queue = registry.counters.queue.read();
    let mut workers: Vec<Value> =
        report.processes.iter().map(|process| worker(process, report)).collect();
    // Slots without a process.
    for (slot, told) in report.slots.iter().enumerate() {
        let has_process =
            report.processes.iter().any(|process| process.backend.slot as usize == slot);
        if !has_process && !told.is_given_up {
            workers.push(waiting(slot, told));
        }
    }
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "target": about.target,
        "address": about.address,
        "started": report.started.map(seconds),
        "state": report.course.name(),
        "generation": report.generation,
        "wanted": { "workers": report.wanted, "spares": report.spares },
        "reload": {
            "state": if report.reload.is_running { "running" } else { "idle" },
            "succeeded": report.reload.succeeded,
            "failed": report.reload.failed,
            "last_error": report.reload.last_error,
        },
        "connections": report.connections,
        "queue": {
            "length": queue.length,
            "oldest_ms": milliseconds(queue.oldest),
            "limit": registry.counters.queue_limit.get(),
        },
        "workers": workers,
        "route_buckets": HISTOGRAM_BOUNDS,
        "routes": routes_json(&registry.routes),
    });
    let mut text = value.to_string();
    text.push('\n');
    text
}

fn worker(process: &Process, report: &Report) -> Value {
    let backend = &process.backend;
    let load = &backend.load;
    let queue = load.queue.read();
    let slot = report.slots.get(backend.slot as usize);
    let seen = process.seen();
    let mut value = seen.json();
    let more = json!({
        "epoch": backend.epoch,
        "generation": process.generation,
        "pending_sessions": load.pending_sessions.get(),
        "queue": { "length": queue.length, "oldest_ms": milliseconds(queue.oldest) },
        "route": process.route(&seen),
        "stack": r_stack(&backend.scoreboard).map(|stack| stack.json()),
        "restarts": slot.map_or(0, |slot| slot.restarts),
        "last_exit": slot.and_then(|slot| slot.last_exit.as_ref()).map(last_exit),
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

fn waiting(slot: usize, told: &SlotReport) -> Value {
    let start_in = told.start_at.map(|at| at.saturating_duration_since(std::time::Instant::now()));
    json!({
        "slot": slot,
        "pid": null,
        "state": "backing_off",
        "starts_in_ms": start_in.map(milliseconds),
        "restarts": told.restarts,
        "last_exit": told.last_exit.as_ref().map(last_exit),
    })
}

fn last_exit(last: &LastExit) -> Value {
    let (code, signal) = match last.exit {
        Exit::Status(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    json!({ "code": code, "signal": signal, "reason": last.reason, "at": seconds(last.at) })
}
