//! The pool, which distributes the requests of a supervisor's server among the worker processes.
//! Requests wait in one queue until a worker's R process can begin them. The pool runs on the
//! server's I/O thread, which calls it through the trait `Application`.
//!
//! ```text
//!   handle_event() -> queue -> balancer -> hop -- rings --> R in a worker
//!                                           |
//!   take_commands() <- responder <----------+
//! ```
//!
//! If a worker dies, a request that its R process had not begun is sent to another worker. By
//! default, a request that R had begun gets a 502 response. The worker's scoreboard (shared memory)
//! shows whether R had begun the request.

mod balancing;
mod context;
mod deferred_body;
mod dispatch;
mod error_reply;
mod hop;
mod limits;
mod responder;
mod ring_connection;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{
    Budget, Command, Event, Exchange, IoWaker, Peer, PushError, WakeUp, WebSocketId,
};
use rookery_server::static_files::StaticFiles;
use rookery_server::{Application, MakeApplication};
use rookery_worker_protocol::{RouteTable, ShinySessions};

use crate::backend_registry::BackendRegistry;
use balancing::queue::QueuedRequest;
use balancing::session_affinity::{self, Keys, UrlAffinity};
pub use balancing::session_affinity::{SessionAffinity, server_name};
use context::PoolContext;
use dispatch::dispatch;
pub use limits::PoolLimits;

/// Returns the function with which the server creates the pool, which sends requests to the workers
/// in `registry`. Pass it to
/// [`Server::with_application`](rookery_server::Server::with_application).
pub fn pool(registry: Arc<BackendRegistry>, limits: PoolLimits) -> MakeApplication {
    let keys = Arc::new(Keys::new(&limits.cookie_suffix));
    Arc::new(move |waker: Arc<dyn IoWaker>| {
        let keys = Arc::clone(&keys);
        let pool = PoolContext::new(Arc::clone(&registry), limits.clone(), keys, waker);
        dispatch::start_tasks(&pool, &registry);
        Box::new(Pool(pool)) as Box<dyn Application>
    })
}

/// Reads a `Cookie` header, for the fuzzer. Returns whether a cookie names a worker, and the header
/// without the session cookie if there was one. The first value must always be false, because the
/// fuzzer does not know the signing key.
#[doc(hidden)]
pub fn read_cookies_for_fuzzer(cookies: &[u8]) -> (bool, Option<Vec<u8>>) {
    let keys = Keys::new("");
    (keys.read(cookies).target().is_some(), keys.names.without_own(cookies))
}

/// Reads the query of a URL, for the fuzzer. Returns whether the parameter `w=` names a worker, and
/// whether the query consists only of this parameter.
#[doc(hidden)]
pub fn read_query_for_fuzzer(query: &[u8]) -> (bool, bool) {
    let is_named = matches!(session_affinity::read_query(query), UrlAffinity::Worker(_));
    (is_named, session_affinity::is_only_affinity(query))
}

/// The pool, to which the server passes requests, and which assigns them to workers.
struct Pool(Rc<PoolContext>);

impl Pool {
    fn enqueue(&self, exchange: Box<Exchange>, is_head_only: bool) -> Result<(), PushError> {
        let enqueued = self.0.balancer.enqueue(QueuedRequest::new(exchange, is_head_only));
        dispatch(&self.0);
        enqueued
    }
}

impl Application for Pool {
    fn handle_event(&self, peer: Peer, event: Event) -> Result<WakeUp, PushError> {
        let pool = &self.0;
        pool.events.set(pool.events.get() + 1);
        match event {
            Event::Request(exchange) => self.enqueue(exchange, false)?,
            Event::Head(exchange) => self.enqueue(exchange, true)?,
            Event::Message { socket, kind, payload, .. } => {
                hop::on_message(pool, peer, socket, (kind, payload));
            }
            Event::Closed { socket, code, reason, is_clean, .. } => {
                hop::on_closed(pool, peer, socket, (code, is_clean, reason));
            }
            Event::Writable { stream, .. } => hop::on_writable(pool, stream),
            Event::Pull { stream, .. } => hop::on_pull(pool, stream),
            Event::Drained { socket, .. } => hop::on_drained(pool, socket),
            Event::StreamEnded { stream, reason, .. } => {
                hop::on_stream_ended(pool, stream, reason);
                dispatch(pool);
            }
            // These events need no action, because the server passes complete bodies to the pool.
            Event::Body { .. } | Event::BodyEnd { .. } => {}
        }
        Ok(WakeUp::NotNeeded)
    }

    fn wants_head(&self, exchange: &Exchange) -> bool {
        self.0.balancer.wants_head(exchange)
    }

    fn static_files(
        &self,
        query: &[u8],
        cookies: &mut dyn Iterator<Item = &[u8]>,
    ) -> Option<StaticFiles> {
        self.0.balancer.static_files(query, cookies)
    }

    fn drops_half_closed(&self) -> bool {
        true
    }

    fn on_client_disconnect(&self) {
        self.0.balancer.on_client_disconnect();
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        hop::run(&self.0, dispatch);
        self.0.responder.take_commands(commands);
    }

    fn poll_capacity(&self, peer: Peer, socket: WebSocketId) -> bool {
        hop::has_capacity(&self.0, peer, socket)
    }

    fn set_budget(&self, budget: &Arc<Budget>) {
        let _ = self.0.budget.set(Arc::clone(budget));
    }

    fn routes(&self) -> Option<Arc<RouteTable>> {
        Some(Arc::clone(self.0.responder.routes()))
    }

    fn sessions(&self) -> Option<Arc<ShinySessions>> {
        Some(Arc::clone(self.0.responder.sessions()))
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.0.buffers.borrow_mut().take()
    }

    fn recycle_buffer(&self, buffer: Vec<u8>) {
        self.0.buffers.borrow_mut().give(buffer);
    }

    fn take_has_forwarded(&self) -> bool {
        self.0.has_forwarded.replace(false)
    }

    fn events_taken(&self) -> u64 {
        self.0.events.get()
    }

    fn prepare_sleep(&self, _is_slow: bool) -> bool {
        let may_sleep = !self.0.responder.has_commands() && hop::prepare_sleep(&self.0);
        if !may_sleep {
            self.on_wake();
        }
        may_sleep
    }

    fn on_wake(&self) {
        hop::on_wake(&self.0);
    }
}
