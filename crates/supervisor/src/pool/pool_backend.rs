//! A worker as the pool sees it: what it has been sent, and whether its R can begin with more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rookery_exchange::UpstreamWorker;
use rookery_worker_protocol::{RState, Ticket, TicketGuard, Tickets, now};

use super::PoolLimits;
use super::latency_estimate::{LatencyEstimate, WorkDone};
use super::queue::RequestQueue;
use super::session_affinity::AffinityState;
use super::worker_connection::WorkerConnection;
use crate::backend_registry::{Availability, Backend};

/// Connections that are kept for the next requests: more are needed only for replies that take long.
const KEPT_CONNECTIONS: usize = 64;

/// How long a worker is given nothing whose connection has broken, unless it is known before that it has ended.
const SUSPECTED: Duration = Duration::from_secs(1);

/// How long a page's WebSocket is awaited, as Shiny Server has it: a page may bring many scripts.
const RESERVED: Duration = Duration::from_secs(45);

/// See the module.
#[derive(Debug)]
pub(super) struct PoolBackend {
    pub(super) backend: Arc<Backend>,
    tickets: Tickets,
    /// Requests that it has and has not answered.
    unanswered: RefCell<Vec<Unanswered>>,
    connections: RefCell<Vec<WorkerConnection>>,
    pace: Cell<LatencyEstimate>,
    /// Requests that only it can answer.
    pub(super) queue: RefCell<RequestQueue>,
    /// Pages that it was given whose WebSocket has not come, each until when that is awaited.
    reserved: RefCell<VecDeque<Instant>>,
    /// Until when it is given nothing, because a connection to it has broken.
    suspected: Cell<Option<Instant>>,
    /// Which choice it was last, for turns among equals.
    pub(super) chosen: Cell<u64>,
}

/// A request that a worker has been given and has not answered.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    ticket: Ticket,
    /// Since when the request waits, in the queue and in the worker.
    since: Instant,
}

/// The reasons for choosing a worker; the least is the best. A free worker comes first, however many sessions
/// it has: their number decides between workers that are equally free.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Preference {
    is_busy: bool,
    /// Sessions, those to come among them; 0 where they do not count.
    sessions: usize,
    unanswered: usize,
    /// Of those that have nothing to do, one whose R has not gone to sleep.
    is_asleep: bool,
    /// When it was chosen last, for turns among equals.
    chosen: u64,
}

impl PoolBackend {
    pub(super) fn new(backend: Arc<Backend>) -> Rc<PoolBackend> {
        let pace = LatencyEstimate::new(work(&backend));
        Rc::new(PoolBackend {
            backend,
            tickets: Tickets::new(),
            unanswered: RefCell::default(),
            connections: RefCell::default(),
            pace: Cell::new(pace),
            queue: RefCell::default(),
            reserved: RefCell::default(),
            suspected: Cell::new(None),
            chosen: Cell::new(0),
        })
    }

    /// As the access log has it.
    pub(super) fn as_upstream(&self) -> UpstreamWorker {
        let Backend { slot, pid, epoch, .. } = *self.backend;
        UpstreamWorker { slot, pid, epoch }
    }

    /// Returns how this worker compares with others for a new request, or `None` while it cannot begin one.
    pub(super) fn preference(
        &self,
        limits: &PoolLimits,
        counts_sessions: bool,
    ) -> Option<Preference> {
        if !self.is_taken_for_ready() {
            return None;
        }
        let is_busy = self.begins_soon(limits)?;
        let unanswered = self.unanswered.borrow().len();
        Some(Preference {
            // With sessions to be spread, one that has just answered is as free as one that waits.
            is_busy: is_busy && !(counts_sessions && self.has_just_answered(unanswered)),
            sessions: if counts_sessions { self.sessions() } else { 0 },
            unanswered,
            is_asleep: !self.pace.get().is_awake(Instant::now()),
            chosen: self.chosen.get(),
        })
    }

    /// Returns true if the worker may be handed a request that only it can answer, also while it drains. One
    /// is handed over whatever R does, so that R finds it as soon as it has time: nobody else would be faster,
    /// and what is not begun in time is taken back.
    pub(super) fn takes_its_own(&self, limits: &PoolLimits) -> bool {
        matches!(self.backend.standing(), Availability::Ready | Availability::Draining)
            && !self.is_suspected()
            && (self.begins_soon(limits).is_some()
                || (self.unanswered.borrow().len() < limits.in_flight && self.unbegun() == 0))
    }

    /// Returns how many requests the worker has that R has not begun.
    fn unbegun(&self) -> usize {
        let scoreboard = &self.backend.scoreboard;
        self.unanswered
            .borrow()
            .iter()
            .filter(|request| !scoreboard.has_begun(request.ticket))
            .count()
    }

    /// Returns whether R is busy, or `None` if it would not begin with another request soon.
    fn begins_soon(&self, limits: &PoolLimits) -> Option<bool> {
        let unanswered = self.unanswered.borrow();
        if unanswered.len() >= limits.in_flight {
            return None;
        }
        let waiting = self.unbegun();
        let read = self.backend.scoreboard.read();
        let now = now();
        let is_idle = read.is_idle(now);
        // R has begun all that it was sent, and waits for their promises; or it has just answered, and will wait.
        let is_free = waiting == 0 && (is_idle || self.has_just_answered(unanswered.len()));
        let ahead = self.pace.get().ahead(if is_idle { Duration::ZERO } else { read.lasts(now) });
        (is_free || waiting < ahead.max(limits.ahead)).then_some(!is_idle)
    }

