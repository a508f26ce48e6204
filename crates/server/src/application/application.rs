//! The interface between the server and an application: the [`Application`] trait, through which
//! the I/O thread passes requests and WebSocket messages to the application.

use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{
    Budget, Command, Event, Exchange, IoWaker, Peer, PushError, WakeUp, WebSocketId,
};
use rookery_worker_protocol::{RouteTable, ShinySessions};

use crate::static_files::StaticFiles;

/// A function that makes the [`Application`]. The I/O thread calls it once, when the thread starts.
/// Its argument is a handle by which other threads wake the I/O thread after they have queued a
/// command for [`Application::take_commands`].
pub type MakeApplication = Arc<dyn Fn(Arc<dyn IoWaker>) -> Box<dyn Application> + Send + Sync>;

/// The I/O thread's interface to an application, which responds to requests and to WebSocket
/// messages.
///
/// # Requirements
/// - All functions are called on the I/O thread and must not block. An application that works on
///   another thread passes the events to that thread through a queue, and wakes the I/O thread
///   ([`IoWaker`]) after it has sent a command. The default implementations about the other thread
///   are for applications that work on the I/O thread.
/// - An application that passes events on to another application must also pass on every function
///   with a default implementation. `#[deny(clippy::missing_trait_methods)]` on its implementation
///   checks this.
/// - The application responds exactly once to each [`Event::Request`] and [`Event::Head`] that it
///   has [accepted](Self::handle_event), even if the client has disconnected. The response is a
///   command with the same exchange (the object of the request and its response), such as
///   [`Command::Respond`] or [`Command::ReadBody`].
/// - The events of a peer are handled in order, and so are the commands of a WebSocket.
/// - Commands for a closed WebSocket are ignored.
/// - The application's queue of events is bounded. While it is full, the application refuses
///   requests, and returns false from [`poll_capacity`](Self::poll_capacity) to stop WebSocket
///   messages.
pub trait Application {
    /// Passes an event of a peer, such as a request or a WebSocket message, to the application.
    /// Returns what the I/O thread still has to do to wake the application.
    ///
    /// # Errors
    /// Returns the request, or an earlier one of a peer that has more of them, if too many requests
    /// are queued. All other events are always accepted.
    fn handle_event(&self, peer: Peer, event: Event) -> Result<WakeUp, PushError>;

    /// Returns true if the application wants to see the head of this request before the body is
    /// read. This function is called only for listeners whose
    /// [`sees_heads`](crate::ListenerConfig::sees_heads) is true.
    fn wants_head(&self, exchange: &Exchange) -> bool {
        !exchange.is_head_seen()
    }

    /// Returns the static paths that apply to a request with this query and these `Cookie` headers
    /// in place of those of its listener, or `None` (the default) if the listener's apply.
    fn static_files(
        &self,
        _query: &[u8],
        _cookies: &mut dyn Iterator<Item = &[u8]>,
    ) -> Option<StaticFiles> {
        None
    }

    /// Returns true if a client that half-closes its connection (FIN) counts as disconnected while
    /// its request [waits](rookery_exchange::Exchange::set_waiting) for the application. If false,
    /// the client still gets its response.
    fn drops_half_closed(&self) -> bool {
        false
    }

    /// Notifies the application that a client has disconnected while its request still
    /// [waits](rookery_exchange::Exchange::set_waiting) for the application.
    fn on_client_disconnect(&self) {}

    /// Moves all commands that the application has sent into `commands`, which is empty before the
    /// call.
    fn take_commands(&self, commands: &mut VecDeque<Command>);

    /// Returns true if the application can accept another message of this WebSocket, which belongs
    /// to `peer`. If it returns false, the application wakes the I/O thread as soon as it accepts
    /// messages again. The default is true, for applications that queue no messages.
    fn poll_capacity(&self, _peer: Peer, _socket: WebSocketId) -> bool {
        true
    }

    /// Gives the application the memory budget of the server, against which the application counts
    /// what it holds of clients' data and has not passed to the server yet. Called once, before all
    /// other functions. The default does nothing, for applications that hold nothing.
    fn set_budget(&self, _budget: &Arc<Budget>) {}

    /// Returns the table in which requests are counted by route, or `None` (the default) if the
    /// application counts none. A process with a scoreboard uses the scoreboard's table instead.
    fn routes(&self) -> Option<Arc<RouteTable>> {
        None
    }

    /// Returns the record of the sessions of Shiny, or `None` (the default) if the application
    /// records none. A process with a scoreboard uses the scoreboard's record instead.
    fn sessions(&self) -> Option<Arc<ShinySessions>> {
        None
    }

    /// Returns an empty buffer, into which the I/O thread writes a WebSocket message for the
    /// application. The default is a new buffer.
    fn take_buffer(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back a buffer for reuse, after the WebSocket message in it was sent to the client. The
    /// default is to free the buffer.
    fn recycle_buffer(&self, _buffer: Vec<u8>) {}

    /// Wakes the application. The I/O thread calls this function after a batch of events, if
    /// [`handle_event`](Self::handle_event) has returned [`WakeUp::AfterBatch`] for one of them.
    fn wake_deferred(&self) {}

    /// Returns true if the application runs on another thread of this process. The I/O thread then
    /// yields the processor before it sleeps, because the application may respond meanwhile.
    fn has_thread(&self) -> bool {
        false
    }

    /// Returns true if the application has forwarded data to another process since the last call.
    /// The I/O thread then yields the processor before it sleeps, because a response may arrive
    /// meanwhile.
    fn take_has_forwarded(&self) -> bool {
        false
    }

    /// Returns the number of events that the application has taken from its queue so far.
    fn events_taken(&self) -> u64;

    /// Returns true if events are queued that the application has not taken yet.
    fn has_unread_events(&self) -> bool {
        false
    }

    /// Wakes the application if it has taken no event since [`events_taken`](Self::events_taken)
    /// returned `seen`. Returns the number of events that the application has taken by now, or
    /// `None` if no event is queued.
    fn wake_if_stalled(&self, _seen: u64) -> Option<u64> {
        None
    }

    /// Notifies the application that the I/O thread is about to sleep. Returns false if the
    /// application has sent commands, so that the thread must not sleep. `is_slow` is true if the
    /// application needs more than a millisecond to take events.
    fn prepare_sleep(&self, is_slow: bool) -> bool;

    /// Notifies the application that the I/O thread has stopped sleeping, so that new commands need
    /// not wake the thread.
    fn on_wake(&self) {}
}
