//! An app: its configuration and its pool of workers. This module carries out what the pool
//! decides: it starts workers, reacts to their messages, and stops them.

mod exits;
mod preload;
mod reload;
mod report;

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rookery_status::{ExitReason, Reload, RunFolder, own_memory, r_stack, r_task, thread_time};
use rookery_worker_protocol::{Message, Received};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::clock;
use super::health::TaskLimit;
use super::pool::Pool;
use super::reporting::{RecentFailures, ReportHistory};
use super::worker::{
    Handle as _, Process, ProcessOrigin, WarmupResult, Worker, WorkerAction, WorkerEvent,
    WorkerPhase, counted,
};
use super::{Frontend, Outcome, SupervisorConfig, SupervisorEvent, Timeouts};
use crate::backend_registry::BackendRegistry;
use crate::process::{ControlGroups, StartOutput, WorkerStart, is_stopped};

/// The time after which the first line about the drain of a worker is logged. The interval doubles
/// with each line, because sessions may last for hours.
const FIRST_DRAIN_LOG: Duration = Duration::from_secs(5);

/// An app with its configuration and its pool of workers.
pub(super) struct App<'a> {
    pub(super) config: SupervisorConfig,
    registry: Arc<BackendRegistry>,
    frontend: &'a dyn Frontend,
    pool: Pool,
    origin: ProcessOrigin,
    /// The number of processors, which is the maximum number of workers that start at a time.
    processors: usize,
    /// The time at which a worker is to be preloaded, and the generation of the app that is ready.
    preload_at: Option<(Instant, u64)>,
    /// The report about the current or last reload.
    reload: Reload,
    history: ReportHistory,
    /// Whether any worker of the app has ever been ready.
    was_ready: bool,
    /// Whether a failed start has been reported to the front end, and no success after it.
    is_failure_reported: bool,
    failures: RecentFailures,
    /// The tasks that read the last output of ended workers.
    last_output: JoinSet<()>,
    /// The outcome with which the server ends when no worker is left. It is set when all workers
    /// are stopped.
    outcome: Option<Outcome>,
}

