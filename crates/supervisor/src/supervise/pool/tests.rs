use std::cell::Cell;
use std::time::Duration;

use rookery_status::ExitReason;
use rookery_worker_protocol::Message;

use super::*;
use crate::process::{Exit, WorkerStart};
use crate::supervise::worker::{WorkerAction, WorkerPhase};

const TIMES: Timeouts = Timeouts {
    start: Duration::from_secs(60),
    drain: Duration::from_secs(60),
    sessions: Some(Duration::from_secs(600)),
    stop: Duration::from_secs(15),
    busy: None,
    slow: None,
    interrupts: false,
    delay: Duration::ZERO,
};
const REQUESTS: ReplaceReason = ReplaceReason::Requests(5);
const FAILED: Exit = Exit::Status(1);

/// A process that only records what it is told.
#[derive(Debug, Default)]
struct Fake {
    is_in_service: Cell<bool>,
    is_suspended: Cell<bool>,
    is_asked_to_end: Cell<bool>,
    sessions: Cell<usize>,
    responses: Cell<u64>,
}

impl Handle for Fake {
    fn send(&self, message: Message) {
        assert!(matches!(message, Message::Stop | Message::Drain));
        self.is_asked_to_end.set(true);
    }

    fn signal(&self, _signal: libc::c_int) {
        self.is_asked_to_end.set(true);
    }

    fn enter_service(&self) {
        assert!(!self.is_in_service.replace(true), "a worker enters service once");
    }

    fn leave_service(&self) {
        self.is_in_service.set(false);
    }

    fn is_available(&self) -> bool {
        !self.is_suspended.get()
    }

    fn load(&self) -> (usize, usize) {
        (0, self.sessions.get())
    }

    fn responses(&self) -> u64 {
        self.responses.get()
    }
}

/// A pool whose decisions are carried out as the app does it, with workers that become ready and
/// end when the test says so.
struct Model {
    pool: Pool<Fake>,
    now: Instant,
    surges: bool,
    starts: u64,
    was_ready: bool,
    /// Whether the next start of a process fails.
    is_start_refused: bool,
}

impl Model {
    fn new(workers: u32, spares: u32, surges: bool) -> Model {
        let now = Instant::now();
        let pool = Pool::new(workers, spares, now);
        Model { pool, now, surges, starts: 0, was_ready: false, is_start_refused: false }
    }

    /// Returns a pool whose workers have all become ready.
    fn ready(workers: u32, spares: u32, surges: bool) -> Model {
        let mut model = Model::new(workers, spares, surges);
        model.settle();
        model
    }

    fn worker(&mut self, slot: u32, generation: u64) -> Worker<Fake> {
        self.starts += 1;
        let start = WorkerStart { slot, workers: 0, serving: 0, epoch: self.starts, generation };
        Worker::new(start, Fake::default(), self.now, TIMES.start)
    }

    fn spawn(&mut self, number: u32) -> Option<Worker<Fake>> {
        let generation = self.pool.generation();
        let (now, is_refused) = (self.now, std::mem::take(&mut self.is_start_refused));
        let slot = self.pool.slot_mut(number).unwrap();
        slot.starts += 1;
        slot.generation = generation;
        let gated = slot.reserve.as_ref().filter(|it| it.is_gated());
        if gated.is_some_and(|it| it.start.generation < generation) {
            slot.discard_preloaded();
        }
        let fits = |it: &mut Worker<Fake>| it.is_gated() && it.start.generation == generation;
        if let Some(mut worker) = slot.reserve.take_if(fits) {
            worker.was_preloaded = true;
            worker.phase = WorkerPhase::Starting { until: now + TIMES.start };
            return Some(worker);
        }
        let worker = self.worker(number, generation);
        if is_refused {
            self.pool.slot_mut(number).unwrap().on_failed_start(self.starts, now);
            return None;
        }
        Some(worker)
    }

    fn spawn_reserve(&mut self, number: u32) {
        let reserve = self.spawn(number);
        let slot = self.pool.slot_mut(number).unwrap();
        slot.discard_preloaded();
        slot.reserve = reserve;
        if slot.reserve.is_none() && slot.on_reserve_not_started() {
            self.pool.cancel_reload();
        }
    }

