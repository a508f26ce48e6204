//! The server: the main loop of the supervisor, its commands, and how far it is from starting to
//! ending.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_status::Lifecycle;
use tokio::sync::mpsc::{self, Receiver, UnboundedReceiver};

use super::app::App;
use super::clock::{self, FreezeDetector};
use super::worker::{LogTimer, WorkerEvent, counted};
use super::{Frontend, Outcome, SupervisorCommand, SupervisorConfig, SupervisorEvent};
use crate::backend_registry::BackendRegistry;

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

/// The maximum number of events of workers that have not been handled. Workers that send further
/// messages have to wait, so a worker that sends many does not fill the memory.
const MAX_EVENTS: usize = 100;

/// The run state of the server.
///
/// ```text
///    Serving --Stop--> Leaving --delay over--> Draining --no connections left--> Ending
/// ```
///
/// Without a delay, `Leaving` is skipped. A second `Stop`, a crash loop, or the failure of all
/// first starts leads to `Ending` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    /// The server runs normally: it accepts connections and responds to requests.
    Serving,
    /// The server has been requested to stop. It still serves until this time, and reports itself
    /// as not ready, so that load balancers stop sending requests.
    Leaving { until: Instant },
    /// The server finishes its requests and connections, until this time at the latest.
    Draining { until: Instant },
    /// The workers are stopped. The server ends with this outcome when no worker is left.
    Ending(Outcome),
}

/// The server, which reacts to commands, worker events and the passing of time.
pub(super) struct Server<'a> {
    app: App<'a>,
    registry: Arc<BackendRegistry>,
    frontend: &'a dyn Frontend,
    events: Receiver<WorkerEvent>,
    /// The run state until the workers are stopped. Read it by [`run_state`](Self::run_state),
    /// which also returns the state after that.
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

