//! A backend of the pool: the requests and connections of one worker, and whether its R process can begin with
//! more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rookery_exchange::UpstreamWorker;
use rookery_worker_protocol::{RState, Ticket, TicketGuard, Tickets, now};

use super::latency_estimate::{LatencyEstimate, WorkDone};
use super::queue::RequestQueue;
use super::session_affinity::AffinityState;
use crate::backend_registry::{Availability, Backend};
use crate::pool::connection::worker_connection::{self, Failure, WorkerConnection};
use crate::pool::limits::PoolLimits;

/// The maximum number of idle connections to a worker. More connections are needed only for responses that take
/// long.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// The time for which a worker gets no requests after a connection to it has broken. The end of the worker is
/// usually known sooner.
const SUSPECT_TIME: Duration = Duration::from_secs(1);

/// The time for which a session is reserved for a page whose WebSocket has not been opened. A page may load many
/// scripts first. Shiny Server waits as long.
const RESERVATION_TIME: Duration = Duration::from_secs(45);

/// A worker as the balancer sees it.
#[derive(Debug)]
pub(in crate::pool) struct PoolBackend {
    /// The worker's entry in the registry, which the supervisor shares.
    pub(in crate::pool) entry: Arc<Backend>,
    tickets: Tickets,
    /// The requests that were sent to the worker and have no response.
    in_flight: RefCell<Vec<InFlight>>,
    connections: RefCell<Vec<WorkerConnection>>,
    latency: Cell<LatencyEstimate>,
    /// The requests that only this worker can process.
    pub(super) queue: RefCell<RequestQueue>,
    /// The sessions that are reserved for pages whose WebSockets have not been opened, by the time at which each
    /// reservation expires.
    reservations: RefCell<VecDeque<Instant>>,
    /// The time until which the worker gets no requests, because a connection to it has broken.
    suspected_until: Cell<Option<Instant>>,
    /// The number of the choice that last chose this worker, for a round-robin among equal workers.
    pub(super) last_choice: Cell<u64>,
}

/// A request that was sent to a worker and has no response.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    ticket: Ticket,
    /// The start of the time that the request has waited, in the queue and in the worker.
    queued_since: Instant,
}

/// The rank of a worker for a new request; the least is the best. A free worker comes first, however many
/// sessions it has. The number of sessions decides between workers that are equally free.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_busy: bool,
    /// The number of sessions and reservations; 0 where sessions do not count.
    sessions: usize,
    in_flight: usize,
    /// Whether R sleeps. Of the workers that are free, one whose R process still polls is better.
    is_asleep: bool,
    /// The number of the last choice, for a round-robin among equal workers.
    last_choice: u64,
}

impl PoolBackend {
    pub(super) fn new(entry: Arc<Backend>) -> Rc<PoolBackend> {
        let latency = LatencyEstimate::new(work_done(&entry));
        Rc::new(PoolBackend {
            entry,
            tickets: Tickets::new(),
            in_flight: RefCell::default(),
            connections: RefCell::default(),
            latency: Cell::new(latency),
            queue: RefCell::default(),
            reservations: RefCell::default(),
            suspected_until: Cell::new(None),
            last_choice: Cell::new(0),
        })
    }

    /// Returns the worker as the access log shows it.
    pub(in crate::pool) fn upstream_worker(&self) -> UpstreamWorker {
        let Backend { slot, pid, epoch, .. } = *self.entry;
        UpstreamWorker { slot, pid, epoch }
    }

    /// Returns the rank of the worker for a new request, or `None` while it cannot begin one soon.
    pub(super) fn rank(&self, limits: &PoolLimits, counts_sessions: bool) -> Option<Rank> {
        if !self.is_presumed_ready() {
            return None;
        }
        let is_busy = self.begins_soon(limits)?;
        let in_flight = self.in_flight.borrow().len();
        Some(Rank {
            // Where sessions are distributed, a worker that has just responded is as free as an idle one.
            is_busy: is_busy && !(counts_sessions && self.has_just_responded(in_flight)),
            sessions: if counts_sessions { self.sessions() } else { 0 },
            in_flight,
            is_asleep: !self.latency.get().is_polling(Instant::now()),
            last_choice: self.last_choice.get(),
        })
    }

    /// Returns true if the worker may be sent a request that only it can process, also while it drains. One such
    /// request is sent whatever R does, so that R finds the request as soon as it is free. No other worker could
    /// begin the request sooner, and a request that is not begun in time is withdrawn.
    pub(super) fn accepts_own_requests(&self, limits: &PoolLimits) -> bool {
        matches!(self.entry.availability(), Availability::Ready | Availability::Draining)
            && !self.is_suspected()
            && (self.begins_soon(limits).is_some()
                || (self.in_flight.borrow().len() < limits.max_in_flight && self.unbegun() == 0))
    }

