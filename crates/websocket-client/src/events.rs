//! The events of WebSocket clients, and the queues in which events wait for the application.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The overhead in bytes that is added to the size of each queued message, so that limits also
/// apply to empty messages.
const MESSAGE_COST: usize = 64;

/// A callback that tells the application that the clients of a group have events. It is called with
/// the number of the group, on the clients' thread, and possibly several times for one event.
pub type Wake = Box<dyn Fn(u32) + Send + Sync>;

/// The content of a WebSocket message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A text message, in UTF-8.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
}

/// An event of a WebSocket client. Each client's last event is either `Closed` or `Failed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The opening handshake of a client is complete, and its connection is open.
    Opened {
        /// The id of the client.
        client: u64,
        /// The subprotocol that the server chose, if any.
        protocol: Option<String>,
    },
    /// A client received a message from the server.
    Message {
        /// The id of the client.
        client: u64,
        /// The message that the client received.
        content: Content,
    },
    /// The open connection of a client has ended.
    Closed {
        /// The id of the client.
        client: u64,
        /// The close code of the connection: the code in the server's close frame, 1005 if that
        /// frame has no code, or 1006 if no close frame arrived. If the server violated the
        /// protocol, it is the code that was sent to the server.
        code: u16,
        /// The reason in the server's close frame, or the problem that ended the connection.
        reason: String,
        /// True if both the client and the server sent a close frame.
        is_clean: bool,
    },
    /// A client could not open its connection.
    Failed {
        /// The id of the client.
        client: u64,
        /// A description of the problem that prevented the connection.
        message: String,
        /// The HTTP status of the server's response, if the server rejected the handshake.
        status: Option<u16>,
    },
}

impl Content {
    /// Returns the content of the message as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Content::Text(text) => text.as_bytes(),
            Content::Binary(bytes) => bytes,
        }
    }

    /// Returns the number of bytes that the message counts towards the limit of a queue: its length
    /// and an overhead.
    pub(crate) fn cost(&self) -> usize {
        self.as_bytes().len().saturating_add(MESSAGE_COST)
    }
}

impl Event {
    /// Returns the id of the client to which the event belongs.
    pub fn client(&self) -> u64 {
        match self {
            Event::Opened { client, .. }
            | Event::Message { client, .. }
            | Event::Closed { client, .. }
            | Event::Failed { client, .. } => *client,
        }
    }
}

/// The queue of events for one group of WebSocket clients, in the order in which the events
/// occurred.
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<Event>>,
    group: u32,
    wake: Arc<Wake>,
}

impl EventQueue {
    pub(crate) fn new(group: u32, wake: Arc<Wake>) -> EventQueue {
        EventQueue { events: Mutex::default(), group, wake }
    }

    pub(crate) fn push(&self, event: Event) {
        self.events().push_back(event);
        (self.wake)(self.group);
    }

    pub(crate) fn pop(&self) -> Option<Event> {
        self.events().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events().is_empty()
    }

    /// Returns true if the queue contains an event of a client for which `is_wanted` returns true.
    pub(crate) fn has_event_of(&self, is_wanted: impl Fn(u64) -> bool) -> bool {
        self.events().iter().any(|event| is_wanted(event.client()))
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("events", &self.events().len()).finish_non_exhaustive()
    }
}
