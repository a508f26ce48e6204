//! The events of clients, and the queues in which they wait for the application.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The overhead in bytes that each message counts in a queue, so that empty messages are limited
/// too.
const MESSAGE_COST: usize = 64;

/// A callback that notifies the application of events of a group. Called on the clients' thread,
/// possibly many times for one event.
pub type Wake = Box<dyn Fn(u32) + Send + Sync>;

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text in UTF-8.
    Text(String),
    /// Binary data.
    Binary(Vec<u8>),
}

/// An event of a client. The last event of each client is exactly one `Closed` or `Failed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The opening handshake is complete.
    Opened {
        /// The id of the client.
        client: u64,
        /// The subprotocol that the server chose.
        protocol: Option<String>,
    },
    /// A message has arrived.
    Message {
        /// The id of the client.
        client: u64,
        /// The message.
        content: Content,
    },
    /// An open connection has ended.
    Closed {
        /// The id of the client.
        client: u64,
        /// The code in the server's close frame: 1005 if the frame has no code, and 1006 if no
        /// close frame arrived. If the server violated the protocol, the code that was sent to the
        /// server.
        code: u16,
        /// The reason in the server's close frame, or the problem that ended the connection.
        reason: String,
        /// Whether both sides sent a close frame.
        is_clean: bool,
    },
    /// No connection could be opened.
    Failed {
        /// The id of the client.
        client: u64,
        /// A description of the problem.
        message: String,
        /// The status of the server's response to the handshake, if the server rejected the
        /// handshake.
        status: Option<u16>,
    },
}

impl Content {
    /// Returns the bytes of the message.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Content::Text(text) => text.as_bytes(),
            Content::Binary(bytes) => bytes,
        }
    }

    /// Returns the number of bytes that the message counts in a queue.
    pub(crate) fn cost(&self) -> usize {
        self.as_bytes().len().saturating_add(MESSAGE_COST)
    }
}

impl Event {
    /// Returns the id of the client that the event belongs to.
    pub fn client(&self) -> u64 {
        match self {
            Event::Opened { client, .. }
            | Event::Message { client, .. }
            | Event::Closed { client, .. }
            | Event::Failed { client, .. } => *client,
        }
    }
}

/// The events of the clients in one group, in the order in which they occurred.
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

    /// Returns true if there is an event of a client for which `is_wanted` returns true.
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
