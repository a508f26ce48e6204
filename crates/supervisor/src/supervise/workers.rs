//! The worker processes and their slots, which are their numbered places.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::static_files::read_announcement;
use rookery_status::{ExitReason, r_stack, r_task, thread_time};
use rookery_worker_protocol::Message;

use super::Timeouts;
use super::clock;
use super::health::{HealthAction, TaskLimit};
use super::replacing::{RecyclePolicy, ReplaceReason, Replacing};
use super::scaling::{Scaling, SlotWorker};
use super::slot::Slot;
use super::worker::{ExitedWorker, WorkerPhase, WorkerProcess, counted};
use crate::backend::Availability;
use crate::backend_registry::BackendRegistry;
use crate::process::is_stopped;

/// The period at the end of a drain in which WebSockets are closed one after the other, so that
/// their pages do not all reconnect at once.
const SESSION_CLOSE_TIME: Duration = Duration::from_secs(5);

/// The time after which the first line about the drain of a worker is logged. The interval doubles
/// with each line, because sessions may last for hours.
const FIRST_DRAIN_LOG: Duration = Duration::from_secs(5);

/// The role that an ended worker had in its slot, which is its numbered place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotRole {
    /// The ended worker had been replaced before, or the number of workers had been reduced.
    Former,
    /// The ended worker was starting and should have replaced another worker.
    Successor,
    /// The ended worker served in its slot, or was going to serve there. If `has_successor` is
    /// true, a new worker has already been started, which now takes over the slot.
    Current { has_successor: bool },
}

/// The worker processes and their slots, the numbered places that new workers take over from old
/// ones.
pub(super) struct Workers {
    /// The running worker processes by their epoch, which is the number of their start.
    processes: HashMap<u64, WorkerProcess>,
    slots: Vec<Slot>,
    registry: Arc<BackendRegistry>,
    log: fn(&str),
}

impl Workers {
    /// Creates `number` slots (numbered places of workers) and schedules the start of a worker in
    /// each of them at the time `now`.
    pub(super) fn new(
        number: u32,
        now: Instant,
        registry: Arc<BackendRegistry>,
        log: fn(&str),
    ) -> Workers {
        let slots = (0..number).map(|_| Slot::starting_at(now)).collect();
        Workers { processes: HashMap::new(), slots, registry, log }
    }

    // ---- worker processes ----

