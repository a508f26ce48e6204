//! The report about a server as Prometheus metrics, in version 0.0.4 of the text format. The
//! metrics of a worker are labelled with the number of its slot (its numbered place). A replacement
//! takes over the slot of the old worker, so the number of time series does not grow.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rookery_server::Rejection;
use rookery_worker_protocol::{
    RejectionCounters, RequestCounters, SPAN_RESULTS, STATUS_CLASSES, SpanCounters,
};

use super::{Report, ServerState};
use crate::exit_reason::ExitReason;
use crate::format::{Metrics, label_value};
use crate::pool_counters::PoolCounters;
use crate::process_usage::{open_descriptors, own_memory, processor_time};
use crate::r_process::{READY, RProcess};

/// The names of all states of workers. The number of workers in each state is reported, even if it
/// is 0.
const STATES: [&str; 8] =
    ["starting", "warming", "spare", READY, "draining", "stopping", "backing_off", "suspended"];

impl Report {
    /// Returns the report as metrics, in the text format of Prometheus. `errors` has the errors in
    /// R by place.
    pub(crate) fn metrics(&self, errors: &BTreeMap<String, u64>) -> String {
        let mut text = Metrics::default();
        text.requests(&self.requests);
        self.queue_metrics(&mut text);
        text.pool(&self.pool);
        self.worker_metrics(&mut text);
        text.server(&self.server);
        text.rejections(&self.rejections);
        text.spans(&self.requests.spans);
        text.routes(&self.routes);
        self.session_metrics(&mut text);
        text.errors(errors);
        text.certificates(&self.certificates, self.acme_failures);
        text.into_text()
    }

    fn queue_metrics(&self, text: &mut Metrics) {
        let own: u64 = self.processes().map(|process| process.queue.length).sum();
        let help = "Requests that wait for a worker, or for R in a server without workers.";
        text.gauge("queue_length", help, self.queue.length + own);
        text.gauge(
            "queue_limit",
            "Maximum length of the queue that all workers share, and of each worker's own queue.",
            self.pool.queue_limit.get(),
        );
        let help = "Seconds for which the oldest request in the shared queue has waited.";
        let oldest = self.queue.oldest.unwrap_or_default();
        text.gauge("queue_oldest_seconds", help, oldest.as_secs_f64());
    }

    fn worker_metrics(&self, text: &mut Metrics) {
        let help = "Workers, by state. A server without a supervisor counts as one worker.";
        text.family("workers", "gauge", help);
        for state in STATES {
            let count = match state {
                "backing_off" => self.workers.iter().filter(|it| it.starts_in.is_some()).count(),
                _ => self.processes().filter(|it| it.state == state).count(),
            };
            text.value("workers", &format!("state=\"{state}\""), count);
        }
        // A slot has two processes while one replaces the other. Only the newer one is reported.
        let mut latest: BTreeMap<u32, &RProcess> = BTreeMap::new();
        for process in self.processes() {
            let shown = latest.entry(process.slot).or_insert(process);
            if shown.epoch < process.epoch {
                *shown = process;
            }
        }
        let latest: Vec<&RProcess> = latest.into_values().collect();
        text.r_processes(&latest);
        let most = match self.pool.sessions_limit.get() {
            0 => "+Inf".to_owned(),
            most => most.to_string(),
        };
        let help = "Maximum number of WebSockets of the worker in a slot.";
        text.family("sessions_limit", "gauge", help);
        for process in &latest {
            text.value("sessions_limit", &format!("slot=\"{}\"", process.slot), &most);
        }
    }
}

