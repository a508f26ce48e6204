//! The status of an R process that serves without a supervisor. A separate thread collects the
//! status, so reports never wait for R.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rookery_error::Kind as _;
use rookery_exchange::{Exchange, ListenerId};
use rookery_server::tls::{ServedCertificate, Tls};
use rookery_server::{LivenessProbe, Rejection, output};
use rookery_system::lock;
use rookery_system::signals::with_signals_blocked;
use rookery_worker_protocol::{Counter, ErrorReport, RequestCounters, SharedScoreboard, now};

use crate::admin_handler::{HANG_TIMEOUT, NotReady, StatusSource};
use crate::pool_counters::QueueReading;
use crate::process_usage::own_pid;
use crate::profile::ProfiledProcess;
use crate::r_process::{READY, RProcess};
use crate::recent_errors::RecentErrors;
use crate::report::{Lifecycle, MAX_SHOWN_SESSIONS, Report, ServerInfo, ServerState, WorkerReport};
use crate::utilization::Utilization;

/// The interval between two checks of the server's I/O threads. Each check tests whether the I/O
/// threads make progress, and counts their connections.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// The status of an R process that serves without a supervisor.
#[derive(Debug)]
pub struct Standalone {
    about: Mutex<ServerInfo>,
    started: SystemTime,
    /// The memory to which R's thread writes what it is doing.
    scoreboard: Arc<SharedScoreboard>,
    /// The maximum number of requests that wait for R.
    queue_limit: Counter,
    phase: AtomicU8,
    listening: Mutex<Vec<(ListenerId, Vec<LivenessProbe>)>>,
    /// The time at which the server's I/O threads were last found to make progress, in nanoseconds
    /// of the clock [`now`].
    heard: AtomicU64,
    connections: Counter,
    /// The fraction of the last 5 to 10 seconds in which R was busy, as the bits of an `f64`.
    busy_ratio: AtomicU64,
    watching: Mutex<Option<JoinHandle<()>>>,
    is_over: AtomicBool,
    counters: RequestCounters,
    errors: RecentErrors,
    /// The folder for the file of a profile.
    profile_folder: Mutex<Option<PathBuf>>,
    /// The TLS configuration, and the failures to get its certificate from an authority.
    tls: Mutex<Option<(Tls, Option<Arc<AtomicU64>>)>>,
}

