//! The pool: an application of the server's that is several worker processes. It lives on the server's I/O thread, has one
//! queue, and hands what waits there to a worker when its R can begin with it.
//!
//! ```text
//!   take() -> queue -> choose -> call -- a Unix socket --> a worker's server -> R
//!                                 |
//!   commands() <-- reply, pieces -+
//!   far_end() -> the server <-- bytes as they are, for each WebSocket --> a worker's server -> R
//! ```
//!
//! What becomes of a request whose worker dies depends on one thing alone: whether R had begun it. The worker's scoreboard says so.

mod attempt;
mod deferred_body;
mod error_reply;
mod framing;
mod latency_estimate;
mod pool_backend;
mod queue;
mod request_writer;
mod response_forwarder;
mod session_affinity;
mod spooled_body;
mod state;
mod tunnel;
mod worker_connection;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, IoWaker, PushError, WakeUp, WebSocketId};
use rookery_server::session_cookie::SessionCookie;
use rookery_server::{Application, MakeApplication, Upstream};

use crate::backend_registry::{BackendRegistry, MakeCookie};
#[doc(hidden)]
pub use framing::{ReadReply, read_reply_for_fuzzer};
use queue::QueuedRequest;
pub use session_affinity::{SessionAffinity, server_name};
use state::State;

/// Bounds of what waits.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "choices that have nothing to do with each other")]
pub struct PoolLimits {
    /// Requests that may wait for a worker: 503. Default 1,024, as one process has it.
    pub queue: usize,
    /// How long one may, in the queue or in a worker whose R has not begun it: 503. Default 10 s: whoever has
    /// waited so long has gone, or will not wait for another such time.
    pub queue_time: Duration,
    /// Requests that a worker may have at a time, those of promises included. Default 64.
    pub in_flight: usize,
    /// Requests that a worker is given at least, ahead of what its R does. Default 0: as many as make a millisecond of work.
    pub ahead: usize,
    /// Bytes of one reply that may wait to be written. Default 16 MiB, as one process has it.
    pub stream_bytes: usize,
    /// WebSockets that a worker may have, those of pages that it has just been given among them: 503 for new ones. Default: any number.
    pub sessions: usize,
    /// Whether a GET, HEAD or OPTIONS goes to another worker, once, when its own ended after R had begun it, before the
    /// head of its reply. Default: not. An app may do something for them as well.
    pub retries_begun: bool,
    /// Whether a client that has sent a FIN behind its request is answered also where that had to wait. Default: not, it counts as gone, as with
    /// `HAProxy`'s `abortonclose`: most that do so have left.
    pub keeps_half_closed: bool,
    /// Whether clients come back to their worker.
    pub sticky: SessionAffinity,
    /// The end of the name of the cookie by which clients come back to their worker, in characters
    /// that a cookie's name may have (RFC 6265, 4.1.1). Default: empty, which is right for a host
    /// with one server.
    pub name: String,
    /// Whether pages may lie in those of other sites, over HTTPS: their cookie is sent there then. Default: not.
    pub is_embedded: bool,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits {
            queue: 1024,
            queue_time: Duration::from_secs(10),
            in_flight: 64,
            ahead: 0,
            stream_bytes: 16 << 20,
            sessions: usize::MAX,
            retries_begun: false,
            keeps_half_closed: false,
            sticky: SessionAffinity::Auto,
            name: String::new(),
            is_embedded: false,
        }
    }
}

/// The workers of a registry as an application, for [`Server::with_application`](rookery_server::Server::with_application).
pub fn pool(registry: Arc<BackendRegistry>, limits: PoolLimits) -> MakeApplication {
    let keys = Arc::new(session_affinity::Keys::new(&limits.name));
    if limits.sticky != SessionAffinity::None {
        registry.set_cookies(Box::new(Cookies {
            keys: Arc::clone(&keys),
            is_embedded: limits.is_embedded,
        }));
    }
    Arc::new(move |waker: Arc<dyn IoWaker>| {
        let state = State::new(Arc::clone(&registry), limits.clone(), Arc::clone(&keys), waker);
        state::watch(&state);
        Box::new(Pool(state)) as Box<dyn Application>
    })
}

