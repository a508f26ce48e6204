//! The main loop of the supervisor, with its reactions to commands and worker events.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::clock::{self, FreezeDetector};
use super::fleet::Fleet;
use super::run_state::RunState;
use super::worker::{LogTimer, WorkerEvent, counted};
use super::{Frontend, Outcome, SupervisorCommand, SupervisorConfig, SupervisorEvent};
use crate::backend_registry::BackendRegistry;
use crate::process::reap;

/// The interval of the main loop while a worker starts, drains or stops.
const SHORT_INTERVAL: Duration = Duration::from_millis(50);

/// The interval of the main loop while no worker changes its phase.
const LONG_INTERVAL: Duration = Duration::from_secs(1);

/// The tolerance of the interval [`LONG_INTERVAL`] between two queries of the number of
/// connections, because an iteration of the main loop may begin a little early.
const TOLERANCE: Duration = Duration::from_millis(50);

/// The divisor of the drain timeout that gives the time in which a server that ends closes its
/// WebSockets. Their pages then do not all reconnect at once.
const CLOSE_PART: u32 = 4;

/// The interval of log lines about the drain of the server.
const DRAIN_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// The minimum time without an iteration of the main loop that is logged. Shorter times occur on an
/// overloaded machine.
const MIN_LOGGED_FREEZE: Duration = Duration::from_secs(5);

/// The maximum duration of the server's drain if no worker is left. In this time, the last
/// responses of ended workers are sent to clients.
const LAST_RESPONSES_TIME: Duration = Duration::from_secs(2);

/// The supervisor, which reacts to commands, worker events and the passing of time.
pub(super) struct Supervisor<'a> {
    fleet: Fleet<'a>,
    registry: Arc<BackendRegistry>,
    frontend: &'a dyn Frontend,
    events: UnboundedReceiver<WorkerEvent>,
    /// The run state of the supervisor until the workers are stopped. Read it by
    /// [`run_state`](Self::run_state), which also returns the state after that.
    run_state: RunState,
    /// The outcome that is returned when a drain of the server is complete.
    outcome: Outcome,
    /// The time of the last check of the workers' health.
    checked_at: Instant,
    /// The timer of log lines about what the server's drain waits for.
    drain_log: LogTimer,
    /// The number of open connections of the front end, and the time at which it was queried.
    connections: (usize, Option<Instant>),
}

