//! The open WebSockets of an I/O thread, by their ids.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Exchange, WebSocketId};

use super::context::WebSocketContext;
use super::handle::WebSocketHandle;
use super::handshake::Extensions;
use super::tunnel::Tunnel;

/// An open WebSocket.
#[derive(Debug, Clone)]
pub(crate) enum OpenWebSocket {
    /// A WebSocket whose protocol the server itself handles.
    Local(Rc<WebSocketHandle>),
    /// A WebSocket whose bytes are forwarded to an upstream process.
    Tunneled(Rc<Tunnel>),
}

/// The open WebSockets of an I/O thread.
#[derive(Debug)]
pub(crate) struct WebSocketRegistry {
    pub(crate) shared: Rc<WebSocketContext>,
    open: RefCell<HashMap<WebSocketId, OpenWebSocket>>,
    /// The WebSockets that wait until the application has capacity for messages.
    waiting: RefCell<Vec<Rc<WebSocketHandle>>>,
}

impl WebSocketRegistry {
    pub(crate) fn new(shared: Rc<WebSocketContext>) -> Rc<WebSocketRegistry> {
        Rc::new(WebSocketRegistry { shared, open: RefCell::default(), waiting: RefCell::default() })
    }

    /// Registers the WebSocket that the application has accepted. [`spawn`](super::driver::spawn)
    /// starts its task.
    pub(crate) fn open(&self, exchange: &Exchange) {
        let open = match self.shared.dispatch.application.take_upstream(exchange.id()) {
            Some(upstream) => {
                OpenWebSocket::Tunneled(Tunnel::new(&self.shared, exchange, upstream))
            }
            None => OpenWebSocket::Local(WebSocketHandle::new(&self.shared, exchange)),
        };
        let before = self.open.borrow_mut().insert(exchange.id(), open);
        if let Some(scoreboard) =
            self.shared.dispatch.scoreboard.as_ref().filter(|_| before.is_none())
        {
            scoreboard.open_session();
        }
    }

    /// Returns an open WebSocket.
    pub(crate) fn get(&self, id: WebSocketId) -> Option<OpenWebSocket> {
        self.open.borrow().get(&id).cloned()
    }

    /// Returns the handle of an open WebSocket, unless it is forwarded.
    pub(crate) fn local(&self, id: WebSocketId) -> Option<Rc<WebSocketHandle>> {
        match self.open.borrow().get(&id)? {
            OpenWebSocket::Local(handle) => Some(Rc::clone(handle)),
            OpenWebSocket::Tunneled(_) => None,
        }
    }

    /// Returns the extensions negotiated in the handshake of an open WebSocket.
    pub(crate) fn extensions(&self, id: WebSocketId) -> Option<Extensions> {
        Some(match self.open.borrow().get(&id)? {
            OpenWebSocket::Local(handle) => handle.extensions(),
            OpenWebSocket::Tunneled(_) => Extensions::ByUpstream,
        })
    }

    /// Removes a WebSocket that has ended.
    pub(crate) fn remove(&self, id: WebSocketId) {
        let open = self.open.borrow_mut().remove(&id);
        if let Some(scoreboard) =
            self.shared.dispatch.scoreboard.as_ref().filter(|_| open.is_some())
        {
            scoreboard.close_session();
        }
    }

    /// Registers a WebSocket to be woken when the application has capacity for messages.
    pub(super) fn wake_on_capacity(&self, handle: &Rc<WebSocketHandle>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| Rc::ptr_eq(other, handle)) {
            waiting.push(Rc::clone(handle));
        }
    }

    /// Wakes the waiting WebSockets for which the application has capacity again.
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