impl<'a> App<'a> {
    /// Creates the pool with its slots, and the folder of the workers' files. The workers
    /// themselves are started by [`spawn_due`](Self::spawn_due), and their events are sent to
    /// `events`.
    pub(super) fn new(
        config: SupervisorConfig,
        registry: Arc<BackendRegistry>,
        frontend: &'a dyn Frontend,
        events: Sender<WorkerEvent>,
        now: Instant,
    ) -> io::Result<App<'a>> {
        let folder = RunFolder::create(&config.folder)?;
        let output = StartOutput::default();
        if config.is_dev {
            // A failure is shown after each change of the app, also if it is the same again.
            output.end();
        }
        Ok(App {
            pool: Pool::new(config.workers, config.spares, now),
            origin: ProcessOrigin { folder, starts: 0, output, events },
            processors: available_parallelism().map_or(1, NonZero::get),
            preload_at: None,
            reload: Reload::default(),
            history: ReportHistory::new(ControlGroups::default()),
            was_ready: false,
            is_failure_reported: false,
            failures: RecentFailures::default(),
            last_output: JoinSet::new(),
            outcome: None,
            config,
            registry,
            frontend,
        })
    }

    /// Logs a line for the operator.
    pub(super) fn log(&self, line: &str) {
        (self.config.log)(line);
    }

    /// Logs a line about a failure.
    fn warn(&self, line: &str) {
        (self.config.warn)(line);
    }

    /// Returns the folder of the workers' files.
    pub(super) fn folder(&self) -> &RunFolder {
        &self.origin.folder
    }

    /// Returns true if any worker of the app has ever been ready.
    pub(super) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Returns true if no worker process is left.
    pub(super) fn is_empty(&self) -> bool {
        self.pool.workers().next().is_none()
    }

    /// Returns true if no worker is about to change its phase, and no start is scheduled. A worker
    /// that still drains only because of its WebSockets does not count.
    pub(super) fn is_settled(&self) -> bool {
        self.pool.is_settled(clock::now())
    }

    // ---- time out, check, replace, spawn ----

    /// Stops and kills the workers whose time is over, and closes the WebSockets of workers whose
    /// drain ends soon.
    pub(super) fn time_out(&mut self, now: Instant) {
        let (times, log) = (self.config.times, self.config.log);
        let limit = times.start.as_secs_f64();
        for worker in self.pool.workers_mut() {
            let Some(action) = worker.time_out(now, times) else { continue };
            if worker.is_starting() {
                log(&format!("{} was not ready within {limit} s: it is stopped", worker.name()));
            } else if worker.is_between_servers() {
                log(&format!(
                    "the app in {} has stopped its server, and has started no other within \
                     {limit} s: it is replaced",
                    worker.name()
                ));
            }
            worker.carry_out(action, times, log);
        }
        while self.last_output.try_join_next().is_some() {}
    }

    /// Logs what each draining worker waits for.
    pub(super) fn log_drains(&mut self, now: Instant) {
        for worker in self.pool.workers_mut() {
            let WorkerPhase::Draining { until, sessions } = worker.phase else { continue };
            if !worker.process.drain_log.tick_doubling(now, FIRST_DRAIN_LOG) {
                continue;
            }
            let (requests, sockets) = worker.process.load();
            let until = if sockets > 0 { until.max(sessions) } else { until };
            let left = until.saturating_duration_since(now).as_secs_f64().ceil();
            let name = worker.name();
            (self.config.log)(&if worker.is_between_servers() {
                format!(
                    "the app in {name} has stopped its server, for example with \
                     `stopAllServers()`: it gets no requests, and is replaced if the app starts no \
                     server within {left:.0} s. An app that is served must not stop its server"
                )
            } else {
                format!(
                    "{name} is draining: waiting for {} and {}, at most {left:.0} s",
                    counted(requests as u64, "request"),
                    counted(sockets as u64, "WebSocket"),
                )
            });
        }
    }

    /// Checks the health of all workers, and then whether they have to be recycled.
    pub(super) fn check_workers(&mut self, now: Instant) {
        let (times, log) = (self.config.times, self.config.log);
        for worker in self.pool.workers_mut() {
            check_health(worker, now, times, log);
        }
        self.use_spares();
        let scaling = &self.pool.scaling;
        let most = scaling.wanted() + scaling.spares() + u32::from(self.config.surges);
        let reload = self.pool.reload();
        for slot in self.pool.slots_mut() {
            let may_exceed = slot.may_exceed(reload, now);
            let Some(worker) = slot.current.as_mut().filter(|_| may_exceed) else { continue };
            let is_ready = worker.phase == WorkerPhase::Ready;
            let reason = is_ready.then(|| worker.recycle_reason(&self.config.recycle, most, now));
            if worker.process.memory_watch.take_collection_request() {
                worker.process.send(Message::Collect);
            }
            if let Some(reason) = reason.flatten() {
                log(&format!("{} is replaced: {reason}", worker.name()));
                slot.exceed(reason, times, now);
            }
        }
    }

    /// Begins the replacements that are due, until enough are in progress or one has to wait.
    pub(super) fn replace_due(&mut self) {
        let surges = self.config.surges;
        while let Some((number, reason)) = self.pool.next_replacement(surges) {
            let (generation, now) = (self.pool.generation(), clock::now());
            let Some(slot) = self.pool.slot_mut(number) else { return };
            slot.begin_replacement(reason, generation, surges, now);
            if slot.current.is_none() {
                continue;
            }
            if surges && self.has_memory_beside(number, &reason.to_string()) {
                self.spawn_reserve(number);
            } else {
                self.drain_first(number, reason);
            }
        }
    }

    /// Starts the workers whose start time has come.
    pub(super) fn spawn_due(&mut self, now: Instant) {
        self.preload_due(now);
        for number in self.pool.take_due_starts(now, self.was_ready, self.processors) {
            let started = self.spawn(number);
            if let Some(slot) = self.pool.slot_mut(number) {
                slot.current = started;
            }
        }
    }

    /// Starts a worker for the slot with this number, or lets the preloaded one read the app. If
    /// the start fails, returns `None` and schedules another start after a pause.
    fn spawn(&mut self, number: u32) -> Option<Worker> {
        let start = self.next_start(number, self.pool.generation());
        let slot = self.pool.slot_mut(number)?;
        slot.starts += 1;
        slot.generation = start.generation;
        if let Some(worker) = self.take_preloaded(number) {
            return Some(worker);
        }
        let error = match self.origin.start(start, None, &self.config, &self.registry) {
            Ok(worker) => return Some(worker),
            Err(error) => error,
        };
        self.warn(&format!("worker {number} cannot be started: {error}"));
        let (now, epoch) = (clock::now(), self.origin.starts);
        self.pool.slot_mut(number)?.on_failed_start(epoch, now);
        if self.is_hopeless() {
            self.end(Outcome::NeverReady, now);
        }
        self.end_if_crash_loop(now);
        None
    }

    /// Returns the numbers with which a worker is started in this slot and generation.
    fn next_start(&self, slot: u32, generation: u64) -> WorkerStart {
        let (serving, spares) = self.pool.scaling.after_reload();
        WorkerStart { slot, workers: serving + spares, serving, epoch: 0, generation }
    }

    /// Puts spares into service while too few workers serve.
    fn use_spares(&mut self) {
        for epoch in self.pool.use_spares() {
            if let Some(worker) = self.pool.worker_mut(epoch) {
                (self.config.log)(&format!("{}, a spare, now serves requests", worker.name()));
            }
        }
    }

    // ---- messages of workers ----

    /// Handles what the worker with this epoch has sent over its control channel.
    pub(super) fn on_received(&mut self, epoch: u64, received: Received) {
        let worker = self.pool.worker_mut(epoch);
        match (received, worker) {
            (Received::Message(message), _) => self.on_message(epoch, message),
            (Received::Announcement(number, bytes), Some(worker)) => {
                worker.process.apply_announcement(number, &bytes);
            }
            (Received::Error(report), Some(worker)) => {
                self.registry.errors.add(worker.start.slot, worker.process.pid, report);
                if self.config.is_dev {
                    while let Some(page) = worker.process.take_error_page() {
                        self.frontend.on_event(SupervisorEvent::SessionError(&page));
                    }
                }
            }
            _ => {}
        }
    }

    /// Handles a message from the worker with this epoch. Messages that do not fit the worker's
    /// phase are ignored.
    fn on_message(&mut self, epoch: u64, message: Message) {
        let (times, log) = (self.config.times, self.config.log);
        let Some(worker) = self.pool.worker_mut(epoch) else { return };
        let backend = &worker.process.backend;
        match message {
            Message::Pong(ping) => {
                let name = worker.name();
                let actions = worker.process.health.on_pong(name, ping);
                let was_suspended = !actions.is_empty();
                for action in actions {
                    worker.carry_out(action, times, log);
                }
                // A spare that was suspended until now may still be needed.
                if was_suspended {
                    self.use_spares();
                }
            }
            Message::Ready { is_sticky, sees_heads }
                if worker.is_starting() || worker.is_between_servers() =>
            {
                backend.set_sticky(is_sticky);
                backend.set_sees_heads(sees_heads);
                if worker.is_between_servers() {
                    self.registry.resume(backend);
                    (worker.phase, worker.exit_reason) = (WorkerPhase::Ready, None);
                } else if self.config.warmup.is_empty() {
                    worker.become_ready();
                    self.on_ready(epoch);
                } else {
                    worker.process.warm_up(&self.config.warmup, &self.origin.events);
                }
            }
            Message::Leaving if worker.phase == WorkerPhase::Ready => {
                // The worker is about to exit, or its app is about to start another server.
                self.registry.suspend(backend);
                worker.exit_reason.get_or_insert(ExitReason::AppStop);
                let until = clock::now() + times.start;
                worker.phase = WorkerPhase::Draining { until, sessions: until };
                self.use_spares();
            }
            _ => {}
        }
    }

    /// Handles the result of a worker's warm-up, which makes the worker ready or stops it.
    pub(super) fn on_warmed_up(&mut self, epoch: u64, result: WarmupResult) {
        let times = self.config.times;
        // The worker may have been stopped during the warm-up, for example because it took too
        // long.
        let Some(worker) = self.pool.worker_mut(epoch).filter(|it| it.is_starting()) else {
            return;
        };
        let name = worker.name();
        match result {
            WarmupResult::Succeeded(warnings) => {
                worker.become_ready();
                for warning in warnings {
                    self.log(&format!("the warm-up of {name}: {warning}"));
                }
                self.on_ready(epoch);
            }
            WarmupResult::Failed(reason) => {
                let stop = WorkerAction::Stop(Some(ExitReason::Warmup), times.stop);
                worker.carry_out(stop, times, self.config.log);
                self.warn(&format!(
                    "the warm-up of {name} has failed: {reason}. The worker is stopped"
                ));
            }
        }
    }

    /// Puts a worker that has become ready into service or reserve, and drains the worker that it
    /// replaces.
    fn on_ready(&mut self, epoch: u64) {
        self.pool.on_ready(epoch, self.config.times, clock::now());
        let Some(worker) = self.pool.worker_mut(epoch) else { return };
        self.history.on_ready(worker.age());
        let is_first = !std::mem::replace(&mut self.was_ready, true);
        let app = if is_first { worker.process.app() } else { None };
        let (line, pid) = (worker.ready_line(), worker.process.pid);
        self.log(&line);
        let reloaded = self.pool.take_completed_reload();
        if let Some(generation) = reloaded {
            self.log(&format!("reloaded: all workers are of generation {generation}"));
        }
        if is_first {
            self.origin.output.end();
            self.frontend.on_ready(app.as_deref());
        }
        // A worker that was restarted after a failed reload may start the app that the reload could
        // not start.
        let is_repaired = self.is_failure_reported && self.pool.reload().is_none();
        if is_first || reloaded.is_some() || is_repaired {
            self.is_failure_reported = false;
            self.frontend.on_event(SupervisorEvent::AppReady);
            self.schedule_preload();
        }
        // Measured last, because it reads many files and clients should not wait for that.
        if self.history.memory_left().is_some() {
            let memory = own_memory(pid);
            if let Some(worker) = self.pool.worker_mut(epoch) {
                worker.process.memory_at_start = memory;
            }
        }
    }
}

