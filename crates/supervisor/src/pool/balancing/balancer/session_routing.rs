//! Routing of requests with session affinity. A request that names a worker in its cookie or URL
//! waits in the queue of that worker. All other requests are parked: they wait together until any
//! worker can begin them. A worker for which both kinds wait gets one of each in turn.

use std::rc::Rc;
use std::time::Duration;

use rookery_exchange::{Exchange, UpstreamLog};
use rookery_server::static_files::StaticFiles;

use super::super::queue::QueuedRequest;
use super::super::session_affinity::{
    self, Cookie, CookieTarget, Destination, Names, RequestKind, UrlAffinity,
};
use super::super::worker_load::{Moment, PoolBackend};
use super::{Assignment, Balancer, has_other};
use crate::pool::error_reply::ErrorReply;

/// The time in which another worker must begin a request that its worker has not begun within the
/// queue timeout. Several such requests may have to take turns at the other worker.
const MOVE_TIME: Duration = Duration::from_millis(250);

impl Balancer {
    /// Returns true if the workers report that their app has sessions, as Shiny apps have.
    pub(super) fn has_sessions(&self) -> bool {
        self.backends.borrow().iter().any(|backend| backend.entry.is_sticky())
    }

    /// Assigns each queued request to the worker that the request names, or to a free worker if the
    /// request names no worker.
    pub(super) fn assign_by_session(&self, is_shiny: bool, assignments: &mut Vec<Assignment>) {
        self.release_pages_and_overdue();
        while let Some(request) = self.take_next(None) {
            self.route(request, is_shiny);
        }
        loop {
            let before = assignments.len();
            self.assign_parked(assignments);
            let gives_way = self.assign_own_requests(assignments);
            let is_last = assignments.len() == before && !gives_way;
            if is_last || !self.queue.borrow().has_parked() {
                break;
            }
        }
    }

    /// Routes one request: adds it to the queue of the worker that it names, parks it until any
    /// worker is free, or rejects it.
    fn route(&self, mut request: QueuedRequest, is_shiny: bool) {
        #[cfg(test)]
        self.examined.set(self.examined.get() + 1);
        let url = if is_shiny {
            session_affinity::read_query(request.exchange.query())
        } else {
            UrlAffinity::Absent
        };
        let kind = session_affinity::classify(&request.exchange, is_shiny, url);
        let is_first_time = request.kind.replace(kind).is_none();
        let named = self.named_backend(&request.exchange, kind, url, is_first_time);
        let named = named.filter(|backend| request.avoided_epoch != Some(backend.entry.epoch));
        let state = named.as_ref().map(|it| it.affinity_state(self.limits.queue_timeout));
        match (session_affinity::destination(kind, state), named) {
            (Destination::NamedBackend, Some(backend)) => {
                request.sets_cookie = false;
                self.queue_at(&backend, request);
            }
            (Destination::NotFound, _) => self.responder.reject(request, ErrorReply::SessionEnded),
            (Destination::AnyBackend | Destination::NamedBackend, _) => {
                request.sets_cookie = true;
                if session_affinity::begins_session(kind)
                    && self.is_full_of_sessions_for(request.peer())
                {
                    self.reject_session(request);
                } else {
                    self.queue.borrow_mut().park(request);
                }
            }
        }
    }

    /// Rejects a request that would begin a session, because all sessions are taken.
    pub(super) fn reject_session(&self, request: QueuedRequest) {
        self.counters().rejected_sessions.add(1);
        self.responder.reject(request, ErrorReply::SessionsFull);
    }

    /// Adds a request to the queue of the only worker that can process it.
    fn queue_at(&self, backend: &PoolBackend, request: QueuedRequest) {
        let max = self.limits.max_queued_requests;
        let rejected = backend.queue.borrow_mut().push(request, max);
        if let Some(rejected) = rejected {
            self.counters().rejected_full.add(1);
            self.responder.reject(rejected, ErrorReply::NoWorker);
        }
    }

    /// Assigns parked requests (those that wait for any free worker) to workers that can begin
    /// them, oldest first.
    fn assign_parked(&self, assignments: &mut Vec<Assignment>) {
        let mut has_session_capacity = true;
        // The time since which only the requests of peers are considered that a worker may be sent.
        let mut selective: Option<Moment> = None;
        loop {
            let is_of_wanted =
                |peer| selective.is_none_or(|moment| self.has_worker_for(peer, moment));
            let is_wanted =
                |request: &QueuedRequest| has_session_capacity || !request.begins_session();
            let taken = self.queue.borrow_mut().take_parked(is_of_wanted, is_wanted);
            let Some(request) = taken else { return };
            if request.exchange.is_client_disconnected() {
                self.responder.respond(request.exchange);
                continue;
            }
            let begins_session = request.begins_session();
            if let Some((backend, ticket, moment)) = self.choose(begins_session, true, &request) {
                assignments.push(Assignment { backend, ticket, request, moment });
                continue;
            }
            if begins_session && self.is_full_of_sessions_for(request.peer()) {
                // Others have taken the sessions since the request was parked. It must not keep
                // those of networks that have fewer sessions waiting.
                self.reject_session(request);
                continue;
            }
            self.queue.borrow_mut().put_back_parked(request);
            if selective.is_none() && self.has_places_for_others() {
                selective = Some(Moment::now());
                continue;
            }
            // A worker without capacity for a session may still be free for a request that begins
            // no session.
            if !begins_session || self.limits.max_sessions == usize::MAX {
                return;
            }
            has_session_capacity = false;
        }
    }