impl<'a> Server<'a> {
    /// Creates the server and its folder of temporary files. Workers are started by
    /// [`run`](Self::run).
    pub(super) fn new(
        config: SupervisorConfig,
        registry: Arc<BackendRegistry>,
        frontend: &'a dyn Frontend,
    ) -> io::Result<Server<'a>> {
        let (event_sender, events) = mpsc::channel(MAX_EVENTS);
        let now = clock::now();
        Ok(Server {
            app: App::new(config, Arc::clone(&registry), frontend, event_sender, now)?,
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

    /// Runs the main loop until the server ends, and returns the reason of the end.
    pub(super) async fn run(
        mut self,
        mut commands: UnboundedReceiver<SupervisorCommand>,
    ) -> Outcome {
        let (mut has_commands, mut pause) = (true, Duration::ZERO);
        let mut freezes = FreezeDetector::new();
        self.frontend.on_event(SupervisorEvent::Started(self.app.folder().path()));
        loop {
            let frozen = freezes.begin_iteration(pause);
            if let Some(frozen) = frozen.filter(|time| *time >= MIN_LOGGED_FREEZE) {
                self.app.log(&format!(
                    "this process did not run for {} s, which do not count against time limits",
                    frozen.as_secs()
                ));
            }
            if let Some(failure) = self.frontend.take_thread_failure() {
                self.app.log(&format!("{failure}. The server cannot continue: it ends"));
                self.app.end(Outcome::ThreadFailed, clock::now());
            }
            self.check(clock::now());
            self.report();
            if let RunState::Ending(outcome) = self.run_state() {
                if self.app.is_empty() {
                    return self.finish(outcome).await;
                }
            }
            let is_settled = self.run_state() == RunState::Serving && self.app.is_settled();
            pause = if is_settled {
                self.frontend.heartbeat_interval().clamp(SHORT_INTERVAL, LONG_INTERVAL)
            } else {
                SHORT_INTERVAL
            };
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => {
                    self.on_worker_event(event);
                    // An iteration takes longer than an event. Workers whose messages wait would
                    // lose further ones, such as responses to health checks.
                    for _ in 1..MAX_EVENTS {
                        let Ok(event) = self.events.try_recv() else { break };
                        self.on_worker_event(event);
                    }
                }
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
        let failure = self.app.finish_output().await;
        if let Some((message, starts)) = failure.filter(|_| outcome == Outcome::NeverReady) {
            self.frontend.on_event(SupervisorEvent::Failed { message: &message, starts });
        }
        outcome
    }

    /// Returns the run state of the server.
    fn run_state(&self) -> RunState {
        self.app.outcome().map_or(self.run_state, RunState::Ending)
    }

    // ---- commands and events ----

    /// Carries out a command. Commands that do not apply to the current run state are ignored.
    fn on_command(&mut self, command: SupervisorCommand) {
        let (state, delay) = (self.run_state(), self.app.config.times.delay);
        match (command, state) {
            // A second `Stop` ends the server without waiting.
            (
                SupervisorCommand::Stop,
                RunState::Leaving { .. } | RunState::Draining { .. } | RunState::Ending(_),
            ) => {
                self.app.end(Outcome::Stopped, clock::now());
                self.app.kill_all();
            }
            // The delay gives load balancers time to stop sending requests. They send none before a
            // worker was ready, so the delay applies only afterwards.
            (SupervisorCommand::Stop, RunState::Serving)
                if self.app.was_ready() && !delay.is_zero() =>
            {
                self.run_state = RunState::Leaving { until: clock::now() + delay };
                self.frontend.on_event(SupervisorEvent::Leaving);
            }
            (SupervisorCommand::Stop, RunState::Serving) => {
                if !self.app.was_ready() {
                    self.app.log("stopping: nothing is being served yet, since no worker is ready");
                }
                self.drain();
            }
            (SupervisorCommand::Change(config), RunState::Serving) => {
                self.app.set_config(*config);
                self.app.reload();
            }
            (SupervisorCommand::Reload, RunState::Serving) => self.app.reload(),
            (SupervisorCommand::RefuseReload(reason), RunState::Serving) => {
                self.app.refuse_reload(reason);
            }
            (SupervisorCommand::AddWorker, RunState::Serving | RunState::Leaving { .. }) => {
                self.app.add_worker();
            }
            (SupervisorCommand::RemoveWorker, RunState::Serving | RunState::Leaving { .. }) => {
                self.app.remove_worker();
            }
            _ => {}
        }
    }

    /// Handles an event of a worker, and drains the server if no worker may be started in place of
    /// one that has ended.
    fn on_worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Received(epoch, received) => self.app.on_received(epoch, received),
            WorkerEvent::WarmedUp(epoch, result) => self.app.on_warmed_up(epoch, result),
            WorkerEvent::Exited(epoch, pid) => {
                if let Some(outcome) = self.app.on_exit(epoch, pid) {
                    self.end_after_drain(outcome);
                }
            }
        }
    }

    /// Begins the drain of the server: no connections are accepted any more, and existing ones have
    /// time up to the drain timeout.
    fn drain(&mut self) {
        let time = self.app.config.times.drain;
        self.frontend.drain(time / CLOSE_PART);
        self.run_state = RunState::Draining { until: clock::now() + time };
    }

    /// Finishes the requests in progress, then ends the server with `outcome`.
    fn end_after_drain(&mut self, outcome: Outcome) {
        self.app.cancel_starts();
        if !self.app.was_ready() {
            return self.app.end(outcome, clock::now());
        }
        self.outcome = outcome;
        if !matches!(self.run_state(), RunState::Draining { .. }) {
            self.drain();
        }
        if self.registry.backends().is_empty() {
            // No worker is left to respond to waiting requests, so the drain is short.
            self.registry.refuse_requests();
            let time = self.app.config.times.drain.min(LAST_RESPONSES_TIME);
            self.run_state = RunState::Draining { until: clock::now() + time };
        }
    }

    // ---- the passing of time ----

    /// Carries out what is due: it times out workers, and then, while the server serves, checks
    /// workers, replaces them and spawns new ones.
    fn check(&mut self, now: Instant) {
        self.app.time_out(now);
        self.log_drains(now);
        match self.run_state() {
            RunState::Ending(_) => {}
            RunState::Draining { until } => {
                let has_clients = self.frontend.connections() > 0;
                if now >= until || !has_clients {
                    if has_clients {
                        self.frontend.cut();
                    }
                    self.app.end(self.outcome, until);
                }
            }
            RunState::Leaving { until } if now >= until => self.drain(),
            RunState::Serving | RunState::Leaving { .. } => {
                if now.duration_since(self.checked_at) >= LONG_INTERVAL {
                    self.checked_at = now;
                    self.app.check_workers(now);
                }
                self.app.replace_due();
                self.app.spawn_due(now);
            }
        }
        self.app.complete_reload();
    }

    /// Logs what the drain of the server or of each draining worker waits for.
    fn log_drains(&mut self, now: Instant) {
        let RunState::Draining { until } = self.run_state() else {
            return self.app.log_drains(now);
        };
        let connections = self.frontend.connections();
        if connections > 0 && self.drain_log.tick(now, DRAIN_LOG_INTERVAL) {
            self.app.log(&format!(
                "stopping: waiting for {}, at most {:.0} s",
                counted(connections as u64, "connection"),
                until.saturating_duration_since(now).as_secs_f64().ceil()
            ));
        }
    }

    /// Publishes the current state for status reports and metrics.
    fn report(&mut self) {
        let now = Instant::now();
        // Events cause iterations in addition to the periodic ones. The number of connections is
        // costly to query, so it is read only about once a second.
        let is_due = |at| now.duration_since(at) + TOLERANCE >= LONG_INTERVAL;
        if self.connections.1.is_none_or(is_due) {
            self.connections = (self.frontend.connections(), Some(now));
        }
        let mut report = self.app.report();
        report.turned = Some(now);
        report.server.phase = match self.run_state() {
            RunState::Serving if self.app.was_ready() => Lifecycle::Serving,
            RunState::Serving => Lifecycle::Starting,
            RunState::Leaving { .. } | RunState::Draining { .. } => Lifecycle::Draining,
            RunState::Ending(_) => Lifecycle::Stopping,
        };
        report.server.connections = self.connections.0 as u64;
        report.server.log_lines_lost = self.frontend.log_lines_lost();
        let ready = report.ready();
        self.registry.state.change(|published| *published = report);
        let (workers, failures) = self.app.heartbeat(clock::now());
        // After a failed stop, a service manager whose watchdog is not pinged ends the process.
        if self.app.outcome() != Some(Outcome::ThreadFailed) {
            self.frontend.on_event(SupervisorEvent::Heartbeat { ready, workers, failures });
        }
    }
}
