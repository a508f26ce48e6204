//! The open WebSockets of an I/O thread, by their ids.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Exchange, SocketId};

use super::handshake::Extensions;
use super::mailbox::Mailbox;
use super::relay::Relay;
use super::shared::Shared;

/// An open one.
#[derive(Debug, Clone)]
pub(crate) enum Open {
    /// The server speaks with its client.
    Here(Rc<Mailbox>),
    /// Another process does.
    Elsewhere(Rc<Relay>),
}

/// The open WebSockets of an I/O thread.
#[derive(Debug)]
pub(crate) struct WebSockets {
    pub(crate) shared: Rc<Shared>,
    open: RefCell<HashMap<SocketId, Open>>,
    /// Those that wait for the application to take messages.
    waiting: RefCell<Vec<Rc<Mailbox>>>,
}

impl WebSockets {
    pub(crate) fn new(shared: Rc<Shared>) -> Rc<WebSockets> {
        Rc::new(WebSockets { shared, open: RefCell::default(), waiting: RefCell::default() })
    }

    /// Opens the WebSocket that an exchange has accepted; [`spawn`](super::driver::spawn) starts it.
    pub(crate) fn open(&self, exchange: &Exchange) {
        let open = match self.shared.dispatch.application.far_end(exchange.id()) {
            Some(far) => Open::Elsewhere(Relay::new(&self.shared, exchange, far)),
            None => Open::Here(Mailbox::new(&self.shared, exchange)),
        };
        let before = self.open.borrow_mut().insert(exchange.id(), open);
        if let Some(board) = self.shared.dispatch.scoreboard.as_ref().filter(|_| before.is_none()) {
            board.open_session();
        }
    }

    /// An open one.
    pub(crate) fn get(&self, id: SocketId) -> Option<Open> {
        self.open.borrow().get(&id).cloned()
    }

    /// An open one with whose client the server speaks.
    pub(crate) fn mailbox(&self, id: SocketId) -> Option<Rc<Mailbox>> {
        match self.open.borrow().get(&id)? {
            Open::Here(mailbox) => Some(Rc::clone(mailbox)),
            Open::Elsewhere(_) => None,
        }
    }

    /// What the handshake of one agreed on.
    pub(crate) fn extensions(&self, id: SocketId) -> Option<Extensions> {
        Some(match self.open.borrow().get(&id)? {
            Open::Here(mailbox) => mailbox.extensions(),
            Open::Elsewhere(_) => Extensions::Theirs,
        })
    }

    /// Forgets one that has ended.
    pub(crate) fn forget(&self, id: SocketId) {
        let open = self.open.borrow_mut().remove(&id);
        if let Some(board) = self.shared.dispatch.scoreboard.as_ref().filter(|_| open.is_some()) {
            board.close_session();
        }
    }

    /// Wakes one when the application has taken messages.
    pub(super) fn await_room(&self, mailbox: &Rc<Mailbox>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| Rc::ptr_eq(other, mailbox)) {
            waiting.push(Rc::clone(mailbox));
        }
    }

    /// Wakes those of which the application takes messages again.
    pub(crate) fn wake_waiting(&self) {
        let application = &self.shared.dispatch.application;
        if self.waiting.borrow().is_empty() || !application.has_room() {
            return;
        }
        self.waiting.borrow_mut().retain(|mailbox| {
            let has_room = application.has_room_of(mailbox.id);
            if has_room {
                mailbox.wake();
            }
            !has_room
        });
    }
}
