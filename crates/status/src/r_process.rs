//! The description of an R process in status reports and metrics. The R process is either a worker
//! of a supervisor or serves without a supervisor.

use std::time::{Duration, SystemTime};

use rookery_server::Rejection;
use rookery_worker_protocol::{
    Histogram, RState, RejectionCounters, SPAN_RESULTS, STATUS_CLASSES, Scoreboard, Snapshot,
    SpanCounters, StatusClassCounters, now,
};
use serde_json::{Value, json};

use crate::format::{Metrics, format_duration, milliseconds, seconds};
use crate::process_usage::{Pid, open_descriptors, own_memory, processor_time, thread_time};

/// The description of an R process that serves the app.
#[derive(Debug)]
pub struct RProcess {
    /// The number of the R process's slot (its numbered place among the workers), from 0.
    pub slot: u32,
    /// The process id of the R process.
    pub pid: Pid,
    /// The stage that the R process has reached in its life, for example `ready`.
    pub state: &'static str,
    /// The time at which the R process was started.
    pub started: SystemTime,
    /// The number of requests that the R process has answered.
    pub requests: u64,
    /// The number of open WebSockets of the R process.
    pub sessions: u64,
    /// The number of open streams of the R process: responses and request bodies.
    pub streams: u64,
    /// The number of requests that R has begun and not yet answered.
    pub in_flight: u64,
    /// The fraction of the last 5 to 10 seconds in which R was busy, from 0 to 1.
    pub busy_ratio: f64,
    /// The number of requests that wait for R.
    pub queued: u64,
    /// The id of the thread that runs R; 0 if it is not known yet.
    pub r_thread: u32,
    /// The current activity of R: `starting`, `idle` or `busy`.
    pub does: &'static str,
    /// The time for which R has been in the state that `does` names.
    pub lasts: Duration,
}

/// Returns what R is doing (`starting`, `idle` or `busy`) and for how long. `read` is a snapshot of
/// the scoreboard, the memory in which an R process records what it does. `started` is the time at
/// which the R process was started.
pub fn r_activity(read: &Snapshot, started: SystemTime) -> (&'static str, Duration) {
    let now = now();
    let state = match read.r_state {
        RState::Starting => "starting",
        RState::Idle if read.is_idle(now) => "idle",
        // R renews the idle state at every `IDLE_RENEWAL_INTERVAL`. If it has not, it is busy.
        RState::Idle | RState::Busy | RState::Messages => "busy",
    };
    // While R starts, the scoreboard has no start time of the activity.
    let lasts =
        if read.since == 0 { started.elapsed().unwrap_or_default() } else { read.elapsed(now) };
    (state, lasts)
}

/// Returns what R is busy with: the method and path of a request, a message of a WebSocket, or a
/// callback. Returns `None` if R is idle or starts, or if it is unknown what R does. R counts as
/// idle while requests wait for promises.
pub fn r_task(scoreboard: &Scoreboard) -> Option<String> {
    let read = scoreboard.read();
    match read.r_state {
        RState::Idle if !read.is_idle(now()) => Some("a callback of package later".to_owned()),
        _ => last_r_task(scoreboard),
    }
}

/// Returns what R was busy with when its process ended: the method and path of a request, or a
/// message of a WebSocket. Returns `None` if R was idle or starting, or if it is unknown.
pub fn last_r_task(scoreboard: &Scoreboard) -> Option<String> {
    match scoreboard.read().r_state {
        RState::Starting | RState::Idle => None,
        RState::Messages => Some("an event of a WebSocket".to_owned()),
        RState::Busy => scoreboard.task(),
    }
}

/// Returns the functions that R's thread has last found on its stack during its current activity,
/// and how long ago. Returns `None` if R is not busy, or if its stack has not been sampled.
pub fn r_stack(scoreboard: &Scoreboard) -> Option<RStack> {
    let (read, time) = (scoreboard.read(), now());
    let sample = scoreboard.stack().filter(|_| !read.is_idle(time))?;
    Some(RStack { text: sample.text, ago: Duration::from_nanos(time.saturating_sub(sample.at)) })
}

/// The functions on R's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RStack {
    /// The names of the functions, the innermost first, and a place in the source code.
    pub text: String,
    /// The time since R's thread read the stack.
    pub ago: Duration,
}

/// The age from which on a stack is no longer shown as the current one.
const CURRENT_FOR: Duration = Duration::from_secs(2);

impl RStack {
    /// Returns the stack as text for people, with its age unless the stack is recent.
    pub fn phrase(&self) -> String {
        if self.ago <= CURRENT_FOR {
            return format!("in {}", self.text);
        }
        format!("in {} ({} ago)", self.text, format_duration(self.ago))
    }

    /// Returns the stack as JSON.
    pub fn json(&self) -> Value {
        json!({ "calls": self.text, "ago_ms": milliseconds(self.ago) })
    }
}

impl RProcess {
    /// Returns how long R has been busy with its current task, or `None` if R is not busy.
    pub fn busy(&self) -> Option<Duration> {
        (self.does == "busy").then_some(self.lasts)
    }

    /// Returns the description of the R process as JSON, for programs.
    pub fn json(&self) -> Value {
        json!({
            "slot": self.slot,
            "pid": self.pid,
            "state": self.state,
            "started": seconds(self.started),
            "requests": self.requests,
            "sessions": self.sessions,
            "streams": self.streams,
            "in_flight": self.in_flight,
            "waiting_for_r": self.queued,
            "r_state": self.does,
            "r_state_ms": milliseconds(self.lasts),
            "busy_ms": self.busy().map(milliseconds),
            "busy_ratio": self.busy_ratio,
            "r_cpu_ms": thread_time(self.pid, self.r_thread).map(milliseconds),
            "memory": own_memory(self.pid),
            "cpu_s": processor_time(self.pid).map(|time| time.as_secs_f64()),
        })
    }