impl Standalone {
    /// Creates the status of a server that is starting, and starts a thread that updates the
    /// status. [`end`](Self::end) ends this thread.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn new(
        about: ServerInfo,
        scoreboard: Arc<SharedScoreboard>,
        queue_limit: usize,
    ) -> std::io::Result<Arc<Standalone>> {
        let one = Arc::new(Standalone {
            about: Mutex::new(about),
            started: SystemTime::now(),
            scoreboard,
            queue_limit: Counter::default(),
            phase: AtomicU8::new(Lifecycle::Starting as u8),
            listening: Mutex::default(),
            heard: AtomicU64::new(now()),
            connections: Counter::default(),
            busy_ratio: AtomicU64::new(0.0_f64.to_bits()),
            watching: Mutex::default(),
            is_over: AtomicBool::new(false),
            counters: RequestCounters::default(),
            errors: RecentErrors::default(),
            profile_folder: Mutex::default(),
            tls: Mutex::default(),
        });
        one.set_queue_limit(queue_limit);
        let watched = Arc::downgrade(&one);
        // The thread runs no signal handlers, like the server's threads.
        let watching = with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("rookery-alive".to_owned())
                .spawn(move || watch(&watched))
        })?;
        *lock(&one.watching) = Some(watching);
        Ok(one)
    }

    /// Sets the folder for the file of a profile, without which R cannot be profiled.
    pub fn set_profile_folder(&self, folder: &Path) {
        *lock(&self.profile_folder) = Some(folder.to_owned());
    }

    /// Sets the TLS configuration of the server, and the number of failed attempts to get its
    /// certificate if that comes from an authority.
    pub fn set_tls(&self, tls: Tls, acme_failures: Option<Arc<AtomicU64>>) {
        *lock(&self.tls) = Some((tls, acme_failures));
    }

    /// Ends the thread that updates the status, and waits until it has ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(watching) = lock(&self.watching).take() {
            watching.thread().unpark();
            // The thread's code does not panic.
            let _ = watching.join();
        }
    }

    /// Returns the scoreboard, which is the memory to which R's thread and the server's threads
    /// write what R is doing.
    pub fn scoreboard(&self) -> &Arc<SharedScoreboard> {
        &self.scoreboard
    }

    /// Sets the maximum number of requests that wait for R, which a new server in this process may
    /// change.
    pub fn set_queue_limit(&self, queue_limit: usize) {
        self.queue_limit.set(queue_limit as u64);
    }

    // ---- phase and listeners ----

    /// Records in the status which stage of its life the server has reached, and the server's
    /// address if it is known.
    pub fn is(&self, phase: Lifecycle, address: Option<&str>) {
        if let Some(address) = address {
            address.clone_into(&mut lock(&self.about).address);
        }
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Records that a listener has started. From now on, the probes `pulses` are used to check
    /// whether its I/O threads make progress.
    pub fn listens(&self, listener: ListenerId, pulses: Vec<LivenessProbe>) {
        self.heard.store(now(), Ordering::Relaxed);
        lock(&self.listening).push((listener, pulses));
    }

    /// Records that a listener has been closed, so that its I/O threads are no longer checked for
    /// progress.
    pub fn ends(&self, listener: ListenerId) {
        lock(&self.listening).retain(|(other, _)| *other != listener);
    }

    fn phase(&self) -> Lifecycle {
        match self.phase.load(Ordering::Acquire) {
            0 => Lifecycle::Starting,
            1 => Lifecycle::Serving,
            _ => Lifecycle::Draining,
        }
    }

    // ---- counters of R's thread ----

    /// Records that R begins to process a request at the time `now`. `is_head` is true if R gets
    /// only the head now and the body later.
    pub fn begins(&self, exchange: &mut Exchange, is_head: bool, now: u64) {
        let (handed, _) = exchange.queue_and_start_times();
        exchange.set_started_at(now);
        // R begins twice with a request whose head comes first, but the request has waited only
        // once.
        if !is_head {
            self.counters.record_begin(handed, now);
        }
    }

    /// Records how many spans the process has exported, dropped and not been able to export.
    pub fn set_spans(&self, counts: [u64; 3]) {
        self.counters.spans.set(counts);
    }

    /// Records that a request got a response at the time `now`. The response came from R, or from
    /// the server in place of R.
    pub fn answers(&self, exchange: &Exchange, now: u64) {
        let (handed, begun) = exchange.queue_and_start_times();
        self.counters.record_response(exchange.response().status(), handed, begun, now);
    }

    /// Records an error in the app's R code. The report gets the same limits as the report of a
    /// worker, which reaches the supervisor in encoded form.
    pub fn on_error(&self, report: &ErrorReport) {
        self.errors.add(0, own_pid(), ErrorReport::decode(&report.encode()));
    }

    // ---- reports ----

    /// Checks whether all I/O threads of the server respond. If they do, records that they make
    /// progress, and how many connections they have. Blocks while an I/O thread hangs.
    fn look(&self) {
        let pulses: Vec<LivenessProbe> =
            lock(&self.listening).iter().flat_map(|(_, pulses)| pulses.iter().cloned()).collect();
        let mut connections = 0;
        for pulse in pulses {
            // An I/O thread that has ended before its listener has failed, so it does not count as
            // progress.
            let Some(count) = pulse.connections() else { return };
            connections += count as u64;
        }
        self.connections.set(connections);
        self.heard.store(now(), Ordering::Relaxed);
    }

    fn busy_ratio(&self) -> f64 {
        f64::from_bits(self.busy_ratio.load(Ordering::Relaxed))
    }

    fn certificates(&self) -> Vec<ServedCertificate> {
        lock(&self.tls).as_ref().map(|(tls, _)| tls.certificates()).unwrap_or_default()
    }

    fn acme_failures(&self) -> Option<u64> {
        lock(&self.tls).as_ref()?.1.as_ref().map(|failures| failures.load(Ordering::Relaxed))
    }

    fn is_listening(&self) -> bool {
        !lock(&self.listening).is_empty()
    }

    /// Returns true if the server's I/O threads have made no progress for [`HANG_TIMEOUT`].
    fn hangs(&self) -> bool {
        let silence = now().saturating_sub(self.heard.load(Ordering::Relaxed));
        Duration::from_nanos(silence) >= HANG_TIMEOUT && self.is_listening()
    }
}

