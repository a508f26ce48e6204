//! What an application is to the server.

use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Exchange, IoWaker, PushError, WakeUp, WebSocketId};

use crate::net::unix_stream::UnixStream;

/// Makes an application on the I/O thread, inside of its runtime: each time that the thread starts. Whoever puts a command
/// where [`Application::commands`] finds it while the thread may be awake for other reasons wakes it with the waker.
pub type MakeApplication = Arc<dyn Fn(Arc<dyn IoWaker>) -> Box<dyn Application> + Send + Sync>;

/// A process that speaks WebSocket, as a server that has accepted the same handshake.
#[derive(Debug)]
pub struct Upstream {
    /// The socket to it.
    pub socket: UnixStream,
    /// What it has said already.
    pub read: Vec<u8>,
}

/// Whoever answers calls and speaks over WebSockets, as the I/O thread sees it; it lives on that thread.
///
/// # What an application keeps
/// - Nothing here blocks, and nothing is called from another thread. Whoever works elsewhere is told by a queue, and wakes
///   the I/O thread when it has something to say ([`IoWaker`](rookery_exchange::IoWaker)).
/// - Each [`Event::Request`] and [`Event::Head`] that was [taken](Self::take) comes back once, as [`Command::Respond`] or
///   [`Command::ReadBody`] with the same exchange, also when its client has gone
///   ([`Exchange::is_client_disconnected`](rookery_exchange::Exchange::is_departed)).
/// - Events of one connection are taken in their order, and so are the commands for one WebSocket.
/// - Commands for a WebSocket that has ended are harmless: they are ignored.
/// - What waits for it is bounded: requests by refusing them, messages by [`has_room`](Self::has_room).
pub trait Application {
    /// Takes an event.
    ///
    /// # Errors
    /// A request comes back when too many wait; nothing else does.
    fn handle_event(&self, event: Event) -> Result<WakeUp, PushError>;

    /// Whether it is to be shown the head of this request before its body is read, on a site that [shows
    /// heads](crate::ListenerConfig::sees_heads).
    fn wants_head(&self, exchange: &Exchange) -> bool {
        !exchange.is_head_seen()
    }

    /// Whether a client that has sent a FIN behind its request counts as gone while that [waits](rookery_exchange::ExchangeStatus::is_waiting). Else it is
    /// answered.
    fn drops_half_closed(&self) -> bool {
        false
    }

    /// The client of a request has gone that [waits](rookery_exchange::ExchangeStatus::is_waiting).
    fn on_client_disconnect(&self) {}

    /// Puts what it has sent into `commands`, which is empty.
    fn take_commands(&self, commands: &mut VecDeque<Command>);

    /// Whether it takes messages. After `false` the I/O thread is woken when it does again.
    fn has_capacity(&self) -> bool;

    /// Whether it takes those of this WebSocket, where it keeps them apart; else [`has_room`](Self::has_room) says all.
    fn has_capacity_for(&self, _socket: WebSocketId) -> bool {
        true
    }

    /// The other end of a WebSocket that it has accepted, where that is a process which speaks the protocol itself: bytes are passed on
    /// between the two from then on, and no message of it comes. Asked once for each.
    fn take_upstream(&self, _socket: WebSocketId) -> Option<Upstream> {
        None
    }

    /// An empty buffer for a message to it.
    fn take_buffer(&self) -> Vec<u8>;

    /// Takes the buffer of a message of its own back.
    fn recycle_buffer(&self, buffer: Vec<u8>);

    /// Wakes it, if [`take`](Self::take) put that off ([`WakeUp::AfterBatch`]).
    fn wake_deferred(&self);

    /// Whether it works on another thread of this process: then the processor is given away before the I/O thread sleeps, because it may answer
    /// meanwhile, and it is looked after when it is busy ([`nudge`](Self::nudge)).
    fn has_thread(&self) -> bool {
        false
    }

    /// Whether it has passed something on to another process since it was last asked: then the processor is given away before the I/O
    /// thread sleeps, because an answer may come meanwhile.
    fn take_has_forwarded(&self) -> bool {
        false
    }

    /// How many events it has come for so far.
    fn events_taken(&self) -> u64;

    /// Whether it has events to come for.
    fn has_unread_events(&self) -> bool;

    /// Looks whether it has come for anything since it was at `seen`, and wakes it if not. `None`: nothing waits.
    fn wake_if_stalled(&self, seen: u64) -> Option<u64>;

    /// The I/O thread is about to sleep; `false` when there are commands. `is_slow`: it takes longer than a millisecond.
    fn prepare_to_sleep(&self, is_slow: bool) -> bool;

    /// The I/O thread is awake.
    fn on_wake(&self);
}
