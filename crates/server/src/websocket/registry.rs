//! The registry of the open WebSockets of an I/O thread, by their ids.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use rookery_exchange::{ById, Exchange, WebSocketId};

use super::context::WebSocketContext;
use super::handle::{WebSocketHandle, WebSocketState};
use super::handshake::Extensions;
use crate::connections::peers::Counted;

/// The registry of the open WebSockets of an I/O thread.
#[derive(Debug)]
pub(crate) struct WebSocketRegistry {
    pub(crate) shared: Rc<WebSocketContext>,
    open: RefCell<HashMap<WebSocketId, OpenWebSocket>>,
    /// The WebSockets of each network that read nothing until the application has capacity for
    /// further messages, in the order in which they are woken.
    waiting: RefCell<ById<Waiting>>,
}

/// The WebSockets of a network that wait for capacity.
type Waiting = VecDeque<Rc<WebSocketHandle>>;

/// The number of WebSockets of a network for which capacity is looked for at a time. The
/// application may have capacity for some peers of a network, and none for others.
const MAX_TRIED: usize = 16;

/// An open WebSocket, which counts towards the limit on the WebSockets of its peer.
#[derive(Debug)]
struct OpenWebSocket {
    handle: Rc<WebSocketHandle>,
    _counted: Option<Counted>,
}

impl WebSocketRegistry {
    pub(crate) fn new(shared: Rc<WebSocketContext>) -> Rc<WebSocketRegistry> {
        Rc::new(WebSocketRegistry { shared, open: RefCell::default(), waiting: RefCell::default() })
    }

    /// Registers the WebSocket whose handshake the application has accepted.
    /// [`spawn`](super::driver::spawn) starts its task.
    pub(crate) fn open(&self, exchange: &Exchange) {
        let handle = WebSocketHandle::new(&self.shared, exchange);
        // The limit was checked when the handshake began.
        let counted = self.shared.connections.peers.count_websocket(exchange.peer(), usize::MAX);
        let open = OpenWebSocket { handle, _counted: counted };
        let before = self.open.borrow_mut().insert(exchange.id(), open);
        if let Some(scoreboard) =
            self.shared.dispatch.scoreboard.as_ref().filter(|_| before.is_none())
        {
            scoreboard.open_session();
        }
    }

    /// Returns the open WebSocket with this id, if there is one.
    pub(crate) fn get(&self, id: WebSocketId) -> Option<Rc<WebSocketHandle>> {
        self.open.borrow().get(&id).map(|open| Rc::clone(&open.handle))
    }

    /// Returns the extensions that were negotiated in the handshake of the open WebSocket with this
    /// id.
    pub(crate) fn extensions(&self, id: WebSocketId) -> Option<Extensions> {
        Some(self.open.borrow().get(&id)?.handle.extensions())
    }

    /// Removes a WebSocket that has ended from the registry.
    pub(crate) fn remove(&self, id: WebSocketId) {
        let open = self.open.borrow_mut().remove(&id);
        if let Some(open) = &open {
            self.wake_next_after(&open.handle);
        }
        if let Some(scoreboard) =
            self.shared.dispatch.scoreboard.as_ref().filter(|_| open.is_some())
        {
            scoreboard.close_session();
        }
    }

    /// Registers a WebSocket that reads nothing because the application has no capacity for its
    /// messages. It is woken when the application has capacity again.
    pub(super) fn wake_on_capacity(&self, handle: &Rc<WebSocketHandle>) {
        if !handle.waits_for_capacity.replace(true) {
            let mut waiting = self.waiting.borrow_mut();
            waiting.entry(handle.peer.network()).or_default().push_back(Rc::clone(handle));
        }
    }

    /// Wakes one of the WebSockets of each network that wait for capacity, if the application has
    /// capacity for its messages again. It [wakes the next one](Self::wake_next_after).
    pub(crate) fn wake_waiting(&self) {
        self.waiting.borrow_mut().retain(|_, waiting| {
            wake_one(waiting);
            !waiting.is_empty()
        });
    }

    /// Wakes the next WebSocket of a network if `handle` was woken before it, and has read what
    /// there was. If all of them were woken at once, each message that the application takes would
    /// cost a poll of each.
    pub(super) fn wake_next_after(&self, handle: &WebSocketHandle) {
        if handle.wakes_next.replace(false) {
            let network = handle.peer.network();
            let mut waiting = self.waiting.borrow_mut();
            if let Some(of_network) = waiting.get_mut(&network) {
                wake_one(of_network);
                if of_network.is_empty() {
                    waiting.remove(&network);
                }
            }
        }
    }
}

/// Wakes the first WebSocket for whose messages the application has capacity.
fn wake_one(waiting: &mut Waiting) {
    let mut tries = waiting.len().min(MAX_TRIED);
    while tries > 0 {
        let Some(handle) = waiting.pop_front() else { return };
        if handle.state() == WebSocketState::Closed {
            continue;
        }
        tries -= 1;
        if handle.has_capacity() {
            handle.waits_for_capacity.set(false);
            handle.wakes_next.set(true);
            return handle.wake();
        }
        waiting.push_back(handle);
    }
}