    /// Returns the memory and the processor time that the R process uses, as text for people.
    pub fn used(&self) -> [String; 2] {
        let memory = own_memory(self.pid).map(|bytes| format!("{} MB", bytes / 1_000_000));
        [memory, processor_time(self.pid).map(format_duration)]
            .map(|value| value.unwrap_or_else(|| "-".to_owned()))
    }
}

impl Metrics {
    /// Adds the metrics of the app's requests: the number of responses in each class of status
    /// codes, and histograms of the times in the queue, in the app and in total.
    pub fn requests(
        &mut self,
        answered: &StatusClassCounters,
        waited: &Histogram,
        took: &Histogram,
        answered_in: &Histogram,
    ) {
        let help = "Requests that the app has responded to, by class of the status code.";
        let classes = STATUS_CLASSES.into_iter().zip(answered.read());
        self.family("requests_total", "counter", help).values("requests_total", "class", classes);
        let help = "Seconds from the arrival of a request until it is sent to a worker, or until R \
                    starts to process it in a server without workers.";
        self.histogram("queue_seconds", help, waited);
        let help = "Seconds from the end of the queue time until the head of the response.";
        self.histogram("upstream_seconds", help, took);
        let help = "Seconds from the arrival of a request until the head of the response.";
        self.histogram("request_seconds", help, answered_in);
    }

    /// Adds the metrics of each R process, such as its requests, memory and processor time.
    pub fn r_processes(&mut self, processes: &[RProcess]) {
        let mut each = |name: &str, help: &str, value: &dyn Fn(&RProcess) -> Option<String>| {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            self.family(name, kind, help);
            for process in processes {
                if let Some(value) = value(process) {
                    self.value(name, &format!("slot=\"{}\"", process.slot), value);
                }
            }
        };
        let busy = |process: &RProcess| process.busy().unwrap_or_default().as_secs_f64();
        each(
            "worker_requests_total",
            "Requests that the worker in a slot has responded to since the worker was started.",
            &|it| Some(it.requests.to_string()),
        );
        let share = "Share of the last 5 to 10 seconds in which the worker's R process was busy, \
                     from 0 to 1.";
        each("worker_busy_ratio", share, &|it| Some(it.busy_ratio.to_string()));
        each(
            "worker_in_flight",
            "Requests that the worker has received and not yet responded to.",
            &|it| Some(it.in_flight.to_string()),
        );
        each("sessions", "Open WebSockets of the worker.", &|it| Some(it.sessions.to_string()));
        let help = "Streamed responses and request bodies of the worker that have not ended.";
        each("streams", help, &|it| Some(it.streams.to_string()));
        let time = "Seconds for which the worker's R process has been busy with its current task, \
                    0 if it is not busy.";
        each("worker_busy_seconds", time, &|it| Some(busy(it).to_string()));
        let memory = "Anonymous, swapped and shared memory of the worker's processes, in bytes.";
        each("worker_memory_bytes", memory, &|it| Some(own_memory(it.pid)?.to_string()));
        let time = "Processor time that the worker has used since its start, in seconds.";
        each("worker_cpu_seconds_total", time, &|it| {
            Some(processor_time(it.pid)?.as_secs_f64().to_string())
        });
        let longest = processes.iter().map(busy).fold(0.0, f64::max);
        self.gauge(
            "worker_busy_seconds_max",
            "Seconds for which the longest-busy R process has been busy with its current task.",
            longest,
        );
    }

    /// Adds the metrics of the export of spans.
    pub fn spans(&mut self, spans: &SpanCounters) {
        self.family(
            "trace_spans_total",
            "counter",
            "Spans that were exported, dropped because the collector was too slow, or not accepted \
             by it.",
        )
        .values("trace_spans_total", "result", SPAN_RESULTS.into_iter().zip(spans.read()));
    }

    /// Adds the numbers of requests and connections that the server has rejected, by reason.
    pub fn rejections(&mut self, rejections: &RejectionCounters) {
        let help = "Requests, WebSockets and connections that the server has rejected or ended \
                    because of a rule, a limit or a failure, by reason.";
        self.family("rejections_total", "counter", help).values(
            "rejections_total",
            "reason",
            Rejection::all().iter().map(|rejection| rejection.name()).zip(rejections.read()),
        );
    }

    /// Adds the metrics of the process that accepts connections from clients.
    pub fn accepting_process(
        &mut self,
        connections: u64,
        log_lines_lost: u64,
        started: Option<SystemTime>,
    ) {
        let help = "The version of the server, as a label of the value 1.";
        let labels = format!(
            "version=\"{}\",os=\"{}\",arch=\"{}\"",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        self.family("build_info", "gauge", help).value("build_info", &labels, 1);
        let help = "Lines of the access log, of messages and of the workers' output that were \
                    dropped because the output failed or was too slow.";
        self.family("log_lines_lost_total", "counter", help).value(
            "log_lines_lost_total",
            "",
            log_lines_lost,
        );
        self.gauge("connections", "Open connections of clients.", connections);
        if let Some(open) = open_descriptors() {
            self.gauge("open_fds", "Open file descriptors of the process.", open);
        }
        if let Some(since) = started.and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok()) {
            self.gauge(
                "start_time_seconds",
                "Time at which the process started, in seconds since the Unix epoch.",
                since.as_secs_f64(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_stack_has_its_age() {
        let phrase = |ms| {
            RStack { text: "fit < handler".to_owned(), ago: Duration::from_millis(ms) }.phrase()
        };
        assert_eq!(phrase(2000), "in fit < handler");
        assert_eq!(phrase(90_000), "in fit < handler (1 min 30 s ago)");
    }
}
