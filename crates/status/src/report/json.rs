//! The report about a server as JSON, for programs and for the live page.

use rookery_worker_protocol::HISTOGRAM_BOUNDS;
use serde_json::{Value, json};

use super::{LastExit, Report, WorkerReport};
use crate::format::routes::{messages_json, outputs_json, routes_json};
use crate::format::{milliseconds, seconds};
use crate::pool_counters::QueueReading;
use crate::process_usage::{own_memory, own_pid, processor_time, thread_time};
use crate::r_process::RProcess;

impl Report {
    /// Returns the report as JSON.
    pub(crate) fn json(&self) -> Value {
        let Report { about, server, .. } = self;
        let mut queue = queue(&self.queue);
        queue["limit"] = json!(self.pool.queue_limit.get());
        let workers: Vec<Value> = self.workers.iter().map(worker).collect();
        let mut routes = routes_json(&self.routes);
        routes.extend(messages_json(&self.messages()));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": own_pid(),
            "target": about.target,
            "address": about.address,
            "started": server.started.map(seconds),
            "state": server.phase.name(),
            "generation": server.generation,
            "wanted": { "workers": server.wanted, "spares": server.spares },
            "reload": {
                "state": if server.reload.is_running { "running" } else { "idle" },
                "succeeded": server.reload.succeeded,
                "failed": server.reload.failed,
                "last_error": server.reload.last_error,
            },
            "connections": server.connections,
            "queue": queue,
            "workers": workers,
            "route_buckets": HISTOGRAM_BOUNDS,
            "routes": routes,
            "outputs": outputs_json(&self.routes),
            "shiny": self.sessions_json(),
        })
    }
}

fn queue(reading: &QueueReading) -> Value {
    json!({ "length": reading.length, "oldest_ms": reading.oldest.map(milliseconds) })
}

fn worker(worker: &WorkerReport) -> Value {
    let mut value = match &worker.process {
        Some(it) => process(it),
        None => json!({
            "pid": null,
            "state": "backing_off",
            "starts_in_ms": worker.starts_in.map(milliseconds),
        }),
    };
    value["slot"] = json!(worker.slot);
    value["restarts"] = json!(worker.restarts);
    value["last_exit"] = json!(worker.last_exit.as_ref().map(last_exit));
    value
}

fn process(process: &RProcess) -> Value {
    json!({
        "pid": process.pid,
        "epoch": process.epoch,
        "generation": process.generation,
        "state": process.state,
        "started": seconds(process.started),
        "requests": process.requests,
        "sessions": process.sessions,
        "pending_sessions": process.pending_sessions,
        "streams": process.streams,
        "in_flight": process.in_flight,
        "queue": queue(&process.queue),
        "waiting_for_r": process.queued,
        "r_state": process.does,
        "r_state_ms": milliseconds(process.lasts),
        "busy_ms": process.busy().map(milliseconds),
        "busy_ratio": process.busy_ratio,
        "route": process.task,
        "stack": process.stack.as_ref().map(|stack| {
            json!({ "calls": stack.text, "ago_ms": milliseconds(stack.ago) })
        }),
        "r_cpu_ms": thread_time(process.pid, process.r_thread).map(milliseconds),
        "memory": own_memory(process.pid),
        "cpu_s": processor_time(process.pid).map(|time| time.as_secs_f64()),
    })
}

fn last_exit(last: &LastExit) -> Value {
    json!({
        "code": last.code,
        "signal": last.signal,
        "reason": last.reason.name(),
        "at": seconds(last.at),
    })
}
