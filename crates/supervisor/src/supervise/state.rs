//! The supervisor's state, and what it does about what happens.

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

/// How often is looked while something is to happen soon: a start, a drain, an end.
const SOON: Duration = Duration::from_millis(50);

/// And while all is well.
const SELDOM: Duration = Duration::from_secs(1);

/// How long before a drain is over WebSockets are closed, one after the other: their pages come back, and not all at once.
const ENDS_SESSIONS: Duration = Duration::from_secs(5);

/// How long the output of a worker that has ended is still read: somebody else may have it, and never end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a worker ends that has stopped its server of its own accord: its app has finished, or starts another server.
pub(super) const ASKED: &str = "asked";

/// One of the workers that there are to be.
#[derive(Debug, Default)]
struct Slot {
    /// The start that serves, or will.
    current: Option<u64>,
    /// The start that is to take its place.
    successor: Option<u64>,
    /// When it is to be started.
    start_at: Option<Instant>,
    backoff: RestartBackoff,
    /// The same of those that were to take its place, and until when no other is tried for what has been found wrong with it.
    replacing: (RestartBackoff, Option<Instant>),
    /// Starts that have ended before they were ready.
    failed_starts: u32,
    /// Whether a start has failed in a way that another start cannot mend.
    is_misconfigured: bool,
    /// Whether there is to be none: a worker less was asked for.
    is_given_up: bool,
}

/// Whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    Serving,
    /// It serves on, and says that it will not for long.
    Leaving {
        until: Instant,
    },
    /// The server finishes what it has.
    Draining {
        until: Instant,
    },
    /// The workers end.
    Ending(Outcome),
}

/// See the module.
pub(super) struct Supervisor<'a> {
    plan: SupervisorConfig,
    registry: Arc<BackendRegistry>,
    front: &'a dyn Frontend,
    /// How many workers are to serve: `SupervisorConfig::workers`, until more or fewer were asked for.
    wanted: u32,
    /// The numbers of workers and spares that a reload has asked for, until it has succeeded.
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
    /// Whether a reload has begun of which it is still to be said that all workers have been replaced.
    is_reload_untold: bool,
    was_ready: bool,
    course: RunState,
    /// How it ends when what is in hand has been finished.
    outcome: Outcome,
    /// When workers have failed, within the last minute.
    failures: VecDeque<Instant>,
    /// What starts have written while no worker was ready.
    start_output: StartOutput,
    looked: Instant,
    /// When it is told next what the end waits for.
    told_of_drain: Option<Instant>,
    /// What others are told besides.
    history: ReportHistory,
    /// Output of workers that have ended, and since when.
    outputs: Vec<(JoinHandle<()>, Instant)>,
}

impl<'a> Supervisor<'a> {
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
                    // What they wrote last is read and written.
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

    fn is_settled(&self) -> bool {
        self.course == RunState::Serving
            && self.acceptor.is_settled()
            && self.slots.iter().all(|slot| slot.start_at.is_none())
            && self.workers.values().all(WorkerProcess::is_settled)
    }

    fn tell(&self, line: &str) {
        (self.plan.tell)(line);
    }

    // ---- what is asked for ----

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
            // Nobody has been sent here whom it would have to wait for, before a worker was ready.
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
            // A second one: nothing is waited for.
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
                self.want_more()
            }
            (SupervisorCommand::Fewer, RunState::Serving | RunState::Leaving { .. }) => {
                self.want_fewer()
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

    fn drain(&mut self) {
        self.front.drain();
        self.retire_all();
        self.course = RunState::Draining { until: Instant::now() + self.plan.times.drain };
    }

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

    // ---- what workers say ----

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
                    self.is_ready(epoch);
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
                // A spare that was not to be called on then may be wanted still.
                self.call_on_spares();
            }
            Message::Accepting(number) => self.on_acknowledged(epoch, number, true),
            Message::NotAccepting(number) => self.on_acknowledged(epoch, number, false),
            Message::Leaving if worker.phase == WorkerPhase::Ready => {
                // It ends by itself, or another server takes the place of the one that it has stopped.
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

    /// Applies the static paths that a worker has announced, and confirms it to the worker, whose R
    /// process waits for that. Malformed paths leave all paths to the worker.
    fn hear_announced(&mut self, epoch: u64) {
        let Some(worker) = self.workers.get(&epoch) else { return };
        let Some((number, bytes)) = worker.take_announced() else { return };
        let paths = read_announcement(&bytes).unwrap_or_default();
        self.registry.set_static_paths(&worker.backend, paths);
        worker.say(Message::Applied(number));
    }

    fn warmed(&mut self, epoch: u64, warmed: WarmupResult) {
        let Some(worker) = self.workers.get_mut(&epoch) else { return };
        // It may have been asked to end meanwhile, or have taken too long.
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
                self.is_ready(epoch);
            }
            WarmupResult::Failed(why) => {
                worker.leaves = Some("warmup");
                worker.stop(self.plan.times.stop);
                self.tell(&format!("the warm-up of {name} has failed, {why}: it is ended"));
            }
        }
    }

    fn is_ready(&mut self, epoch: u64) {
        let worker = &self.workers[&epoch];
        self.history.is_ready(worker);
        let slot = worker.start.slot;
        let place = &self.slots[slot as usize];
        let old = place.current.filter(|_| place.successor == Some(epoch));
        let replaces = old.and_then(|old| self.workers.get(&old)).is_some_and(|old| old.is_serving);
        if replaces || self.lacks() {
            self.have_serve(epoch);
        }
        let place = &mut self.slots[slot as usize];
        let takes_place = place.successor.take_if(|successor| *successor == epoch).is_some();
        // Where another is to take its place, that is still to come.
        let reason = if place.successor.is_none() { self.replacements.finish(slot) } else { None };
        if takes_place {
            place.replacing = (RestartBackoff::default(), None);
            let old = place.current.replace(epoch);
            self.hurry_those_before(slot);
            if let Some(old) = old.and_then(|old| self.workers.get_mut(&old)) {
                old.leaves = reason.map(ReplaceReason::name);
                self.registry.drain(&old.backend);
                // One that has too much memory would have it for as long.
                let is_large = matches!(reason, Some(ReplaceReason::Memory(_)));
                let times = self.plan.times;
                old.drain(if is_large { times.without_sessions() } else { times });
            }
        }
        self.tell_of_start(&self.workers[&epoch]);
        // The last of a reload.
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
        // Behind all that clients wait for: it reads many files.
        let is_limited = self.history.groups.memory_left().is_some();
        if let Some(worker) = self.workers.get_mut(&epoch).filter(|_| is_limited) {
            worker.memory_at_start = own_memory(worker.pid);
        }
    }

    /// Of each slot one worker at the most waits for its WebSockets, however often the app is reloaded: else hours of them would be an R for each
    /// reload.
    pub(super) fn hurry_those_before(&mut self, slot: u32) {
        for worker in self.workers.values_mut().filter(|worker| worker.start.slot == slot) {
            worker.hurry(self.plan.times);
        }
    }

    fn all_are_of(&self, generation: u64) -> bool {
        self.slots.iter().filter(|slot| !slot.is_given_up).all(|slot| {
            let current = slot.current.and_then(|current| self.workers.get(&current));
            current.is_some_and(|worker| {
                worker.start.generation == generation && worker.phase == WorkerPhase::Ready
            })
        })
    }

    // ---- what is due ----

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
                // It may still start another server.
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
