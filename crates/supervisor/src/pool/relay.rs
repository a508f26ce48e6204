//! A WebSocket between a client and a worker: two of them, and their messages passed on in both directions. So each side has its own
//! pings, compression and closing handshake, whatever version of HTTP the client speaks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rookery_exchange::{Backlog, Command, Exchange, MessageKind, Payload, SocketId};
use rookery_server::UnixStream;
use rookery_websocket::protocol::{CloseCode, DecoderLimits};
use rookery_websocket::{Config, Kind, Outgoing, Parts, Reader, Sender};
use tokio::sync::Notify;

use super::connection::Connection;
use super::state::State;
use super::worker::Worker;
use crate::roster::Member;

/// Bytes that wait for a worker from which on its client is not read. One message may go past it.
const HIGH_MARK: usize = 1 << 20;

/// Bytes below which its client is read again.
const LOW_MARK: usize = 256 << 10;

/// What a client is told when its worker has ended: the service restarts, and a new session can be had (IANA's registry).
const RESTARTS: u16 = 1012;

/// What a page that comes back costs an R, about: so far apart are those closed that do.
const EACH_COMES_BACK: Duration = Duration::from_millis(50);

/// When one of so many is closed, of a worker that ends within a time: spread by chance, and not for longer than the others need.
fn closes_after(socket: SocketId, sessions: u32, within: Duration) -> Duration {
    let all = EACH_COMES_BACK.saturating_mul(sessions).min(within * 4 / 5);
    let chance = (socket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    all.mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

/// See the module.
pub(super) struct Relay {
    socket: SocketId,
    sender: Sender<UnixStream>,
    backlog: Option<Arc<Backlog>>,
    /// Something is to be written to the worker.
    to_write: Notify,
    /// The client takes messages again, or has gone.
    below: Notify,
    /// Whether the client is not read for the time being.
    is_full: Cell<bool>,
    /// How the client has ended it.
    left: RefCell<Option<Left>>,
}

#[derive(Debug)]
enum Left {
    /// With a close frame.
    Closed(CloseCode, Box<str>),
    /// Without.
    Broken,
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

/// Accepts the client's half of a WebSocket that the worker has accepted over this connection, and passes messages on from now on.
pub(super) fn start(
    state: &Rc<State>,
    worker: &Rc<Worker>,
    mut exchange: Box<Exchange>,
    connection: Connection,
) {
    let (socket, leftover) = connection.into_parts();
    let config = Config {
        // The worker's app may send what it likes, and the client's limits are the server's own.
        limits: DecoderLimits { message: u64::MAX, ..DecoderLimits::default() },
        high_water: LOW_MARK,
        queue_max: usize::MAX,
        // A worker that is there answers, and one that is not has closed.
        keep_alive: None,
        ..Config::default()
    };
    let parts = Parts { leftover, ..Parts::client(socket) };
    let (reader, sender) = parts.connection(config).split();
    let relay = Rc::new(Relay {
        socket: exchange.id(),
        sender,
        backlog: exchange.backlog().cloned(),
        to_write: Notify::new(),
        below: Notify::new(),
        is_full: Cell::new(false),
        left: RefCell::default(),
    });
    if let Some(compression) = state.limits.compression {
        exchange.reply_mut().set_compression(compression);
    }
    state.add_relay(relay.socket, Rc::clone(&relay));
    state.respond(exchange);
    worker.has_come();
    worker.member.load.sessions.fetch_add(1, Ordering::Relaxed);
    let (state, worker) = (Rc::clone(state), Rc::clone(worker));
    tokio::task::spawn_local(async move {
        tokio::select! {
            () = relay.read(&state, reader) => {}
            () = relay.write(&state) => {}
            () = relay.end_with(&worker.member, &state) => {}
        }
        worker.member.load.sessions.fetch_sub(1, Ordering::Relaxed);
    });
}

impl Relay {
    // ---- what the server tells ----

    /// Passes a message of the client's on.
    pub(super) fn forward(&self, kind: MessageKind, bytes: &[u8]) {
        // What cannot be sent any more has an end, which is told by the reader.
        let _ = match (kind, std::str::from_utf8(bytes)) {
            (MessageKind::Text, Ok(text)) => self.sender.queue(Outgoing::Text(text)),
            _ => self.sender.queue(Outgoing::Binary(bytes)),
        };
        self.to_write.notify_one();
    }

    /// Whether the client is to be read.
    pub(super) fn has_room_above(&self) -> bool {
        let has_room = self.sender.pending() < HIGH_MARK;
        self.is_full.set(!has_room);
        has_room
    }

    /// What was sent to the client has been written.
    pub(super) fn has_room_below(&self) {
        self.below.notify_one();
    }

    /// The client has ended it.
    pub(super) fn client_left(&self, code: u16, reason: &str) {
        let left = match CloseCode::new(code) {
            Some(code) => Left::Closed(code, reason.into()),
            // A close frame without a code (1005) has none to pass on.
            None if code == 1005 => Left::Closed(CloseCode::NORMAL, Box::default()),
            None => Left::Broken,
        };
        self.left.replace(Some(left));
        self.to_write.notify_one();
        self.below.notify_one();
    }

    // ---- its two directions ----

    /// Closes it when its worker is to end, which both sides are told in order.
    async fn end_with(&self, member: &Member, state: &State) {
        let within = loop {
            let told = state.deaths.notified();
            match member.ends_within() {
                Some(within) => break within,
                None => told.await,
            }
        };
        let sessions = member.load().1.try_into().unwrap_or(u32::MAX);
        tokio::time::sleep(closes_after(self.socket, sessions, within)).await;
        let reason = b"the worker ends".to_vec();
        state.command(Command::Close { socket: self.socket, code: RESTARTS, reason });
        // The worker is told by `write`, once the client has left.
        std::future::pending::<()>().await;
    }

    /// Passes the worker's messages on until there are no more.
    async fn read(&self, state: &State, mut reader: Reader<UnixStream>) {
        loop {
            let (kind, payload) = match reader.read().await {
                Ok(Some(message)) => {
                    let mut payload = state.buffer();
                    payload.extend_from_slice(message.as_bytes());
                    (message.kind(), payload)
                }
                Ok(None) => break,
                Err(_) => {
                    let reason = b"the worker has ended".to_vec();
                    state.command(Command::Close { socket: self.socket, code: RESTARTS, reason });
                    return;
                }
            };
            let kind = if kind == Kind::Text { MessageKind::Text } else { MessageKind::Binary };
            let given = self.backlog.as_ref().map_or(Some(true), |backlog| backlog.give(payload.len()));
            match given {
                Some(goes_on) => {
                    let payload = Payload::Pooled(payload);
                    state.command(Command::Send { socket: self.socket, kind, payload });
                    if !goes_on {
                        self.below.notified().await;
                    }
                }
                // It has ended, and the reader goes on only to hear of the worker's close frame.
                None => state.keep_buffer(payload),
            }
        }
        if self.left.borrow().is_none() {
            let code = match self.sender.ending().code {
                // It is the worker that goes away, and not what the client has connected to.
                Some(CloseCode::GOING_AWAY) => RESTARTS,
                Some(code) => code.get(),
                // Of a close frame without a code, which cannot be sent, the client gets the usual one.
                None => CloseCode::NORMAL.get(),
            };
            let reason = self.sender.close_reason().into_bytes();
            state.command(Command::Close { socket: self.socket, code, reason });
        }
    }

    /// Writes what is passed on, and ends when the client has ended it.
    async fn write(&self, state: &State) {
        loop {
            self.to_write.notified().await;
            if self.sender.flush().await.is_err() {
                // The reader hears of it as well, and says so.
                return std::future::pending().await;
            }
            if self.is_full.get() && self.sender.pending() < HIGH_MARK {
                state.wake();
            }
            match self.left.take() {
                Some(Left::Closed(code, reason)) => {
                    self.left.replace(Some(Left::Broken));
                    // Waits for the answer, a few seconds at the most.
                    let _ = self.sender.close(code, &reason).await;
                    return;
                }
                Some(Left::Broken) => return,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_closed_one_after_the_other_and_all_in_time() {
        // (sessions, milliseconds that are left, milliseconds in which they are closed)
        for (sessions, within, most) in [(40, 60_000, 2000), (1000, 60_000, 48_000), (10_000, 500, 400)] {
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
