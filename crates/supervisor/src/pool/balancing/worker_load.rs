//! A worker as the balancer sees it: its requests, its connections, and whether its R process can
//! begin another request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rookery_exchange::{ExchangeId, Peer, UpstreamWorker};
use rookery_worker_protocol::{RState, Snapshot, Ticket, TicketGuard, Tickets, now};

use super::in_flight::{InFlight, InFlightRequests};
use super::latency_estimate::{LatencyEstimate, WorkDone};
use super::queue::RequestQueue;
use super::session_affinity::AffinityState;
use super::sessions::Sessions;
use crate::backend::{Availability, Backend};
use crate::pool::limits::PoolLimits;
use crate::pool::ring_connection::RingConnection;

/// The balancer's record of one worker, which it uses when it assigns requests to workers.
#[derive(Debug)]
pub(in crate::pool) struct PoolBackend {
    /// The worker's entry in the registry of workers, which the pool shares with the supervisor.
    pub(in crate::pool) entry: Arc<Backend>,
    pub(in crate::pool) rings: RingConnection,
    tickets: Tickets,
    /// The requests that were sent to the worker and have not been responded to.
    in_flight: RefCell<InFlightRequests>,
    latency: Cell<LatencyEstimate>,
    /// The queue of requests that only this worker can process.
    pub(super) queue: RefCell<RequestQueue>,
    /// Whether the last request that the worker was sent is one that only this worker can process.
    /// These requests and all others take turns.
    pub(super) was_last_own: Cell<bool>,
    pub(super) sessions: RefCell<Sessions>,
    /// The number of choices that the balancer had made when it last chose this worker. Among
    /// equally suitable workers, the one with the lowest number is chosen (round-robin).
    pub(super) last_choice: Cell<u64>,
}

/// The rank of a worker for a new request. The worker with the lowest rank gets the request. A free
/// worker is preferred to a busy one, however many sessions it has. Between workers that are
/// equally free, the number of sessions decides.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_busy: bool,
    /// The worker's number of sessions and reservations, or 0 if the rank ignores sessions.
    sessions: usize,
    in_flight: usize,
    /// Whether the worker's R process sleeps. Among free workers, one whose R process still polls
    /// for requests is preferred, because it need not be woken.
    is_asleep: bool,
    /// The number of choices that the balancer had made when it last chose this worker. Among
    /// equally suitable workers, the one with the lowest number is chosen (round-robin).
    last_choice: u64,
}

/// The time on both clocks, read once for all decisions about a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool) struct Moment {
    pub(in crate::pool) instant: Instant,
    /// The time of the scoreboard's clock.
    pub(in crate::pool) nanoseconds: u64,
}

impl Moment {
    pub(in crate::pool) fn now() -> Moment {
        Moment { instant: Instant::now(), nanoseconds: now() }
    }
}

impl PoolBackend {
    /// Returns `None` if another pool uses the worker.
    pub(super) fn new(entry: Arc<Backend>) -> Option<Rc<PoolBackend>> {
        let latency = LatencyEstimate::new(work_done(&entry));
        let rings = RingConnection::new(entry.take_rings()?);
        Some(Rc::new(PoolBackend {
            entry,
            rings,
            tickets: Tickets::new(),
            in_flight: RefCell::default(),
            latency: Cell::new(latency),
            queue: RefCell::default(),
            was_last_own: Cell::new(false),
            sessions: RefCell::default(),
            last_choice: Cell::new(0),
        }))
    }

    /// Returns the data that identify the worker in the access log.
    pub(in crate::pool) fn upstream_worker(&self) -> UpstreamWorker {
        let Backend { slot, pid, epoch, .. } = *self.entry;
        UpstreamWorker { slot, pid, epoch }
    }

    /// Returns the rank of the worker for a new request of a peer, or `None` if the worker cannot
    /// begin the request soon, or if it is the turn of a request that only this worker can process.
    /// `counts_sessions` makes the number of sessions part of the rank.
    pub(super) fn rank(
        &self,
        peer: Peer,
        limits: &PoolLimits,
        counts_sessions: bool,
        moment: Moment,
    ) -> Option<Rank> {
        // Checked first, because while all places are taken, most of the peers that wait have none.
        if !self.find_place_for(peer, limits) {
            return None;
        }
        let has_own = !self.queue.borrow().is_empty();
        if !self.is_presumed_ready() || (has_own && !self.was_last_own.get()) {
            return None;
        }
        let is_busy = self.begins_soon(limits, moment).or_else(|| {
            // While others wait for R, R does not become idle, so the request has to wait there.
            let is_contended = has_own || self.rings.has_messages();
            (is_contended && self.accepts_one()).then_some(true)
        })?;
        let in_flight = self.in_flight.borrow().len();
        Some(Rank {
            // If sessions count, a worker that has just responded is as free as an idle worker.
            is_busy: is_busy && !(counts_sessions && self.has_just_responded(in_flight, moment)),
            sessions: if counts_sessions { self.sessions() } else { 0 },
            in_flight,
            is_asleep: !self.latency.get().is_polling(moment.instant),
            last_choice: self.last_choice.get(),
        })
    }