    /// Returns the worker that a request names in its URL, or otherwise in its cookie. For a page,
    /// only the cookie counts, because a parameter `w=` in the URL of a page may belong to the app.
    fn named_backend(
        &self,
        exchange: &Exchange,
        kind: RequestKind,
        url: UrlAffinity,
        is_first_time: bool,
    ) -> Option<Rc<PoolBackend>> {
        let read_cookie =
            || exchange.header(b"cookie").map_or(Cookie::Absent, |cookies| self.keys.read(cookies));
        let log_session = |cookie: Cookie, upstream: &mut UpstreamLog| {
            upstream.session = cookie.target().map(|target| self.keys.session_hash(target));
        };
        let by_url = match url {
            UrlAffinity::Worker(id)
                if !matches!(kind, RequestKind::Page | RequestKind::Undeclared) =>
            {
                self.backends.borrow().iter().find(|backend| backend.entry.id == id).cloned()
            }
            _ => None,
        };
        if by_url.is_some() {
            exchange.update_upstream_log(|upstream| log_session(read_cookie(), upstream));
            return by_url;
        }
        let cookie = read_cookie();
        if matches!(cookie, Cookie::Invalid) && is_first_time {
            self.counters().invalid_cookies.add(1);
        }
        exchange.update_upstream_log(|upstream| log_session(cookie, upstream));
        self.backend_of(cookie.target()?)
    }

    /// Returns the static paths of the worker that a request names in its URL or cookie. Returns
    /// `None` if it names none, or if all workers have the same paths.
    pub(in crate::pool) fn static_files(
        &self,
        query: &[u8],
        cookies: &mut dyn Iterator<Item = &[u8]>,
    ) -> Option<StaticFiles> {
        if !self.registry.has_different_files() || !self.is_sticky() {
            return None;
        }
        let by_url = match session_affinity::read_query(query) {
            UrlAffinity::Worker(id) if self.has_sessions() => {
                self.backends.borrow().iter().find(|backend| backend.entry.id == id).cloned()
            }
            _ => None,
        };
        let by_cookie = || {
            let mut cookies = std::iter::from_fn(|| cookies.next());
            self.backend_of(cookies.find_map(|value| self.keys.read(value).target())?)
        };
        Some(by_url.or_else(by_cookie)?.entry.files.clone())
    }

    /// Counts a WebSocket with which a page reconnects after it has lost its previous one. There
    /// are two counters: one for reconnects to the worker that the page's cookie names, and one for
    /// reconnects to another worker.
    pub(in crate::pool) fn count_reconnect(&self, exchange: &Exchange, backend: &PoolBackend) {
        if !backend.entry.is_sticky()
            || session_affinity::read_query(exchange.query()) != UrlAffinity::NewSession
        {
            return;
        }
        let cookies = exchange.header(b"cookie");
        let target = cookies.and_then(|cookies| self.keys.read(cookies).target());
        let counters = self.counters();
        if target.is_some_and(|target| is_target(backend, target)) {
            counters.reconnected_same_worker.add(1);
        } else {
            counters.reconnected_new_worker.add(1);
        }
    }

    fn backend_of(&self, target: CookieTarget) -> Option<Rc<PoolBackend>> {
        self.backends.borrow().iter().find(|backend| is_target(backend, target)).cloned()
    }

    /// Returns the names of this server's session cookie over HTTPS and over plaintext HTTP.
    pub(in crate::pool) fn cookie_names(&self) -> &Names {
        &self.keys.names
    }

    /// Returns a new session cookie that names a worker, and the number by which logs identify the
    /// session.
    pub(in crate::pool) fn new_cookie(
        &self,
        backend: &PoolBackend,
        is_https: bool,
    ) -> (String, u64) {
        // The casts are lossless: there are at most 1,000 slots, and no supervisor starts 2^32
        // workers.
        let target = CookieTarget::new(backend.entry.slot as u16, backend.entry.epoch as u32);
        let cookie = self.keys.set_cookie(target, is_https, self.limits.is_embedded);
        (cookie, self.keys.session_hash(target))
    }

