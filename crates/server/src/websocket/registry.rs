//! The open WebSockets of an I/O thread, by their ids.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Exchange, WebSocketId};

use super::context::WebSocketContext;
use super::handle::WebSocketHandle;
use super::handshake::Extensions;
use super::tunnel::Tunnel;

/// An open one.
#[derive(Debug, Clone)]
pub(crate) enum OpenWebSocket {
    /// The server speaks with its client.
    Local(Rc<WebSocketHandle>),
    /// Another process does.
    Tunneled(Rc<Tunnel>),
}

/// The open WebSockets of an I/O thread.
#[derive(Debug)]
pub(crate) struct WebSocketRegistry {
    pub(crate) shared: Rc<WebSocketContext>,
    open: RefCell<HashMap<WebSocketId, OpenWebSocket>>,
    /// Those that wait for the application to take messages.
    waiting: RefCell<Vec<Rc<WebSocketHandle>>>,
}

impl WebSocketRegistry {
    pub(crate) fn new(shared: Rc<WebSocketContext>) -> Rc<WebSocketRegistry> {
        Rc::new(WebSocketRegistry { shared, open: RefCell::default(), waiting: RefCell::default() })
    }

    /// Opens the WebSocket that an exchange has accepted; [`spawn`](super::driver::spawn) starts it.
    pub(crate) fn open(&self, exchange: &Exchange) {
        let open = match self.shared.dispatch.application.take_upstream(exchange.id()) {
            Some(upstream) => {
                OpenWebSocket::Tunneled(Tunnel::new(&self.shared, exchange, upstream))
            }
            None => OpenWebSocket::Local(WebSocketHandle::new(&self.shared, exchange)),
        };
        let before = self.open.borrow_mut().insert(exchange.id(), open);
        if let Some(board) = self.shared.dispatch.scoreboard.as_ref().filter(|_| before.is_none()) {
            board.open_session();
        }
    }

    /// An open one.
    pub(crate) fn get(&self, id: WebSocketId) -> Option<OpenWebSocket> {
        self.open.borrow().get(&id).cloned()
    }

    /// An open one with whose client the server speaks.
    pub(crate) fn local(&self, id: WebSocketId) -> Option<Rc<WebSocketHandle>> {
        match self.open.borrow().get(&id)? {
            OpenWebSocket::Local(handle) => Some(Rc::clone(handle)),
            OpenWebSocket::Tunneled(_) => None,
        }
    }

    /// What the handshake of one agreed on.
    pub(crate) fn extensions(&self, id: WebSocketId) -> Option<Extensions> {
        Some(match self.open.borrow().get(&id)? {
            OpenWebSocket::Local(handle) => handle.extensions(),
            OpenWebSocket::Tunneled(_) => Extensions::ByUpstream,
        })
    }

    /// Forgets one that has ended.
    pub(crate) fn remove(&self, id: WebSocketId) {
        let open = self.open.borrow_mut().remove(&id);
        if let Some(board) = self.shared.dispatch.scoreboard.as_ref().filter(|_| open.is_some()) {
            board.close_session();
        }
    }

    /// Wakes one when the application has taken messages.
    pub(super) fn wake_on_capacity(&self, handle: &Rc<WebSocketHandle>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| Rc::ptr_eq(other, handle)) {
            waiting.push(Rc::clone(handle));
        }
    }

    /// Wakes those of which the application takes messages again.
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
