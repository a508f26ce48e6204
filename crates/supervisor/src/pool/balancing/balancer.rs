//! The balancer, which assigns queued requests to workers that can begin them soon.

mod session_routing;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_exchange::{Exchange, Peer, PushError, TerminationState, UpstreamLog, WakeUp};
use rookery_worker_protocol::TicketGuard;

use super::queue::{QueuedRequest, RequestQueue};
use super::session_affinity::{Keys, SessionAffinity};
use super::worker_load::{Moment, PoolBackend};
use crate::backend_registry::BackendRegistry;
use crate::pool::deferred_body;
use crate::pool::error_reply::ErrorReply;
use crate::pool::limits::PoolLimits;
use crate::pool::responder::Responder;
use rookery_status::PoolCounters;

/// A request and the worker that the balancer has chosen for it.
pub(in crate::pool) struct Assignment {
    pub(in crate::pool) backend: Rc<PoolBackend>,
    pub(in crate::pool) ticket: TicketGuard,
    pub(in crate::pool) request: QueuedRequest,
    /// The time at which the worker was chosen.
    pub(in crate::pool) moment: Moment,
}

/// The balancer, which holds the queue of requests and assigns them to workers.
pub(in crate::pool) struct Balancer {
    limits: Rc<PoolLimits>,
    registry: Arc<BackendRegistry>,
    responder: Rc<Responder>,
    keys: Arc<Keys>,
    queue: RefCell<RequestQueue>,
    backends: RefCell<Vec<Rc<PoolBackend>>>,
    /// The number of times that the balancer has chosen a worker. It is used for a round-robin
    /// among equally suitable workers.
    choices: Cell<u64>,
    /// Whether the queue may contain a request of a client that has disconnected.
    has_disconnected: Cell<bool>,
    /// Whether the set of workers has changed since the parked requests (those that wait for any
    /// free worker) were last examined.
    has_changed: Cell<bool>,
    /// Whether the balancer has to try again after a while, because requests remain in the queue
    /// that no worker can begin yet.
    needs_retry: Cell<bool>,
    /// The number of requests that the balancer has assigned to workers.
    assigned: Cell<u64>,
    /// The number of times that a request's cookie and URL have been examined to find the worker
    /// that they name.
    #[cfg(test)]
    examined: Cell<u64>,
}

impl Balancer {
    pub(in crate::pool) fn new(
        limits: Rc<PoolLimits>,
        registry: Arc<BackendRegistry>,
        responder: Rc<Responder>,
        keys: Arc<Keys>,
    ) -> Balancer {
        registry.counters.queue_limit.set(limits.max_queued_requests as u64);
        registry.counters.sessions_limit.set(match limits.max_sessions {
            usize::MAX => 0,
            max => max as u64,
        });
        Balancer {
            limits,
            registry,
            responder,
            keys,
            queue: RefCell::default(),
            backends: RefCell::default(),
            choices: Cell::new(0),
            has_disconnected: Cell::new(false),
            has_changed: Cell::new(false),
            needs_retry: Cell::new(false),
            assigned: Cell::new(0),
            #[cfg(test)]
            examined: Cell::new(0),
        }
    }

    fn counters(&self) -> &PoolCounters {
        self.responder.counters()
    }

    // ---- the queue ----

    /// Returns true if the app inspects the head of this request before the server receives the
    /// body.
    pub(in crate::pool) fn wants_head(&self, exchange: &Exchange) -> bool {
        self.backends.borrow().iter().any(|backend| backend.entry.sees_heads())
            && deferred_body::is_deferred(exchange)
    }

    /// Adds a request to the queue.
    ///
    /// # Errors
    /// Returns the request if the queue is full, or an earlier request that has made place.
    pub(in crate::pool) fn enqueue(&self, request: QueuedRequest) -> Result<(), PushError> {
        let (max, id) = (self.limits.max_queued_requests, request.exchange.id());
        request.exchange.set_waiting(true);
        request.exchange.update_upstream_log(|upstream| {
            // If the head of the request was sent to a worker before, this replaces the log entry
            // of the head.
            *upstream =
                UpstreamLog { queued_since: Some(request.queued_since), ..UpstreamLog::default() };
        });
        if self.queue.borrow().is_full(max) {
            let disconnected = self.queue.borrow_mut().take_disconnected();
            for request in disconnected {
                self.responder.respond(request.exchange);
            }
        }
        let rejected = self.queue.borrow_mut().push(request, max);
        let Some(QueuedRequest { exchange, .. }) = rejected else { return Ok(()) };
        self.counters().rejected_full.add(1);
        exchange.set_waiting(false);
        exchange.update_upstream_log(|upstream| {
            upstream.on_terminated(Some(TerminationState::Queue), Instant::now());
        });
        Err(if exchange.id() == id {
            PushError::Full(exchange)
        } else {
            PushError::Displaced { exchange, wake_up: WakeUp::NotNeeded }
        })
    }