    /// Returns true if the worker may be sent another of the requests that only this worker can
    /// process. A busy worker may get one of them in advance, because no other worker could begin
    /// it sooner.
    pub(super) fn accepts_own_requests(&self, limits: &PoolLimits) -> bool {
        matches!(self.entry.availability(), Availability::Ready | Availability::Draining)
            && (self.begins_soon(limits, Moment::now()).is_some() || self.accepts_one())
    }

    /// Returns true if R has begun all requests that were sent to the worker, so that one more may
    /// wait there.
    fn accepts_one(&self) -> bool {
        self.rings.accepts_requests() && self.unbegun() == 0
    }

    /// Returns true if the worker has fewer than the maximum number of requests, or more, but this
    /// peer or its network has so few of them that it may have another one.
    pub(super) fn find_place_for(&self, peer: Peer, limits: &PoolLimits) -> bool {
        self.in_flight.borrow_mut().find_place(peer, limits.max_in_flight)
    }

    /// Returns true if the worker is ready and has the maximum number of requests, but may be sent
    /// requests of peers or networks that have fewer of them than others.
    pub(super) fn find_place_for_others(&self, limits: &PoolLimits) -> bool {
        self.is_presumed_ready()
            && self.in_flight.borrow_mut().find_place_for_others(limits.max_in_flight)
    }

    /// Returns true if the worker has the maximum number of requests.
    pub(super) fn is_full(&self, limits: &PoolLimits) -> bool {
        self.in_flight.borrow().is_full(limits.max_in_flight)
    }

    /// Returns the number of requests that were sent to the worker and that R has not begun to
    /// process.
    fn unbegun(&self) -> usize {
        let scoreboard = &self.entry.scoreboard;
        let in_flight = self.in_flight.borrow();
        in_flight.iter().filter(|request| !scoreboard.has_begun(request.ticket)).count()
    }

    /// Returns `None` if the worker's R process cannot begin another request soon. Otherwise,
    /// returns whether R is busy now. The number of requests that the worker has is not considered.
    fn begins_soon(&self, limits: &PoolLimits, moment: Moment) -> Option<bool> {
        let in_flight = self.in_flight.borrow();
        if !self.rings.accepts_requests() {
            return None;
        }
        let snapshot = self.entry.read_scoreboard();
        let untaken = untaken(&snapshot, in_flight.len());
        let now = moment.nanoseconds;
        let is_idle = snapshot.is_idle(now);
        // R is free if it has begun all its requests and is idle, which includes waiting for
        // promises, or if the worker has just sent its last response.
        let is_free = untaken == 0 && (is_idle || self.has_just_responded(in_flight.len(), moment));
        let elapsed = if is_idle { Duration::ZERO } else { snapshot.elapsed(now) };
        let ahead = self.latency.get().requests_ahead(elapsed);
        (is_free || untaken < ahead.max(limits.min_ahead)).then_some(!is_idle)
    }

    /// Returns true if a request waits in the rings to the worker.
    pub(in crate::pool) fn has_ahead(&self) -> bool {
        self.has_in_flight() && self.entry.read_scoreboard().queued() > 0
    }

    /// Returns true if the worker's R process could begin a request now.
    pub(super) fn is_free(&self, limits: &PoolLimits, moment: Moment) -> bool {
        self.is_presumed_ready()
            && !self.is_full(limits)
            && self.begins_soon(limits, moment) == Some(false)
    }

    /// Returns the state of this worker for requests that name it in their cookie or URL. The
    /// worker counts as stuck if R has been busy with one task for at least `limit`.
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

    /// Returns true if the worker can be expected to respond.
    pub(super) fn is_presumed_ready(&self) -> bool {
        self.entry.availability() == Availability::Ready && !self.entry.is_violating()
    }

    fn has_just_responded(&self, in_flight: usize, moment: Moment) -> bool {
        in_flight == 0 && self.latency.get().has_just_responded(moment.instant)
    }

    // ---- requests ----

    /// Returns true if the worker has requests to which it has not responded.
    pub(in crate::pool) fn has_in_flight(&self) -> bool {
        self.in_flight.borrow().len() > 0
    }

    /// Returns true if a request has waited for `limit` or longer and R has not yet begun it.
    pub(super) fn has_overdue(&self, limit: Duration, now: Instant) -> bool {
        self.in_flight.borrow().iter().any(|request| {
            now.saturating_duration_since(request.queued_since) >= limit
                && !self.entry.scoreboard.has_begun(request.ticket)
        })
    }

    /// Returns the shortest time after which a request that R has not begun will have waited for
    /// `limit`. Requests that have already waited for so long do not count.
    pub(super) fn time_until_overdue(&self, limit: Duration, now: Instant) -> Option<Duration> {
        let in_flight = self.in_flight.borrow();
        let unbegun = in_flight.iter().filter(|it| !self.entry.scoreboard.has_begun(it.ticket));
        let left = unbegun.filter_map(|request| {
            limit.checked_sub(now.saturating_duration_since(request.queued_since))
        });
        left.filter(|left| !left.is_zero()).min()
    }

