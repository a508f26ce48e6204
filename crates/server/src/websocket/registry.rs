//! The registry of the open WebSockets of an I/O thread, by their ids.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Exchange, WebSocketId};

use super::context::WebSocketContext;
use super::handle::WebSocketHandle;
use super::handshake::Extensions;

/// The registry of the open WebSockets of an I/O thread.
#[derive(Debug)]
pub(crate) struct WebSocketRegistry {
    pub(crate) shared: Rc<WebSocketContext>,
    open: RefCell<HashMap<WebSocketId, Rc<WebSocketHandle>>>,
    /// The WebSockets that read nothing until the application has capacity for further messages.
    waiting: RefCell<Vec<Rc<WebSocketHandle>>>,
}

impl WebSocketRegistry {
    pub(crate) fn new(shared: Rc<WebSocketContext>) -> Rc<WebSocketRegistry> {
        Rc::new(WebSocketRegistry { shared, open: RefCell::default(), waiting: RefCell::default() })
    }

    /// Registers the WebSocket whose handshake the application has accepted.
    /// [`spawn`](super::driver::spawn) starts its task.
    pub(crate) fn open(&self, exchange: &Exchange) {
        let handle = WebSocketHandle::new(&self.shared, exchange);
        let before = self.open.borrow_mut().insert(exchange.id(), handle);
        if let Some(scoreboard) =
            self.shared.dispatch.scoreboard.as_ref().filter(|_| before.is_none())
        {
            scoreboard.open_session();
        }
    }

    /// Returns the open WebSocket with this id, if there is one.
    pub(crate) fn get(&self, id: WebSocketId) -> Option<Rc<WebSocketHandle>> {
        self.open.borrow().get(&id).cloned()
    }

    /// Returns the extensions that were negotiated in the handshake of the open WebSocket with this
    /// id.
    pub(crate) fn extensions(&self, id: WebSocketId) -> Option<Extensions> {
        Some(self.open.borrow().get(&id)?.extensions())
    }

    /// Removes a WebSocket that has ended from the registry.
    pub(crate) fn remove(&self, id: WebSocketId) {
        let open = self.open.borrow_mut().remove(&id);
        if let Some(scoreboard) =
            self.shared.dispatch.scoreboard.as_ref().filter(|_| open.is_some())
        {
            scoreboard.close_session();
        }
    }

    /// Registers a WebSocket that reads nothing because the application has no capacity for its
    /// messages. It is woken when the application has capacity again.
    pub(super) fn wake_on_capacity(&self, handle: &Rc<WebSocketHandle>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| Rc::ptr_eq(other, handle)) {
            waiting.push(Rc::clone(handle));
        }
    }

    /// If the application has capacity for messages again, wakes the WebSockets that wait for it.
    pub(crate) fn wake_waiting(&self) {
        let application = &self.shared.dispatch.application;
        if self.waiting.borrow().is_empty() || !application.poll_capacity() {
            return;
        }
        self.waiting.borrow_mut().retain(|handle| {
            let has_capacity = application.has_capacity_for(handle.id);
            if has_capacity {
                handle.wake();
            }
            !has_capacity
        });
    }
}
