//! What happens to clients, on its way to the application.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a message counts beside its bytes: a million empty ones are not nothing.
const MESSAGE_COST: usize = 64;

/// Tells the application that there are events of a group. Called on the clients' thread, possibly
/// many times for one event.
pub type Wake = Box<dyn Fn(u32) + Send + Sync>;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// UTF-8.
    Text(String),
    /// Any bytes.
    Binary(Vec<u8>),
}

/// What happened to a client. One that was opened ends with exactly one `Closed` or `Failed`, and nothing follows that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is done.
    Opened {
        /// Which one.
        client: u64,
        /// The subprotocol that the server chose.
        protocol: Option<String>,
    },
    /// A message has come.
    Message {
        /// Whose.
        client: u64,
        /// What.
        content: Content,
    },
    /// An open connection has ended.
    Closed {
        /// Which one.
        client: u64,
        /// The code of the server's close frame; 1005 for one without, 1006 where none came. Where the server broke the protocol,
        /// the code that it was told.
        code: u16,
        /// The reason that the server gave, or what went wrong.
        reason: String,
        /// Whether both sides sent a close frame.
        is_clean: bool,
    },
    /// There is no connection.
    Failed {
        /// Which one.
        client: u64,
        /// Why.
        message: String,
        /// The status with which the server answered the handshake, if it answered otherwise than it should.
        status: Option<u16>,
    },
}

impl Content {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Content::Text(text) => text.as_bytes(),
            Content::Binary(bytes) => bytes,
        }
    }

    /// What it counts in a queue.
    pub(crate) fn cost(&self) -> usize {
        self.as_bytes().len().saturating_add(MESSAGE_COST)
    }
}

impl Event {
    /// Whose it is.
    pub fn client(&self) -> u64 {
        match self {
            Event::Opened { client, .. }
            | Event::Message { client, .. }
            | Event::Closed { client, .. }
            | Event::Failed { client, .. } => *client,
        }
    }
}

/// The events of the clients of one group, in the order they came.
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

    /// Returns whether there is an event of a client that `is_wanted`.
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