    /// Moves the requests that need not, or must not, wait longer for the only worker that was to
    /// process them.
    fn release_pages_and_overdue(&self) {
        for backend in self.backends.borrow().iter() {
            self.release_pages(backend);
            let overdue = backend.queue.borrow_mut().take_overdue(self.limits.queue_timeout);
            for request in overdue {
                if may_move(&request) {
                    self.move_elsewhere(request, backend);
                } else {
                    self.reject_overdue(request);
                }
            }
        }
    }

    /// Assigns to each worker the queued requests that only this worker can process, until the
    /// worker can begin no more of them, or it is the turn of another request. Returns true if such
    /// requests lose their turn at a worker to others.
    fn assign_own_requests(&self, assignments: &mut Vec<Assignment>) -> bool {
        let mut gives_way = false;
        for backend in self.backends.borrow().iter() {
            gives_way |= self.assign_from_own_queue(backend, assignments);
            backend.queue.borrow().update_gauge(&backend.entry.load.queue);
        }
        gives_way
    }

    /// Returns the requests for pages from a worker's queue to the common queue if the worker
    /// drains, does not respond, or has been busy with one task for too long. They need not wait
    /// for this worker, because any worker can produce a page.
    fn release_pages(&self, backend: &PoolBackend) {
        if backend.queue.borrow().is_empty() {
            return;
        }
        let state = backend.affinity_state(self.limits.queue_timeout);
        let is_released = |request: &QueuedRequest| {
            request.kind.is_some_and(|kind| {
                session_affinity::destination(kind, Some(state)) == Destination::AnyBackend
            })
        };
        let released = backend.queue.borrow_mut().take_all(is_released);
        for request in released {
            self.move_elsewhere(request, backend);
        }
    }

    /// Assigns to a worker the queued requests that only this worker can process. Returns true if
    /// it was their turn, but the peers of all of them have too many requests there.
    fn assign_from_own_queue(
        &self,
        backend: &Rc<PoolBackend>,
        assignments: &mut Vec<Assignment>,
    ) -> bool {
        if backend.queue.borrow().is_empty() {
            return false;
        }
        let mut gives_way = false;
        let has_parked = self.queue.borrow().has_parked();
        while backend.accepts_own_requests(&self.limits) {
            let mut queue = backend.queue.borrow_mut();
            let next = if backend.is_full(&self.limits) {
                queue.pop_of(|peer| backend.find_place_for(peer, &self.limits))
            } else {
                queue.pop()
            };
            drop(queue);
            let Some(request) = next else {
                gives_way = !backend.was_last_own.replace(true);
                break;
            };
            if request.exchange.is_client_disconnected() {
                self.responder.respond(request.exchange);
                continue;
            }
            let Some(ticket) = backend.start_request(request.peer(), request.queued_since) else {
                backend.queue.borrow_mut().put_back(request);
                break;
            };
            assignments.push(Assignment {
                backend: Rc::clone(backend),
                ticket,
                request,
                moment: Moment::now(),
            });
            backend.was_last_own.set(true);
            if has_parked {
                break;
            }
        }
        if !backend.queue.borrow().is_empty() {
            self.needs_retry.set(true);
        }
        gives_way
    }

    /// Returns a request to the queue because its worker has not begun it in time, so that another
    /// worker processes it if one can begin it within [`MOVE_TIME`]. This is safe for every method,
    /// because R has not seen the request. Rejects the request if no other worker is ready or may
    /// process it.
    pub(in crate::pool) fn requeue_unbegun(&self, request: QueuedRequest, backend: &PoolBackend) {
        let may_go_anywhere = request.kind.is_none() && request.avoided_epoch.is_none();
        let has_other = has_other(&self.backends.borrow(), backend.entry.epoch);
        if may_move(&request) || (may_go_anywhere && has_other) {
            self.move_elsewhere(request, backend);
        } else {
            self.reject_overdue(request);
        }
    }

    /// Puts a request of this worker into the common queue, from which another worker has at least
    /// [`MOVE_TIME`] to begin it.
    fn move_elsewhere(&self, request: QueuedRequest, backend: &PoolBackend) {
        let most = self.limits.queue_timeout.saturating_sub(MOVE_TIME);
        let waited = request.queued_since.elapsed().min(most);
        self.requeue(avoiding(request, backend), waited);
    }
}

/// Returns true if the content of a session cookie names this worker.
fn is_target(backend: &PoolBackend, target: CookieTarget) -> bool {
    backend.entry.epoch == u64::from(target.epoch) && backend.entry.slot == u32::from(target.slot)
}

/// Returns true if a request that its worker has not begun in time may be moved to another worker.
/// Each request is moved at most once.
fn may_move(request: &QueuedRequest) -> bool {
    request.kind.is_some_and(session_affinity::may_move) && request.avoided_epoch.is_none()
}

/// Marks a request so that it avoids this worker from now on, and returns it. The time that it has
/// waited for this worker counts.
fn avoiding(mut request: QueuedRequest, backend: &PoolBackend) -> QueuedRequest {
    request.avoided_epoch = Some(backend.entry.epoch);
    request
}
