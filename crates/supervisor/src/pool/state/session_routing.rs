//! Routes requests with sticky sessions: a request that names a worker waits for that worker, and
//! all others are parked, by age, until a worker can begin with them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rookery_exchange::{Exchange, UpstreamLog};

use super::{State, has_other};
use crate::pool::error_reply::ErrorReply;
use crate::pool::pool_backend::PoolBackend;
use crate::pool::queue::QueuedRequest;
use crate::pool::session_affinity::{
    self, Cookie, CookieTarget, Destination, Names, RequestKind, UrlAffinity,
};

impl State {
    /// Returns whether the app has sessions, as Shiny has. The workers report this.
    pub(super) fn is_shiny(&self) -> bool {
        self.workers.borrow().iter().any(|worker| worker.backend.is_sticky())
    }

    /// Gives each waiting request to the worker that it names, or else to a free one.
    pub(super) fn hand_out_by_name(self: &Rc<Self>, is_shiny: bool) {
        self.feed();
        while let Some(waiting) = self.next() {
            self.send_on_its_way(waiting, is_shiny);
        }
        self.place_parked();
    }

    /// Decides where a request has to go: it is put into the queue of a worker, parked, or refused.
    fn send_on_its_way(self: &Rc<Self>, mut waiting: QueuedRequest, is_shiny: bool) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        let told = if is_shiny {
            session_affinity::told(waiting.exchange.query())
        } else {
            UrlAffinity::Absent
        };
        let asks = session_affinity::asks(&waiting.exchange, is_shiny, told);
        let is_first_look = waiting.asks.replace(asks).is_none();
        let named = self.named(&waiting.exchange, asks, told, is_first_look);
        let named = named.filter(|worker| waiting.avoids != Some(worker.backend.epoch));
        let bond = named.as_ref().map(|worker| worker.bond(self.limits.queue_time));
        match (session_affinity::way(asks, bond), named) {
            (Destination::NamedBackend, Some(worker)) => {
                waiting.tells = false;
                self.queue_at(&worker, waiting);
            }
            (Destination::NotFound, _) => self.refuse(waiting, ErrorReply::Gone),
            (Destination::AnyBackend | Destination::NamedBackend, _) => {
                waiting.tells = true;
                if session_affinity::begins(asks) && self.is_full_of_sessions() {
                    self.counts().refused_sessions.add(1);
                    self.refuse(waiting, ErrorReply::Full);
                } else {
                    self.queue.borrow_mut().park(waiting);
                }
            }
        }
    }

    fn queue_at(self: &Rc<Self>, worker: &Rc<PoolBackend>, waiting: QueuedRequest) {
        if worker.queue.borrow().is_full(self.limits.queue) {
            self.counts().refused_full.add(1);
            return self.refuse(waiting, ErrorReply::NoWorker);
        }
        worker.queue.borrow_mut().insert(waiting);
        self.feed_one(worker);
    }

    /// Gives parked requests, the oldest first, to workers that can begin with them.
    fn place_parked(self: &Rc<Self>) {
        let mut has_room = true;
        loop {
            let parked =
                self.queue.borrow_mut().take_parked(|waiting| has_room || !waiting.begins());
            let Some(waiting) = parked else { return };
            if waiting.exchange.is_client_disconnected() {
                self.respond(waiting.exchange);
                continue;
            }
            let begins = waiting.begins();
            if let Some((worker, held)) = self.choose(begins, true, &waiting) {
                self.start(worker, held, waiting);
                continue;
            }
            self.queue.borrow_mut().park(waiting);
            // A worker that has no room for a session may have time for what begins none.
            if !begins || self.limits.sessions == usize::MAX {
                return;
            }
            has_room = false;
        }
    }

    /// Returns the worker that a request names in its URL, or else in its cookie. The URL of a page
    /// is not looked at: its query belongs to the app.
    fn named(
        &self,
        exchange: &Exchange,
        asks: RequestKind,
        told: UrlAffinity,
        is_first_look: bool,
    ) -> Option<Rc<PoolBackend>> {
        let read =
            || exchange.header(b"cookie").map_or(Cookie::Absent, |cookies| self.keys.read(cookies));
        let note = |cookie: Cookie, upstream: &mut UpstreamLog| {
            upstream.session = cookie.named().map(|named| self.keys.session(named));
        };
        let by_url = match told {
            UrlAffinity::Worker(id)
                if !matches!(asks, RequestKind::Page | RequestKind::Undeclared) =>
            {
                self.workers.borrow().iter().find(|worker| worker.backend.id == id).cloned()
            }
            _ => None,
        };
        if by_url.is_some() {
            exchange.update_upstream_log(|upstream| note(read(), upstream));
            return by_url;
        }
        let cookie = read();
        if matches!(cookie, Cookie::Invalid) && is_first_look {
            self.counts().cookies_invalid.add(1);
        }
        exchange.update_upstream_log(|upstream| note(cookie, upstream));
        self.worker_of(cookie.named()?)
    }

    /// PoolCounters a WebSocket that replaces one that a page has lost, by whether the new one is at the
    /// worker that made the page. A page that sends no cookie counts as one with a new worker.
    pub(in crate::pool) fn count_reconnect(&self, exchange: &Exchange, worker: &PoolBackend) {
        if !worker.backend.is_sticky()
            || session_affinity::told(exchange.query()) != UrlAffinity::NewSession
        {
            return;
        }
        let read = exchange.header(b"cookie").and_then(|cookies| self.keys.read(cookies).named());
        let is_same = read.is_some_and(|named| {
            u64::from(named.epoch) == worker.backend.epoch
                && u32::from(named.slot) == worker.backend.slot
        });
        let counts = self.counts();
        if is_same { counts.reconnected_same.add(1) } else { counts.reconnected_new.add(1) }
    }

    fn worker_of(&self, named: CookieTarget) -> Option<Rc<PoolBackend>> {
        let workers = self.workers.borrow();
        let is_it = |worker: &&Rc<PoolBackend>| {
            worker.backend.epoch == u64::from(named.epoch)
                && worker.backend.slot == u32::from(named.slot)
        };
        workers.iter().find(is_it).cloned()
    }

    /// Returns the names of the cookie that clients of this server get.
    pub(in crate::pool) fn cookie_names(&self) -> &Names {
        &self.keys.names
    }

    /// Returns the cookie by which a client comes back to a worker, and the number that logs know it by.
    pub(in crate::pool) fn cookie(&self, worker: &PoolBackend, is_https: bool) -> (String, u64) {
        // Of slots there are 1,000 at the most, and nobody starts four thousand million workers.
        let named = CookieTarget::new(worker.backend.slot as u16, worker.backend.epoch as u32);
        (self.keys.set_cookie(named, is_https, self.limits.is_embedded), self.keys.session(named))
    }

    /// Gives each worker the requests that wait for it.
    fn feed(self: &Rc<Self>) {
        let workers = self.workers.borrow().clone();
        for worker in &workers {
            self.release_pages(worker);
            self.feed_one(worker);
        }
    }

    /// Returns to the common queue those requests that need not wait for their worker any longer: pages, once
    /// it drains, does not answer or has been busy with one task for too long.
    fn release_pages(&self, worker: &PoolBackend) {
        if worker.queue.borrow().is_empty() {
            return;
        }
        let bond = worker.bond(self.limits.queue_time);
        let is_released = |waiting: &QueuedRequest| {
            waiting.asks.is_some_and(|asks| {
                session_affinity::way(asks, Some(bond)) == Destination::AnyBackend
            })
        };
        let released = worker.queue.borrow_mut().take_all(is_released);
        for waiting in released {
            self.queue.borrow_mut().insert(moved(waiting, worker));
        }
    }

    fn feed_one(self: &Rc<Self>, worker: &Rc<PoolBackend>) {
        self.feed_from_its_queue(worker);
        worker.queue.borrow().tell(&worker.backend.load.queue);
    }

    fn feed_from_its_queue(self: &Rc<Self>, worker: &Rc<PoolBackend>) {
        if worker.queue.borrow().is_empty() {
            return;
        }
        let overdue = worker.queue.borrow_mut().take_overdue(self.limits.queue_time);
        for waiting in overdue {
            if may_move(&waiting) {
                self.queue.borrow_mut().insert(moved(waiting, worker));
            } else {
                self.refuse_late(waiting);
            }
        }
        while worker.takes_its_own(&self.limits) {
            let Some(waiting) = worker.queue.borrow_mut().pop() else { return };
            if waiting.exchange.is_client_disconnected() {
                self.respond(waiting.exchange);
                continue;
            }
            let Some(held) = worker.begin(waiting.since) else {
                worker.queue.borrow_mut().push_front(waiting);
                break;
            };
            self.start(Rc::clone(worker), held, waiting);
        }
        if !worker.queue.borrow().is_empty() {
            self.look_again();
        }
    }

    /// Puts back a request that its worker has not begun in time, to be served by another one, whatever
    /// its method; or refuses it, where only that worker can answer or there is no other.
    pub(in crate::pool) fn let_go(self: &Rc<Self>, waiting: QueuedRequest, worker: &PoolBackend) {
        let may_go_anywhere = waiting.asks.is_none() && waiting.avoids.is_none();
        let has_other = has_other(&self.workers.borrow(), worker.backend.epoch);
        if may_move(&waiting) || (may_go_anywhere && has_other) {
            self.put_back(moved(waiting, worker), Duration::ZERO);
        } else {
            self.refuse_late(waiting);
        }
    }
}

/// Returns true if another worker may serve a request that its own has not begun in time. That happens once.
fn may_move(waiting: &QueuedRequest) -> bool {
    waiting.asks.is_some_and(session_affinity::may_move) && waiting.avoids.is_none()
}

/// Marks a request as one that leaves this worker, and restarts its waiting time.
fn moved(mut waiting: QueuedRequest, from: &PoolBackend) -> QueuedRequest {
    waiting.avoids = Some(from.backend.epoch);
    waiting.since = Instant::now();
    waiting
}