    /// Does what an iteration of the main loop does.
    fn tick(&mut self) {
        for worker in self.pool.workers_mut() {
            match worker.time_out(self.now, TIMES) {
                Some(WorkerAction::Finish(reason, time, interrupt)) => {
                    worker.exit_reason = reason.or(worker.exit_reason);
                    worker.end(Message::Drain, time, interrupt, self.now);
                }
                Some(WorkerAction::Stop(reason, time)) => {
                    worker.exit_reason = reason.or(worker.exit_reason);
                    worker.end(Message::Stop, time, None, self.now);
                }
                Some(WorkerAction::Interrupt) => worker.interrupt(),
                Some(WorkerAction::Kill(_)) => worker.kill(),
                Some(WorkerAction::CloseSessions(_)) => worker.process.sessions.set(0),
                other => assert_eq!(other, None),
            }
        }
        self.pool.use_spares();
        while let Some((number, reason)) = self.pool.next_replacement(self.surges) {
            let (generation, surges, now) = (self.pool.generation(), self.surges, self.now);
            let slot = self.pool.slot_mut(number).unwrap();
            slot.begin_replacement(reason, generation, surges, now);
            if slot.current.is_none() {
                continue;
            }
            if surges {
                self.spawn_reserve(number);
            } else {
                slot.drain_first(reason, TIMES, now);
                self.pool.use_spares();
            }
        }
        for number in self.pool.take_due_starts(self.now, self.was_ready, 4) {
            let started = self.spawn(number);
            self.pool.slot_mut(number).unwrap().current = started;
        }
        if self.pool.scaling.has_request() && self.pool.is_reloaded() {
            self.pool.scaling.apply_request();
            self.resize();
        }
    }

    fn resize(&mut self) {
        self.pool.resize(TIMES, self.now);
        self.pool.use_spares();
    }

    /// Makes a starting worker ready.
    fn become_ready(&mut self, epoch: u64) {
        let worker = self.pool.worker_mut(epoch).unwrap();
        assert!(worker.is_starting());
        worker.phase = WorkerPhase::Ready;
        self.was_ready = true;
        self.pool.on_ready(epoch, TIMES, self.now);
        self.pool.take_completed_reload();
    }

    fn exit(&mut self, epoch: u64, exit: Exit) -> AfterExit {
        let has_no_memory = exit == Exit::Signal(libc::SIGKILL);
        let ending = Ending { exit, has_no_memory, at: self.now };
        let (worker, role) = self.pool.take(epoch).unwrap();
        if worker.is_gated() {
            return AfterExit::Nothing;
        }
        self.pool.use_spares();
        let after = self.pool.after_exit(&worker, role, ending);
        let number = worker.start.slot;
        match after {
            AfterExit::Nothing
            | AfterExit::Replaced
            | AfterExit::StartNext
            | AfterExit::ReserveFailed
            | AfterExit::ReloadContinues => {}
            AfterExit::StartReserve => self.spawn_reserve(number),
            AfterExit::DrainFirst(reason) => {
                self.pool.slot_mut(number).unwrap().drain_first(reason, TIMES, self.now);
            }
            AfterExit::ReloadFailed => self.pool.cancel_reload(),
            AfterExit::Failed { fails_reload } => {
                if fails_reload {
                    self.pool.cancel_reload();
                }
                let slot = self.pool.slot_mut(number).unwrap();
                slot.on_failure(&worker, ending, self.was_ready);
            }
        }
        after
    }

    fn exceed(&mut self, number: u32) {
        let (reload, now) = (self.pool.reload(), self.now);
        if let Some(slot) = self.pool.slot_mut(number) {
            if slot.may_exceed(reload, now) && slot.serves() {
                slot.exceed(REQUESTS, TIMES, now);
            }
        }
    }

    /// Returns the epochs of the workers for which `is_it` is true.
    fn epochs(&self, is_it: impl Fn(&Worker<Fake>) -> bool) -> Vec<u64> {
        self.pool.workers().filter(|worker| is_it(worker)).map(|it| it.start.epoch).collect()
    }

    fn serving(&self) -> Vec<u64> {
        self.epochs(Worker::serves)
    }