/// Returns the counts for all exit reasons of workers, also for those that have not occurred. A
/// series that began with its first event would show no increase at that event.
fn by_exit_reason(
    counts: &BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = (&'static str, u64)> {
    ExitReason::NAMES.into_iter().map(|name| (name, counts.get(name).copied().unwrap_or(0)))
}

impl Metrics {
    /// Adds the metrics of the app's requests: the number of responses in each class of status
    /// codes, and histograms of the times in the queue, in the app and in total.
    fn requests(&mut self, counts: &RequestCounters) {
        let help = "Requests that the app has responded to, by class of the status code.";
        let classes = STATUS_CLASSES.into_iter().zip(counts.responses.read());
        self.family("requests_total", "counter", help).values("requests_total", "class", classes);
        let help = "Seconds from the arrival of a request until it is sent to a worker, or until R \
                    starts to process it in a server without workers.";
        self.histogram("queue_seconds", help, &counts.queue_time);
        let help = "Seconds from the end of the queue time until the head of the response.";
        self.histogram("upstream_seconds", help, &counts.upstream_time);
        let help = "Seconds from the arrival of a request until the head of the response.";
        self.histogram("request_seconds", help, &counts.request_time);
    }

    /// Adds the metrics of each R process, such as its requests, memory and processor time.
    fn r_processes(&mut self, processes: &[&RProcess]) {
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
        let help = "Seconds for which the worker's R process was busy with a message or another \
                    event of a WebSocket, with what Shiny computed after it.";
        self.family("message_seconds", "histogram", help);
        for process in processes {
            let slot = format!("slot=\"{}\"", process.slot);
            self.full_histogram("rookery_message_seconds", &slot, &process.messages);
        }
        let longest = processes.iter().copied().map(busy).fold(0.0, f64::max);
        self.gauge(
            "worker_busy_seconds_max",
            "Seconds for which the longest-busy R process has been busy with its current task.",
            longest,
        );
    }

    /// Adds the numbers of errors in R by place.
    fn errors(&mut self, errors: &BTreeMap<String, u64>) {
        let help = "Errors in the app's R code, by the function, output or observer. At most 10 \
                    errors in a second are counted for each R process.";
        self.family("errors_total", "counter", help);
        for (place, count) in errors {
            self.value("errors_total", &format!("place=\"{}\"", label_value(place)), count);
        }
    }

    /// Adds the metrics of the export of spans.
    fn spans(&mut self, spans: &SpanCounters) {
        self.family(
            "trace_spans_total",
            "counter",
            "Spans that were exported, dropped because the collector was too slow, or not accepted \
             by it.",
        )
        .values("trace_spans_total", "result", SPAN_RESULTS.into_iter().zip(spans.read()));
    }

    /// Adds the numbers of requests and connections that the server has rejected, by reason.
    fn rejections(&mut self, rejections: &RejectionCounters) {
        let help = "Requests, WebSockets and connections that the server has rejected or ended \
                    because of a rule, a limit or a failure, by reason.";
        self.family("rejections_total", "counter", help).values(
            "rejections_total",
            "reason",
            Rejection::all().iter().map(|rejection| rejection.name()).zip(rejections.read()),
        );
    }

    /// Adds the counters of the part that assigns requests to workers.
    fn pool(&mut self, counts: &PoolCounters) {
        let mut counter = |name: &str, label: &str, help: &str, values: &[(&str, u64)]| {
            self.family(name, "counter", help).values(name, label, values.iter().copied());
        };
        counter(
            "queue_rejected_total",
            "reason",
            "Requests refused with 503 because a queue was full, no worker was free in time, or \
             all workers had the maximum number of sessions.",
            &[
                ("full", counts.rejected_full.get()),
                ("timeout", counts.rejected_timeout.get()),
                ("sessions", counts.rejected_sessions.get()),
            ],
        );
        counter(
            "reconnects_total",
            "result",
            "Shiny pages that have reconnected after the end of their WebSocket, to the same R \
             process or to a new one.",
            &[
                ("same", counts.reconnected_same_worker.get()),
                ("new", counts.reconnected_new_worker.get()),
            ],
        );
        self.counter(
            "retries_total",
            "Requests sent to another worker because their worker ended before R had begun them.",
            counts.retries_unbegun.get(),
        );
        self.counter(
            "cookie_invalid_total",
            "Requests with an invalid session cookie: from before the last server start, or forged.",
            counts.invalid_cookies.get(),
        );
    }

    /// Adds the metrics of the server's state.
    fn server(&mut self, server: &ServerState) {
        self.gauge("workers_wanted", "Workers that should serve, without spares.", server.wanted);
        self.counter("worker_starts_total", "Workers that were started.", server.starts);
        self.family("worker_exits_total", "counter", "Workers that have ended, by reason.");
        self.values("worker_exits_total", "reason", by_exit_reason(&server.exits));
        let help = "Seconds from the start of a worker until it is ready.";
        self.family("worker_start_seconds", "summary", help);
        self.value("worker_start_seconds_sum", "", server.readied.1);
        self.value("worker_start_seconds_count", "", server.readied.0);
        let help =
            "WebSockets that were lost because their worker ended, by the reason for its end.";
        self.family("sessions_lost_total", "counter", help);
        self.values("sessions_lost_total", "reason", by_exit_reason(&server.sessions_lost));
        self.family("reloads_total", "counter", "Reloads that have ended, by result.");
        let reloads = [("done", server.reload.succeeded), ("failed", server.reload.failed)];
        self.values("reloads_total", "result", reloads);
        let help =
            "Number of the current generation of workers. Each requested reload begins the next.";
        self.gauge("generation", help, server.generation);
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
        self.counter("log_lines_lost_total", help, server.log_lines_lost);
        self.gauge("connections", "Open connections of clients.", server.connections);
        if let Some(open) = open_descriptors() {
            self.gauge("open_fds", "Open file descriptors of the process.", open);
        }
        if let Some(since) =
            server.started.and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok())
        {
            self.gauge(
                "start_time_seconds",
                "Time at which the process started, in seconds since the Unix epoch.",
                since.as_secs_f64(),
            );
        }
    }
}