impl StatusSource for Standalone {
    fn report(&self) -> Report {
        let process = RProcess {
            state: match self.phase() {
                Lifecycle::Serving => READY,
                other => other.name(),
            },
            requests: self.counters.responses.read().iter().sum(),
            busy_ratio: self.busy_ratio(),
            ..RProcess::of_scoreboard(
                &self.scoreboard,
                &self.scoreboard.read(),
                own_pid(),
                self.started,
            )
        };
        let report = Report {
            about: lock(&self.about).clone(),
            server: ServerState {
                phase: self.phase(),
                started: Some(self.started),
                wanted: 1,
                connections: self.connections.get(),
                log_lines_lost: output::lines_lost(),
                ..ServerState::default()
            },
            queue: QueueReading { length: process.queued, oldest: None },
            sessions: self.scoreboard.sessions().read(MAX_SHOWN_SESSIONS),
            certificates: self.certificates(),
            acme_failures: self.acme_failures(),
            ..Report::default()
        };
        report.requests.add_all(&self.counters);
        // The server's I/O thread counts its rejections in the scoreboard.
        report.rejections.add_all(self.scoreboard.rejections());
        report.routes.add_all(self.scoreboard.routes());
        report.pool.queue_limit.set(self.queue_limit.get());
        report.pool.rejected_full.set(report.rejections.read()[Rejection::Busy.index()]);
        let worker = WorkerReport {
            slot: 0,
            process: Some(process),
            starts_in: None,
            restarts: 0,
            last_exit: None,
        };
        Report { workers: vec![worker], ..report }
    }

    fn not_live(&self) -> Option<&'static str> {
        self.hangs().then_some("the server's I/O thread does not respond")
    }

    fn not_ready(&self) -> Option<NotReady> {
        let why = match self.phase() {
            Lifecycle::Starting => "the app is not listening yet",
            Lifecycle::Draining | Lifecycle::Stopping => "the server is shutting down",
            Lifecycle::Serving if !self.is_listening() => "the app is no longer listening",
            Lifecycle::Serving if self.hangs() => "the server's I/O thread does not respond",
            Lifecycle::Serving => return None,
        };
        Some(NotReady { status: 503, why: why.to_owned() })
    }

    fn errors(&self) -> &RecentErrors {
        &self.errors
    }

    fn profiled_processes(&self) -> Vec<ProfiledProcess> {
        let of = |folder| ProfiledProcess {
            key: 0,
            slot: 0,
            pid: std::process::id(),
            scoreboard: Arc::clone(&self.scoreboard) as Arc<_>,
            folder,
        };
        lock(&self.profile_folder).clone().map(of).into_iter().collect()
    }

    fn not_started(&self) -> Option<&'static str> {
        (self.phase() == Lifecycle::Starting).then_some("the app is not listening yet")
    }
}