    /// Lets all starts succeed, all workers end that have been asked to, and time pass, until
    /// nothing changes any more.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.tick();
            for epoch in self.epochs(Worker::is_starting) {
                self.become_ready(epoch);
            }
            for epoch in self.epochs(|it| it.process.is_asked_to_end.get()) {
                self.exit(epoch, Exit::Status(0));
            }
            self.now += Duration::from_secs(10);
        }
    }

    fn check(&self) {
        let slots = self.pool.slots();
        let kept: Vec<_> = slots.iter().filter(|slot| !slot.is_removed).collect();
        let scaling = &self.pool.scaling;
        assert_eq!(kept.len(), (scaling.wanted() + scaling.spares()) as usize);
        assert!(slots.windows(2).all(|pair| pair[0].number < pair[1].number));
        assert!(self.serving().len() <= scaling.wanted() as usize, "too many serve");
        assert!(slots.iter().filter(|slot| slot.replacing.is_some()).count() <= MAX_REPLACEMENTS);
        for slot in slots {
            assert!(!slot.has_successor() || slot.replacing.is_some(), "{slot:?}");
            let is_kept = slot.current.is_some() || slot.start_at.is_some();
            assert_eq!(!slot.is_removed, is_kept, "{slot:?}");
            for worker in slot.workers() {
                assert_eq!(worker.start.slot, slot.number);
                let is_in_service = worker.process.is_in_service.get();
                assert!(!worker.serves() || is_in_service, "{worker:?}");
                assert!(!is_in_service || worker.is_serving, "{worker:?}");
            }
            let former = slot.former.iter();
            let recycled = |it: &&Worker<_>| it.exit_reason == Some(ExitReason::MaxRequests);
            assert!(former.clone().filter(recycled).count() <= 1, "{slot:?}");
            assert!(former.clone().all(|it| !it.serves() && !it.is_spare() && !it.is_starting()));
        }
    }
}

/// A reproducible sequence of arbitrary numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn one_of(&mut self, all: &[u64]) -> Option<u64> {
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }
}

/// Does something that can happen to a pool. Returns true if it may take a worker out of service.
fn happens(model: &mut Model, chance: &mut Chance) -> bool {
    match chance.below(16) {
        0 | 1 => model.tick(),
        2 => {
            model.now += Duration::from_millis(chance.below(70_000) as u64);
            // Drains, stops and starts may be timed out.
            model.tick();
        }
        3..=5 => {
            if let Some(epoch) = chance.one_of(&model.epochs(Worker::is_starting)) {
                model.become_ready(epoch);
            }
        }
        6 => {
            let starting = model.epochs(Worker::is_starting);
            let exits = [FAILED, Exit::Status(79), Exit::Signal(libc::SIGKILL)];
            let exit = exits[chance.below(3)];
            if let Some(epoch) = chance.one_of(&starting) {
                // Without the memory for two workers, the one that serves is drained first.
                return model.exit(epoch, exit) == AfterExit::DrainFirst(REQUESTS)
                    || exit == Exit::Signal(libc::SIGKILL);
            }
        }
        7 | 8 => {
            let ending = model.epochs(|it| it.process.is_asked_to_end.get());
            if let Some(epoch) = chance.one_of(&ending) {
                model.exit(epoch, Exit::Status(0));
            }
        }
        9 => {
            let any = model.epochs(|_| true);
            if let Some(epoch) = chance.one_of(&any) {
                model.exit(epoch, FAILED);
            }
            return true;
        }
        10 => {
            model.pool.begin_reload();
            let numbers = (1 + chance.below(3) as u32, chance.below(3) as u32);
            if chance.below(3) == 0 {
                model.pool.scaling.request(numbers.0, numbers.1);
                return true;
            }
        }
        11 => model.exceed(chance.below(4) as u32),
        12 => {
            let is_changed = if chance.below(2) == 0 {
                model.pool.scaling.add_worker()
            } else {
                model.pool.scaling.remove_worker()
            };
            if is_changed {
                model.resize();
            }
            return true;
        }
        13 => model.is_start_refused = true,
        14 => {
            for worker in model.pool.workers_mut().filter(|it| it.phase == WorkerPhase::Ready) {
                worker.process.is_suspended.set(chance.below(3) == 0);
                worker.process.sessions.set(chance.below(2));
                worker.process.responses.set(chance.below(3) as u64);
            }
        }
        _ => {
            let generation = model.pool.generation() + 1;
            let mut gated = model.worker(0, generation);
            gated.phase = WorkerPhase::Gated;
            let slot = model.pool.slot_mut(0);
            if let Some(slot) = slot.filter(|it| it.current.is_some() && it.reserve.is_none()) {
                slot.reserve = Some(gated);
            }
        }
    }
    false
}