    /// Returns the number of requests that the worker has and that R has not begun.
    fn unbegun(&self) -> usize {
        let scoreboard = &self.entry.scoreboard;
        let in_flight = self.in_flight.borrow();
        in_flight.iter().filter(|request| !scoreboard.has_begun(request.ticket)).count()
    }

    /// Returns whether R is busy, or `None` if R would not begin another request soon.
    fn begins_soon(&self, limits: &PoolLimits) -> Option<bool> {
        let in_flight = self.in_flight.borrow();
        if in_flight.len() >= limits.max_in_flight {
            return None;
        }
        let unbegun = self.unbegun();
        let snapshot = self.entry.scoreboard.read();
        let now = now();
        let is_idle = snapshot.is_idle(now);
        // R has begun all its requests and waits for promises, or has just responded and will wait.
        let is_free = unbegun == 0 && (is_idle || self.has_just_responded(in_flight.len()));
        let elapsed = if is_idle { Duration::ZERO } else { snapshot.elapsed(now) };
        let ahead = self.latency.get().requests_ahead(elapsed);
        (is_free || unbegun < ahead.max(limits.min_ahead)).then_some(!is_idle)
    }

    /// Returns the ability of this worker to process a request that names it. The worker counts as stuck once R
    /// has been busy with one task for `limit`.
    pub(super) fn affinity_state(&self, limit: Duration) -> AffinityState {
        match self.entry.availability() {
            Availability::Ready => {
                let (snapshot, now) = (self.entry.scoreboard.read(), now());
                let is_busy = snapshot.r_state != RState::Starting && !snapshot.is_idle(now);
                if is_busy && snapshot.elapsed(now) >= limit {
                    AffinityState::Stuck
                } else {
                    AffinityState::Ready
                }
            }
            Availability::Draining => AffinityState::Draining,
            Availability::Suspended | Availability::Dead => AffinityState::Suspended,
        }
    }

    /// Returns true if the worker is ready as far as this process knows.
    pub(super) fn is_presumed_ready(&self) -> bool {
        self.entry.availability() == Availability::Ready && !self.is_suspected()
    }

    fn is_suspected(&self) -> bool {
        self.suspected_until.get().is_some_and(|until| Instant::now() < until)
    }

    /// Suspects that the worker has ended, because a connection to it has broken.
    pub(in crate::pool) fn suspect(&self) {
        self.suspected_until.set(Some(Instant::now() + SUSPECT_TIME));
    }

    fn has_just_responded(&self, in_flight: usize) -> bool {
        in_flight == 0 && self.latency.get().has_just_responded(Instant::now())
    }

    // ---- requests ----

    /// Returns true if the worker has requests without a response.
    pub(super) fn has_in_flight(&self) -> bool {
        !self.in_flight.borrow().is_empty()
    }

    /// Returns true if the worker has a request that has waited for `limit` and that R has not begun.
    pub(super) fn has_overdue(&self, limit: Duration, now: Instant) -> bool {
        self.in_flight.borrow().iter().any(|request| {
            now.saturating_duration_since(request.queued_since) >= limit
                && !self.entry.scoreboard.has_begun(request.ticket)
        })
    }

    /// Takes a ticket for a request that has waited since `queued_since`, and counts the request as in flight.
    /// Returns `None` if all tickets of the scoreboard are taken.
    pub(super) fn start_request(&self, queued_since: Instant) -> Option<TicketGuard> {
        let guard = self.tickets.take()?;
        self.in_flight.borrow_mut().push(InFlight { ticket: guard.ticket(), queued_since });
        self.entry.load.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(guard)
    }