    /// Returns the running worker processes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &WorkerProcess> {
        self.processes.values()
    }

    /// Returns mutable references to the running worker processes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut WorkerProcess> {
        self.processes.values_mut()
    }

    /// Returns true if no worker process runs.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns the worker process with this epoch, which is the number of its start.
    pub(super) fn get(&self, epoch: u64) -> Option<&WorkerProcess> {
        self.processes.get(&epoch)
    }

    /// Returns a mutable reference to the worker process with this epoch (the number of its start).
    pub(super) fn get_mut(&mut self, epoch: u64) -> Option<&mut WorkerProcess> {
        self.processes.get_mut(&epoch)
    }

    /// Returns the number of worker processes that are starting.
    pub(super) fn starting(&self) -> usize {
        self.iter().filter(|it| matches!(it.phase, WorkerPhase::Starting { .. })).count()
    }

    /// Adds a worker process that has been started.
    pub(super) fn insert(&mut self, worker: WorkerProcess) {
        self.processes.insert(worker.start.epoch, worker);
    }

    /// Removes the worker process with this epoch (the number of its start), which has ended.
    pub(super) fn remove(&mut self, epoch: u64) -> Option<WorkerProcess> {
        self.processes.remove(&epoch)
    }

    // ---- slots ----

    /// Returns the slots, which are the numbered places of workers, in order.
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns the slots, which are the numbered places of workers, in order, as a mutable slice.
    pub(super) fn slots_mut(&mut self) -> &mut [Slot] {
        &mut self.slots
    }

    /// Returns a worker's slot by its number.
    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Returns a mutable reference to a worker's slot by its number.
    pub(super) fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// Returns the worker that serves or will serve in the slot with this number.
    pub(super) fn current(&self, slot: u32) -> Option<&WorkerProcess> {
        self.processes.get(&self.slot(slot).current?)
    }

    /// Returns true if the worker of the slot with this number is in service and ready.
    pub(super) fn serves(&self, slot: u32) -> bool {
        self.current(slot).is_some_and(WorkerProcess::serves)
    }

    /// Returns the numbers of the slots (the numbered places) that should have a worker.
    pub(super) fn kept_slots(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.slots).filter(|(_, slot)| !slot.is_given_up).map(|(slot, _)| slot)
    }

    /// Returns the numbers of the slots that should have a worker, each with the state of its
    /// worker, for the choice of a worker to remove.
    pub(super) fn slot_workers(&self) -> Vec<(u32, SlotWorker)> {
        let describe = |slot| match self.current(slot) {
            None => SlotWorker::Missing,
            Some(worker) => {
                let epoch = worker.start.epoch;
                match worker.phase {
                    WorkerPhase::Ready if worker.is_serving => SlotWorker::Serving {
                        is_available: worker.backend.availability() == Availability::Ready,
                        sessions: worker.backend.load().1,
                        epoch,
                    },
                    WorkerPhase::Ready => SlotWorker::Spare { epoch },
                    _ => SlotWorker::NotReady { epoch },
                }
            }
        };
        self.kept_slots().map(|slot| (slot, describe(slot))).collect()
    }

    /// Schedules the start of an additional worker now, in a free slot (a worker's numbered place)
    /// or a new one. Returns the slot's number.
    pub(super) fn add_slot(&mut self) -> u32 {
        let new = Slot::starting_at(clock::now());
        let is_free = |slot: &u32| {
            self.slot(*slot).is_given_up && self.iter().all(|it| it.start.slot != *slot)
        };
        let number = self.slots.len() as u32;
        if let Some(slot) = (0..number).find(is_free) {
            *self.slot_mut(slot) = new;
            return slot;
        }
        self.slots.push(new);
        number
    }

    /// Drains the workers of a slot (a worker's numbered place) and prevents further starts in it.
    pub(super) fn give_up(&mut self, slot: u32, timeouts: Timeouts) {
        self.shorten_drains(slot, timeouts);
        let place = self.slot_mut(slot);
        place.is_given_up = true;
        place.start_at = None;
        for epoch in place.successor.take().into_iter().chain(place.current) {
            if let Some(worker) = self.processes.get_mut(&epoch) {
                worker.exit_reason.get_or_insert(ExitReason::ScaleDown);
                self.registry.drain(&worker.backend);
                worker.drain(timeouts);
            }
        }
    }

    /// Shortens the drains of replaced workers of a slot (a worker's numbered place), so that at
    /// most one worker per slot waits long for its WebSockets. Otherwise several reloads within a
    /// few hours would leave several old R processes running.
    pub(super) fn shorten_drains(&mut self, slot: u32, timeouts: Timeouts) {
        for worker in self.iter_mut().filter(|worker| worker.start.slot == slot) {
            worker.shorten_drain(timeouts);
        }
    }

    /// Logs which sessions of older generations a reload will close: those of workers that still
    /// drain, since at most one worker of a slot (a worker's numbered place) waits long for its
    /// WebSockets.
    pub(super) fn log_sessions_to_close(&self, timeouts: Timeouts) {
        let soon = clock::now() + timeouts.drain;
        for worker in self.iter() {
            let sockets = worker.backend.load().1;
            let WorkerPhase::Draining { sessions, .. } = worker.phase else { continue };
            if sockets > 0 && sessions > soon {
                (self.log)(&format!(
                    "reloading: {} of generation {} has {}, which will be closed within {} s after \
                     the worker has been replaced again",
                    worker.name(),
                    worker.start.generation,
                    counted(sockets as u64, "session"),
                    timeouts.drain.as_secs_f64().ceil()
                ));
            }
        }
    }

    /// Returns true if no start of a worker is left to try: either all `retries` of the only slot
    /// in which a worker is started have been used up, or a start has failed with an error of the
    /// configuration. Applies only while no worker has ever been ready.
    pub(super) fn has_no_start_left(&self, retries: u32) -> bool {
        let first = self.kept_slots().next();
        first.is_none_or(|slot| self.slot(slot).has_no_start_left(retries))
            || self.slots.iter().any(Slot::is_misconfigured)
    }

    /// Returns true if all workers end repeatedly without having answered a request.
    pub(super) fn is_crash_loop(&self, now: Instant) -> bool {
        self.kept_slots().filter(|slot| self.slot(*slot).was_started).all(|slot| {
            let current = self.current(slot);
            let life =
                current.map_or(Duration::ZERO, |worker| now.duration_since(worker.started_at));
            self.slot(slot).is_in_crash_loop(life)
                && current.is_none_or(|worker| worker.backend.responses() == 0)
        })
    }

    /// Returns true if all workers are ready and belong to this `generation`, which is the number
    /// of reloads that had begun when a worker was started.
    pub(super) fn is_all_of_generation(&self, generation: u64) -> bool {
        self.kept_slots().all(|slot| {
            self.current(slot).is_some_and(|worker| {
                worker.start.generation == generation && worker.phase == WorkerPhase::Ready
            })
        })
    }

    /// Returns true if the memory suffices for a new worker beside the old one in a slot (a
    /// worker's numbered place). The new worker is expected to need as much memory as the old one
    /// had when it became ready. `memory_left` returns the memory that the control group has left.
    /// Logs a line if the memory does not suffice.
    pub(super) fn has_memory_for_successor(
        &self,
        slot: u32,
        reason: ReplaceReason,
        memory_left: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let current = self.current(slot);
        let Some(needed) = current.and_then(|worker| worker.memory_at_start) else { return true };
        let Some(left) = memory_left() else { return true };
        if needed <= left {
            return true;
        }
        (self.log)(&format!(
            "worker {slot} is replaced without overlap ({reason}): a second R process takes about \
             {} MB, and the control group has {} MB left",
            needed / 1_000_000,
            left / 1_000_000
        ));
        false
    }

    /// Lets a new worker that is ready take the place of the old one in a slot, and drains the old
    /// one. `successor` is the epoch of the new worker (the number of its start), and `reason` the
    /// reason of the replacement.
    pub(super) fn replace_current(
        &mut self,
        slot: u32,
        successor: u64,
        reason: Option<ReplaceReason>,
        timeouts: Timeouts,
    ) {
        let old = self.slot_mut(slot).current.replace(successor);
        self.shorten_drains(slot, timeouts);
        let Some(old) = old.and_then(|old| self.processes.get_mut(&old)) else { return };
        old.exit_reason = reason.map(ReplaceReason::exit_reason);
        self.registry.drain(&old.backend);
        // A worker that exceeds its memory limit must not keep the memory for as long as its
        // WebSockets last.
        let is_large = matches!(reason, Some(ReplaceReason::Memory(_)));
        old.drain(if is_large { timeouts.without_sessions() } else { timeouts });
    }

    /// Drains the worker of a slot (its numbered place). Its replacement is started only after the
    /// drained worker has ended.
    pub(super) fn drain_current(&mut self, slot: u32, reason: ReplaceReason, timeouts: Timeouts) {
        let current = self.slot(slot).current;
        let Some(old) = current.and_then(|current| self.processes.get_mut(&current)) else {
            return;
        };
        old.exit_reason = Some(reason.exit_reason());
        self.registry.drain(&old.backend);
        // No other worker serves in the slot until the old one has ended, so WebSockets get no
        // extra time.
        old.drain(timeouts.without_sessions());
    }

    /// Stops the workers that are not ready yet, for a reload.
    pub(super) fn stop_starting(&mut self, timeouts: Timeouts) {
        for worker in self.processes.values_mut() {
            if matches!(worker.phase, WorkerPhase::Starting { .. }) {
                worker.exit_reason = Some(ExitReason::Reload);
                worker.stop(timeouts.stop);
            }
        }
    }

    /// Removes an ended worker from its slot (its numbered place), and returns its role there.
    pub(super) fn leave_slot(&mut self, exited: &ExitedWorker) -> SlotRole {
        let (slot, epoch) = (exited.process.start.slot, exited.process.start.epoch);
        let place = self.slot_mut(slot);
        if place.is_given_up {
            place.current.take_if(|current| *current == epoch);
            return SlotRole::Former;
        }
        if place.successor == Some(epoch) {
            place.successor = None;
            return SlotRole::Successor;
        }
        if place.current != Some(epoch) {
            if exited.has_answered() {
                // The worker served until it was replaced, so earlier failures are no crash loop.
                place.reset_backoff();
            }
            return SlotRole::Former;
        }
        place.current = place.successor.take();
        SlotRole::Current { has_successor: place.current.is_some() }
    }

    // ---- service ----

    /// Returns true if fewer workers serve than should.
    pub(super) fn is_short_of_workers(&self, scaling: &Scaling) -> bool {
        scaling.is_short_of_workers(self.iter().filter(|worker| worker.serves()).count())
    }

    /// Puts the ready worker with this epoch (the number of its start) into service, so that it
    /// gets requests.
    pub(super) fn put_into_service(&mut self, epoch: u64) {
        if let Some(worker) = self.processes.get_mut(&epoch) {
            worker.is_serving = true;
            self.registry.add(&worker.backend);
        }
    }

    /// Puts spares (started workers held in reserve) into service while too few workers serve,
    /// beginning with those that were started after the latest reload.
    pub(super) fn start_spares(&mut self, scaling: &Scaling) {
        while self.is_short_of_workers(scaling) {
            let spares = self.slots.iter().filter_map(|slot| self.get(slot.current?));
            let spares = spares.filter(|it| {
                it.phase == WorkerPhase::Ready && !it.is_serving && !it.health.is_suspended()
            });
            let spare = spares.max_by_key(|it| (it.start.generation, Reverse(it.start.slot)));
            let Some(spare) = spare else { return };
            let (epoch, name) = (spare.start.epoch, spare.name());
            self.put_into_service(epoch);
            (self.log)(&format!("{name}, a spare, now serves requests"));
        }
    }

    // ---- timers ----

    /// Stops or kills the workers whose time for their current phase is over, and closes the
    /// WebSockets of workers whose drain ends soon.
    pub(super) fn check_deadlines(&mut self, now: Instant, timeouts: Timeouts) {
        for worker in self.processes.values_mut() {
            match worker.phase {
                WorkerPhase::Starting { until } if now >= until => {
                    let time = timeouts.start.as_secs_f64();
                    (self.log)(&format!(
                        "{} was not ready within {time} s: it is stopped",
                        worker.name()
                    ));
                    worker.exit_reason = Some(ExitReason::StartTimeout);
                    worker.stop(timeouts.stop);
                }
                // The app may still start another server.
                WorkerPhase::Draining { until, .. }
                    if worker.is_between_servers() && now < until => {}
                WorkerPhase::Draining { .. } if worker.is_between_servers() => {
                    worker.exit_reason = Some(ExitReason::StartTimeout);
                    worker.stop(timeouts.stop);
                }
                WorkerPhase::Draining { until, sessions } => {
                    let has_sessions = worker.backend.load().1 > 0;
                    let is_over = now >= until && (now >= sessions || !has_sessions);
                    let within =
                        SESSION_CLOSE_TIME.min(timeouts.sessions.unwrap_or(timeouts.drain) / 2);
                    let left = sessions.saturating_duration_since(now);
                    if is_over {
                        worker.stop(timeouts.stop);
                    } else if worker.is_idle() {
                        // R may still handle the end of a WebSocket.
                        worker.finish(timeouts.stop, Some(until));
                    } else if left <= within {
                        self.registry.close_sessions(&worker.backend, left);
                    }
                }
                WorkerPhase::Stopping { until, .. } if now >= until => worker.kill(),
                WorkerPhase::Stopping { interrupt: Some(at), .. } if now >= at => {
                    worker.interrupt();
                }
                _ => {}
            }
        }
    }

    /// Logs what each draining worker waits for.
    pub(super) fn log_drains(&mut self, now: Instant) {
        for worker in self.processes.values_mut().filter(|worker| !worker.is_between_servers()) {
            let WorkerPhase::Draining { until, sessions } = worker.phase else { continue };
            if !worker.drain_log.tick_doubling(now, FIRST_DRAIN_LOG) {
                continue;
            }
            let (requests, sockets) = worker.backend.load();
            let until = if sockets > 0 { until.max(sessions) } else { until };
            (self.log)(&format!(
                "{} is draining: waiting for {} and {}, at most {:.0} s",
                worker.name(),
                counted(requests as u64, "request"),
                counted(sockets as u64, "WebSocket"),
                until.saturating_duration_since(now).as_secs_f64().ceil()
            ));
        }
    }

    // ---- health ----

    /// Checks the health of all workers and carries out what the checks require: suspends, stops or
    /// kills workers that do not respond, and puts spares into service in their place.
    pub(super) fn check_health(&mut self, now: Instant, timeouts: Timeouts, scaling: &Scaling) {
        for worker in self.processes.values_mut() {
            if worker.backend.is_violating() {
                let actions = worker.health.check_violation(worker.name());
                carry_out(worker, actions, &self.registry, self.log, timeouts);
            }
        }
        for worker in self.processes.values_mut().filter(|it| it.phase == WorkerPhase::Ready) {
            let (name, pid) = (worker.name(), worker.pid);
            let actions = worker.health.check_pings(name, now, || is_stopped(pid));
            carry_out(worker, actions, &self.registry, self.log, timeouts);
        }
        if let Some(time) = timeouts.busy {
            let limit = TaskLimit { time, interrupts: timeouts.interrupts };
            for worker in self.processes.values_mut().filter(|it| it.phase == WorkerPhase::Ready) {
                let (seen, pid) = (worker.observe(now), worker.pid);
                let actions = worker.health.check_task_limit(limit, &seen, || is_stopped(pid));
                carry_out(worker, actions, &self.registry, self.log, timeouts);
            }
            self.start_spares(scaling);
        }
        for worker in self.processes.values_mut() {
            if !matches!(worker.phase, WorkerPhase::Ready | WorkerPhase::Draining { .. }) {
                continue;
            }
            let (seen, pid) = (worker.observe(now), worker.pid);
            let backend = Arc::clone(&worker.backend);
            let line = worker.health.check_slow_log(
                timeouts.slow.unwrap_or(Duration::MAX),
                &seen,
                || thread_time(pid, seen.scoreboard.r_thread),
                || r_task(&backend.scoreboard),
                || r_stack(&backend.scoreboard),
            );
            let mut actions = Vec::from_iter(line);
            if worker.phase == WorkerPhase::Ready {
                actions.extend(worker.health.check_lost_wakeup(&seen));
            }
            carry_out(worker, actions, &self.registry, self.log, timeouts);
        }
    }

    /// Queues the replacement of workers that have reached a limit of the recycle `policy`, and
    /// makes R collect garbage in workers that have exceeded their memory limit and may soon be
    /// replaced. `most` is the maximum number of workers that run at the same time.
    pub(super) fn check_recycling(
        &mut self,
        policy: &RecyclePolicy,
        replacing: &mut Replacing,
        most: u32,
        now: Instant,
    ) {
        for (slot, place) in (0..).zip(&self.slots) {
            let current = place.current.and_then(|current| self.processes.get_mut(&current));
            let Some(worker) = current.filter(|_| replacing.may_replace(slot, now)) else {
                continue;
            };
            if worker.phase == WorkerPhase::Ready {
                let usage = worker.usage(now);
                if let Some(reason) = policy.reason(usage, &mut worker.memory_watch, most, now) {
                    (self.log)(&format!("{} is replaced: {reason}", worker.name()));
                    replacing.add(slot, reason);
                }
            }
            if worker.memory_watch.take_collection_request() {
                worker.send(Message::Collect);
            }
        }
    }

    /// Applies the static paths that a worker has announced. Sends the worker a confirmation, for
    /// which its R process waits. If the announcement is malformed, none of the paths is served.
    pub(super) fn on_announcement(&mut self, epoch: u64) {
        let Some(worker) = self.get(epoch) else { return };
        let Some((number, bytes)) = worker.take_announcement() else { return };
        let paths = read_announcement(&bytes).unwrap_or_default();
        self.registry.set_static_paths(&worker.backend, paths);
        worker.send(Message::Applied(number));
    }

    /// Adds the errors that a worker has reported to the last errors of all workers.
    pub(super) fn on_errors(&self, epoch: u64) {
        let Some(worker) = self.get(epoch) else { return };
        for report in worker.take_errors() {
            self.registry.errors.add(worker.backend.slot, worker.pid, report);
        }
    }

    /// Handles a worker's response to a ping. Returns true if the response has ended the suspension
    /// of the worker.
    pub(super) fn on_pong(&mut self, epoch: u64, ping: u64, timeouts: Timeouts) -> bool {
        let Some(worker) = self.processes.get_mut(&epoch) else { return false };
        let actions = worker.health.on_pong(worker.name(), ping);
        let was_suspended = !actions.is_empty();
        carry_out(worker, actions, &self.registry, self.log, timeouts);
        was_suspended
    }
}

/// Carries out the actions that a health check of this worker requires, in order.
fn carry_out(
    worker: &mut WorkerProcess,
    actions: Vec<HealthAction>,
    registry: &BackendRegistry,
    log: fn(&str),
    timeouts: Timeouts,
) {
    for action in actions {
        match action {
            HealthAction::Send(message) => worker.send(message),
            HealthAction::Log(line) => log(&line),
            HealthAction::Suspend => registry.suspend(&worker.backend),
            HealthAction::Resume => registry.resume(&worker.backend),
            HealthAction::TimeOutRequests => registry.time_out(&worker.backend),
            HealthAction::Stop(reason, within) => {
                worker.exit_reason = Some(reason);
                worker.finish(within.min(timeouts.stop), None);
            }
            HealthAction::Kill(reason) => {
                worker.exit_reason = Some(reason);
                worker.kill();
            }
        }
    }
}