    /// Puts a request whose worker has not responded back into the queue, behind requests that have
    /// waited longer. `waited` is the time that the request spent in the queue before, without its
    /// time at the worker.
    pub(in crate::pool) fn requeue(&self, mut request: QueuedRequest, waited: Duration) {
        let now = Instant::now();
        request.queued_since = now.checked_sub(waited).unwrap_or(now);
        request.exchange.set_waiting(true);
        request.exchange.update_upstream_log(|upstream| upstream.on_queued(request.queued_since));
        self.queue.borrow_mut().insert(request);
    }

    /// Records that a client whose request is queued has disconnected. The next call of
    /// [`assign`](Self::assign) removes that request.
    pub(in crate::pool) fn on_client_disconnect(&self) {
        self.has_disconnected.set(true);
    }

    /// Removes the requests of disconnected clients from the queue, so that they do not take up its
    /// limited length.
    fn drop_disconnected(&self) {
        if !self.has_disconnected.replace(false) {
            return;
        }
        let mut disconnected = self.queue.borrow_mut().take_disconnected();
        for backend in self.backends.borrow().iter() {
            disconnected.append(&mut backend.queue.borrow_mut().take_disconnected());
            backend.queue.borrow().update_gauge(&backend.entry.load.queue);
        }
        for request in disconnected {
            self.responder.respond(request.exchange);
        }
    }

    fn reject_overdue(&self, request: QueuedRequest) {
        self.counters().rejected_timeout.add(1);
        self.responder.reject(request, ErrorReply::NoWorker);
    }

    // ---- assigning ----

    /// Chooses workers for the queued requests. Appends an assignment to `assignments` for each
    /// request that a worker can begin soon, and rejects requests that have waited too long. The
    /// caller sends the assigned requests.
    pub(in crate::pool) fn assign(&self, assignments: &mut Vec<Assignment>) {
        if self.registry.refuses_requests() {
            return self.refuse_all();
        }
        let before = assignments.len();
        self.drop_disconnected();
        for backend in self.backends.borrow().iter() {
            backend.expire_reservations();
        }
        let is_shiny = self.has_sessions();
        self.update_parked();
        if self.is_sticky() {
            self.assign_by_session(is_shiny, assignments);
        } else {
            self.assign_to_any(assignments);
        }
        if !self.queue.borrow().is_empty() {
            self.needs_retry.set(true);
        }
        self.queue.borrow().update_gauge(&self.counters().queue);
        self.assigned.set(self.assigned.get() + (assignments.len() - before) as u64);
    }

    /// Responds with 503 to all requests that wait for a worker, because the server ends.
    fn refuse_all(&self) {
        self.queue.borrow_mut().unpark_all();
        loop {
            let own = || self.backends.borrow().iter().find_map(|it| it.queue.borrow_mut().pop());
            let next = self.queue.borrow_mut().pop().or_else(own);
            let Some(request) = next else { break };
            self.responder.reject(request, ErrorReply::NoWorker);
        }
        self.queue.borrow().update_gauge(&self.counters().queue);
    }

    fn is_sticky(&self) -> bool {
        match self.limits.session_affinity {
            SessionAffinity::Auto => self.has_sessions(),
            SessionAffinity::None => false,
            SessionAffinity::Cookie => true,
        }
    }

    /// Returns true if requests have remained in the queue, so that the balancer has to examine
    /// them again after a while. Resets this state, so that a second call returns false.
    pub(in crate::pool) fn take_needs_retry(&self) -> bool {
        self.needs_retry.replace(false)
    }

    /// Returns the number of requests that the balancer has assigned to workers so far.
    pub(in crate::pool) fn assigned(&self) -> u64 {
        self.assigned.get()
    }