#[test]
fn events_in_any_order_keep_the_rules_and_end_with_all_workers_serving() {
    for seed in 0..400 {
        let mut chance = Chance(seed);
        let (workers, spares) = (1 + chance.below(3) as u32, chance.below(3) as u32);
        let surges = chance.below(4) > 0;
        let mut model = Model::new(workers, spares, surges);
        for _ in 0..300 {
            let before = model.serving().len().min(model.pool.scaling.wanted() as usize);
            // Numbers that a reload has requested are applied by any iteration after it.
            let is_resized = model.pool.scaling.has_request();
            let may_end_service = happens(&mut model, &mut chance);
            model.check();
            if surges && !may_end_service && !is_resized {
                assert!(model.serving().len() >= before, "seed {seed}: a worker left service");
            }
        }
        for worker in model.pool.workers() {
            worker.process.is_suspended.set(false);
        }
        model.is_start_refused = false;
        model.settle();
        model.check();
        let wanted = model.pool.scaling.wanted();
        assert_eq!(model.serving().len(), wanted as usize, "seed {seed}");
        assert!(!model.pool.is_replacing_for_reload(), "seed {seed}");
        for slot in model.pool.slots() {
            assert!(slot.former.is_empty() && slot.replacing.is_none(), "seed {seed}: {slot:?}");
            assert_eq!(slot.current.as_ref().unwrap().phase, WorkerPhase::Ready, "seed {seed}");
        }
        // The next reload succeeds, whatever happened before.
        model.pool.begin_reload();
        model.settle();
        assert!(model.pool.reload().is_none() && model.pool.is_reloaded(), "seed {seed}");
        // A stop ends all workers.
        let now = model.now;
        model.pool.workers_mut().for_each(|it| it.end(Message::Stop, TIMES.stop, None, now));
        for epoch in model.epochs(|it| it.process.is_asked_to_end.get()) {
            model.pool.take(epoch).unwrap();
        }
        assert!(model.pool.workers().next().is_none(), "seed {seed}");
    }
}

#[test]
fn a_reload_replaces_one_worker_after_the_other_and_is_completed_once() {
    let mut model = Model::ready(2, 0, true);
    model.pool.begin_reload();
    assert_eq!(model.pool.next_replacement(true), Some((0, ReplaceReason::Reload)));
    model.tick();
    assert_eq!(model.epochs(Worker::is_starting).len(), 1);
    model.become_ready(3);
    assert_eq!(model.serving(), [3, 2]);
    assert!(model.pool.reload().is_some());
    model.tick();
    assert!(model.pool.is_replacing_for_reload());
    model.become_ready(4);
    assert_eq!(model.serving(), [3, 4]);
    assert!(model.pool.is_reloaded() && model.pool.take_completed_reload().is_none());
}

#[test]
fn a_new_worker_that_fails_ends_the_reload_and_the_others_stay() {
    let mut model = Model::ready(2, 0, true);
    model.pool.begin_reload();
    model.tick();
    assert_eq!(model.exit(3, FAILED), AfterExit::ReloadFailed);
    model.tick();
    assert_eq!(model.serving(), [1, 2]);
    assert!(!model.pool.is_replacing_for_reload());
    // A worker of an earlier reload does not end the later one.
    model.pool.begin_reload();
    model.tick();
    model.pool.begin_reload();
    assert_eq!(model.exit(4, FAILED), AfterExit::ReloadContinues);
    model.settle();
    assert!(model.pool.is_reloaded());
}

#[test]
fn without_overlap_the_old_worker_is_drained_first_and_a_failure_ends_the_reload() {
    let mut model = Model::ready(2, 0, false);
    model.pool.begin_reload();
    model.tick();
    assert_eq!(model.serving(), [2]);
    assert_eq!(model.exit(1, Exit::Status(0)), AfterExit::StartNext);
    model.tick();
    assert_eq!(model.exit(3, FAILED), AfterExit::Failed { fails_reload: true });
    model.settle();
    assert_eq!(model.serving().len(), 2);
    assert!(model.serving().contains(&2), "it was not replaced");
}

