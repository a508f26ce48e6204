//! WebSockets between clients and workers: what was the connection to the worker is given to the server, which passes bytes on as they are. So
//! pings, compression and the closing handshake are between a worker and its client, whatever version of HTTP that speaks. Here it is known whose
//! each of them is, and it is said when a worker is to end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rookery_exchange::{Command, Exchange, WebSocketId};
use rookery_server::Upstream;

use super::pool_backend::PoolBackend;
use super::state::State;
use super::worker_connection::WorkerConnection;

/// What a client is told when its worker ends: the service restarts, and a new session can be had (IANA's registry).
const RESTARTS: u16 = 1012;

/// What a page that comes back costs an R, about: so far apart are those closed that do.
const EACH_COMES_BACK: Duration = Duration::from_millis(50);

/// When one of so many is closed, of a worker that ends within a time: spread by chance, and not for longer than the others need.
fn closes_after(socket: WebSocketId, sessions: u32, within: Duration) -> Duration {
    let all = EACH_COMES_BACK.saturating_mul(sessions).min(within * 4 / 5);
    let chance = (socket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    all.mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

/// See the module.
pub(super) struct Tunnel {
    worker: Rc<PoolBackend>,
    /// Until the server has it.
    far: RefCell<Option<Upstream>>,
    /// Whether its end is known, and comes at its time.
    is_ending: Cell<bool>,
}

/// A key for a handshake. It is there so that no cache takes one for a request (RFC 6455, 1.3), and there is none between us and a
/// worker: so it need not be random.
pub(super) fn key() -> [u8; 24] {
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

/// Accepts the client's half of a WebSocket that the worker has accepted over this connection.
pub(super) fn start(
    state: &Rc<State>,
    worker: &Rc<PoolBackend>,
    exchange: Box<Exchange>,
    connection: WorkerConnection,
) {
    let (socket, read) = connection.into_parts();
    let relay = Rc::new(Tunnel {
        worker: Rc::clone(worker),
        far: RefCell::new(Some(Upstream { socket, read })),
        is_ending: Cell::new(false),
    });
    state.count_reconnect(&exchange, worker);
    worker.has_come();
    worker.backend.load.sessions.fetch_add(1, Ordering::Relaxed);
    let id = exchange.id();
    state.add_relay(id, Rc::clone(&relay));
    state.respond(exchange);
    // It may have come to one that ends.
    relay.look_for_end(state, id);
}

impl Tunnel {
    /// The socket to the worker, once.
    pub(super) fn far_end(&self) -> Option<Upstream> {
        self.far.take()
    }

    /// It has ended.
    pub(super) fn end(&self) {
        self.worker.backend.load.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes it, in its turn, when its worker is to end.
    pub(super) fn look_for_end(&self, state: &Rc<State>, socket: WebSocketId) {
        let backend = &self.worker.backend;
        let Some(within) = backend.ends_within() else { return };
        if self.is_ending.replace(true) {
            return;
        }
        let sessions = backend.load().1.try_into().unwrap_or(u32::MAX);
        let pause = closes_after(socket, sessions, within);
        let state = Rc::clone(state);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(pause).await;
            // The worker is told by the client's answer.
            let reason = b"the worker ends".to_vec();
            state.command(Command::Close { socket, code: RESTARTS, reason });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_closed_one_after_the_other_and_all_in_time() {
        // (sessions, milliseconds that are left, milliseconds in which they are closed)
        for (sessions, within, most) in
            [(40, 60_000, 2000), (1000, 60_000, 48_000), (10_000, 500, 400)]
        {
            let within = Duration::from_millis(within);
            let mut tenths = [0_u32; 10];
            for socket in 1..=u64::from(sessions) {
                let after = closes_after(socket, sessions, within).as_millis();
                assert!(after <= most, "{after} ms of {most}");
                tenths[usize::try_from(after * 10 / most).unwrap().min(9)] += 1;
            }
            // In no tenth of the time twice as many as are due.
            assert!(tenths.iter().all(|count| *count <= sessions / 5), "{tenths:?}");
        }
        assert!(closes_after(7, 1, Duration::from_secs(60)) <= EACH_COMES_BACK);
        assert_eq!(closes_after(7, u32::MAX, Duration::ZERO), Duration::ZERO);
    }
}