/// Makes the cookies that workers give to clients whose connections they accept themselves.
struct Cookies {
    keys: Arc<session_affinity::Keys>,
    is_embedded: bool,
}

impl MakeCookie for Cookies {
    fn cookie(&self, slot: u32, epoch: u64) -> SessionCookie {
        // Of slots there are 1,000 at the most, and nobody starts four thousand million workers.
        self.keys.session_cookie(
            session_affinity::CookieTarget::new(slot as u16, epoch as u32),
            self.is_embedded,
        )
    }
}

/// Whether a `Cookie` names a worker, which the key of this call has not signed, and what the app would see where it has one of ours. For the
/// fuzzer.
#[doc(hidden)]
pub fn read_for_fuzzer(cookies: &[u8]) -> (bool, Option<Vec<u8>>) {
    let keys = session_affinity::Keys::new("");
    (keys.read(cookies).named().is_some(), keys.names.without_own(cookies))
}

/// Whether a query names a worker, and whether it has that alone. For the fuzzer.
#[doc(hidden)]
pub fn told_for_fuzzer(query: &[u8]) -> (bool, bool) {
    (
        matches!(session_affinity::told(query), session_affinity::UrlAffinity::Worker(_)),
        session_affinity::is_ours_alone(query),
    )
}

/// See the module.
struct Pool(Rc<State>);

impl Application for Pool {
    fn handle_event(&self, event: Event) -> Result<WakeUp, PushError> {
        let state = &self.0;
        state.count_event();
        match event {
            Event::Request(exchange) => {
                state.enqueue(QueuedRequest::new(exchange, false)).map_err(PushError::Full)?;
            }
            Event::Head(exchange) => {
                state.enqueue(QueuedRequest::new(exchange, true)).map_err(PushError::Full)?;
            }
            Event::Closed { socket, .. } => {
                if let Some(relay) = state.take_relay(socket) {
                    relay.end();
                }
            }
            Event::Writable { stream, .. } => {
                state.with_outlet(stream, response_forwarder::ResponseSink::has_room)
            }
            Event::StreamEnded { stream, .. } => {
                if let Some(outlet) = state.take_outlet(stream) {
                    outlet.depart();
                }
            }
            // Bodies are taken whole, no stream is pulled, and of WebSockets bytes are passed on.
            Event::Body { .. }
            | Event::BodyEnd { .. }
            | Event::Pull { .. }
            | Event::Message { .. }
            | Event::Drained { .. } => {}
        }
        Ok(WakeUp::NotNeeded)
    }

    fn wants_head(&self, exchange: &Exchange) -> bool {
        self.0.sees_head(exchange)
    }

    fn drops_half_closed(&self) -> bool {
        !self.0.limits.keeps_half_closed
    }

    fn on_client_disconnect(&self) {
        self.0.has_left();
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        self.0.take_commands(commands);
    }

    /// Of WebSockets bytes are passed on.
    fn poll_capacity(&self) -> bool {
        true
    }

    fn take_upstream(&self, socket: WebSocketId) -> Option<Upstream> {
        self.0.relay(socket)?.far_end()
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.0.buffer()
    }

    fn recycle_buffer(&self, buffer: Vec<u8>) {
        self.0.keep_buffer(buffer);
    }

    fn wake_deferred(&self) {}

    fn take_has_forwarded(&self) -> bool {
        self.0.has_passed_on.replace(false)
    }

    fn events_taken(&self) -> u64 {
        self.0.events()
    }

    fn has_unread_events(&self) -> bool {
        false
    }

    fn wake_if_stalled(&self, _seen: u64) -> Option<u64> {
        None
    }

    fn prepare_sleep(&self, _is_slow: bool) -> bool {
        !self.0.has_commands()
    }

    fn on_wake(&self) {}
}