    /// Records the response to a request that was sent at `sent_at`.
    pub(in crate::pool) fn on_response(&self, ticket: Ticket, sent_at: Instant) {
        self.forget_request(ticket);
        let mut latency = self.latency.get();
        latency.on_response(work_done(&self.entry), sent_at, Instant::now());
        self.latency.set(latency);
        self.entry.load.responses.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a request from those that have no response, because no response is awaited any more.
    pub(in crate::pool) fn forget_request(&self, ticket: Ticket) {
        self.in_flight.borrow_mut().retain(|other| other.ticket != ticket);
        self.entry.load.routes.remove(ticket);
    }

    /// Subtracts a request from the worker's load, after the body of its response has been forwarded.
    pub(in crate::pool) fn finish_request(&self) {
        self.entry.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    // ---- sessions ----

    /// Reserves a session for a page that has been requested.
    pub(super) fn reserve_session(&self) {
        let mut reservations = self.reservations.borrow_mut();
        reservations.push_back(Instant::now() + RESERVATION_TIME);
        self.entry.load.pending_sessions.set(reservations.len() as u64);
    }

    /// Releases the oldest reservation, because the WebSocket of a page has been opened or refused.
    pub(in crate::pool) fn release_reservation(&self) {
        let mut reservations = self.reservations.borrow_mut();
        reservations.pop_front();
        self.entry.load.pending_sessions.set(reservations.len() as u64);
    }

    /// Removes the reservations that have expired.
    pub(super) fn expire_reservations(&self) {
        let mut reservations = self.reservations.borrow_mut();
        let expired = expired_reservations(&reservations);
        if expired > 0 {
            reservations.drain(..expired);
            self.entry.load.pending_sessions.set(reservations.len() as u64);
        }
    }

    /// Returns true if the worker may have one more session.
    pub(super) fn has_session_capacity(&self, limits: &PoolLimits) -> bool {
        limits.max_sessions == usize::MAX || self.sessions() < limits.max_sessions
    }

    /// Returns the number of the worker's sessions and reservations.
    pub(super) fn sessions(&self) -> usize {
        let reservations = self.reservations.borrow();
        let reserved = reservations.len() - expired_reservations(&reservations);
        self.entry.load.sessions.load(Ordering::Relaxed) + reserved
    }

    // ---- connections ----

    /// Returns an idle connection to the worker, or a new one.
    pub(in crate::pool) async fn connect(&self) -> Result<WorkerConnection, Failure> {
        match self.take_idle_connection() {
            Some(idle) => Ok(idle),
            None => worker_connection::connect(&self.entry.socket).await,
        }
    }

    /// Opens a new connection to the worker.
    pub(in crate::pool) fn connect_new(
        &self,
    ) -> impl Future<Output = Result<WorkerConnection, Failure>> {
        worker_connection::connect(&self.entry.socket)
    }

    /// Takes the idle connection that was used last. Connections that the worker has closed are dropped.
    fn take_idle_connection(&self) -> Option<WorkerConnection> {
        let mut connections = self.connections.borrow_mut();
        std::iter::from_fn(|| connections.pop())
            .find_map(|mut connection| connection.poll_idle().then_some(connection))
    }

    /// Keeps a connection for another request.
    pub(in crate::pool) fn keep_connection(&self, connection: WorkerConnection) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() < MAX_IDLE_CONNECTIONS
            && self.entry.availability() != Availability::Dead
        {
            connections.push(connection);
        }
    }

    /// Closes all idle connections.
    pub(super) fn close_connections(&self) {
        self.connections.borrow_mut().clear();
    }
}

/// Returns how many reservations have expired. They are in the order of their expiry.
fn expired_reservations(reservations: &VecDeque<Instant>) -> usize {
    if reservations.is_empty() {
        return 0;
    }
    let now = Instant::now();
    reservations.partition_point(|until| *until <= now)
}

/// Returns the work that R has done, from the worker's scoreboard.
fn work_done(entry: &Backend) -> WorkDone {
    let snapshot = entry.scoreboard.read();
    WorkDone { busy: snapshot.busy_with_requests, responses: snapshot.done }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(
        is_busy: bool,
        sessions: usize,
        in_flight: usize,
        is_asleep: bool,
        last_choice: u64,
    ) -> Rank {
        Rank { is_busy, sessions, in_flight, is_asleep, last_choice }
    }

    #[test]
    fn a_free_worker_comes_first_then_the_one_with_fewer_sessions() {
        let best_first = [
            rank(false, 0, 3, true, 9),
            rank(false, 1, 0, false, 5),
            rank(false, 1, 0, false, 7),
            rank(false, 900, 0, false, 0),
            rank(true, 0, 0, false, 0),
            rank(true, 0, 1, false, 0),
        ];
        for (at, better) in best_first.iter().enumerate() {
            for worse in &best_first[at + 1..] {
                assert!(better < worse, "{better:?} {worse:?}");
            }
        }
        for offset in 0..best_first.len() {
            // The order of the workers does not matter.
            let rotated = best_first.iter().cycle().skip(offset).take(best_first.len());
            assert_eq!(rotated.min(), best_first.first());
        }
    }
}
