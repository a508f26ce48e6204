//! The report as JSON.

use std::time::{Duration, SystemTime};

use rookery_status::{About, milliseconds, own_memory, processor_time, seconds};
use rookery_worker::{R, now};
use serde_json::{Value, json};

use super::report::{LastExit, Process, Report, SlotReport};
use crate::process::Exit;
use crate::roster::Roster;

pub(super) fn of(about: &About, report: &Report, roster: &Roster) -> String {
    let queue = roster.counts.queue.read();
    let mut workers: Vec<Value> = report.processes.iter().map(|process| worker(process, report)).collect();
    // Those without a process.
    for (slot, told) in report.slots.iter().enumerate() {
        let has_process = report.processes.iter().any(|process| process.member.slot as usize == slot);
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
        "accepts": if report.acceptor.is_some() { "worker" } else { "front_end" },
        "queue": {
            "length": queue.length,
            "oldest_ms": milliseconds(queue.oldest),
            "limit": roster.counts.queue_limit.get(),
        },
        "workers": workers,
    });
    let mut text = value.to_string();
    text.push('\n');
    text
}

fn worker(process: &Process, report: &Report) -> Value {
    let member = &process.member;
    let (board, load) = (member.board.read(), &member.load);
    let (in_flight, sessions) = member.load();
    let queue = load.queue.read();
    let does = what_r_does(process);
    let slot = report.slots.get(member.slot as usize);
    json!({
        "slot": member.slot,
        "pid": process.pid,
        "epoch": member.epoch,
        "generation": process.generation,
        "state": process.state,
        "started": seconds(process.started),
        "accepts": report.acceptor == Some(member.epoch),
        "connections": board.connections,
        "requests": member.answered(),
        "sessions": sessions,
        "pending_sessions": load.pending_sessions.get(),
        "in_flight": in_flight,
        "queue": { "length": queue.length, "oldest_ms": milliseconds(queue.oldest) },
        "waiting_for_r": board.queued(),
        "r_state": does.state,
        "r_state_ms": milliseconds(does.lasts),
        "busy_ms": if does.state == "busy" { Some(milliseconds(does.lasts)) } else { None },
        "busy_ratio": process.busy_ratio,
        "route": does.route,
        "memory": own_memory(process.pid),
        "cpu_s": processor_time(process.pid).map(|time| time.as_secs_f64()),
        "restarts": slot.map_or(0, |slot| slot.restarts),
        "last_exit": slot.and_then(|slot| slot.last_exit.as_ref()).map(last_exit),
    })
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

/// What a worker's R does, by its scoreboard.
pub(super) struct Does {
    pub(super) state: &'static str,
    pub(super) lasts: Duration,
    pub(super) route: Option<String>,
}

pub(super) fn what_r_does(process: &Process) -> Does {
    let (board, now) = (&process.member.board, now());
    let read = board.read();
    let state = match read.r {
        R::Starting => "starting",
        R::Idle if read.is_idle(now) => "idle",
        // It has not said for a while that it waits, so it does not: see `IDLE_IS_RENEWED`.
        R::Idle | R::Busy | R::Messages => "busy",
    };
    // What it was given before is not what it starts with.
    let lasts = if read.since == 0 { elapsed(process.started) } else { read.lasts(now) };
    let route = if state == "busy" { process.member.load.asked.begun(board) } else { None };
    Does { state, lasts, route: route.map(|(route, _)| route) }
}

fn elapsed(since: SystemTime) -> Duration {
    since.elapsed().unwrap_or_default()
}