fn watch(one: &Weak<Standalone>) {
    let mut share = Utilization::default();
    while let Some(one) = one.upgrade() {
        let time = now();
        let ratio = share.look(one.scoreboard.read().busy_time(time), time);
        one.busy_ratio.store(ratio.to_bits(), Ordering::Relaxed);
        one.look();
        if one.is_over.load(Ordering::Acquire) {
            return;
        }
        drop(one);
        std::thread::park_timeout(LOOKS_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use rookery_server::{Config, ListenerConfig, Server};
    use rookery_worker_protocol::{RouteName, RouteSample};

    use super::*;

    fn one() -> Arc<Standalone> {
        let scoreboard = SharedScoreboard::private();
        let about = ServerInfo { target: "/app".into(), address: String::new() };
        Standalone::new(about, Arc::new(scoreboard), 7).unwrap()
    }

    fn probes(one: &Standalone) -> [bool; 3] {
        [one.not_live().is_none(), one.not_ready().is_none(), one.not_started().is_none()]
    }

    #[test]
    fn probes_say_where_it_is() {
        let server =
            Server::with_closure(Config::default(), |exchange| exchange.begin_response(200));
        let one = one();
        // Loading the app may take any time without failing the liveness probe.
        one.heard.store(1, Ordering::Relaxed);
        assert_eq!(probes(&one), [true, false, false]);
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        one.listens(listener.id(), vec![listener.liveness_probe()]);
        assert_eq!(probes(&one), [true, false, false]);
        one.is(Lifecycle::Serving, Some("http://here"));
        assert_eq!(probes(&one), [true, true, true]);
        assert!(one.report().text().contains("\n/app is at http://here\n"));
        // The I/O threads have not been checked for too long.
        one.end();
        one.heard.store(1, Ordering::Relaxed);
        assert_eq!(probes(&one), [false, false, true]);
        one.look();
        assert_eq!(probes(&one), [true, true, true]);
        one.is(Lifecycle::Draining, None);
        assert_eq!(probes(&one), [true, false, true]);
        one.is(Lifecycle::Serving, None);
        one.ends(listener.id());
        let why = one.not_ready().map(|not| not.why);
        assert_eq!(why.as_deref(), Some("the app is no longer listening"));
    }

    #[test]
    fn a_thread_that_has_ended_though_its_listener_has_not_is_no_sign_of_life() {
        let server =
            Server::with_closure(Config::default(), |exchange| exchange.begin_response(200));
        let one = one();
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        one.listens(listener.id(), vec![listener.liveness_probe()]);
        one.end();
        server.panic_io_thread();
        one.heard.store(1, Ordering::Relaxed);
        one.look();
        assert!(!probes(&one)[0]);
    }

    #[test]
    fn each_series_occurs_once_although_routes_look_the_same() {
        let one = one();
        for route in [b"/\xC2\x80", b"/\xC2\x81"] {
            one.scoreboard.routes().record(&RouteSample {
                route: RouteName::of_pattern(route),
                is_route_set: true,
                method: b"GET",
                is_https: false,
                status: 200,
                queue: None,
                r: None,
                duration: Some(Duration::from_millis(1)),
            });
        }
        let text = one.report().metrics(&one.errors().places());
        assert!(text.contains("\nrookery_route_requests_total{route=\"/\u{fffd}\"} 2\n"), "{text}");
        let mut seen = std::collections::HashSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let series = line.rsplit_once(' ').unwrap().0;
            assert!(seen.insert(series), "{series} occurs twice");
        }
        let status = one.report().json();
        assert_eq!(status["routes"].as_array().unwrap().len(), 1);
        assert_eq!(status["routes"][0]["requests"], 2);
    }

    #[test]
    fn errors_have_the_limits_of_those_of_workers() {
        let one = one();
        let trace = "f(\x1b[31m)\n".repeat(100_000);
        one.on_error(&ErrorReport { trace, ..ErrorReport::default() });
        let json = one.errors().json();
        assert!(json.len() < 8 << 10, "{} bytes", json.len());
        assert!(json.contains("f(\u{fffd}[31m)") && !json.contains("u001b"), "{json}");
    }

    #[test]
    fn a_request_waits_once_though_its_head_comes_before() {
        let one = one();
        let mut exchange = Exchange::new();
        for is_head in [true, false] {
            exchange.set_queued_at(1_000_000);
            one.begins(&mut exchange, is_head, 3_000_000);
        }
        exchange.begin_response(404);
        one.answers(&exchange, 8_000_000);
        let text = one.report().metrics(&one.errors().places());
        for line in [
            "queue_seconds_sum 0.002",
            "queue_seconds_count 1",
            "upstream_seconds_sum 0.005",
            "request_seconds_sum 0.007",
            "requests_total{class=\"4xx\"} 1",
            "worker_requests_total{slot=\"0\"} 1",
            "queue_limit 7",
        ] {
            assert!(text.contains(&format!("\nrookery_{line}\n")), "{line}: {text}");
        }
    }
}
