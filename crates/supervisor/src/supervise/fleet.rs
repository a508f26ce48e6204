//! The fleet: all workers of a server. This module starts, replaces and stops them.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use rookery_status::{ExitReason, RunFolder, last_r_task, own_memory};
use rookery_worker_protocol::Message;
use tokio::sync::mpsc::UnboundedSender;

use super::clock;
use super::launcher::{Launch, Launcher};
use super::preload::Preload;
use super::replacing::{ReplaceReason, ReplacedWorker, ReplacementStep};
use super::reporting::{RecentFailures, ReportHistory};
use super::rollout::Rollout;
use super::scaling::Scaling;
use super::slot::{Slot, WorkerFailure};
use super::worker::{
    ExitedWorker, OutputTasks, WarmupResult, WorkerEvent, WorkerPhase, WorkerProcess,
};
use super::workers::{SlotRole, Workers};
use super::{Frontend, Outcome, SupervisorConfig, SupervisorEvent};
use crate::backend_registry::BackendRegistry;
use crate::process::{ControlGroups, ProcessEnd};

mod development;
mod number_of_workers;
mod report;

/// The fleet: all workers of a server, with the configuration that they are started with.
pub(super) struct Fleet<'a> {
    pub(super) config: SupervisorConfig,
    registry: Arc<BackendRegistry>,
    frontend: &'a dyn Frontend,
    workers: Workers,
    rollout: Rollout<'a>,
    launcher: Launcher,
    /// The number of processors, which is the maximum number of workers that start at a time.
    processors: usize,
    preload: Preload,
    history: ReportHistory,
    /// Whether any worker of the server has ever been ready.
    was_ready: bool,
    failures: RecentFailures,
    output_tasks: OutputTasks,
    /// The outcome with which the supervisor ends when no worker is left. It is set when the
    /// supervisor stops all workers.
    outcome: Option<Outcome>,
}

