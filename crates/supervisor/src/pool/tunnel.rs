//! Tunnels, which are WebSockets between clients and workers. The server takes over the connection
//! to the worker and forwards bytes unchanged in both directions. Pings, compression and the
//! closing handshake therefore concern only the client and the worker. The pool only counts the
//! tunnels of each worker and closes them before the worker ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rookery_exchange::{Command, WebSocketId};
use rookery_server::Upstream;

use super::balancing::worker_load::PoolBackend;
use super::connection::worker_connection::WorkerConnection;
use super::responder::Responder;
use crate::backend::Backend;

/// The close code that tells a client that its WebSocket is closed because the service restarts
/// (1012 in IANA's registry). The client may connect again.
pub(super) const SERVICE_RESTART: u16 = 1012;

/// The average interval at which the pool closes the WebSockets of a worker that is about to end.
/// They are not closed all at once, because their pages reconnect and R needs about this time to
/// serve each of them.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the delay after which to close a WebSocket whose worker will end after the time
/// `within`. `sessions` is the number of the worker's WebSockets. The delays are pseudo-random, so
/// that not all clients reconnect at once.
fn close_delay(socket: WebSocketId, sessions: u32, within: Duration) -> Duration {
    let all = RECONNECT_INTERVAL.saturating_mul(sessions).min(within * 4 / 5);
    let random = (socket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    all.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Returns a `Sec-WebSocket-Key` for an opening handshake with a worker. The key need not be
/// random, because randomness only prevents caches from responding in place of the server (RFC
/// 6455, 1.3), and there is no cache between this process and its workers.
pub(super) fn handshake_key() -> [u8; 24] {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut text = *b"AAAAAAAAAAAAAAAAAAAAAA==";
    for digit in &mut text[..11] {
        *digit = DIGITS[(number % 64) as usize];
        number /= 64;
    }
    text
}

/// A WebSocket whose bytes are forwarded unchanged between a client and a worker.
pub(super) struct Tunnel {
    backend: Rc<PoolBackend>,
    /// The connection to the worker, until the server takes it over to forward the bytes.
    upstream: RefCell<Option<Upstream>>,
    /// Whether this tunnel is already scheduled to be closed, because its worker is about to end.
    is_closing: Cell<bool>,
}

impl Tunnel {
    /// Creates a WebSocket tunnel over a connection on which the worker has accepted the opening
    /// handshake.
    pub(super) fn new(backend: &Rc<PoolBackend>, connection: WorkerConnection) -> Rc<Tunnel> {
        let (socket, read) = connection.into_parts();
        backend.release_reservation();
        backend.entry.load.sessions.fetch_add(1, Ordering::Relaxed);
        Rc::new(Tunnel {
            backend: Rc::clone(backend),
            upstream: RefCell::new(Some(Upstream { socket, read })),
            is_closing: Cell::new(false),
        })
    }

    /// Returns the tunnel's connection to the worker at the first call, and `None` after that.
    pub(super) fn take_upstream(&self) -> Option<Upstream> {
        self.upstream.take()
    }

    /// Removes the tunnel from its worker's count of sessions, because the WebSocket has been
    /// closed.
    pub(super) fn on_closed(&self) {
        self.backend.entry.load.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Schedules the closing of this WebSocket tunnel if its worker is about to end.
    pub(super) fn close_if_ending(&self, responder: &Rc<Responder>, socket: WebSocketId) {
        let backend = &self.backend.entry;
        let Some(within) = backend.session_close_time() else { return };
        if self.is_closing.replace(true) {
            return;
        }
        close_within(responder, socket, backend, within);
    }
}

/// Schedules the closing of a WebSocket whose worker will end after the time `within`.
pub(super) fn close_within(
    responder: &Rc<Responder>,
    socket: WebSocketId,
    backend: &Backend,
    within: Duration,
) {
    let sessions = backend.load().1.try_into().unwrap_or(u32::MAX);
    let delay = close_delay(socket, sessions, within);
    let responder = Rc::clone(responder);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(delay).await;
        // The server closes the client's WebSocket and forwards the client's close frame to the
        // worker.
        let reason = b"the worker is shutting down".to_vec();
        responder.send_command(Command::Close { socket, code: SERVICE_RESTART, reason });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websockets_are_closed_one_after_the_other_and_all_in_time() {
        // The columns are the number of sessions, the milliseconds that are left, and the
        // milliseconds within which all WebSockets are closed.
        for (sessions, within, max) in
            [(40, 60_000, 2000), (1000, 60_000, 48_000), (10_000, 500, 400)]
        {
            let within = Duration::from_millis(within);
            let mut tenths = [0_u32; 10];
            for socket in 1..=u64::from(sessions) {
                let delay = close_delay(socket, sessions, within).as_millis();
                assert!(delay <= max, "{delay} ms of {max}");
                tenths[usize::try_from(delay * 10 / max).unwrap().min(9)] += 1;
            }
            // No tenth of the time has more than twice the average number.
            assert!(tenths.iter().all(|count| *count <= sessions / 5), "{tenths:?}");
        }
        assert!(close_delay(7, 1, Duration::from_secs(60)) <= RECONNECT_INTERVAL);
        assert_eq!(close_delay(7, u32::MAX, Duration::ZERO), Duration::ZERO);
    }
}