    /// Assigns each queued request to any worker that can begin it soon. Used without session
    /// affinity.
    fn assign_to_any(&self, assignments: &mut Vec<Assignment>) {
        // The requests that no worker accepts now, although a worker may accept a later request.
        let mut passed_over = Vec::new();
        let mut has_passed_over_upgrade = false;
        // The time since which only the requests of peers are considered that a worker may be sent.
        let mut selective = None;
        while let Some(request) = self.take_next(selective) {
            let Some(request) = self.try_assign(request, has_passed_over_upgrade, assignments)
            else {
                continue;
            };
            if self.blocks_later_requests(&request) {
                self.queue.borrow_mut().put_back(request);
                if selective.is_some() || !self.has_places_for_others() {
                    break;
                }
                selective = Some(Moment::now());
                continue;
            }
            has_passed_over_upgrade |= request.exchange.is_upgrade();
            passed_over.push(request);
        }
        for request in passed_over.into_iter().rev() {
            self.queue.borrow_mut().put_back(request);
        }
        let overdue = self.queue.borrow_mut().take_overdue(self.limits.queue_timeout);
        for request in overdue {
            self.reject_overdue(request);
        }
    }

    /// Returns parked requests (those that wait for any free worker) to the queue if the workers
    /// have changed. Otherwise rejects the parked requests that have waited too long.
    fn update_parked(&self) {
        let has_changed = self.has_changed.replace(false);
        if !self.queue.borrow().has_parked() {
            return;
        }
        if has_changed {
            self.queue.borrow_mut().unpark_all();
            return;
        }
        let overdue = self.queue.borrow_mut().take_overdue_parked(self.limits.queue_timeout);
        for request in overdue {
            self.reject_overdue(request);
        }
    }

    /// Returns true if all later requests must wait until a worker can begin this request. Two
    /// kinds of requests may be overtaken, because a free worker may be unsuitable for them but
    /// suitable for a later request:
    ///
    /// - a request that avoids a worker,
    /// - a WebSocket handshake, if the number of sessions per worker is limited.
    fn blocks_later_requests(&self, request: &QueuedRequest) -> bool {
        request.avoided_epoch.is_none()
            && (!request.exchange.is_upgrade() || self.limits.max_sessions == usize::MAX)
    }

    /// Assigns a request to the worker that suits it best, preferably one whose R process is free.
    /// Rejects a WebSocket handshake if no worker may have another session of its peer. Returns
    /// the request if no worker can begin it soon, or if it is a WebSocket handshake and an earlier
    /// one waits (`has_passed_over_upgrade`).
    fn try_assign(
        &self,
        request: QueuedRequest,
        has_passed_over_upgrade: bool,
        assignments: &mut Vec<Assignment>,
    ) -> Option<QueuedRequest> {
        let is_upgrade = request.exchange.is_upgrade();
        if is_upgrade && has_passed_over_upgrade {
            return Some(request);
        }
        if is_upgrade && self.is_full_of_sessions_for(request.peer()) {
            self.reject_session(request);
            return None;
        }
        let Some((backend, ticket, moment)) = self.choose(is_upgrade, false, &request) else {
            return Some(request);
        };
        assignments.push(Assignment { backend, ticket, request, moment });
        None
    }

    /// Returns true if a worker has the maximum number of requests, but may be sent requests of
    /// peers or networks that have fewer of them than others.
    fn has_places_for_others(&self) -> bool {
        self.backends.borrow().iter().any(|backend| backend.find_place_for_others(&self.limits))
    }

    /// Returns true if a worker can begin a request of this peer soon.
    fn has_worker_for(&self, peer: Peer, moment: Moment) -> bool {
        let backends = self.backends.borrow();
        backends.iter().any(|backend| backend.rank(peer, &self.limits, false, moment).is_some())
    }

    /// Removes and returns the next queued request whose client is still connected. If `selective`
    /// is a time, only requests that a worker could begin soon at that time are considered.
    fn take_next(&self, selective: Option<Moment>) -> Option<QueuedRequest> {
        loop {
            let mut queue = self.queue.borrow_mut();
            let request = match selective {
                Some(moment) => queue.pop_of(|peer| self.has_worker_for(peer, moment)),
                None => queue.pop(),
            }?;
            drop(queue);
            if !request.exchange.is_client_disconnected() {
                return Some(request);
            }
            self.responder.respond(request.exchange);
        }
    }

