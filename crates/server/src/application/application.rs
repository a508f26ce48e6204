//! The interface between the server and an application.

use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{Command, Event, Exchange, IoWaker, PushError, WakeUp, WebSocketId};

use crate::net::unix_stream::UnixStream;

/// Makes an application on the I/O thread, inside its runtime, each time that the thread starts. A
/// thread that adds a command for [`Application::take_commands`] must wake the I/O thread by the
/// waker.
pub type MakeApplication = Arc<dyn Fn(Arc<dyn IoWaker>) -> Box<dyn Application> + Send + Sync>;

/// A process that continues an accepted WebSocket as its server side.
#[derive(Debug)]
pub struct Upstream {
    /// The socket connected to the process.
    pub socket: UnixStream,
    /// The bytes that were already read from the socket.
    pub read: Vec<u8>,
}

/// An application, which responds to requests and handles the messages of WebSockets, as the I/O
/// thread sees it. The value stays on that thread.
///
/// # Requirements
/// - No function blocks, and all are called on the I/O thread. An application that works on another
///   thread passes events on by a queue, and wakes the I/O thread when it has sent a command
///   ([`IoWaker`]).
/// - Each [`Event::Request`] and [`Event::Head`] that was [accepted](Self::handle_event) is
///   returned once, as [`Command::Respond`] or [`Command::ReadBody`] with the same exchange, even
///   if the client has disconnected.
/// - The events of a connection are handled in order, and so are the commands of a WebSocket.
/// - Commands for a closed WebSocket are ignored.
/// - The queue of an application is bounded: it refuses requests, and stops messages by
///   [`poll_capacity`](Self::poll_capacity).
pub trait Application {
    /// Handles an event.
    ///
    /// # Errors
    /// Returns a request if too many requests are queued. All other events are accepted.
    fn handle_event(&self, event: Event) -> Result<WakeUp, PushError>;

    /// Returns true if the application wants to see the head of this request before the body is
    /// read. Called for listeners that [show heads](crate::ListenerConfig::sees_heads).
    fn wants_head(&self, exchange: &Exchange) -> bool {
        !exchange.is_head_seen()
    }

    /// Returns true if a client that has sent a FIN after its request counts as disconnected while
    /// the request [waits](rookery_exchange::Exchange::set_waiting) for the application. Otherwise
    /// such a client gets its response.
    fn drops_half_closed(&self) -> bool {
        false
    }

    /// Notifies the application that a client has disconnected whose request
    /// [waits](rookery_exchange::Exchange::set_waiting) for the application.
    fn on_client_disconnect(&self) {}

    /// Moves the commands that the application has sent to `commands`, which is empty.
    fn take_commands(&self, commands: &mut VecDeque<Command>);

    /// Returns true if the application accepts messages. After false, the application wakes the I/O
    /// thread once it accepts messages again.
    fn poll_capacity(&self) -> bool;

    /// Returns true if the application accepts messages of this WebSocket. Only applications that
    /// limit each WebSocket separately implement this function;
    /// [`poll_capacity`](Self::poll_capacity) applies to all.
    fn has_capacity_for(&self, _socket: WebSocketId) -> bool {
        true
    }

    /// Returns the process that continues a WebSocket which the application has accepted, if there
    /// is one. Bytes are then forwarded in both directions, and the application gets no messages of
    /// the WebSocket. Called once for each WebSocket.
    fn take_upstream(&self, _socket: WebSocketId) -> Option<Upstream> {
        None
    }

    /// Returns an empty buffer for a message to the application.
    fn take_buffer(&self) -> Vec<u8>;

    /// Takes back the buffer of a message that the application has sent.
    fn recycle_buffer(&self, buffer: Vec<u8>);

    /// Wakes the application if [`handle_event`](Self::handle_event) has deferred that
    /// ([`WakeUp::AfterBatch`]).
    fn wake_deferred(&self);

    /// Returns true if the application runs on another thread of this process. The I/O thread then
    /// yields the processor before it sleeps, because the application may respond meanwhile, and
    /// watches a busy application ([`wake_if_stalled`](Self::wake_if_stalled)).
    fn has_thread(&self) -> bool {
        false
    }

    /// Returns true if the application has forwarded data to another process since the last call.
    /// The I/O thread then yields the processor before it sleeps, because a response may arrive
    /// meanwhile.
    fn take_has_forwarded(&self) -> bool {
        false
    }

    /// Returns the number of events that the application has taken so far.
    fn events_taken(&self) -> u64;

    /// Returns true if there are events that the application has not taken.
    fn has_unread_events(&self) -> bool;

    /// Wakes the application if it has taken no event since [`events_taken`](Self::events_taken)
    /// returned `seen`. Returns the current number of taken events, or `None` if no event is
    /// waiting.
    fn wake_if_stalled(&self, seen: u64) -> Option<u64>;

    /// Tells the application that the I/O thread is about to sleep. Returns false if there are
    /// commands, so that the thread must not sleep. `is_slow` is true if the application needs more
    /// than a millisecond to take events.
    fn prepare_sleep(&self, is_slow: bool) -> bool;

    /// Tells the application that the I/O thread is awake.
    fn on_wake(&self);
}