    /// Counts a request of a peer as sent to the worker and takes a ticket for it, that is, a
    /// number on the worker's scoreboard. The request has been waiting since `queued_since`.
    /// Returns `None` if all tickets are in use.
    pub(super) fn start_request(&self, peer: Peer, queued_since: Instant) -> Option<TicketGuard> {
        let guard = self.tickets.take()?;
        let ticket = guard.ticket();
        self.in_flight.borrow_mut().add(InFlight { ticket, peer, queued_since });
        let load = &self.entry.load;
        load.in_flight.fetch_add(1, Ordering::Relaxed);
        // Counted before the request is sent, so that R cannot take an uncounted request.
        load.passed.fetch_add(1, Ordering::Release);
        Some(guard)
    }

    /// Records that the worker has responded to a request that was sent at `sent_at`.
    pub(in crate::pool) fn on_response(&self, ticket: Ticket, sent_at: Instant, now: Instant) {
        self.forget_request(ticket);
        let mut latency = self.latency.get();
        latency.on_response(work_done(&self.entry), sent_at, now);
        self.latency.set(latency);
        self.entry.load.responses.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a request from the worker's requests in flight, because the pool no longer waits for
    /// its response.
    pub(in crate::pool) fn forget_request(&self, ticket: Ticket) {
        self.in_flight.borrow_mut().remove(ticket);
    }

    /// Subtracts one from the number of requests passed to the worker. The caller has a request
    /// that R has not taken and never will.
    pub(in crate::pool) fn uncount_request(&self) {
        // A worker may decline more requests than it has.
        let one_less = |count: u64| count.checked_sub(1);
        let passed = &self.entry.load.passed;
        let _ = passed.fetch_update(Ordering::Release, Ordering::Relaxed, one_less);
    }

    /// Subtracts one request from the worker's load, because the pool has received its response or
    /// has given up waiting for it.
    pub(in crate::pool) fn finish_request(&self) {
        self.entry.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    // ---- sessions ----

    /// Reserves a session at the worker for a page or a WebSocket that this peer requests. If the
    /// worker has the maximum number of sessions, removes the oldest reservation of the network
    /// that has the most, provided that it has more than the peer's network would have.
    pub(super) fn reserve_session(&self, request: ExchangeId, peer: Peer, limits: &PoolLimits) {
        self.sessions.borrow_mut().reserve(request, peer, limits.max_sessions);
        self.report_sessions();
    }

    /// Releases the session that is reserved for a request, if the worker has not responded to the
    /// request, or has refused the WebSocket.
    pub(in crate::pool) fn release_reservation(&self, request: ExchangeId) {
        self.sessions.borrow_mut().release(request);
        self.report_sessions();
    }

    /// Counts a WebSocket of a peer as a session of the worker. The session takes the reservation
    /// for its handshake, or otherwise the oldest of its network, if there is one.
    pub(in crate::pool) fn begin_session(&self, handshake: ExchangeId, peer: Peer) {
        self.sessions.borrow_mut().begin(handshake, peer);
        self.report_sessions();
    }

    /// Subtracts a WebSocket of a peer, which was counted as a session of the worker.
    pub(in crate::pool) fn end_session(&self, peer: Peer) {
        self.sessions.borrow_mut().end(peer);
        self.report_sessions();
    }

    /// Removes the worker's reservations of sessions that have expired.
    pub(super) fn expire_reservations(&self) {
        if self.sessions.borrow_mut().expire() {
            self.report_sessions();
        }
    }

    fn report_sessions(&self) {
        let (sessions, load) = (self.sessions.borrow(), &self.entry.load);
        load.sessions.store(sessions.open(), Ordering::Relaxed);
        load.pending_sessions.set(sessions.reserved() as u64);
    }

    /// Returns true if the worker has the maximum number of sessions and reservations, or more.
    pub(super) fn is_full_of_sessions(&self, limits: &PoolLimits) -> bool {
        limits.max_sessions != usize::MAX && self.sessions() >= limits.max_sessions
    }

    /// Returns true if this peer may have a session although the worker has the maximum number of
    /// them, because its network has so few.
    pub(super) fn has_session_beyond(&self, peer: Peer, limits: &PoolLimits) -> bool {
        self.sessions.borrow().has_place_beyond(peer, limits.max_sessions)
    }

    /// Returns the number of the worker's sessions, including reservations for WebSockets that are
    /// not open yet.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.borrow().len()
    }
}

/// Returns the number of requests that R has not taken, but at most `in_flight`, because a worker
/// can write any number. Reading two counters is cheaper than reading a word for each request.
fn untaken(snapshot: &Snapshot, in_flight: usize) -> usize {
    usize::try_from(snapshot.queued()).unwrap_or(usize::MAX).min(in_flight)
}

/// Returns the work that a worker has done since its start, according to its scoreboard (the shared
/// memory in which it publishes its counters).
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
            // The result does not depend on the order of the workers.
            let rotated = best_first.iter().cycle().skip(offset).take(best_first.len());
            assert_eq!(rotated.min(), best_first.first());
        }
    }
}