    /// Chooses a worker that can begin a request soon, preferably one whose R process is free.
    /// Takes a ticket from it, which is the number of the request at that worker. A worker that the
    /// request avoids is chosen only if no other worker is ready.
    ///
    /// If `begins_session` is true, only workers with capacity for another session are considered,
    /// or if no worker has capacity, those at which this peer's network has so few that it may have
    /// another one.
    /// If `counts_sessions` is true, the worker with the fewest sessions is preferred among workers
    /// that are equally free.
    fn choose(
        &self,
        begins_session: bool,
        counts_sessions: bool,
        request: &QueuedRequest,
    ) -> Option<(Rc<PoolBackend>, TicketGuard, Moment)> {
        let (moment, peer) = (Moment::now(), request.peer());
        let backends = self.backends.borrow();
        let avoided = request.avoided_epoch.filter(|epoch| has_other(&backends, *epoch));
        let goes_beyond = begins_session && self.is_full(&backends);
        let best = backends
            .iter()
            .filter(|backend| avoided != Some(backend.entry.epoch))
            .filter(|backend| {
                !begins_session
                    || !backend.is_full_of_sessions(&self.limits)
                    || (goes_beyond && backend.has_session_beyond(peer, &self.limits))
            })
            .filter_map(|backend| {
                Some((backend.rank(peer, &self.limits, counts_sessions, moment)?, backend))
            })
            .min_by(|(a, _), (b, _)| a.cmp(b));
        let backend = best?.1;
        self.choices.set(self.choices.get() + 1);
        backend.last_choice.set(self.choices.get());
        let ticket = backend.start_request(peer, request.queued_since)?;
        backend.was_last_own.set(false);
        if begins_session {
            backend.reserve_session(request.exchange.id(), peer, &self.limits);
        }
        Some((Rc::clone(backend), ticket, moment))
    }

    /// Returns true if at least one worker is ready, all ready workers have the maximum number of
    /// sessions, and this peer may not have another one nevertheless.
    fn is_full_of_sessions_for(&self, peer: Peer) -> bool {
        let backends = self.backends.borrow();
        let mut ready = backends.iter().filter(|backend| backend.is_presumed_ready());
        self.is_full(&backends)
            && !ready.any(|backend| backend.has_session_beyond(peer, &self.limits))
    }

    /// Returns true if at least one worker is ready and all ready workers have the maximum number
    /// of sessions.
    fn is_full(&self, backends: &[Rc<PoolBackend>]) -> bool {
        let mut ready = backends.iter().filter(|backend| backend.is_presumed_ready()).peekable();
        ready.peek().is_some() && ready.all(|backend| backend.is_full_of_sessions(&self.limits))
    }

    // ---- workers ----

    /// Updates the balancer's list of workers from the registry: adds new workers and removes those
    /// that have ended.
    pub(in crate::pool) fn update_backends(&self) {
        let entries = self.registry.backends();
        let mut backends = self.backends.borrow_mut();
        backends.retain(|backend| {
            let exists = entries.iter().any(|entry| entry.epoch == backend.entry.epoch);
            // The requests in the worker's own queue are routed again, because the change of
            // workers may have changed their destination.
            while let Some(request) = backend.queue.borrow_mut().pop() {
                self.queue.borrow_mut().insert(request);
            }
            exists
        });
        for entry in entries {
            if !backends.iter().any(|backend| backend.entry.epoch == entry.epoch) {
                backends.extend(PoolBackend::new(entry));
            }
        }
        drop(backends);
        self.has_changed.set(true);
    }

    pub(in crate::pool) fn backends(&self) -> Vec<Rc<PoolBackend>> {
        self.backends.borrow().clone()
    }

    /// Returns true if any worker has not yet responded to a request.
    pub(in crate::pool) fn has_in_flight(&self) -> bool {
        self.backends.borrow().iter().any(|backend| backend.has_in_flight())
    }

    /// Returns true if any request has waited too long at its worker.
    pub(in crate::pool) fn has_overdue(&self) -> bool {
        let now = Instant::now();
        let backends = self.backends.borrow();
        backends.iter().any(|backend| backend.has_overdue(self.limits.queue_timeout, now))
    }

    /// Returns the time after which the next request at a worker will have waited too long.
    pub(in crate::pool) fn time_until_overdue(&self) -> Option<Duration> {
        let (limit, now) = (self.limits.queue_timeout, Instant::now());
        let backends = self.backends.borrow();
        backends.iter().filter_map(|backend| backend.time_until_overdue(limit, now)).min()
    }

    /// Returns the number of workers whose R processes could begin a request now.
    pub(in crate::pool) fn free_workers(&self) -> usize {
        let moment = Moment::now();
        let backends = self.backends.borrow();
        backends.iter().filter(|backend| backend.is_free(&self.limits, moment)).count()
    }
}

/// Returns true if a worker with another epoch (serial number) than `epoch` is ready.
fn has_other(backends: &[Rc<PoolBackend>], epoch: u64) -> bool {
    backends.iter().any(|backend| backend.entry.epoch != epoch && backend.is_presumed_ready())
}
