//! The supervisor's state and main loop, with its reactions to commands and worker events.

mod accepting;
mod busy;
mod events;
mod exits;
mod pings;
mod replacing;
mod report;
mod scaling;
mod spares;
mod starts;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::static_files::read_announcement;
use rookery_status::{RunFolder, own_memory};
use rookery_worker_protocol::Message;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use super::acceptor::Acceptor;
use super::recycle::ReplaceReason;
use super::replacement_queue::ReplacementQueue;
use super::restart_backoff::RestartBackoff;
use super::warmup::WarmupResult;
use super::worker_process::{WorkerEvent, WorkerPhase, WorkerProcess};
use super::{Frontend, Outcome, SupervisorCommand, SupervisorConfig, SupervisorEvent};
use crate::backend_registry::BackendRegistry;
use crate::process::{ControlGroups, StartOutput};
use report::ReportHistory;

/// The interval of the main loop while a worker starts, drains or stops.
const SOON: Duration = Duration::from_millis(50);

/// The interval of the main loop while no worker changes its phase.
const SELDOM: Duration = Duration::from_secs(1);

/// The time before the end of a drain within which WebSockets are closed one after the other, so
/// that their pages do not all reconnect at once.
const ENDS_SESSIONS: Duration = Duration::from_secs(5);

/// The time for which the output of an ended worker is still read. Another process may hold the
/// output open and never end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The reason of a worker that has stopped its server by itself, because its app has finished or is
/// about to start another server.
pub(super) const ASKED: &str = "asked";

/// The numbered place of a worker, with its current worker and its restart state.
#[derive(Debug, Default)]
struct Slot {
    /// The epoch of the worker that serves or will serve.
    current: Option<u64>,
    /// The epoch of the worker that will replace the current one once it is ready.
    successor: Option<u64>,
    /// The time at which a worker is started in this slot.
    start_at: Option<Instant>,
    backoff: RestartBackoff,
    /// The back-off of replacements that failed, and the time before which no further replacement
    /// for the worker's requests, age or memory is tried.
    replacing: (RestartBackoff, Option<Instant>),
    /// The number of starts that ended before the worker was ready.
    failed_starts: u32,
    /// Whether a start has failed with an error of the configuration, which another start cannot
    /// fix.
    is_misconfigured: bool,
    /// Whether the slot stays without a worker because the number of workers was reduced.
    is_given_up: bool,
}

/// The run state of the supervisor.
///
/// ```text
///    Serving --Stop--> Leaving --delay over--> Draining --no connections left--> Ending
/// ```
///
/// Without a delay, `Leaving` is skipped. A second `Stop`, a crash loop, or the failure of all
/// first starts leads to `Ending` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    Serving,
    /// The server still serves, and reports itself as not ready until the delay is over.
    Leaving {
        until: Instant,
    },
    /// The server finishes the requests and connections that it has.
    Draining {
        until: Instant,
    },
    /// The workers are stopped. The supervisor ends when none is left.
    Ending(Outcome),
}

/// The supervisor, which reacts to commands, worker events and the passing of time.
pub(super) struct Supervisor<'a> {
    plan: SupervisorConfig,
    registry: Arc<BackendRegistry>,
    front: &'a dyn Frontend,
    /// The number of workers that should serve, which is `SupervisorConfig::workers` unless changed
    /// by commands.
    wanted: u32,
    /// The numbers of workers and spares that a reload has requested, until it has succeeded.
    numbers_to_come: Option<(u32, u32)>,
    folder: RunFolder,
    events: UnboundedSender<WorkerEvent>,
    happened: UnboundedReceiver<WorkerEvent>,
    slots: Vec<Slot>,
    workers: HashMap<u64, WorkerProcess>,
    replacements: ReplacementQueue,
    acceptor: Acceptor,
    epochs: u64,
    generation: u64,
    /// Whether a reload has begun whose completion has not been logged.
    is_reload_untold: bool,
    was_ready: bool,
    course: RunState,
    /// The outcome that is returned when a drain is complete.
    outcome: Outcome,
    /// The times of worker failures within the last minute.
    failures: VecDeque<Instant>,
    /// The output of starts while no worker has been ready.
    start_output: StartOutput,
    looked: Instant,
    /// The time of the next log line about what the server's drain waits for.
    told_of_drain: Option<Instant>,
    /// The counters and past events that appear only in reports.
    history: ReportHistory,
    /// The tasks that read the last output of ended workers, with the time of the worker's end.
    outputs: Vec<(JoinHandle<()>, Instant)>,
}