/// Checks the health of a worker, and carries out what the checks require.
fn check_health(worker: &mut Worker, now: Instant, times: Timeouts, log: fn(&str)) {
    let (name, pid) = (worker.name(), worker.process.pid);
    let carry_out = |worker: &mut Worker, actions: Vec<WorkerAction>| {
        for action in actions {
            worker.carry_out(action, times, log);
        }
    };
    if worker.process.backend.is_violating() {
        let actions = worker.process.health.check_violation(name);
        carry_out(worker, actions);
    }
    if worker.phase == WorkerPhase::Ready {
        let actions = worker.process.health.check_pings(name, now, || is_stopped(pid));
        carry_out(worker, actions);
    }
    let seen = worker.observe(now);
    if let Some(time) = times.busy.filter(|_| worker.phase == WorkerPhase::Ready) {
        let limit = TaskLimit { time, interrupts: times.interrupts };
        let Process { backend, health, .. } = &mut worker.process;
        let stack = || r_stack(&backend.scoreboard);
        let actions = health.check_task_limit(limit, &seen, || is_stopped(pid), stack);
        carry_out(worker, actions);
    }
    if matches!(worker.phase, WorkerPhase::Ready | WorkerPhase::Draining { .. }) {
        let Process { backend, health, .. } = &mut worker.process;
        let line = health.check_slow_log(
            times.slow.unwrap_or(Duration::MAX),
            &seen,
            || thread_time(pid, seen.scoreboard.r_thread),
            || r_task(&backend.scoreboard),
            || r_stack(&backend.scoreboard),
        );
        carry_out(worker, Vec::from_iter(line));
    }
    if worker.phase == WorkerPhase::Ready {
        let actions = worker.process.health.check_lost_wakeup(&seen);
        carry_out(worker, actions);
    }
}