#[test]
fn a_worker_of_an_earlier_reload_that_fails_in_an_empty_slot_does_not_end_the_later_one() {
    // Without overlap, the old worker has been drained first. With overlap, it has crashed.
    for surges in [false, true] {
        let mut model = Model::ready(2, 0, surges);
        model.pool.begin_reload();
        model.tick();
        model.exit(1, Exit::Status(0));
        model.tick();
        model.pool.begin_reload();
        assert_eq!(model.exit(3, FAILED), AfterExit::Failed { fails_reload: false });
        model.settle();
        assert!(model.pool.is_reloaded(), "surges: {surges}");
    }
}

#[test]
fn without_overlap_a_recycled_worker_waits_while_too_few_serve_and_a_reload_does_not() {
    let mut model = Model::ready(2, 0, false);
    model.exceed(1);
    model.exit(1, FAILED);
    assert_eq!(model.pool.next_replacement(false), None);
    model.pool.begin_reload();
    // The missing worker comes first, and holds up the others until it is ready.
    assert_eq!(model.pool.next_replacement(false), Some((0, ReplaceReason::Reload)));
    model.tick();
    assert_eq!(model.pool.next_replacement(false), None);
    assert_eq!(model.serving(), [2]);
}

#[test]
fn a_missing_worker_does_not_hold_up_a_reload_with_overlap() {
    let mut model = Model::ready(2, 0, true);
    model.exit(1, FAILED);
    model.pool.begin_reload();
    model.tick();
    assert_eq!(model.epochs(Worker::is_starting).len(), 2);
}

#[test]
fn a_failed_replacement_is_tried_again_after_a_pause() {
    let mut model = Model::ready(1, 0, true);
    model.exceed(0);
    model.tick();
    assert_eq!(model.exit(2, FAILED), AfterExit::ReserveFailed);
    model.exceed(0);
    assert_eq!(model.pool.next_replacement(true), None);
    model.now += Duration::from_secs(1);
    model.exceed(0);
    assert_eq!(model.pool.next_replacement(true), Some((0, REQUESTS)));
}

#[test]
fn a_replacement_whose_process_cannot_be_started_is_tried_again_after_a_pause() {
    let mut model = Model::ready(1, 0, true);
    model.exceed(0);
    model.is_start_refused = true;
    model.tick();
    assert_eq!(model.starts, 2);
    model.exceed(0);
    model.tick();
    assert_eq!(model.starts, 2, "no start without a pause");
    model.now += Duration::from_secs(60);
    model.exceed(0);
    model.tick();
    assert_eq!(model.starts, 3);
    assert_eq!(model.serving().len(), 1);
}

#[test]
fn a_slot_has_one_former_worker_however_often_its_limit_is_exceeded_while_sessions_stay_open() {
    let mut model = Model::ready(1, 0, true);
    let begin = model.now;
    for _ in 0..600 {
        model.exceed(0);
        model.pool.workers_mut().for_each(|it| it.process.sessions.set(1));
        model.tick();
        for epoch in model.epochs(Worker::is_starting) {
            model.become_ready(epoch);
        }
        for epoch in model.epochs(|it| it.process.is_asked_to_end.get()) {
            model.exit(epoch, Exit::Status(0));
        }
        model.check();
        assert!(model.pool.workers().count() <= 3, "{:?}", model.pool.slots());
        model.now += Duration::from_secs(1);
    }
    // No replacement waits for longer than a drain without extra time for sessions.
    let drains = model.now.duration_since(begin).as_secs() / (TIMES.drain.as_secs() + 5);
    assert!(model.starts >= drains, "{} starts", model.starts);
    // A reload does not wait.
    model.pool.begin_reload();
    assert_eq!(model.pool.next_replacement(true), Some((0, ReplaceReason::Reload)));
}

#[test]
fn a_reserve_worker_without_memory_makes_the_current_one_drain_first() {
    let mut model = Model::ready(1, 0, true);
    model.exceed(0);
    model.tick();
    assert_eq!(model.exit(2, Exit::Signal(libc::SIGKILL)), AfterExit::DrainFirst(REQUESTS));
    assert!(model.serving().is_empty());
    assert_eq!(model.exit(1, Exit::Status(0)), AfterExit::StartNext);
}