impl<'a> Supervisor<'a> {
    /// Creates the supervisor and its folder. Workers are started by [`run`](Self::run).
    pub(super) fn new(
        plan: SupervisorConfig,
        registry: Arc<BackendRegistry>,
        front: &'a dyn Frontend,
    ) -> io::Result<Supervisor<'a>> {
        let (events, happened) = mpsc::unbounded_channel();
        let now = Instant::now();
        let slots = || Slot { start_at: Some(now), ..Slot::default() };
        Ok(Supervisor {
            folder: RunFolder::create(&plan.folder)?,
            slots: (0..plan.workers + plan.spares).map(|_| slots()).collect(),
            wanted: plan.workers,
            numbers_to_come: None,
            plan,
            registry,
            front,
            events,
            happened,
            workers: HashMap::new(),
            replacements: ReplacementQueue::default(),
            acceptor: Acceptor::new(),
            epochs: 0,
            generation: 0,
            is_reload_untold: false,
            was_ready: false,
            course: RunState::Serving,
            outcome: Outcome::Stopped,
            failures: VecDeque::new(),
            start_output: StartOutput::default(),
            looked: now,
            told_of_drain: None,
            history: ReportHistory::begin(ControlGroups::default()),
            outputs: Vec::new(),
        })
    }

    /// Runs the main loop until the server ends, and returns the reason of the end.
    pub(super) async fn run(
        mut self,
        mut requests: UnboundedReceiver<SupervisorCommand>,
    ) -> io::Result<Outcome> {
        let mut has_requests = true;
        self.front.hear(SupervisorEvent::Started(self.folder.path()));
        loop {
            self.look();
            self.apply_numbers();
            self.look_at_accepting();
            self.report();
            if let RunState::Ending(outcome) = self.course {
                if self.workers.is_empty() {
                    // The workers' last output is forwarded before the supervisor ends.
                    let all = async {
                        for (output, _) in &mut self.outputs {
                            let _ = output.await;
                        }
                    };
                    let _ = tokio::time::timeout(LAST_WORDS, all).await;
                    if let (Outcome::NeverReady, Some(message)) =
                        (outcome, self.start_output.message())
                    {
                        self.front.hear(SupervisorEvent::Failed(&message));
                    }
                    return Ok(outcome);
                }
            }
            let pause =
                if self.is_settled() { self.front.turns_every().clamp(SOON, SELDOM) } else { SOON };
            tokio::select! {
                biased;
                Some(event) = self.happened.recv() => match event {
                    WorkerEvent::Message(epoch, message) => self.hear(epoch, message),
                    WorkerEvent::Announced(epoch) => self.hear_announced(epoch),
                    WorkerEvent::WarmedUp(epoch, warmed) => self.warmed(epoch, warmed),
                    WorkerEvent::Ended(epoch, pid) => self.ended(epoch, pid),
                },
                request = requests.recv(), if has_requests => match request {
                    Some(request) => self.asked(request),
                    None => has_requests = false,
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns true if no worker is changing its phase, so that the main loop may use its long
    /// interval.
    fn is_settled(&self) -> bool {
        self.course == RunState::Serving
            && self.acceptor.is_settled()
            && self.slots.iter().all(|slot| slot.start_at.is_none())
            && self.workers.values().all(WorkerProcess::is_settled)
    }

    /// Logs a line for the operator.
    fn tell(&self, line: &str) {
        (self.plan.tell)(line);
    }

    // ---- commands ----

    /// Carries out a command. Commands that do not apply to the current run state are ignored.
    fn asked(&mut self, request: SupervisorCommand) {
        match (request, self.course) {
            (SupervisorCommand::Change(plan), RunState::Serving) => {
                self.change(*plan);
                self.asked(SupervisorCommand::Reload);
            }
            (SupervisorCommand::RefuseReload(why), RunState::Serving) => self.refuse_reload(why),
            (SupervisorCommand::Reload, RunState::Serving) => {
                self.generation += 1;
                self.is_reload_untold = true;
                self.tell(&match self.wanted {
                    1 => "reloading: the worker is replaced".to_owned(),
                    workers => {
                        format!("reloading: {workers} workers are replaced one after the other")
                    }
                });
                self.replacements.reload(self.reloaded_slots());
                self.begin_reload();
            }
            // The delay gives load balancers time to stop sending requests. They send none before a
            // worker was ready, so the delay applies only afterwards.
            (SupervisorCommand::Stop, RunState::Serving)
                if self.was_ready && !self.plan.times.delay.is_zero() =>
            {
                self.course = RunState::Leaving { until: Instant::now() + self.plan.times.delay };
                self.front.hear(SupervisorEvent::Leaving);
            }
            (SupervisorCommand::Stop, RunState::Serving) => {
                if !self.was_ready {
                    self.tell("stopping: no worker is ready yet, and nothing is being served");
                }
                self.drain();
            }
            // A second `Stop` ends the server without waiting.
            (
                SupervisorCommand::Stop,
                RunState::Leaving { .. } | RunState::Draining { .. } | RunState::Ending(_),
            ) => {
                self.end(Outcome::Stopped);
                for worker in self.workers.values_mut() {
                    worker.kill();
                }
            }
            (SupervisorCommand::ReopenLog, _) => {
                for worker in self.workers.values().filter(|worker| worker.start.is_public) {
                    worker.say(Message::ReopenLog);
                }
            }
            (SupervisorCommand::More, RunState::Serving | RunState::Leaving { .. }) => {
                self.want_more();
            }
            (SupervisorCommand::Fewer, RunState::Serving | RunState::Leaving { .. }) => {
                self.want_fewer();
            }
            (
                SupervisorCommand::Reload
                | SupervisorCommand::Change(_)
                | SupervisorCommand::RefuseReload(_)
                | SupervisorCommand::More
                | SupervisorCommand::Fewer,
                _,
            ) => {}
        }
    }

    /// Stops accepting connections, and waits for the existing ones up to the drain timeout.
    fn drain(&mut self) {
        self.front.drain();
        self.retire_all();
        self.course = RunState::Draining { until: Instant::now() + self.plan.times.drain };
    }

    /// Stops all workers, so that the supervisor ends with `outcome`. A later call has no effect.
    fn end(&mut self, outcome: Outcome) {
        if !matches!(self.course, RunState::Ending(_)) {
            self.course = RunState::Ending(outcome);
            for worker in self.workers.values_mut() {
                worker.leaves.get_or_insert("stopped");
                self.registry.drain(&worker.backend);
                worker.stop(self.plan.times.stop);
            }
        }
    }

    // ---- events of workers ----

    /// Handles a message of a worker. Messages that do not fit the worker's phase are ignored.
    fn hear(&mut self, epoch: u64, message: Message) {
        let Some(worker) = self.workers.get_mut(&epoch) else { return };
        match message {
            Message::Ready { is_sticky, sees_heads }
                if matches!(worker.phase, WorkerPhase::Starting { .. }) =>
            {
                worker.backend.set_sticky(is_sticky);
                worker.backend.set_sees_heads(sees_heads);
                if self.plan.warmup.is_empty() {
                    worker.phase = WorkerPhase::Ready;
                    self.on_ready(epoch);
                } else {
                    worker.warm_up(&self.plan.warmup, &self.events);
                }
            }
            Message::Pong(ping) if worker.health.answered(ping) => {
                if !worker.stuck.is_interrupted() {
                    self.registry.resume(&worker.backend);
                }
                let line = format!("worker {} ({}) answers again", worker.start.slot, worker.pid);
                self.tell(&line);
                // A spare that was suspended until now may still be needed.
                self.call_on_spares();
            }
            Message::Accepting(number) => self.on_acknowledged(epoch, number, true),
            Message::NotAccepting(number) => self.on_acknowledged(epoch, number, false),
            Message::Leaving if worker.phase == WorkerPhase::Ready => {
                // The worker is about to exit, or its app is about to start another server.
                worker.leaves.get_or_insert(ASKED);
                self.registry.suspend(&worker.backend);
                let until = Instant::now() + self.plan.times.start;
                worker.phase = WorkerPhase::Draining { until, sessions: until };
                self.call_on_spares();
            }
            Message::Ready { is_sticky, sees_heads } if worker.is_between_servers() => {
                worker.backend.set_sticky(is_sticky);
                worker.backend.set_sees_heads(sees_heads);
                (worker.phase, worker.leaves) = (WorkerPhase::Ready, None);
                self.registry.resume(&worker.backend);
            }
            _ => {}
        }
    }

    /// Applies the static paths that a worker has announced, and confirms that to the worker, whose
    /// R process waits for the confirmation. If the paths are malformed, the worker serves all of
    /// them itself.
    fn hear_announced(&mut self, epoch: u64) {
        let Some(worker) = self.workers.get(&epoch) else { return };
        let Some((number, bytes)) = worker.take_announced() else { return };
        let paths = read_announcement(&bytes).unwrap_or_default();
        self.registry.set_static_paths(&worker.backend, paths);
        worker.say(Message::Applied(number));
    }

    /// Handles the result of a worker's warm-up, which makes the worker ready or stops it.
    fn warmed(&mut self, epoch: u64, warmed: WarmupResult) {
        let Some(worker) = self.workers.get_mut(&epoch) else { return };
        // The worker may have been stopped during the warm-up, for example because it took too
        // long.
        if !matches!(worker.phase, WorkerPhase::Starting { .. }) {
            return;
        }
        let name = format!("worker {} ({})", worker.start.slot, worker.pid);
        match warmed {
            WarmupResult::Succeeded(remarks) => {
                worker.phase = WorkerPhase::Ready;
                for remark in remarks {
                    self.tell(&format!("the warm-up of {name}: {remark}"));
                }
                self.on_ready(epoch);
            }
            WarmupResult::Failed(why) => {
                worker.leaves = Some("warmup");
                worker.stop(self.plan.times.stop);
                self.tell(&format!("the warm-up of {name} has failed, {why}: it is ended"));
            }
        }
    }

    /// Puts a worker that has become ready into service or reserve, and drains the worker that it
    /// replaces.
    fn on_ready(&mut self, epoch: u64) {
        let worker = &self.workers[&epoch];
        self.history.on_ready(worker);
        let slot = worker.start.slot;
        let place = &self.slots[slot as usize];
        let old = place.current.filter(|_| place.successor == Some(epoch));
        let replaces = old.and_then(|old| self.workers.get(&old)).is_some_and(|old| old.is_serving);
        if replaces || self.lacks() {
            self.have_serve(epoch);
        }
        let place = &mut self.slots[slot as usize];
        let takes_place = place.successor.take_if(|successor| *successor == epoch).is_some();
        // If a further worker is already being started in this slot, the replacement is not
        // complete yet.
        let reason = if place.successor.is_none() { self.replacements.finish(slot) } else { None };
        if takes_place {
            place.replacing = (RestartBackoff::default(), None);
            let old = place.current.replace(epoch);
            self.hurry_those_before(slot);
            if let Some(old) = old.and_then(|old| self.workers.get_mut(&old)) {
                old.leaves = reason.map(ReplaceReason::name);
                self.registry.drain(&old.backend);
                // A worker that exceeds its memory limit must not keep the memory for as long as
                // its WebSockets last.
                let is_large = matches!(reason, Some(ReplaceReason::Memory(_)));
                let times = self.plan.times;
                old.drain(if is_large { times.without_sessions() } else { times });
            }
        }
        self.tell_of_start(&self.workers[&epoch]);
        // The completion of a reload is logged when its last worker is ready.
        if self.is_reload_untold
            && !self.replacements.is_reloading()
            && self.all_are_of(self.generation)
        {
            self.is_reload_untold = false;
            self.tell(&format!("reloaded: all workers are of generation {}", self.generation));
        }
        if !std::mem::replace(&mut self.was_ready, true) {
            self.start_output.end();
            self.front.ready();
        }
        // Measured last, because it reads many files and clients should not wait for that.
        let is_limited = self.history.groups.memory_left().is_some();
        if let Some(worker) = self.workers.get_mut(&epoch).filter(|_| is_limited) {
            worker.memory_at_start = own_memory(worker.pid);
        }
    }

    /// Shortens the drains of earlier workers of `slot`, so that at most one worker per slot waits
    /// long for its WebSockets. Without this, each reload within some hours would leave another R
    /// process running.
    pub(super) fn hurry_those_before(&mut self, slot: u32) {
        for worker in self.workers.values_mut().filter(|worker| worker.start.slot == slot) {
            worker.hurry(self.plan.times);
        }
    }

    /// Returns true if every slot in use has a ready worker of `generation`.
    fn all_are_of(&self, generation: u64) -> bool {
        self.slots.iter().filter(|slot| !slot.is_given_up).all(|slot| {
            let current = slot.current.and_then(|current| self.workers.get(&current));
            current.is_some_and(|worker| {
                worker.start.generation == generation && worker.phase == WorkerPhase::Ready
            })
        })
    }

    // ---- timers ----

    /// Carries out what is due: timeouts of workers, health checks, starts and replacements.
    fn look(&mut self) {
        let now = Instant::now();
        for worker in self.workers.values_mut() {
            match worker.phase {
                WorkerPhase::Starting { until } if now >= until => {
                    let (number, pid) = (worker.start.slot, worker.pid);
                    let time = self.plan.times.start.as_secs_f64();
                    (self.plan.tell)(&format!(
                        "worker {number} ({pid}) was not ready within {time} s: it is ended"
                    ));
                    worker.leaves = Some("start");
                    worker.stop(self.plan.times.stop);
                }
                // The app may still start another server.
                WorkerPhase::Draining { until, .. }
                    if worker.is_between_servers() && now < until => {}
                WorkerPhase::Draining { .. } if worker.is_between_servers() => {
                    worker.leaves = Some("start");
                    worker.stop(self.plan.times.stop);
                }
                WorkerPhase::Draining { until, sessions } => {
                    let has_sessions = worker.backend.load().1 > 0;
                    let is_over = now >= until && (now >= sessions || !has_sessions);
                    let within = ENDS_SESSIONS
                        .min(self.plan.times.sessions.unwrap_or(self.plan.times.drain) / 2);
                    let left = sessions.saturating_duration_since(now);
                    if is_over || worker.is_done() {
                        worker.stop(self.plan.times.stop);
                    } else if left <= within {
                        self.registry.close_sessions(&worker.backend, left);
                        worker.end_sessions(left);
                    }
                }
                WorkerPhase::Stopping { until } if now >= until => worker.kill(),
                _ => {}
            }
        }
        self.outputs.retain(|(output, since)| {
            if now.duration_since(*since) > LAST_WORDS {
                output.abort();
            }
            !output.is_finished()
        });
        self.tell_of_drains(now);
        match self.course {
            RunState::Ending(_) => {}
            RunState::Draining { until } => {
                if now >= until || self.connections() == 0 {
                    self.end(self.outcome);
                }
            }
            RunState::Leaving { until } if now >= until => self.drain(),
            RunState::Serving | RunState::Leaving { .. } => {
                if now.duration_since(self.looked) >= SELDOM {
                    self.looked = now;
                    self.look_at_health(now);
                    self.look_at_busy(now);
                    self.look_at_slow(now);
                    self.look_at_age(now);
                }
                self.start_due(now);
                self.replace_next();
            }
        }
    }
}