    /// Returns what this worker can do for a client that comes back to it; its R process counts as
    /// stuck once it has been busy with one task for `limit`.
    pub(super) fn bond(&self, limit: Duration) -> AffinityState {
        match self.backend.standing() {
            Availability::Ready => {
                let (read, now) = (self.backend.scoreboard.read(), now());
                let is_busy = read.r != RState::Starting && !read.is_idle(now);
                if is_busy && read.lasts(now) >= limit {
                    AffinityState::Stuck
                } else {
                    AffinityState::Ready
                }
            }
            Availability::Draining => AffinityState::Draining,
            Availability::Suspended | Availability::Dead => AffinityState::Suspended,
        }
    }

    /// Whether it is ready, as far as is known.
    pub(super) fn is_taken_for_ready(&self) -> bool {
        self.backend.standing() == Availability::Ready && !self.is_suspected()
    }

    fn is_suspected(&self) -> bool {
        self.suspected.get().is_some_and(|until| Instant::now() < until)
    }

    /// A connection to it has broken: it will be known soon whether it has ended.
    pub(super) fn suspect(&self) {
        self.suspected.set(Some(Instant::now() + SUSPECTED));
    }

    fn has_just_answered(&self, unanswered: usize) -> bool {
        unanswered == 0 && self.pace.get().has_just_answered(Instant::now())
    }

    // ---- requests ----

    /// Returns true if the worker has requests that it has not answered.
    pub(super) fn has_unanswered(&self) -> bool {
        !self.unanswered.borrow().is_empty()
    }

    /// Returns true if the worker has a request that has waited for `limit` and that R has not begun.
    pub(super) fn has_overdue(&self, limit: Duration, now: Instant) -> bool {
        self.unanswered.borrow().iter().any(|request| {
            now.saturating_duration_since(request.since) >= limit
                && !self.backend.scoreboard.has_begun(request.ticket)
        })
    }

    /// A ticket for a request that it is given and that waits since then; `None` when it has as many as a scoreboard has places for.
    pub(super) fn begin(&self, since: Instant) -> Option<TicketGuard> {
        let held = self.tickets.take()?;
        self.unanswered.borrow_mut().push(Unanswered { ticket: held.ticket(), since });
        self.backend.load.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(held)
    }

    /// It has answered, `since` it was given the request.
    pub(super) fn has_answered(&self, ticket: Ticket, since: Instant) {
        self.forget(ticket);
        let mut pace = self.pace.get();
        pace.has_answered(work(&self.backend), since, Instant::now());
        self.pace.set(pace);
        self.backend.load.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer to a request is not waited for any more.
    pub(super) fn forget(&self, ticket: Ticket) {
        self.unanswered.borrow_mut().retain(|other| other.ticket != ticket);
        self.backend.load.asked.remove(ticket);
    }

    /// A request has been dealt with, its reply's body included.
    pub(super) fn end(&self) {
        self.backend.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    // ---- sessions ----

    /// A page has been asked for, whose session will be its.
    pub(super) fn reserve(&self) {
        let mut reserved = self.reserved.borrow_mut();
        reserved.push_back(Instant::now() + RESERVED);
        self.backend.load.pending_sessions.set(reserved.len() as u64);
    }

    /// Whether it may have one session more.
    pub(super) fn may_have_another(&self, limits: &PoolLimits) -> bool {
        limits.sessions == usize::MAX || self.sessions() < limits.sessions
    }

    /// The WebSocket of a page has come, or will not.
    pub(super) fn has_come(&self) {
        let mut reserved = self.reserved.borrow_mut();
        reserved.pop_front();
        self.backend.load.pending_sessions.set(reserved.len() as u64);
    }

    /// Returns the number of its sessions, those to come among them.
    pub(super) fn sessions(&self) -> usize {
        let mut reserved = self.reserved.borrow_mut();
        let now = Instant::now();
        while reserved.front().is_some_and(|until| *until <= now) {
            reserved.pop_front();
        }
        self.backend.load.pending_sessions.set(reserved.len() as u64);
        self.backend.load.sessions.load(Ordering::Relaxed) + reserved.len()
    }

    // ---- connections ----

    /// A connection that has been used before.
    pub(super) fn connection(&self) -> Option<WorkerConnection> {
        let mut connections = self.connections.borrow_mut();
        // The one that was used last: others may be let go.
        std::iter::from_fn(|| connections.pop())
            .find_map(|mut kept| kept.is_silent().then_some(kept))
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, connection: WorkerConnection) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() < KEPT_CONNECTIONS && self.backend.standing() != Availability::Dead {
            connections.push(connection);
        }
    }

    /// It is given nothing more.
    pub(super) fn let_go(&self) {
        self.connections.borrow_mut().clear();
    }
}

/// What a worker's R has done.
fn work(backend: &Backend) -> WorkDone {
    let read = backend.scoreboard.read();
    WorkDone { answering: read.answering, done: read.done }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(
        is_busy: bool,
        sessions: usize,
        unanswered: usize,
        is_asleep: bool,
        chosen: u64,
    ) -> Preference {
        Preference { is_busy, sessions, unanswered, is_asleep, chosen }
    }

    /// The choice is the same in whatever order the workers are asked.
    #[test]
    fn a_free_worker_comes_first_then_the_one_with_fewer_sessions() {
        let best_first = [
            preference(false, 0, 3, true, 9),
            preference(false, 1, 0, false, 5),
            preference(false, 1, 0, false, 7),
            preference(false, 900, 0, false, 0),
            preference(true, 0, 0, false, 0),
            preference(true, 0, 1, false, 0),
        ];
        for (at, better) in best_first.iter().enumerate() {
            for worse in &best_first[at + 1..] {
                assert!(better < worse, "{better:?} {worse:?}");
            }
        }
        for turn in 0..best_first.len() {
            let rotated = best_first.iter().cycle().skip(turn).take(best_first.len());
            assert_eq!(rotated.min(), best_first.first());
        }
    }
}