#[test]
fn the_oldest_of_the_workers_that_exceed_a_limit_is_replaced_first() {
    let mut model = Model::ready(3, 0, true);
    model.exit(1, FAILED);
    model.settle();
    for number in 0..3 {
        model.exceed(number);
    }
    assert_eq!(model.pool.next_replacement(true), Some((1, REQUESTS)));
}

#[test]
fn scaling_down_removes_the_unavailable_or_youngest_worker_with_the_fewest_sessions() {
    let mut model = Model::ready(3, 0, true);
    model.pool.worker_mut(1).unwrap().process.sessions.set(1);
    assert!(model.pool.scaling.remove_worker());
    model.resize();
    assert_eq!(model.serving(), [1, 2]);
    model.pool.worker_mut(1).unwrap().process.is_suspended.set(true);
    assert!(model.pool.scaling.remove_worker());
    model.resize();
    assert_eq!(model.serving(), [2]);
    // The slot is free once its worker has ended.
    assert!(model.pool.scaling.add_worker());
    model.resize();
    assert_eq!(model.pool.slots().last().unwrap().number, 3);
    model.exit(1, Exit::Status(0));
    assert!(model.pool.scaling.add_worker());
    model.resize();
    assert_eq!(model.pool.slots()[0].number, 0);
}

#[test]
fn scaling_down_prefers_a_missing_worker_then_one_that_starts_then_a_spare() {
    let mut model = Model::ready(2, 1, true);
    let resize = |model: &mut Model, spares| {
        model.pool.scaling.request(2, spares);
        model.pool.scaling.apply_request();
        model.resize();
    };
    resize(&mut model, 3);
    // One of the new workers starts, and the other has not been started.
    let start_at = model.pool.slot_mut(4).unwrap().start_at.take();
    model.tick();
    model.pool.slot_mut(4).unwrap().start_at = start_at;
    let numbers = |model: &Model| {
        let kept = model.pool.slots().iter().filter(|slot| !slot.is_removed);
        kept.map(|slot| slot.number).collect::<Vec<_>>()
    };
    for (spares, left) in [(2, vec![0, 1, 2, 3]), (1, vec![0, 1, 2]), (0, vec![0, 1])] {
        resize(&mut model, spares);
        assert_eq!(numbers(&model), left);
    }
    assert_eq!(model.serving(), [1, 2]);
    // More spares do not make up for a worker that is removed.
    model.pool.scaling.request(1, 1);
    model.pool.scaling.apply_request();
    model.resize();
    assert_eq!(model.serving(), [1]);
}

#[test]
fn starts_that_time_out_are_a_crash_loop() {
    let mut model = Model::new(1, 0, true);
    for _ in 0..10 {
        model.now += Duration::from_secs(40);
        model.tick();
        // A start that times out takes longer than a minute, which is no long life.
        model.now += TIMES.start + Duration::from_secs(1);
        model.tick();
        let epoch = model.starts;
        let worker = model.pool.worker_mut(epoch).unwrap();
        assert_eq!(worker.exit_reason, Some(ExitReason::StartTimeout));
        model.exit(epoch, Exit::Signal(libc::SIGTERM));
    }
    assert!(model.pool.is_in_crash_loop(model.now));
    assert!(model.pool.has_no_start_left(9) && !model.pool.has_no_start_left(10));
}

#[test]
fn an_error_of_the_configuration_leaves_no_start_to_try() {
    let mut model = Model::new(1, 0, true);
    model.tick();
    model.exit(1, Exit::Status(78));
    assert!(model.pool.has_no_start_left(100));
    // After a worker was ready, the status is a failure like any other.
    let mut model = Model::ready(1, 0, true);
    model.exit(1, Exit::Status(78));
    assert!(!model.pool.has_no_start_left(0));
}

#[test]
fn a_worker_that_stopped_its_server_is_stopped_if_it_starts_no_other() {
    let mut model = Model::ready(1, 0, true);
    let (before, until) = (model.now, model.now + TIMES.start);
    let worker = model.pool.worker_mut(1).unwrap();
    worker.exit_reason = Some(ExitReason::AppStop);
    worker.phase = WorkerPhase::Draining { until, sessions: until };
    assert_eq!(worker.time_out(before, TIMES), None);
    let stop = WorkerAction::Stop(Some(ExitReason::StartTimeout), TIMES.stop);
    assert_eq!(worker.time_out(until, TIMES), Some(stop));
}