impl<'a> Fleet<'a> {
    /// Creates the slots (the numbered places) of the workers, and the folder of their files. The
    /// workers themselves are started by [`start_due`](Self::start_due), and their events are sent
    /// to `events`.
    pub(super) fn new(
        config: SupervisorConfig,
        registry: Arc<BackendRegistry>,
        frontend: &'a dyn Frontend,
        events: UnboundedSender<WorkerEvent>,
        now: Instant,
    ) -> io::Result<Fleet<'a>> {
        let folder = RunFolder::create(&config.folder)?;
        let slots = config.workers + config.spares;
        let mut launcher = Launcher::new(folder, events);
        if config.is_dev {
            // A failure is shown after each change of the app, also if it is the same again.
            launcher.on_first_ready();
        }
        Ok(Fleet {
            workers: Workers::new(slots, now, Arc::clone(&registry), config.log),
            rollout: Rollout::new(Scaling::new(config.workers, config.spares), frontend),
            launcher,
            processors: available_parallelism().map_or(1, NonZero::get),
            preload: Preload::default(),
            history: ReportHistory::new(ControlGroups::default()),
            was_ready: false,
            failures: RecentFailures::default(),
            output_tasks: OutputTasks::default(),
            outcome: None,
            config,
            registry,
            frontend,
        })
    }

    /// Logs a line for the operator.
    fn log(&self, line: &str) {
        (self.config.log)(line);
    }

    /// Returns the worker processes and their slots, which are their numbered places.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Returns the launcher, which starts the workers.
    pub(super) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Returns the number of workers that should serve.
    pub(super) fn wanted(&self) -> u32 {
        self.rollout.scaling.wanted()
    }

    /// Returns true if any worker of the server has ever been ready.
    pub(super) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Returns true if no worker is starting or about to end, and no start is scheduled. A worker
    /// that still drains only because of its WebSockets does not count.
    pub(super) fn is_settled(&self) -> bool {
        self.workers.slots().iter().all(|slot| slot.start_at.is_none())
            && self.workers.iter().all(WorkerProcess::is_settled)
    }

    // ---- end of the server ----

    /// Returns the outcome with which the supervisor ends when no worker is left. Returns `None`
    /// until the supervisor stops all workers.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Stops all workers, so that the supervisor ends with `outcome` when none is left. Until the
    /// time `until`, R may finish its current task. A second call has no effect.
    pub(super) fn end(&mut self, outcome: Outcome, until: Instant) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            self.registry.refuse_requests();
            self.preload.discard();
            for worker in self.workers.iter_mut() {
                worker.exit_reason.get_or_insert(ExitReason::ServerStop);
                self.registry.drain(&worker.backend);
                if clock::now() < until {
                    worker.finish(self.config.times.stop, Some(until));
                } else {
                    worker.stop(self.config.times.stop);
                }
            }
        }
    }

    /// Kills all workers.
    pub(super) fn kill_all(&mut self) {
        self.workers.iter_mut().for_each(WorkerProcess::kill);
    }

    /// Cancels the scheduled starts of workers.
    pub(super) fn cancel_starts(&mut self) {
        for slot in self.workers.slots_mut() {
            slot.start_at = None;
        }
    }

    /// Waits for a limited time until the last output of ended workers has been forwarded.
    pub(super) async fn forward_output(&mut self) {
        self.output_tasks.finish().await;
    }

    /// Returns true if no worker has ever been ready and no start is left to try, because all
    /// retries have been used up or because a start has failed with an error of the configuration.
    fn is_hopeless(&self) -> bool {
        !self.was_ready
            && !self.config.is_dev
            && self.workers.has_no_start_left(self.config.start_retries)
    }

    /// Ends the server if [`SupervisorConfig::fails_fast`](crate::SupervisorConfig::fails_fast) is
    /// true and all workers end repeatedly without having answered a request.
    fn end_if_crash_loop(&mut self, now: Instant) {
        if self.config.fails_fast && self.workers.is_crash_loop(now) {
            self.end(Outcome::CrashLoop, now);
        }
    }

    // ---- starts ----

    /// Starts the workers whose start time has come. Until a worker has been ready, only the first
    /// one is started, and after that at most one per processor at a time. Otherwise an app whose
    /// start needs much processor time would exceed the start timeout in all workers.
    pub(super) fn start_due(&mut self, now: Instant) {
        if self.preload.take_due(now) {
            self.start_preloaded();
        }
        let slots = if self.was_ready { usize::MAX } else { 1 };
        let slots: Vec<u32> = self.workers.kept_slots().take(slots).collect();
        let mut left = self.processors.saturating_sub(self.workers.starting());
        for slot in slots {
            if left > 0 && self.workers.slot(slot).start_at.is_some_and(|at| now >= at) {
                self.workers.slot_mut(slot).start_at = None;
                let started = self.start(slot);
                self.workers.slot_mut(slot).current = started;
                left -= 1;
            }
        }
    }

    /// Starts a worker in a slot (a worker's numbered place) and returns its epoch, which is the
    /// number of the start. If the start fails, returns `None` and schedules another start after a
    /// pause.
    fn start(&mut self, slot: u32) -> Option<u64> {
        let (serving, spares) = self.rollout.scaling.after_reload();
        let launch =
            Launch { slot, generation: self.rollout.replacing.generation(), serving, spares };
        self.history.on_start(slot);
        self.workers.slot_mut(slot).was_started = true;
        if let Some(worker) = self.preload.take(slot, launch.generation, self.config.times) {
            let epoch = worker.start.epoch;
            self.workers.insert(worker);
            return Some(epoch);
        }
        let error = match self.launcher.start(launch, None, &self.config) {
            Ok(worker) => {
                let epoch = worker.start.epoch;
                self.workers.insert(worker);
                return Some(epoch);
            }
            Err(error) => error,
        };
        (self.config.warn)(&format!("worker {slot} cannot be started: {error}"));
        let now = clock::now();
        self.workers.slot_mut(slot).on_start_error(self.launcher.starts(), now);
        if self.is_hopeless() {
            self.end(Outcome::NeverReady, now);
        }
        self.end_if_crash_loop(now);
        None
    }

    // ---- messages of workers ----

    /// Handles a message from the worker with this epoch, which is the number of its start.
    /// Messages that do not fit the worker's phase are ignored.
    pub(super) fn on_message(&mut self, epoch: u64, message: Message) {
        if let Message::Pong(ping) = message {
            // A spare that was suspended until now may still be needed.
            if self.workers.on_pong(epoch, ping, self.config.times) {
                self.workers.start_spares(&self.rollout.scaling);
            }
            return;
        }
        let Some(worker) = self.workers.get_mut(epoch) else { return };
        match message {
            Message::Ready { is_sticky, sees_heads }
                if matches!(worker.phase, WorkerPhase::Starting { .. }) =>
            {
                worker.backend.set_sticky(is_sticky);
                worker.backend.set_sees_heads(sees_heads);
                if self.config.warmup.is_empty() {
                    worker.become_ready(self.registry.tracer());
                    self.on_ready(epoch);
                } else {
                    worker.warm_up(&self.config.warmup, self.launcher.events());
                }
            }
            Message::Leaving if worker.phase == WorkerPhase::Ready => {
                // The worker is about to exit, or its app is about to start another server.
                worker.exit_reason.get_or_insert(ExitReason::AppStop);
                self.registry.suspend(&worker.backend);
                let until = clock::now() + self.config.times.start;
                worker.phase = WorkerPhase::Draining { until, sessions: until };
                self.workers.start_spares(&self.rollout.scaling);
            }
            Message::Ready { is_sticky, sees_heads } if worker.is_between_servers() => {
                worker.backend.set_sticky(is_sticky);
                worker.backend.set_sees_heads(sees_heads);
                (worker.phase, worker.exit_reason) = (WorkerPhase::Ready, None);
                self.registry.resume(&worker.backend);
            }
            _ => {}
        }
    }

    /// Applies the static paths that a worker has announced.
    pub(super) fn on_announcement(&mut self, epoch: u64) {
        self.workers.on_announcement(epoch);
    }

    /// Returns how often the start of a worker has failed in the same slot.
    pub(super) fn failed_starts(&self) -> u32 {
        self.workers.slots().iter().map(Slot::failed_starts).max().unwrap_or_default()
    }

    /// Adds the errors that a worker has reported to the last errors.
    pub(super) fn on_errors(&self, epoch: u64) {
        self.workers.on_errors(epoch);
    }

    /// Handles the result of a worker's warm-up, which makes the worker ready or stops it.
    pub(super) fn on_warmed_up(&mut self, epoch: u64, result: WarmupResult) {
        let Some(worker) = self.workers.get_mut(epoch) else { return };
        // The worker may have been stopped during the warm-up, for example because it took too
        // long.
        if !matches!(worker.phase, WorkerPhase::Starting { .. }) {
            return;
        }
        let name = worker.name();
        match result {
            WarmupResult::Succeeded(warnings) => {
                worker.become_ready(self.registry.tracer());
                for warning in warnings {
                    self.log(&format!("the warm-up of {name}: {warning}"));
                }
                self.on_ready(epoch);
            }
            WarmupResult::Failed(reason) => {
                worker.exit_reason = Some(ExitReason::Warmup);
                worker.stop(self.config.times.stop);
                (self.config.warn)(&format!(
                    "the warm-up of {name} has failed: {reason}. The worker is stopped"
                ));
            }
        }
    }

    /// Puts a worker that has become ready into service or reserve, and drains the worker that it
    /// replaces.
    fn on_ready(&mut self, epoch: u64) {
        let Some(worker) = self.workers.get(epoch) else { return };
        self.history.on_ready(worker);
        let slot = worker.start.slot;
        let is_successor = self.workers.slot(slot).successor == Some(epoch);
        let replaces = is_successor && self.workers.current(slot).is_some_and(|old| old.is_serving);
        if replaces || self.workers.is_short_of_workers(&self.rollout.scaling) {
            self.workers.put_into_service(epoch);
        }
        let place = self.workers.slot_mut(slot);
        place.successor.take_if(|_| is_successor);
        let is_last = place.successor.is_none();
        let reason = self.rollout.replacing.on_ready(slot, is_last);
        if is_successor {
            self.rollout.replacing.reset_backoff(slot);
            self.workers.replace_current(slot, epoch, reason, self.config.times);
        }
        if let Some(worker) = self.workers.get(epoch) {
            self.log(&worker.ready_line());
        }
        let is_reloaded = self.rollout.log_completed_reload(&self.workers, self.config.log);
        let is_first = !std::mem::replace(&mut self.was_ready, true);
        if is_first {
            self.launcher.on_first_ready();
            let app = self.workers.get(epoch).and_then(WorkerProcess::app);
            self.frontend.on_ready(app.as_deref());
        }
        if is_first || is_reloaded {
            self.frontend.on_event(SupervisorEvent::AppReady);
            if self.config.is_dev {
                self.preload.schedule(clock::now(), self.rollout.replacing.generation());
            }
        }
        // Measured last, because it reads many files and clients should not wait for that.
        let is_limited = self.history.memory_left().is_some();
        if let Some(worker) = self.workers.get_mut(epoch).filter(|_| is_limited) {
            worker.memory_at_start = own_memory(worker.pid);
        }
    }

    // ---- ends of workers ----

    /// Removes the worker process with this epoch (the number of its start), which has ended. The
    /// caller must then pass the process to [`on_exit`](Self::on_exit).
    pub(super) fn remove(&mut self, epoch: u64) -> Option<WorkerProcess> {
        self.preload.on_exit(epoch);
        self.workers.remove(epoch)
    }

    /// Handles the end of a worker process that has been removed, and schedules the start of
    /// another one in its place where needed. Returns the outcome with which the server has to end,
    /// or `None` if it continues.
    pub(super) fn on_exit(
        &mut self,
        mut process: WorkerProcess,
        end: ProcessEnd,
    ) -> Option<Outcome> {
        let route = last_r_task(&process.backend.scoreboard);
        // Early, because requests that the worker had in flight wait for this.
        // Before the pool closes the worker's WebSockets, which are counted.
        let reason = self.history.on_exit(&process, end.exit);
        self.registry.remove(&process.backend);
        process.on_start_end(self.registry.tracer(), reason);
        let now = clock::now();
        let is_failed_start = self.config.is_dev
            && process.has_failed_to_start()
            && process.start.generation == self.rollout.replacing.generation();
        let report = if is_failed_start { process.start_report() } else { None };
        self.output_tasks.add(process.clean_up(), now);
        if self.outcome.is_some() {
            return None;
        }
        if process.is_serving {
            self.workers.start_spares(&self.rollout.scaling);
        }
        let slot = process.start.slot;
        let exited = ExitedWorker { process, end, reason, route };
        let role = self.workers.leave_slot(&exited);
        if is_failed_start && self.on_failed_start(&exited, role, report.as_ref()) {
            return None;
        }
        let has_successor = match role {
            SlotRole::Former => {
                self.log(&exited.requested_exit_line());
                return None;
            }
            SlotRole::Successor => {
                if let Some(reason) = self.rollout.on_successor_exit(&exited, self.config.warn) {
                    self.drain_first(slot, reason);
                }
                return None;
            }
            SlotRole::Current { has_successor } => has_successor,
        };
        let outcome = exited.outcome(self.config.restarts, self.was_ready);
        if has_successor && outcome.is_none() {
            // The starting replacement will serve as soon as it is ready, which completes the
            // replacement.
            self.failures.add(now);
            (self.config.warn)(&exited.replaced_line());
        } else if self.rollout.on_exit(&exited, self.config.warn) {
            self.workers.slot_mut(slot).start_at = Some(now);
            self.log(&exited.requested_exit_line());
        } else if outcome.is_some() {
            (self.config.warn)(&exited.last_line());
            return outcome;
        } else {
            self.failures.add(now);
            self.restart(&exited, now);
        }
        None
    }

    /// Schedules the start of another worker process in place of a failed one, or ends the server
    /// if no start is left to try.
    fn restart(&mut self, exited: &ExitedWorker, now: Instant) {
        let is_starting = matches!(exited.process.phase, WorkerPhase::Starting { .. });
        let failure = WorkerFailure {
            epoch: exited.process.start.epoch,
            life: now.duration_since(exited.process.started_at),
            has_answered: exited.has_answered(),
            is_failed_start: is_starting || !self.was_ready,
            exit: exited.exit(),
        };
        let place = self.workers.slot_mut(exited.process.start.slot);
        let pause = place.on_failure(failure, now);
        let starts = place.failed_starts();
        if self.config.is_dev && exited.process.has_failed_to_start() {
            place.start_at = None;
            self.rollout.fail_reload(exited.failed_start());
            return self.log(&format!(
                "{}: it is started again when a file of the app changes",
                exited.failed_start()
            ));
        }
        if self.is_hopeless() {
            (self.config.warn)(&exited.never_ready_line(starts));
            return self.end(Outcome::NeverReady, now);
        }
        // All workers usually fail in the same way, so one line is logged for each round of starts,
        // and none for the last round.
        let slots = self.workers.slots().iter();
        let failed_as_often = slots.filter(|slot| slot.failed_starts() >= starts).count();
        if self.was_ready || (failed_as_often <= 1 && starts <= self.config.start_retries) {
            (self.config.warn)(&exited.restart_line(pause.time));
            if pause.is_new_loop {
                (self.config.warn)(&exited.crash_loop_line());
            }
        }
        self.end_if_crash_loop(now);
    }

    /// Returns the number of workers that failed within the last minute.
    pub(super) fn recent_failures(&mut self, now: Instant) -> usize {
        self.failures.expire(now)
    }

    // ---- timers ----

    /// Stops workers and closes WebSockets that have exceeded their time limits. Also stops reading
    /// the output of workers that have ended, after a time limit.
    pub(super) fn check_deadlines(&mut self, now: Instant) {
        self.workers.check_deadlines(now, self.config.times);
        self.output_tasks.expire(now);
    }

    /// Logs what each draining worker waits for.
    pub(super) fn log_drains(&mut self, now: Instant) {
        self.workers.log_drains(now);
    }

    /// Checks the health of all workers, and then whether they have to be recycled.
    pub(super) fn check_workers(&mut self, now: Instant) {
        let (config, Rollout { scaling, replacing, .. }) = (&self.config, &mut self.rollout);
        self.workers.check_health(now, config.times, scaling);
        let most = scaling.wanted() + scaling.spares() + u32::from(config.surges);
        self.workers.check_recycling(&config.recycle, replacing, most, now);
    }

    // ---- replacements ----

    /// Begins queued replacements of workers until one is in progress or has to wait.
    pub(super) fn replace_next(&mut self) {
        loop {
            let (workers, Rollout { scaling, replacing, .. }) = (&self.workers, &mut self.rollout);
            let step = replacing.next(self.config.surges, |slot| ReplacedWorker {
                exists: workers.slot(slot).current.is_some(),
                serves: workers.serves(slot),
                is_short_of_workers: workers.is_short_of_workers(scaling),
            });
            match step {
                None => return,
                Some(ReplacementStep::StartWorker(slot)) => {
                    self.workers.slot_mut(slot).start_at = Some(clock::now());
                }
                Some(ReplacementStep::StartBesideOld(slot, reason)) => {
                    let memory_left = || self.history.memory_left();
                    if self.workers.has_memory_for_successor(slot, reason, memory_left) {
                        self.start_successor(slot);
                    } else {
                        self.drain_first(slot, reason);
                    }
                }
                Some(ReplacementStep::DrainFirst(slot, reason)) => self.drain_first(slot, reason),
            }
        }
    }

    /// Starts a new worker in a slot (a worker's numbered place) while the old one still serves
    /// there. Once the new worker is ready, it replaces the old one.
    fn start_successor(&mut self, slot: u32) {
        let successor = self.start(slot);
        let place = self.workers.slot_mut(slot);
        place.successor = successor;
        if successor.is_none() {
            place.start_at = None;
            if self.rollout.replacing.on_start_failed(slot) {
                let failure = format!("the new worker {slot} cannot be started");
                (self.config.warn)(&format!(
                    "the reload has failed: {failure}. The previous workers keep serving"
                ));
                self.rollout.fail_reload(failure);
            }
        }
    }

    /// Drains the worker of a slot (a worker's numbered place) for its replacement. The new worker
    /// is started when the old one has ended.
    fn drain_first(&mut self, slot: u32, reason: ReplaceReason) {
        self.workers.drain_current(slot, reason, self.config.times);
        self.workers.start_spares(&self.rollout.scaling);
    }

    // ---- reloads ----

    /// Sets another configuration for the workers that are started from now on. Its numbers of
    /// workers and spares take effect when the reload that follows has succeeded.
    pub(super) fn set_config(&mut self, config: SupervisorConfig) {
        self.rollout.scaling.request(config.workers, config.spares);
        // It was started with the former settings.
        self.preload.discard();
        let before = &mut self.config;
        self.config = SupervisorConfig {
            folder: std::mem::take(&mut before.folder),
            files: before.files,
            log: before.log,
            warn: before.warn,
            is_on_terminal: before.is_on_terminal,
            ..config
        };
    }

    /// Begins a reload, which replaces all workers one after the other.
    pub(super) fn reload(&mut self) {
        if self.config.is_dev {
            // Workers that are starting have read the former files.
            self.workers.stop_starting(self.config.times);
        }
        self.workers.log_sessions_to_close(self.config.times);
        self.rollout.begin_reload(&self.workers, self.config.surges, self.config.log);
    }

    /// Refuses a reload: logs the reason and counts the reload as failed. A reload in progress
    /// continues.
    pub(super) fn refuse_reload(&mut self, reason: String) {
        self.rollout.refuse_reload(reason, self.config.warn);
    }

    /// Reports that the reload has ended, if no worker remains to be replaced for it.
    pub(super) fn complete_reload(&mut self) {
        self.rollout.complete_reload();
    }
}