impl<'a> Supervisor<'a> {
    /// Creates the supervisor and its folder of temporary files. Workers are started by
    /// [`run`](Self::run).
    pub(super) fn new(
        config: SupervisorConfig,
        registry: Arc<BackendRegistry>,
        frontend: &'a dyn Frontend,
    ) -> io::Result<Supervisor<'a>> {
        let (event_sender, events) = mpsc::unbounded_channel();
        let now = clock::now();
        Ok(Supervisor {
            fleet: Fleet::new(config, Arc::clone(&registry), frontend, event_sender, now)?,
            registry,
            frontend,
            events,
            run_state: RunState::Serving,
            outcome: Outcome::Stopped,
            checked_at: now,
            drain_log: LogTimer::default(),
            connections: (0, None),
        })
    }

    /// Runs the supervisor's main loop until the server ends, and returns the reason of the end.
    pub(super) async fn run(
        mut self,
        mut commands: UnboundedReceiver<SupervisorCommand>,
    ) -> io::Result<Outcome> {
        let (mut has_commands, mut pause) = (true, Duration::ZERO);
        let mut freezes = FreezeDetector::new();
        self.frontend.on_event(SupervisorEvent::Started(self.fleet.launcher().folder().path()));
        loop {
            let frozen = freezes.begin_iteration(pause);
            if let Some(frozen) = frozen.filter(|time| *time >= MIN_LOGGED_FREEZE) {
                self.log(&format!(
                    "this process did not run for {} s, which do not count against time limits",
                    frozen.as_secs()
                ));
            }
            if let Some(failure) = self.frontend.take_thread_failure() {
                self.log(&format!("{failure}. The server cannot continue: it ends"));
                self.fleet.end(Outcome::ThreadFailed, clock::now());
            }
            self.check_timers();
            self.fleet.apply_scaling();
            self.report();
            if let RunState::Ending(outcome) = self.run_state() {
                if self.fleet.workers().is_empty() {
                    return Ok(self.finish(outcome).await);
                }
            }
            pause = if self.is_settled() {
                self.frontend.heartbeat_interval().clamp(SHORT_INTERVAL, LONG_INTERVAL)
            } else {
                SHORT_INTERVAL
            };
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => match event {
                    WorkerEvent::Message(epoch, message) => self.fleet.on_message(epoch, message),
                    WorkerEvent::Announced(epoch) => self.fleet.on_announcement(epoch),
                    WorkerEvent::Failed(epoch) => self.fleet.on_errors(epoch),
                    WorkerEvent::WarmedUp(epoch, result) => self.fleet.on_warmed_up(epoch, result),
                    WorkerEvent::Exited(epoch, pid) => self.on_worker_exit(epoch, pid),
                },
                command = commands.recv(), if has_commands => match command {
                    Some(command) => self.on_command(command),
                    None => has_commands = false,
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Forwards the last output of the workers, and returns the outcome. If the server ends because
    /// no worker has ever become ready, also reports the error message of the failed start.
    async fn finish(&mut self, outcome: Outcome) -> Outcome {
        self.fleet.forward_output().await;
        if outcome == Outcome::NeverReady {
            if let Some(message) = self.fleet.launcher().error_message() {
                let starts = self.fleet.failed_starts();
                self.frontend.on_event(SupervisorEvent::Failed { message: &message, starts });
            }
        }
        outcome
    }

    /// Returns the run state of the supervisor.
    fn run_state(&self) -> RunState {
        self.fleet.outcome().map_or(self.run_state, RunState::Ending)
    }

    /// Returns true if no worker is changing its phase, so that the main loop may use its long
    /// interval.
    fn is_settled(&self) -> bool {
        self.run_state() == RunState::Serving && self.fleet.is_settled()
    }

    // ---- commands ----

    /// Carries out a command. Commands that do not apply to the current run state are ignored.
    fn on_command(&mut self, command: SupervisorCommand) {
        match (command, self.run_state()) {
            (SupervisorCommand::Change(config), RunState::Serving) => {
                self.fleet.set_config(*config);
                self.fleet.reload();
            }
            (SupervisorCommand::RefuseReload(reason), RunState::Serving) => {
                self.fleet.refuse_reload(reason);
            }
            (SupervisorCommand::Reload, RunState::Serving) => self.fleet.reload(),
            // The delay gives load balancers time to stop sending requests. They send none before a
            // worker was ready, so the delay applies only afterwards.
            (SupervisorCommand::Stop, RunState::Serving)
                if self.fleet.was_ready() && !self.fleet.config.times.delay.is_zero() =>
            {
                let until = clock::now() + self.fleet.config.times.delay;
                self.run_state = RunState::Leaving { until };
                self.frontend.on_event(SupervisorEvent::Leaving);
            }
            (SupervisorCommand::Stop, RunState::Serving) => {
                if !self.fleet.was_ready() {
                    self.log("stopping: no worker is ready yet, and nothing is being served");
                }
                self.drain();
            }
            // A second `Stop` ends the server without waiting.
            (
                SupervisorCommand::Stop,
                RunState::Leaving { .. } | RunState::Draining { .. } | RunState::Ending(_),
            ) => {
                self.fleet.end(Outcome::Stopped, clock::now());
                self.fleet.kill_all();
            }
            (SupervisorCommand::AddWorker, state) if state.is_serving() => self.fleet.add_worker(),
            (SupervisorCommand::RemoveWorker, state) if state.is_serving() => {
                self.fleet.remove_worker();
            }
            (
                SupervisorCommand::Reload
                | SupervisorCommand::Change(_)
                | SupervisorCommand::RefuseReload(_)
                | SupervisorCommand::AddWorker
                | SupervisorCommand::RemoveWorker,
                _,
            ) => {}
        }
    }

    /// Logs a line for the operator.
    fn log(&self, line: &str) {
        (self.fleet.config.log)(line);
    }

    /// Begins the drain of the server: no connections are accepted any more, and existing ones have
    /// time up to the drain timeout.
    fn drain(&mut self) {
        let time = self.fleet.config.times.drain;
        self.frontend.drain(time / CLOSE_PART);
        self.run_state = RunState::Draining { until: clock::now() + time };
    }

    // ---- events of workers ----

    /// Reaps the worker process with this epoch (the number of its start), which has ended, and
    /// drains the server if no worker may be started in its place.
    fn on_worker_exit(&mut self, epoch: u64, pid: libc::pid_t) {
        let end = reap(pid);
        let Some(process) = self.fleet.remove(epoch) else { return };
        if let Some(outcome) = self.fleet.on_exit(process, end) {
            self.end_after_drain(outcome);
        }
    }

    /// Finishes the requests in progress, then ends the server with `outcome`.
    fn end_after_drain(&mut self, outcome: Outcome) {
        self.fleet.cancel_starts();
        if !self.fleet.was_ready() {
            return self.fleet.end(outcome, clock::now());
        }
        self.outcome = outcome;
        if !matches!(self.run_state(), RunState::Draining { .. }) {
            self.drain();
        }
        if self.registry.backends().is_empty() {
            // No worker is left to respond to waiting requests, so the drain is short.
            self.registry.refuse_requests();
            let time = self.fleet.config.times.drain.min(LAST_RESPONSES_TIME);
            self.run_state = RunState::Draining { until: clock::now() + time };
        }
    }

    // ---- timers ----

    /// Carries out what is due at this time: timeouts of workers, health checks, starts and
    /// replacements.
    fn check_timers(&mut self) {
        let now = clock::now();
        self.fleet.check_deadlines(now);
        self.log_drains(now);
        match self.run_state() {
            RunState::Ending(_) => {}
            RunState::Draining { until } => {
                let has_clients = self.frontend.connections() > 0;
                if now >= until || !has_clients {
                    if has_clients {
                        self.frontend.cut();
                    }
                    self.fleet.end(self.outcome, until);
                }
            }
            RunState::Leaving { until } if now >= until => self.drain(),
            RunState::Serving | RunState::Leaving { .. } => {
                if now.duration_since(self.checked_at) >= LONG_INTERVAL {
                    self.checked_at = now;
                    self.fleet.check_workers(now);
                }
                self.fleet.start_due(now);
                self.fleet.replace_next();
            }
        }
    }

    /// Logs what the drain of the server or of each draining worker waits for.
    fn log_drains(&mut self, now: Instant) {
        let RunState::Draining { until } = self.run_state() else {
            return self.fleet.log_drains(now);
        };
        let connections = self.frontend.connections();
        if connections > 0 && self.drain_log.tick(now, DRAIN_LOG_INTERVAL) {
            self.log(&format!(
                "stopping: waiting for {}, at most {:.0} s",
                counted(connections as u64, "connection"),
                until.saturating_duration_since(now).as_secs_f64().ceil()
            ));
        }
    }

    // ---- reports ----

    /// Publishes the supervisor's current state for status reports and metrics. If no replacement
    /// for a reload remains, also reports that the reload has ended.
    fn report(&mut self) {
        self.fleet.complete_reload();
        let now = Instant::now();
        // Events cause iterations in addition to the periodic ones. The number of connections is
        // costly to query, so it is read only about once a second.
        let is_due = |at| now.duration_since(at) + TOLERANCE >= LONG_INTERVAL;
        if self.connections.1.is_none_or(is_due) {
            self.connections = (self.frontend.connections(), Some(now));
        }
        let mut report = self.fleet.report();
        report.turned = Some(now);
        report.server.phase = self.run_state().lifecycle(self.fleet.was_ready());
        report.server.connections = self.connections.0 as u64;
        report.server.log_lines_lost = self.frontend.log_lines_lost();
        let ready = report.ready();
        self.registry.report.change(|published| *published = report);
        let failures = self.fleet.recent_failures(clock::now());
        let workers = self.fleet.wanted() as usize;
        // After a failed stop, a service manager whose watchdog is not pinged ends the process.
        if self.fleet.outcome() != Some(Outcome::ThreadFailed) {
            self.frontend.on_event(SupervisorEvent::Heartbeat { ready, workers, failures });
        }
    }
}
